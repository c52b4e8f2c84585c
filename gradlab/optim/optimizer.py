"""The base of all optimizers: parameter groups, state, hooks, and the way one row updates one parameter."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.hooks import RemovableHandle, add_hook
from gradlab.autograd.inplace import write
from gradlab.autograd.mode import current, enable_grad, enter, leave, no_grad
from gradlab.autograd.record import bind, wrap
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING
from gradlab.op import Op
from gradlab.optim import advice
from gradlab.optim.hyper import hypers
from gradlab.optim.minimizing import Minimizing
from gradlab.optim.together import Known, Queued, note_writes
from gradlab.tensor import Tensor
from gradlab.tensor.choice import where

Group = dict[str, Any]


class _Required:
    """Marks a hyper-parameter without default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks of its optimizer before and after."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for before in list(self._pre_hooks.values()):
            changed = before(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"a step pre-hook returns None or a tuple (args, kwargs), not {changed!r}")
                args, kwargs = changed
        result = step(self, *args, **kwargs)
        self._stepped = True
        self._steps = steps = self._steps + 1
        if steps <= advice.FIRST or not steps & 63 or not steps & (steps - 1):
            advice.look(self, steps)
        for after in list(self._post_hooks.values()):
            after(self, args, kwargs)
        return result

    return wrapped


class Optimizer(Minimizing):
    """Base class. A subclass gives `step`.

    params: an iterable of tensors, of (name, tensor) pairs, or of dicts (groups) with "params" and hyper-parameters of their own.
    defaults: hyper-parameters of groups that do not give them.
    Raises TypeError or ValueError for an empty list, things that are not leaf tensors, a parameter in two groups.
    """

    decisive: tuple[str, ...] = ()  # hyper-parameters that say, by being 0 or not, what a step does
    _steps = 0
    _watch: Any = None  # what advice.look knows of earlier steps

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got one tensor; put it into a list"
            )
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._pre_hooks: dict[int, Any] = {}
        self._post_hooks: dict[int, Any] = {}
        self._written: list[Tensor] = []  # changed in place by the step under way
        self._queue: dict[Any, Queued] = {}  # updates of the group under way that are done together
        self._queued: set[int] = set()  # the parameters there, by id
        self._known = Known()
        self._stepped = False  # read by learning rate schedulers
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # ------------------------------------------------------------ groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with hyper-parameters of their own, for example when layers are unfrozen during training."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, (set, frozenset)):
            raise TypeError("optimizer parameters need to be in an ordered collection, but a set has no order; use a list")
        group["params"] = self._named(group, list(params))
        for param in group["params"]:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is a {type(param).__name__}")
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor: it is computed from others, and they are what is to be optimized")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        if len({id(p) for p in group["params"]}) != len(group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; such a parameter is updated twice in a step", stacklevel=3
            )
        known = {id(p) for other in self.param_groups for p in other["params"]}
        if not known.isdisjoint(id(p) for p in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def _named(self, group: Group, params: list[Any]) -> list[Any]:
        """Split (name, tensor) pairs; all parameters have names, or none has."""
        named = [isinstance(p, tuple) for p in params]
        if any(named) and not all(named):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        if self.param_groups and params and any(named) != ("param_names" in self.param_groups[0]):
            what = "with names" if any(named) else "without names"
            raise ValueError(
                f"all optimizer param groups should be with/without names. cannot add param group {what} to the optimizer"
            )
        if any(named):
            group["param_names"] = [name for name, _ in params]
            return [p for _, p in params]
        return params

    # ------------------------------------------------------------ stepping

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or, with set_to_none=False, fill them with zeros)."""
        traced = current().tracer is not None
        for group in self.param_groups:
            for p in group["params"]:
                if p._grad is None:
                    continue
                if set_to_none:
                    if traced:
                        p.grad = None
                    else:
                        p._grad = None
                else:
                    with no_grad():
                        if p.grad.grad_fn is not None:
                            p.grad = p.grad.detach()
                        else:
                            p.grad.requires_grad_(False)
                        p.grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        raise NotImplementedError(f"{type(self).__name__} has no step(); a subclass of Optimizer defines it")

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new (args, kwargs)."""
        return add_hook(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return add_hook(self._post_hooks, hook)

    # ------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters by number. Tensors are copies: later steps do not change what was saved."""
        numbers: OrderedDict[int, int] = OrderedDict()
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
        groups = [
            {**{k: _copied(v) for k, v in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: _copied(v) for k, v in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`: tensors are copied, in their parameter's dtype and on its device.

        Raises ValueError where groups or their sizes do not match; the optimizer is then as it was.
        """
        for key in ("state", "param_groups"):
            if key not in state_dict:
                raise KeyError(f"an optimizer's state dict has {key!r}; this one has {sorted(map(str, state_dict))}")
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, this optimizer has {len(self.param_groups)}"
            )
        params: dict[Any, Any] = {}
        groups = []
        for i, (old, new) in enumerate(zip(self.param_groups, saved, strict=True)):
            if len(old["params"]) != len(new["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"group {i} has {len(new['params'])} parameters there, {len(old['params'])} here"
                )
            params.update(zip(new["params"], old["params"], strict=True))
            group = {k: _copied(v) for k, v in new.items() if k != "params"}
            groups.append({**{k: v for k, v in old.items() if k == "param_names"}, **group, "params": old["params"]})
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            param = params.get(key)
            state[key if param is None else param] = _copied(value) if param is None else _fitted(param, value)
        self.state, self.param_groups = state, groups


def _copied(value: Any) -> Any:
    """A copy that shares no tensor with `value`."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _fitted(param: Tensor, value: dict[str, Any]) -> dict[str, Any]:
    """One parameter's state, copied; the elementwise buffers get the parameter's dtype, 0-d counters keep theirs."""
    found = {}
    for key, v in value.items():
        if isinstance(v, Tensor):
            v = v.detach()
            if key != "step" and v.shape == param.shape and param.is_floating_point():
                v = v.to(param.dtype)
            found[key] = v.to(param.device).clone()
        else:
            found[key] = _copied(v)
    return found


def counter(p: Tensor, value: float = 0) -> Tensor:
    """A 0-d number on the parameter's device: counted steps and the like, which a static program keeps as state."""
    return p.new_full((), value, dtype=FLOAT32)


class RowOptimizer(Optimizer):
    """An optimizer whose update of one parameter is one row: `advance` names the row, the buffers and the hyper-parameters."""

    def advance(self, group: Group, p: Tensor, g: Tensor, h: Tensor) -> None:
        """Update one parameter and its state."""
        raise NotImplementedError

    found_inf: Any = None  # while a GradScaler steps on a GPU: a truth value there; where it holds, the step is to change nothing
    live: tuple[Any, ...] = ()  # the hyper-parameters that rows read, in the order of `h`: names, or (name, index)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; parameters without one are left alone.

        closure: recomputes the loss (and gradients) and returns it; its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        token = enter(current().quiet())
        try:
            for group in self.param_groups:
                h = None
                for p in group["params"]:
                    g = p._grad
                    if g is not None:
                        if h is None:
                            h = hypers(group, self.live)
                        self.advance(group, p, g, h)
                if self._queue:
                    self._flush()
        finally:
            leave(token)
            self._queue.clear()
            self._queued.clear()
            if self._written:
                note_writes(self._written)
        return loss

    def run(self, row: Op, p: Tensor, g: Tensor, state: dict[str, Any], names: tuple[str, ...], h: Tensor, **params: Any) -> None:
        """Run an update row and store what it gives: the parameter, and the buffers `names` of `state`, which the row takes in this order.

        Eager on the CPU the row writes into its own inputs, and so it does on a GPU, there for all parameters of the group at once.
        Everywhere else it is an ordinary functional call, written back in place.
        """
        array, gradient = p._array, g._array
        if (
            type(array) is np.ndarray
            and type(gradient) is np.ndarray
            and ((dtype := array.dtype) is FLOAT32 or dtype is FLOAT64)
            and gradient.dtype is dtype
            and gradient.shape == array.shape
            and (p._meta is None or p._meta.base is None)
            and not current().special
        ):
            inputs: list[Any] = [array, gradient]
            outputs = [array]
            for name in names:
                buffer = state.get(name)
                if buffer is None:
                    made = np.empty(array.shape, dtype)
                    state[name] = wrap(made)
                    inputs.append(None)
                    outputs.append(made)
                else:
                    inputs.append(buffer._array)
                    outputs.append(buffer._array)
            self._written.append(p)
            row.cpu(*inputs, h._array, *outputs, **params)
            return
        buffers, skip = [state.get(name) for name in names], self.found_inf
        if skip is not None and any(b is None for b in buffers) and skip.item():
            return
        if self._enqueued(row, p, g, state, names, buffers, h, params):
            return
        results = bind(row)(p, g, *buffers, h.to(p.device), **params)
        if not names:
            results = (results,)
        if skip is not None:
            results = [new if old is None else where(skip, old, new) for old, new in zip((p, *buffers), results, strict=True)]
        write(row.name, p, results[0])
        for name, buffer, result in zip(names, buffers, results[1:], strict=True):
            if buffer is None:
                state[name] = result
            else:
                write(row.name, buffer, result)

    def _enqueued(
        self, row: Op, p: Tensor, g: Tensor, state: dict[str, Any], names: tuple[str, ...], buffers: list[Tensor | None], h: Tensor,
        params: dict[str, Any],
    ) -> bool:  # fmt: skip
        """Put an update off until the group's end, where the backend can do many at once; False where it cannot."""
        array, gradient = p._array, g._array
        kind = type(array)
        if kind is np.ndarray or type(gradient) is not kind or current().special or (p._meta is not None and p._meta.base is not None):
            return False
        backend: Any = dispatch.backend_of(array)
        if not hasattr(backend, "update_many"):
            return False
        dtype, shape = array.dtype, array.shape
        if gradient.dtype != dtype or gradient.shape != shape or dtype not in FLOATING:
            return False
        inputs = [array, gradient]
        for b in buffers:
            if b is not None:
                b = b._array
                if type(b) is not kind or (b.shape and (b.shape != shape or b.dtype != dtype)):
                    return False
            inputs.append(b)
        inputs.append(h._array)
        if id(p) in self._queued:  # a parameter that is in the group twice
            self._flush()
        self._queued.add(id(p))
        key = (row, backend.place_of(array), *params.values())
        queued = self._queue.get(key)
        if queued is None:
            queued = self._queue[key] = Queued(backend, row, params, [], [])
        queued.waiting.append((p, state, names))
        queued.arguments.append(inputs)
        return True

    def _flush(self) -> None:
        """Do the updates that were put off."""
        queue, self._queue = self._queue, {}
        self._queued.clear()
        for key, (backend, row, params, waiting, arguments) in queue.items():
            known = self._known.setdefault((*key, id(waiting[0][0])), {})  # groups that differ in hyper-parameters alone share a key
            found = backend.update_many(row, arguments, params, known, None if self.found_inf is None else self.found_inf._array)
            for (p, state, names), outputs in zip(waiting, found, strict=True):
                self._written.append(p)
                for name, output in zip(names, outputs[1:], strict=True):
                    if state.get(name) is None:
                        state[name] = wrap(output)
