"""`autograd.Function` inside `vmap`: its own rule for a whole batch, or one generated from its forward and backward."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradlab.above import above
from gradlab.autograd.base import Differentiable
from gradlab.autograd.function_ctx import FunctionCtx
from gradlab.autograd.general import wrap
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.batched import Batched


class VmapInfo(NamedTuple):
    """What a Function's `vmap` is told: the batch's size, and what random numbers mean in it ("error", "same" or "different")."""

    batch_size: int
    randomness: str


def recorded_below(tensor: Any, mode: Mode) -> bool:
    """Whether operations on this tensor are recorded outside of a vmap that it is inside of."""
    array = getattr(tensor, "_array", None)
    if type(array) is not Batched:
        return False
    below = array.level.below(mode)
    return (below.recording and array.value._edge is not None) or recorded_below(array.value, below)


def mapped(function: Any, args: tuple[Any, ...], mode: Mode, recorded: bool) -> Any:
    """Forward inside vmap: by the Function's own `vmap` on the whole batch or, where the call is `recorded` below, the generated one."""
    arrays = [getattr(x, "_array", None) for x in args]
    levels = [a.level for a in arrays if type(a) is Batched]
    own = function.has_vmap()
    if own and function.generate_vmap_rule:
        raise RuntimeError(f"{function.__name__}: has a vmap of its own and generate_vmap_rule=True; remove one of them")
    if not levels or not (own or recorded):
        return function.forward(*args)
    level: Any = max(levels, key=lambda found: found.depth)
    here = [type(a) is Batched and a.level is level for a in arrays]
    values: list[Any] = [a.value if h else x for x, a, h in zip(args, arrays, here, strict=True)]  # type: ignore[union-attr]
    in_dims = tuple(0 if h and a.mapped else None for a, h in zip(arrays, here, strict=True))  # type: ignore[union-attr]
    info = VmapInfo(level.size, level.randomness)
    token = enter(level.below(mode))
    try:
        if own:
            found, out_dims = function.vmap(info, in_dims, *values)
        elif any(d == 0 for d in in_dims):
            found, out_dims = function.batched_class().apply(info, in_dims, *values), 0
        else:
            found, out_dims = function.apply(*values), None
        parts = list(found) if isinstance(found, tuple) else [found]
        dims = list(out_dims) if isinstance(out_dims, tuple) else [out_dims] * len(parts)
        parts = [y.movedim(d, 0) if d and isinstance(y, Differentiable) else y for y, d in zip(parts, dims, strict=True)]  # type: ignore[attr-defined]
    finally:
        leave(token)
    outputs = tuple(
        wrap(Batched(y, level, d is not None)) if isinstance(y, Differentiable) else y for y, d in zip(parts, dims, strict=True)
    )
    return outputs if isinstance(found, tuple) else outputs[0]


# ---------------------------------------------------------------- the generated rule: forward and backward, each under vmap


def _vmap(function: Any, in_dims: tuple[Any, ...], info: VmapInfo, values: Any) -> Any:
    """vmap, which lives in a room above this one."""
    return above("vmap")(function, in_dims, randomness=info.randomness)(*values)


def batched_forward(function: Any, ctx: FunctionCtx, info: VmapInfo, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """The whole batch's outputs; `ctx` keeps for the whole batch what the Function keeps for a sample."""
    inner = FunctionCtx()
    inner.needs_input_grad = ctx.needs_input_grad[2:]
    kept: list[tuple[Any, bool]] = []
    constant: list[int] = []

    def sample(*args: Any) -> Any:
        outputs = function.forward(*args)
        function.setup_context(inner, args, outputs)
        if inner._dirty:
            raise RuntimeError(f"{function.__name__}: a generated vmap rule is not for inputs changed in place; define vmap")
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        constant[:] = [i for i, y in enumerate(listed) if any(y is c for c in inner._constant)]
        level: Any = current().vmap
        for x in inner._saved:
            array = getattr(x, "_array", None)
            kept.append((array.value, array.mapped) if type(array) is Batched and array.level is level else (x, False))
        return outputs

    outputs = _vmap(sample, in_dims, info, values)
    inner._saved = inner._constant = ()
    ctx.save_for_backward(*[x for x, _ in kept])
    ctx.set_materialize_grads(inner._materialize)
    listed = outputs if isinstance(outputs, tuple) else (outputs,)
    ctx.mark_non_differentiable(*[listed[i] for i in constant])
    ctx.inner, ctx.info, ctx.in_dims, ctx.kept_dims = inner, info, in_dims, [0 if m else None for _, m in kept]  # type: ignore[attr-defined]
    return outputs


def batched_backward(function: Any, ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """The whole batch's gradients; those of inputs that all samples share are added up."""
    saved = ctx.saved_tensors
    there: list[int] = []

    def sample(*args: Any) -> Any:
        inner = FunctionCtx()
        inner.__dict__.update(ctx.inner.__dict__)
        inner._saved = args[: len(saved)]
        found = function.gradient(inner, *args[len(saved) :])
        found = found if isinstance(found, (tuple, list)) else (found,)
        there[:] = [i for i, g in enumerate(found) if g is not None]
        return [found[i] for i in there]

    dims = (*ctx.kept_dims, *[None if g is None else 0 for g in gradients])
    given = (*saved, *gradients)
    found: list[Any] = [None] * len(ctx.in_dims)
    if any(d == 0 for d in dims):
        for i, g in zip(there, _vmap(sample, dims, ctx.info, given), strict=True):
            found[i] = g if ctx.in_dims[i] == 0 else g.sum(0)
    return (None, None, *found)
