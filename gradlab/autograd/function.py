"""Operations with a gradient of one's own: `Function`, and the `ctx` by which forward and backward speak to each other."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from sys import _getframe as getframe
from typing import Any

from gradlab.autograd import errors, inplace
from gradlab.autograd.base import Differentiable, Meta, Version, version_of
from gradlab.autograd.function_ctx import FunctionCtx
from gradlab.autograd.function_vmap import VmapInfo, batched_backward, batched_forward, mapped, recorded_below
from gradlab.autograd.general import refresh
from gradlab.autograd.mode import Mode, current, enter, leave, users_code
from gradlab.autograd.node import Edge, Node, edge_to, next_sequence
from gradlab.autograd.once_differentiable import once_differentiable
from gradlab.autograd.saved import keep_all, without_graph
from gradlab.call_site import user_frame
from gradlab.dtype import INEXACT
from gradlab.spec import ShapeError, Spec, broadcast_shapes, spec_of

__all__ = ["Function", "FunctionCtx", "FunctionNode", "once_differentiable"]


_tangents: ContextVar[bool] = ContextVar("gradlab_tangents", default=False)


@contextmanager
def by_jvp() -> Iterator[None]:
    """In here backward is only walked, from gradients of zero, to be transposed into a forward mode (`func.derivatives.Linear`).

    A Function that has a `jvp` then says by that how its outputs move, in place of its backward differentiated.
    """
    token = _tangents.set(True)
    try:
        yield
    finally:
        _tangents.reset(token)


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
        if _tangents.get() and self.function.jvp is not Function.jvp:
            found = iter(Tangents.apply(self, *gradients))
            return [None if edge is None else next(found) for edge in self.edges]
        if self.ctx._materialize:
            like = next(x for x in gradients if x is not None)
            for i, spec in enumerate(self.output_specs):
                if gradients[i] is None and spec is not None:
                    gradients[i] = like.new_zeros(spec.shape, dtype=spec.dtype)
        with users_code():
            found = self.function.gradient(self.ctx, *gradients)
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
    _batched_class: Any = None
    generate_vmap_rule = False  # whether a gradient through vmap, asked for outside of it, may take forward and backward under vmap

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
        """Optional: the tangents of the outputs from those of the arguments (None for those that are no tensors), for `func.jvp`.

        Without it forward mode differentiates backward.
        """
        raise NotImplementedError("autograd.Function: define the static method jvp")

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """Optional, beside a setup_context: forward for a whole batch, where forward itself looks at values. Returns (output, out_dims).

        Arguments with 0 in in_dims have the batch in their first dimension, those with None are one for all samples.
        """
        raise NotImplementedError("autograd.Function: the static method vmap is not defined")

    @classmethod
    def has_vmap(cls) -> bool:
        """Whether there is a `vmap` of its own."""
        return cls.vmap is not Function.vmap

    @classmethod
    def gradient(cls, ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        """backward, under the name that it was given."""
        if cls.backward is not Function.backward and cls.vjp is not Function.vjp:
            raise RuntimeError(f"{cls.__name__}: backward and vjp are one method by two names; define one of them")
        return (cls.vjp if cls.backward is Function.backward else cls.backward)(ctx, *grad_outputs)

    @classmethod
    def batched_class(cls) -> Any:
        """The Function of a whole batch, generated from this one (see `generate_vmap_rule`)."""
        if "_batched_class" not in cls.__dict__:
            cls._batched_class = _batched(cls)
        return cls._batched_class

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
        recorded = mode.vmap is not None and any(recorded_below(x, mode) for x in args)
        if recorded and not (apart and (cls.generate_vmap_rule or cls.has_vmap())):
            raise RuntimeError(
                f"{cls.__name__}: a gradient through vmap, asked for outside of it, needs forward for a whole batch. Define the "
                f"static method setup_context, and either set generate_vmap_rule = True or define vmap(info, in_dims, *args) -> "
                f"(output, out_dims), which may call {cls.__name__}.apply"
            )
        ctx = FunctionCtx()
        ctx.needs_input_grad = needs = tuple(isinstance(x, Differentiable) and x._edge is not None for x in args)
        token = enter(mode.replace(recording=False, walking=False))
        try:
            if apart:
                output = cls.forward(*args) if mode.vmap is None else mapped(cls, args, mode, recorded)
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


def _batched(function: type[Function]) -> type[Function]:
    """The Function of a whole batch of calls of `function`, itself called with (info, in_dims, *arguments)."""

    class Batch(Function):
        @staticmethod
        def forward(ctx: Any, info: VmapInfo, in_dims: Any, *values: Any) -> Any:
            return batched_forward(function, ctx, info, in_dims, values)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return batched_backward(function, ctx, gradients)

    Batch.__name__ = f"Vmapped{function.__name__}"
    Batch._node_class.__name__ = f"{Batch.__name__}Backward"
    return Batch


class Tangents(Function):
    """What stands for a Function's backward where that is walked to be transposed: Jacobian times tangents, by the Function's `jvp`."""

    @staticmethod
    def forward(ctx: Any, node: FunctionNode, *gradients: Any) -> Any:
        """Zeros: the gradients of zero gradients, for each tensor that one is asked for."""
        ctx.node, ctx.given = node, [g is not None for g in gradients]
        ctx.set_materialize_grads(False)
        like = next(g for g in gradients if g is not None)
        specs = [spec for spec, edge in zip(node.specs, node.edges, strict=True) if edge is not None]
        return tuple(like.new_zeros(spec.shape, dtype=spec.dtype) for spec in specs)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        """The tangents of the Function's outputs, each of its shape."""
        node, like = ctx.node, next(t for t in tangents if t is not None)
        waiting, tensors = iter(tangents), iter(zip(node.specs, node.edges, strict=True))
        inputs: list[Any] = []
        for tensor in node.places:
            if not tensor:
                inputs.append(None)
                continue
            spec, edge = next(tensors)
            t = None if edge is None else next(waiting)
            inputs.append(like.new_zeros(spec.shape, dtype=spec.dtype) if t is None and node.ctx._materialize else t)
        node.ctx._in_jvp = True
        try:
            found = node.function.jvp(node.ctx, *inputs)
        finally:
            node.ctx._in_jvp = False
        listed = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(listed) != node.width:
            raise RuntimeError(f"{node.name()}: jvp returned {len(listed)} tangents for {node.width} outputs")
        for i, (t, spec) in enumerate(zip(listed, node.output_specs, strict=True)):
            if t is not None and spec is not None and t._array.shape != spec.shape:
                raise RuntimeError(f"{node.name()}: jvp returned a tangent of shape {t._array.shape} for output {i} of shape {spec.shape}")
        return (None, *[t if given else None for t, given in zip(listed, ctx.given, strict=True)])


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
        constant = x._array.dtype not in INEXACT or any(x is y for y in ctx._constant)
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
    if ctx._forward is not None:
        ctx._forward = None if function.jvp is Function.jvp else keep_all(mode.saved_hooks, ctx._forward, placed)
    ctx._saved = ()
    ctx._node = weakref.ref(node)


def _is_view(tensor: Any, memories: Sequence[Version]) -> bool:
    """Whether forward made this tensor as a view, or of an input's memory."""
    meta = tensor._meta
    return meta is not None and (meta.quiet or meta.base is not None or any(meta.version is v for v in memories))
