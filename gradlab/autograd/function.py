"""Operations with a gradient of one's own: `Function`, and the `ctx` by which forward and backward speak to each other."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from sys import _getframe as getframe
from typing import Any, NamedTuple

from gradlab.autograd import errors, inplace
from gradlab.autograd.base import Differentiable, Meta, Version, version_of
from gradlab.autograd.general import refresh, wrap
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.node import Edge, Node, edge_to, next_sequence
from gradlab.autograd.once import once_differentiable
from gradlab.autograd.position import user_frame
from gradlab.autograd.saved import keep_all, without_graph
from gradlab.batched import Batched
from gradlab.dtype import FLOATING
from gradlab.spec import ShapeError, Spec, broadcast_shapes, spec_of

__all__ = ["Function", "FunctionCtx", "FunctionNode", "once_differentiable"]


class FunctionCtx:
    """The `ctx` of one call: forward leaves on it what backward needs. Any other attribute is the user's."""

    needs_input_grad: tuple[bool, ...] = ()  # for each argument of forward, whether a gradient is asked for
    _materialize = True
    _saved: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _constant: tuple[Any, ...] = ()
    _node: Callable[[], Any] | None = None

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward, where they are `ctx.saved_tensors`. Call it once, from forward or setup_context.

        Unlike an attribute of ctx, a saved tensor is freed after backward, guarded against in-place changes and seen by
        `saved_tensors_hooks`; an output kept this way makes no reference cycle.
        """
        for i, x in enumerate(tensors):
            if x is not None and not isinstance(x, Differentiable):
                raise TypeError(
                    f"save_for_backward: argument {i} is a {type(x).__name__}, not a tensor; keep other things as attributes of ctx"
                )
        self._saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Accepted for code with a `jvp`. Forward mode derives Functions by differentiating backward, so nothing needs to be kept."""
        for i, x in enumerate(tensors):
            if x is not None and not isinstance(x, Differentiable):
                raise TypeError(f"save_for_forward: argument {i} is a {type(x).__name__}, not a tensor")

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was given to `save_for_backward`. RuntimeError once backward freed it, or when one was changed in place."""
        node = None if self._node is None else self._node()
        if node is None:
            return self._saved
        saved = node.saved  # read once: another thread may free it
        if saved is None:
            raise errors.freed(node)
        return tuple(None if kept is None else kept.tensor(node) for kept in saved)

    def mark_dirty(self, *args: Any) -> None:
        """Say which inputs forward changed in place. All of them have to be returned."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs have no gradient. Backward still gets a gradient for them: zeros."""
        self._constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs that nobody used."""
        self._materialize = bool(value)


class FunctionNode(Node):
    """The recorded call of a Function. The attributes of its `ctx` can be read on it, as in PyTorch, where both are one object."""

    __slots__ = ("ctx", "function", "places", "width")
    ctx: FunctionCtx
    function: type[Function]
    places: tuple[bool, ...]  # for each argument of forward, whether it is a tensor
    width: int
    targets = frozenset(range(4096))

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.width

    def watch(self, index: int, version: Version) -> None:
        """Nothing to watch: what is kept knows its version."""

    def __getattr__(self, name: str) -> Any:
        if name in FunctionNode.__slots__ or name in Node.__slots__:
            raise AttributeError(name)
        return getattr(self.ctx, name)

    def back(self, g: Any) -> Any:
        if self.saved is None:
            raise errors.freed(self)
        gradients = list(g) if self.width > 1 else [g]
        if self.ctx._materialize:
            like = next(x for x in gradients if x is not None)
            for i, spec in enumerate(self.output_specs):
                if gradients[i] is None and spec is not None:
                    gradients[i] = like.new_zeros(spec.shape, dtype=spec.dtype)
        function = self.function
        token = enter(current().replace(walking=False))  # the user's code: its views are views
        try:
            call = function.vjp if function.backward is Function.backward else function.backward
            found = call(self.ctx, *gradients)
        finally:
            leave(token)
        return self._checked(tuple(found) if isinstance(found, (tuple, list)) else (found,))

    def _checked(self, found: tuple[Any, ...]) -> list[Any]:
        """The gradients of the tensors among the arguments, each of its input's shape and dtype."""
        name, wanted = self.name(), len(self.places)
        if len(found) > wanted and all(x is None for x in found[wanted:]):
            found = found[:wanted]
        if len(found) != wanted:
            raise RuntimeError(
                f"{name}: backward returned an incorrect number of gradients (expected {wanted}, got {len(found)}): one for each "
                f"argument of forward, None for those that are no tensors or need none"
            )
        kept: list[Any] = []
        for i, (tensor, gradient) in enumerate(zip(self.places, found, strict=True)):
            if not tensor:
                if gradient is not None:
                    raise RuntimeError(
                        f"{name}: backward returned a gradient different from None at position {i + 1}, but the corresponding "
                        f"forward input was not a tensor"
                    )
                continue
            spec, edge = self.specs[len(kept)], self.edges[len(kept)]
            if gradient is not None and not isinstance(gradient, Differentiable):
                raise TypeError(f"{name}: backward returned a {type(gradient).__name__} at position {i + 1}; return a tensor or None")
            kept.append(None if gradient is None or edge is None else _fitting(name, i, gradient, spec))
        return kept


def _fitting(name: str, i: int, gradient: Any, spec: Spec) -> Any:
    shape = gradient._array.shape
    if shape != spec.shape:
        try:
            fits = broadcast_shapes(shape, spec.shape) == shape
        except ShapeError:
            fits = False
        if not fits:
            raise RuntimeError(
                f"{name}: backward returned an invalid gradient at index {i}: got shape {shape}, but expected shape compatible with "
                f"{spec.shape}, that of the input"
            )
        gradient = gradient.sum_to_size(spec.shape)
    return gradient if gradient._array.dtype == spec.dtype else gradient.to(spec.dtype)


class Function:
    """An operation with a gradient of one's own. A subclass has two static methods and is called by `apply`:

    >>> import gradlab as gl
    >>> class Cube(gl.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return 3 * x**2 * g
    >>> x = gl.tensor(2.0, requires_grad=True)
    >>> gl.autograd.grad(Cube.apply(x), x)
    (tensor(12.),)

    Forward runs without recording. Backward gets a gradient for each output and returns one for each argument of forward (None for what
    is no tensor or needs none); written with tensor functions it can be differentiated again, and the whole can be traced and vmapped.
    Only tensors that are arguments themselves, not inside lists, are differentiated by.

    The other style has `forward(*args)` without ctx and a third static method, `setup_context(ctx, inputs, output)`.
    """

    _node_class: type[FunctionNode] = FunctionNode
    generate_vmap_rule = False  # either way forward and backward written with tensor functions run inside vmap as they are

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._node_class = type(f"{cls.__name__}Backward", (FunctionNode,), {"__slots__": ()})

    def __init__(self, *_: Any, **__: Any) -> None:
        name = type(self).__name__
        raise RuntimeError(f"{name}: a Function is not made into objects, its methods are static; call {name}.apply")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """What the operation computes: `forward(ctx, *args)`, or `forward(*args)` beside a setup_context."""
        raise NotImplementedError("autograd.Function: define the static method forward")

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        """After a forward without ctx: keep what backward needs."""
        raise NotImplementedError("autograd.Function: setup_context is not defined")

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        """The gradients of the arguments from those of the outputs."""
        raise NotImplementedError("autograd.Function: define the static method backward (or vjp), or do not differentiate")

    @staticmethod
    def vjp(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        """Another name for backward."""
        raise NotImplementedError("autograd.Function: define the static method backward (or vjp), or do not differentiate")

    @staticmethod
    def jvp(ctx: FunctionCtx, *grad_inputs: Any) -> Any:
        """The tangents of the outputs from those of the arguments. Not called: forward mode differentiates backward instead."""
        raise NotImplementedError("autograd.Function: define the static method jvp")

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """Optional, beside a setup_context: forward for a whole batch, where forward itself looks at values. Returns (output, out_dims).

        Arguments with 0 in in_dims have the batch in their first dimension, those with None are one for all samples.
        """
        raise NotImplementedError("autograd.Function: the static method vmap is not defined")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and record the call. Returns what forward returned, its tensors in the graph."""
        apart = cls.setup_context is not Function.setup_context
        if apart:
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                raise TypeError(f"{cls.__name__}.apply: forward has keyword-only arguments {list(bound.kwargs)}; make them positional")
            args = bound.args
        elif kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments (unless there is a setup_context)")
        mode = current()
        for x in args:
            if isinstance(x, Differentiable) and x._meta is not None:
                refresh(x)
        if mode.vmap is not None and not (apart and cls.vmap is not Function.vmap) and any(_recorded_below(x, mode) for x in args):
            raise RuntimeError(
                f"{cls.__name__}: a gradient through vmap, asked for outside of it, needs forward for a whole batch. Define the "
                f"static methods setup_context and vmap(info, in_dims, *args) -> (output, out_dims); it may call {cls.__name__}.apply"
            )
        ctx = FunctionCtx()
        ctx.needs_input_grad = needs = tuple(isinstance(x, Differentiable) and x._edge is not None for x in args)
        token = enter(mode.replace(recording=False, walking=False))
        try:
            if apart:
                output = cls.forward(*args) if mode.vmap is None else _mapped(cls, args, mode)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args)
        finally:
            leave(token)
        if isinstance(output, list) and any(isinstance(x, Differentiable) for x in output):
            raise TypeError(f"{cls.__name__}: forward returned a list; return a tensor or a tuple, so that each tensor gets its gradient")
        outputs = list(output) if isinstance(output, tuple) else [output]
        lost = [x for x in ctx._dirty if not any(x is y for y in outputs)]
        if lost:
            raise RuntimeError(f"{cls.__name__}: inputs marked dirty have to be returned by forward; {len(lost)} of them were not")
        if not (mode.recording and any(needs)):
            return output
        _record(cls, ctx, args, outputs, mode)
        if not isinstance(output, tuple):
            return outputs[0]
        return type(output)(*outputs) if hasattr(output, "_fields") else tuple(outputs)


class VmapInfo(NamedTuple):
    """What a Function's `vmap` is told: the batch's size, and what random numbers mean in it ("error", "same" or "different")."""

    batch_size: int
    randomness: str


def _recorded_below(tensor: Any, mode: Mode) -> bool:
    """Whether operations on this tensor are recorded outside of a vmap that it is inside of."""
    array = getattr(tensor, "_array", None)
    if type(array) is not Batched:
        return False
    below = array.level.below(mode)
    return (below.recording and array.value._edge is not None) or _recorded_below(array.value, below)


def _mapped(function: type[Function], args: tuple[Any, ...], mode: Mode) -> Any:
    """Forward inside vmap: by the Function's own `vmap` on the whole batch, if it has one."""
    arrays = [getattr(x, "_array", None) for x in args]
    levels = [a.level for a in arrays if type(a) is Batched]
    if not levels or function.vmap is Function.vmap:
        return function.forward(*args)
    if function.generate_vmap_rule:
        raise RuntimeError(f"{function.__name__}: has a vmap of its own and generate_vmap_rule=True; remove one of them")
    level: Any = max(levels, key=lambda found: found.depth)
    here = [type(a) is Batched and a.level is level for a in arrays]
    values: list[Any] = [a.value if h else x for x, a, h in zip(args, arrays, here, strict=True)]  # type: ignore[union-attr]
    in_dims = tuple(0 if h and a.mapped else None for a, h in zip(arrays, here, strict=True))  # type: ignore[union-attr]
    token = enter(level.below(mode))
    try:
        found, out_dims = function.vmap(VmapInfo(level.size, level.randomness), in_dims, *values)
        parts = list(found) if isinstance(found, tuple) else [found]
        dims = list(out_dims) if isinstance(out_dims, tuple) else [out_dims] * len(parts)
        parts = [y if d is None or not isinstance(y, Differentiable) else y.movedim(d, 0) for y, d in zip(parts, dims, strict=True)]  # type: ignore[attr-defined]
    finally:
        leave(token)
    outputs = tuple(
        wrap(Batched(y, level, d is not None)) if isinstance(y, Differentiable) else y for y, d in zip(parts, dims, strict=True)
    )
    return outputs if isinstance(found, tuple) else outputs[0]


def _record(function: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], outputs: list[Any], mode: Mode) -> None:
    """Make the node of a call and put `outputs` into the graph."""
    node = object.__new__(function._node_class)
    tensors = [x for x in args if isinstance(x, Differentiable)]
    node.function, node.ctx, node.width = function, ctx, len(outputs)
    node.places = tuple(isinstance(x, Differentiable) for x in args)
    edges = tuple(map(edge_to, tensors))
    node.edges = edges
    node.specs = tuple(spec_of(x._array) for x in tensors)
    node.params, node.versions, node.hooks = {}, None, None
    node.output_specs = tuple(spec_of(x._array) if isinstance(x, Differentiable) else None for x in outputs)
    node.seq, node.scope = next_sequence(), mode.scope
    node.code, node.lasti = user_frame(getframe(2))
    memories = [x._meta.version for x in tensors if x._meta is not None and x._meta.version is not None]
    placed: dict[int, int] = {}  # id of a tensor in the graph -> its number
    given = list(outputs)
    for i, x in enumerate(given):
        if not isinstance(x, Differentiable):
            continue
        edge = node if node.width == 1 else Edge(node, i)
        constant = x._array.dtype not in FLOATING or any(x is y for y in ctx._constant)
        if any(x is y for y in ctx._dirty):
            inplace.check(function.__name__, x, mode)
            inplace.rebind(x, x._array, edge, mode)
            placed.setdefault(id(x), i)
        elif any(x is y for y in tensors) or x._edge is not None or id(x) in placed or _is_view(x, memories):
            outputs[i] = twin = without_graph(x)
            twin._meta = meta = Meta()
            meta.version = version_of(x)
            meta.seen = meta.version.written
            meta.shut = any(x is y for y in tensors) or any(meta.version is v for v in memories)
            twin._edge = None if constant else edge
            if not constant and not any(x is y for y in tensors):
                placed.setdefault(id(x), i)
        elif not constant:
            x._edge = edge
            placed[id(x)] = i
    node.saved = keep_all(mode.saved_hooks, ctx._saved, placed)
    ctx._saved = ()
    ctx._node = weakref.ref(node)


def _is_view(tensor: Any, memories: Sequence[Version]) -> bool:
    """Whether forward made this tensor as a view, or of an input's memory."""
    meta = tensor._meta
    return meta is not None and (meta.quiet or meta.base is not None or any(meta.version is v for v in memories))
