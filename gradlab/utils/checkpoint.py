"""Trading time for memory: `checkpoint` forgets what a part of the forward kept and computes it again in backward.

The part runs under `saved_tensors_hooks` that keep a number in place of each tensor. When backward unpacks the first of them, the part is
run again, and what it keeps this time is handed out by number. So everything works that works without: any function of tensors and
anything else, several outputs, nesting, higher derivatives, `autograd.grad`, a second backward through a retained graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from gradlab import call_site, dispatch
from gradlab.autograd.base import Differentiable
from gradlab.autograd.graph import saved_tensors_hooks
from gradlab.autograd.mode import current, enter, leave, recomputing
from gradlab.autograd.node import edge_to
from gradlab.autograd.saved import Held, Kept
from gradlab.autograd.walk import walk_now
from gradlab.tensor.generator import default_generator

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "set_checkpoint_early_stop"]

_early_stop: ContextVar[bool | None] = ContextVar("gradlab_checkpoint_early_stop", default=None)


class CheckpointError(RuntimeError):
    """A checkpointed function did not do in backward what it did in forward."""


class _Stop(BaseException):
    """All that backward needs has been computed again: the rest of the function need not run."""


class _Handle:
    """Stands for the tensor that the function kept as its number `index`."""

    __slots__ = ("__weakref__", "index")

    def __init__(self, index: int) -> None:
        self.index = index


class _Log:
    """With debug=True, the operations that ran, as an observer (see Mode)."""

    node: Any = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, op: Any, inputs: Sequence[Any], result: Any, params: Any) -> None:
        shapes = ", ".join(str(x.shape) if isinstance(x, Differentiable) else repr(x) for x in inputs)  # type: ignore[attr-defined]
        self.lines.append(f"{op.name}({shapes})")


def _facts(tensor: Any) -> tuple[Any, ...]:
    array = tensor._array
    return array.shape, array.dtype.name, str(dispatch.backend_of(array).device_of(array))


def _random_place() -> Any:
    """Where the default generator is; in a trace, how far the program has drawn from it."""
    tracer = current().tracer
    return (default_generator._seed, default_generator._offset) if tracer is None else tracer.random_words(default_generator)


def _set_random_place(place: Any) -> None:
    tracer = current().tracer
    if tracer is None:
        default_generator._seed, default_generator._offset = place
    else:
        tracer.rewind_random(default_generator, place)


class _Frame:
    """One checkpointed call: how to run it again, and what of the second run is still to be handed out."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> None:
        self.function, self.kwargs, self.options = function, kwargs, options
        mode = current()
        self.scope, self.autocast = mode.scope, mode.autocast
        self.code, self.lasti = call_site.caller()
        hooks = mode.saved_hooks  # of a checkpoint around this one, which will compute the arguments again when they are needed
        self.args = [self._kept(x, hooks) if isinstance(x, Differentiable) else x for x in args]
        self.place = _random_place() if options["preserve_rng_state"] else None
        self.handles: list[weakref.ref[_Handle]] = []
        self.facts: list[tuple[Any, ...]] = []
        self.complete = False
        self.found: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()  # backward -> index -> tensor
        self.log: _Log | None = None

    @staticmethod
    def _kept(tensor: Any, hooks: Any) -> Any:
        return Kept(tensor, edge_to(tensor)) if hooks is None else Held(hooks, tensor, edge_to(tensor))

    def name(self) -> str:
        """For the error about an argument that was changed in place."""
        return "checkpoint"

    @property
    def forward_position(self) -> Any:
        return call_site.locate(self.code, self.lasti, self.scope)

    def pack(self, tensor: Any) -> _Handle:
        """In the forward: remember only what kind of tensor this was."""
        handle = _Handle(len(self.handles))
        self.handles.append(weakref.ref(handle))
        self.facts.append(_facts(tensor))
        return handle

    def unpack(self, handle: _Handle) -> Any:
        """In backward: the tensor, after running the function again if this backward has not done so yet."""
        walk = walk_now.get()
        found: dict[int, Any] = {} if walk is None else self.found.setdefault(walk, {})
        if handle.index not in found:
            self.recompute(found, handle.index if found else None)
        return found.pop(handle.index)

    def recompute(self, found: dict[int, Any], only: int | None) -> None:
        """Run the function again and put what it keeps into `found` (only one number, if the others were fetched before)."""
        seen = 0

        def pack(tensor: Any) -> Any:
            nonlocal seen
            index, seen = seen, seen + 1
            if index >= len(self.handles):
                if not self.complete:  # the function itself differentiates something: its forward is still running
                    return tensor
                raise self.failure(f"{index + 1} or more tensors were kept when it was run again, {len(self.handles)} the first time", log)
            if self.options["determinism_check"] == "default" and _facts(tensor) != self.facts[index]:
                shape, dtype, device = self.facts[index]
                new_shape, new_dtype, new_device = _facts(tensor)
                raise self.failure(
                    f"tensor {index} that backward needs had shape {shape}, {dtype} on {device} the first time, "
                    f"and shape {new_shape}, {new_dtype} on {new_device} when it was run again",
                    log,
                )
            if index == only or (only is None and self.handles[index]() is not None):
                found[index] = tensor
            if self.complete and seen == len(self.handles) and self.options["early_stop"]:
                raise _Stop
            return tensor

        mode, after = current(), _random_place()
        log = _Log() if self.log is not None and mode.observer is None else None
        again = mode.replace(
            recording=True, walking=False, inference=False, scope=self.scope, autocast=self.autocast,
            observer=mode.observer if log is None else log, saved_hooks=(pack, lambda tensor: tensor),
        )  # fmt: skip
        token, counted = enter(again), recomputing.set(True)
        try:
            if self.place is not None:
                _set_random_place(self.place)
            with self.options["contexts"][1]:
                self.function(*[x.tensor(self) if isinstance(x, (Held, Kept)) else x for x in self.args], **self.kwargs)
        except _Stop:
            return
        finally:
            recomputing.reset(counted)
            leave(token)
            if self.place is not None:
                _set_random_place(after)
        if self.complete and seen != len(self.handles):
            raise self.failure(f"{seen} tensors were kept when it was run again, {len(self.handles)} the first time", log)

    def failure(self, what: str, log: _Log | None) -> CheckpointError:
        place = self.forward_position
        text = (
            f"checkpoint: the function did not do the same in backward as in forward: {what}. It has to depend on nothing that changes in "
            f"between: no counters, no global state, no random numbers but the default generator's (with preserve_rng_state=True)"
        )
        if place is not None:
            text += f"\n  checkpoint called at: {place}"
        if self.log is None:
            return CheckpointError(f"{text}. Pass debug=True to see the operations of both runs")
        for title, lines in (("the first time", self.log.lines), ("when run again", log.lines if log is not None else [])):
            text += f"\n  operations {title}:\n    " + "\n    ".join(lines)
        return CheckpointError(text)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, keeping none of the values in between for backward: they are computed again when it needs them.

    function: runs twice, so it must do the same both times; what it writes in place outside itself (running statistics of a batch norm)
        it writes twice. The random state and autocast are restored for the second time.
    use_reentrant: of PyTorch's two ways, this is the one without re-entry, whatever is given; gradients are the same.
    context_fn: returns two context managers, for the first run and for the second.
    determinism_check: "default" compares shape, dtype and device of what is kept in both runs, "none" does not.
    debug: list the operations of both runs in the error when they differ. early_stop: stop the second run as soon as possible.
    preserve_rng_state: False saves the little time it takes, for a function without random numbers.
    Raises CheckpointError, from backward, where the second run differs.

    >>> import gradlab as gl
    >>> x = gl.ones(3, requires_grad=True)
    >>> gl.utils.checkpoint.checkpoint(lambda x: x.exp().sin().sum(), x).backward()
    >>> x.grad.shape
    (3,)
    """
    if determinism_check not in {"default", "none"}:
        raise ValueError(f"checkpoint: determinism_check is 'default' or 'none', not {determinism_check!r}")
    if not callable(function):
        raise TypeError(f"checkpoint: the first argument is a function or a module, not {type(function).__name__}")
    contexts = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
    chosen = _early_stop.get()
    if not current().recording:
        with contexts[0]:
            return function(*args, **kwargs)
    frame = _Frame(
        function, args, kwargs, contexts=contexts, determinism_check=determinism_check, preserve_rng_state=preserve_rng_state,
        early_stop=early_stop if chosen is None else chosen,
    )  # fmt: skip
    with saved_tensors_hooks(frame.pack, frame.unpack), contexts[0]:
        mode = current()
        if debug and mode.observer is None:
            frame.log = _Log()
            token = enter(mode.replace(observer=frame.log))
            try:
                result = function(*args, **kwargs)
            finally:
                leave(token)
        else:
            result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """Run modules or functions one after the other, in `segments` parts, each but the last under `checkpoint`.

    functions: an nn.Sequential or a list. `preserve_rng_state` may be given as well.

    >>> import gradlab as gl
    >>> layers = [gl.nn.Linear(4, 4) for _ in range(6)]
    >>> gl.utils.checkpoint.checkpoint_sequential(layers, 3, gl.ones(2, 4)).shape
    (2, 4)
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"checkpoint_sequential: unexpected keyword arguments {', '.join(kwargs)}")
    steps = list(functions)
    if not 1 <= segments <= len(steps):
        raise ValueError(f"checkpoint_sequential: {segments} segments of {len(steps)} functions; give 1 to {len(steps)}")
    size = len(steps) // segments

    def part(first: int, last: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in steps[first:last]:
                x = step(x)
            return x

        return run

    for i in range(segments - 1):
        input = checkpoint(part(i * size, (i + 1) * size), input, preserve_rng_state=preserve)
    return part((segments - 1) * size, len(steps))(input)


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within the block, checkpoints stop their second run as soon as possible, or run their function to its end."""
    token = _early_stop.set(enable)
    try:
        yield
    finally:
        _early_stop.reset(token)
