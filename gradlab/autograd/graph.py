"""Looking at and steering the graph (`torch.autograd.graph`): hooks on kept values and on several gradients, edges to differentiate by."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from gradlab.autograd.base import LEAF, Differentiable, meta_of, version_of
from gradlab.autograd.general import refresh
from gradlab.autograd.hooks import RemovableHandle, Sight, add_hook, hooks_of
from gradlab.autograd.inplace import written
from gradlab.autograd.mode import current, enter
from gradlab.autograd.node import AccumulateGrad, Edge, Node, accumulator
from gradlab.autograd.walk import walk_now

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

_disabled: ContextVar[str | None] = ContextVar("gradlab_saved_tensors_hooks_disabled", default=None)


class GradientEdge(NamedTuple):
    """Where a tensor's gradient arrives: may stand for the tensor in `autograd.grad` and `backward`, without keeping its values alive."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The GradientEdge of a tensor that requires grad; RuntimeError for another."""
    refresh(tensor)
    edge = tensor._edge
    if edge is None:
        raise RuntimeError("get_gradient_edge: this tensor does not require grad, so no gradient arrives anywhere for it")
    return GradientEdge(accumulator(tensor), 0) if edge is LEAF else GradientEdge(edge.node, edge.index)


class _Unknown(NamedTuple):
    """What is known of the array behind a GradientEdge."""

    shape: str = "unknown"
    dtype: str = "unknown"


class Point(Differentiable):
    """A GradientEdge in the place of a tensor, for the engine."""

    __slots__ = ()


def tensor_of(value: Any, gradient: Any = None) -> Any:
    """A tensor as it is; for a GradientEdge what the engine takes in its place. `gradient` is what will be given for it, if any."""
    if not isinstance(value, GradientEdge):
        return value
    if isinstance(value.node, AccumulateGrad):
        return value.node.variable
    point = object.__new__(Point)
    point._edge = value.node if value.node.count == 1 else Edge(value.node, value.output_nr)
    point._meta = None
    point._array = getattr(gradient, "_array", _Unknown())
    return point


class saved_tensors_hooks:
    """Within the block, what operations keep for backward goes through `pack_hook(tensor)`, and backward gets `unpack_hook` of the result.

    The tensor is outside the graph and must not be changed. pack may return anything; unpack returns a tensor with the same values.
    The innermost block counts. Values packed this way are not guarded against in-place changes.

    >>> import gradlab as gl
    >>> x = gl.ones(3, requires_grad=True)
    >>> with gl.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), gl.from_numpy):
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2., 2.])
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise TypeError(f"saved_tensors_hooks: a hook is a function, not {type(hook).__name__}")
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._before: list[Any] = []

    def __enter__(self) -> None:
        message = _disabled.get()
        if message is not None:
            raise RuntimeError(message)
        mode = current()
        self._before.append(mode)
        enter(mode.replace(saved_hooks=(self.pack_hook, self.unpack_hook)))

    def __exit__(self, *_: object) -> None:
        enter(current().replace(saved_hooks=self._before.pop().saved_hooks))


class save_on_cpu(saved_tensors_hooks):
    """Within the block, what operations keep for backward is moved to the CPU, and back when backward needs it.

    What is on the CPU already stays as it is. A compiled program runs on one device and arranges its own memory: in it nothing is moved.
    pin_memory: accepted; the copy to the CPU is an ordinary one. `gl.utils.fit_memory` moves only what it has to.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(to_host, from_host)


def to_host(tensor: Any) -> tuple[Any, Any]:
    """Where a tensor was, None for one that stays, and the tensor on the CPU."""
    if current().tracer is not None or tensor.device.type != "cuda":
        return None, tensor
    return tensor.device, tensor.cpu()


def from_host(packed: tuple[Any, Any]) -> Any:
    """The tensor of `to_host`, where it was."""
    device, tensor = packed
    return tensor if device is None else tensor.to(device)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, `saved_tensors_hooks` raise RuntimeError with this message."""
    if current().saved_hooks is not None:
        raise RuntimeError(error_message)
    token = _disabled.set(error_message)
    try:
        yield
    finally:
        _disabled.reset(token)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Within the block, tensors that backward needs may be changed in place: operations keep a copy of them, made at once."""
    with saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        yield


def increment_version(tensor: Any) -> None:
    """Note that a tensor's memory (or that of each in a sequence) was written by other means, so that backward notices."""
    for x in [tensor] if isinstance(tensor, Differentiable) else tensor:
        if meta_of(x).inference:
            raise RuntimeError("increment_version: an inference tensor has no version")
        written(version_of(x))


def register_multi_grad_hook(tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all") -> RemovableHandle:
    """Call `fn` when gradients of several tensors have arrived in one backward.

    mode "all": `fn(gradients)` once all that this backward computes are there, None for the others. "any": `fn(gradient)` with the first.
    """
    if mode not in {"all", "any"}:
        raise ValueError(f"register_multi_grad_hook: mode is 'all' or 'any', not {mode!r}")
    if not callable(fn):
        raise TypeError(f"a hook is a function, not {type(fn).__name__}")
    tensors = list(tensors)
    edges = [get_gradient_edge(x) for x in tensors]
    lock = threading.Lock()
    seen: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()  # walk -> [wanted, arrived, gradients]

    def arrived(i: int, gradient: Any) -> None:
        walk = walk_now.get()
        with lock:
            state = seen.get(walk)
            if state is None:
                state = seen[walk] = [sum(walk.reaches(edges)), 0, [None] * len(edges)]
            state[1] += 1
            state[2][i] = gradient
            first, complete = state[1] == 1, state[1] == state[0]
        if mode == "any":
            if first:
                fn(gradient)
        elif complete:
            fn(state[2])

    handles = [_listen(edge, Sight(partial(arrived, i))) for i, edge in enumerate(edges)]
    group: dict[int, Any] = {0: None}
    handle = RemovableHandle(group, 0)
    handle.others = handles
    return handle


def _listen(edge: GradientEdge, hook: Any) -> RemovableHandle:
    if isinstance(edge.node, AccumulateGrad):
        meta = meta_of(edge.node.variable)
        meta.hooks = {} if meta.hooks is None else meta.hooks
        return add_hook(meta.hooks, hook)
    return add_hook(hooks_of(edge.node).outputs.setdefault(edge.output_nr, {}), hook)
