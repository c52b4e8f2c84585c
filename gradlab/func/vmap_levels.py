"""The levels of `vmap`: how a row runs when some of its inputs hold a whole batch.

A tensor inside a vmapped function holds a `Batched` in place of an array: a tensor of one level lower, with the batch in front. A row on
such tensors runs on those lower tensors by its batch rule, in the mode in which vmap was called. So gradients that were asked for outside
the vmap are recorded there, below, while those asked for inside are recorded above, on the Batched tensors; the two graphs never meet, and
vmap of grad, grad of vmap and vmap of vmap need no special case. Nothing here looks at values, so a trace runs through it.
"""

from __future__ import annotations

import warnings
from typing import Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.record import bind, wrap
from gradlab.batched import Batched
from gradlab.dispatch import backend_of, register
from gradlab.op import Op
from gradlab.ops.batching import attach, rule_of
from gradlab.tensor.generator import draw

attach(ops.ROWS)
_cat = bind(ops.movement.cat)
_warned: set[str] = set()
EACH_ITS_OWN = ("random_permutation", "multinomial")  # random rows that cannot make several samples at once


def is_batched(tensor: Any) -> bool:
    """Whether a tensor is inside some vmap and may differ from sample to sample."""
    return isinstance(tensor, Differentiable) and type(tensor._array) is Batched


def depth_now() -> int:
    """How many levels of vmap are around."""
    level = current().vmap
    return 0 if level is None else level.depth


class Level:
    """One call of vmap: the batch's size, what randomness means in it, and the mode around it."""

    def __init__(self, size: int, randomness: str) -> None:
        mode = current()
        self.size, self.randomness = size, randomness
        self.depth = 1 if mode.vmap is None else mode.vmap.depth + 1
        self.outer = mode
        self._still = mode.replace(recording=False)
        self.open = True

    def below(self, mode: Mode) -> Mode:
        """The mode in which the lower tensors compute. A walk or a no_grad of inside stops their recording only if it is meant for them."""
        if not self.outer.recording or mode.recording or (mode.walking and self.depth - 1 < mode.floor):
            return self.outer
        return self._still

    def run(self, op: Op, inputs: list[Any], params: dict[str, Any], mode: Mode) -> tuple[list[Any], Any] | None:
        """Run a row if an input is batched: the inputs as they are recorded, and the result's array or arrays. None if there is none."""
        level: Level | None = None
        for x in inputs:
            array = getattr(x, "_array", None)
            if type(array) is Batched and (level is None or array.level.depth > level.depth):
                level = array.level
        if level is None:
            return None
        if not level.open:
            raise escaped()
        token = enter(level.below(mode))
        try:
            values, mapped, seen, unit = [], [], [], None
            for x in inputs:
                array = getattr(x, "_array", None)
                if type(array) is Batched and array.level is level:
                    values.append(array.value)
                    mapped.append(array.mapped)
                    unit = array.unit or unit
                else:
                    values.append(x)
                    mapped.append(False)
                    if array is not None and x._edge is not None:  # its graph is one of outside: inside it has none
                        lifted = Batched(x, level, False)
                        x = wrap(lifted)
                seen.append(x)
            found, batched = level._compute(op, values, mapped, params, unit)
        finally:
            leave(token)
        if op.result is None:
            return seen, Batched(found, level, batched)
        return seen, tuple(Batched(y, level, batched) for y in found)

    def _compute(self, op: Op, values: list[Any], mapped: list[bool], params: dict[str, Any], unit: int | None) -> tuple[Any, bool]:
        """The row on the lower tensors, and whether the batch is in front of what it gives."""
        if op.name == "to_device":
            return values[0].to(params["device"]), mapped[0]
        if "state" in op.inputs:
            return self._random(op, values, mapped, params, unit)
        if not any(mapped):
            return bind(op)(*values, **params), False
        if op.dynamic:
            raise RuntimeError(
                f"vmap: the size of what {op.name} gives depends on the values, so it would differ from sample to sample; use {op.instead}"
            )
        bind(op)
        rule = rule_of(op)
        found = None if rule is None else rule(op, self.size, mapped, values, params)
        if found is None:
            _warn(op.name)
            found = self._one_by_one(op, values, mapped, [params] * self.size)
        return found, True

    def _random(self, op: Op, values: list[Any], mapped: list[bool], params: dict[str, Any], unit: int | None) -> tuple[Any, bool]:
        """Random rows: `unit` says that each sample has its own part of the stream; otherwise all see the same numbers."""
        bind(op)
        if unit is None:
            if not any(mapped):
                return bind(op)(*values, **params), False
            return self._one_by_one(op, values, mapped, [params] * self.size), True
        if op.name in EACH_ITS_OWN:
            each = [{**params, "offset": params["offset"] + i * unit} for i in range(self.size)]
            return self._one_by_one(op, values, mapped, each), True
        changed = {**params, "shape": (self.size, *params["shape"])} if "shape" in params else params
        state = op.inputs.index("state")
        wanted = max([len(v.shape) - m for i, (v, m) in enumerate(zip(values, mapped, strict=True)) if i != state], default=0)
        ready = []
        for i, (v, m) in enumerate(zip(values, mapped, strict=True)):
            if i != state:
                v = v.reshape((self.size if m else 1, *(1,) * (wanted - len(v.shape) + m), *v.shape[m:]))
                v = v.expand((self.size, *v.shape[1:]))
            ready.append(v)
        return bind(op)(*ready, **changed), True

    def _one_by_one(self, op: Op, values: list[Any], mapped: list[bool], params: list[dict[str, Any]]) -> Any:
        """The row on each sample, and the results as a batch."""
        if not self.size:
            raise ValueError(f"vmap: {op.name} takes the samples one by one, but the batch has none")
        each = [
            bind(op)(*[v.select(0, i) if m else v for v, m in zip(values, mapped, strict=True)], **given) for i, given in enumerate(params)
        ]
        if op.result is None:
            return together(each)
        return tuple(together(list(ys)) for ys in zip(*each, strict=True))

    def draw(self, generator: Any, words: int, device: Any) -> tuple[Any, int]:
        """`draw` of random words inside this level: for all samples the same, or for each its own. Raises RuntimeError for "error"."""
        if self.randomness == "error":
            raise RuntimeError(
                'vmap: a random operation was called with randomness="error" (the default); pass randomness="different" to vmap for '
                'numbers of each sample\'s own, or "same" for the same numbers in every sample'
            )
        different = self.randomness == "different"
        unit = max(-(-words // 4) * 4, 4)
        token = enter(self.outer)
        try:
            state, offset = draw(generator, unit * self.size if different else words, device)
        finally:
            leave(token)
        return (wrap(Batched(state, self, False, unit)) if different else state), offset


def together(tensors: list[Any]) -> Any:
    """Tensors of one shape along a new first dimension."""
    return _cat(*[t.unsqueeze(0) for t in tensors], dim=0)


def _warn(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"vmap: {name} has no rule for a batch, so its samples are computed one by one, which is slow", UserWarning, stacklevel=2
        )


def escaped() -> RuntimeError:
    """The error for a tensor of a vmap that is over."""
    return RuntimeError("vmap: a tensor from inside a vmapped function was used after the function had returned; return it instead")


def unreadable(batched: Batched) -> RuntimeError:
    """The error for looking at one value where each sample has its own."""
    return RuntimeError(
        f"vmap: a value was read (bool(), item(), tolist(), numpy(), an `if` on a tensor) inside a vmapped function, where this tensor "
        f"(shape {batched.shape}) has a value for each of {batched.level.size} samples. Write decisions as tensor operations: "
        f"gl.where(condition, a, b) in place of `if`, masks in place of indices that depend on values"
    )


class BatchedBackend:
    """Stands for all levels in the dispatch table. Rows are run by the level of the current mode, never by this."""

    staged = True

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        raise RuntimeError(
            f"{op.name}: a tensor from inside vmap met code that runs on plain arrays: a program traced or compiled before, or the vmapped "
            f"function is over; trace or compile the vmapped function instead, and return what is needed outside"
        )

    def device_of(self, array: Batched) -> Any:
        return array.value.device

    def to_numpy(self, array: Batched) -> Any:
        if not array.mapped and array.level.open:
            return backend_of(array.value._array).to_numpy(array.value._array)
        raise unreadable(array)

    def from_numpy(self, array: Any, device: Any) -> Any:
        return array

    def address(self, array: Batched) -> Any:
        raise unreadable(array)

    def copy(self, array: Batched) -> Any:
        return array

    def assign(self, target: Any, source: Any) -> None:
        raise RuntimeError("vmap: a value of each sample does not fit into one shared tensor")


register(Batched, BatchedBackend())
