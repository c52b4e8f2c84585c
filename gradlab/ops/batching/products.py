"""Batch rules of matrix products, linear algebra and convolutions."""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.ops import conv, fused, linalg, linear as layer
from gradlab.ops.batching.common import (
    Flags,
    Params,
    Values,
    aligned,
    front,
    fronts,
    leading,
    moved,
    padded,
    rank,
    rounds_once,
    sample_shape,
    total,
)


def matmul(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """One large product where one side is the same matrix for every sample; products of columns and rows elementwise; else a stack."""
    (a, b), (on_a, on_b) = values, mapped
    if not on_b and len(b.shape) == 2:
        return op(a.reshape((total(a.shape[:-1]), a.shape[-1])), b).reshape((*a.shape[:-1], b.shape[-1]))
    if not on_a and len(a.shape) == 2 and b.shape[-1] == 1:
        flat = b.reshape((total(b.shape[:-2]), b.shape[-2]))
        return op(flat, a.mT).reshape((*b.shape[:-2], a.shape[0], 1))
    wanted = max(rank(a, on_a), rank(b, on_b))
    a, b = padded(a, on_a, wanted), padded(b, on_b, wanted)
    return a * b if a.shape[-1] == 1 and op is not linalg.wide_matmul else op(a, b)


def linear(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """x (..., n), w (m, n), b (m)."""
    (x, w, b), (_, on_w, on_b) = values, mapped
    if not on_w and not on_b:
        return op(x, w, b)
    return apart_linear(op, size, mapped, values, params) if b is None else rounds_once(apart_linear)(op, size, mapped, values, params)


def apart_linear(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The product, and the bias of each sample or of all."""
    (x, w, b), (on_x, on_w, on_b) = values, mapped
    lead = x.shape[on_x:-1]
    if not on_w:
        y = op(x, w, None)
    elif not on_x:  # one product with all samples' weights
        y = op(x.reshape((total(lead), x.shape[-1])), w.reshape((size * w.shape[1], w.shape[2])), None)
        y = moved(y.reshape((total(lead), size, w.shape[1])), 1, 0).reshape((size, *lead, w.shape[1]))
    else:
        y = (x.reshape((size, total(lead), x.shape[-1])) @ w.mT).reshape((size, *lead, w.shape[1]))
    return y if b is None else y + (padded(b, True, len(lead) + 1) if on_b else b)


def groups(x: Any, size: int) -> Any:
    """(B, N, C, ...) as (N, B·C, ...): the samples' channels one after the other."""
    x = moved(x, 0, 1)
    return x.reshape((x.shape[0], size * x.shape[2], *x.shape[3:]))


def apart(y: Any, size: int) -> Any:
    """The inverse of `groups`."""
    return moved(y.reshape((y.shape[0], size, y.shape[1] // size, *y.shape[2:])), 1, 0)


def folded(x: Any) -> Any:
    """(B, N, ...) as (B·N, ...)."""
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def unfolded(y: Any, size: int, n: int) -> Any:
    """The inverse of `folded`."""
    return y.reshape((size, n, *y.shape[1:]))


def convolution(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples of inputs join the batch; samples of weights become groups, or output channels if the input is shared."""
    (x, w, b), (on_x, on_w, on_b) = values, mapped
    if not on_w:
        if on_b:
            return own_bias(op, size, mapped, values, params)
        return unfolded(op(folded(x), w, b, **params), size, x.shape[1])
    bias = None if b is None else front(b, on_b, size).reshape((size * w.shape[1],))
    if not on_x and params["groups"] == 1:
        return apart(op(x, folded(w), bias, **params), size)
    many = {**params, "groups": size * params["groups"]}
    return apart(op(groups(front(x, on_x, size), size), folded(w), bias, **many), size)


@rounds_once
def own_bias(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """A convolution without bias, and the bias of each sample."""
    x, w, b = values
    y = unfolded(op(folded(x), w, None, **params), size, x.shape[1]) if mapped[0] else op(x, w, None, **params)
    return y + b.reshape((size, 1, -1, *(1,) * (len(w.shape) - 2)))


def convolution_dx(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The input's gradient: as the forward."""
    (dy, w), (on_dy, on_w), shape = values, mapped, params["shape"]
    if not on_w:
        return unfolded(op(folded(dy), w, **{**params, "shape": (size * shape[0], *shape[1:])}), size, shape[0])
    many = {**params, "groups": size * params["groups"], "shape": (shape[0], size * shape[1], *shape[2:])}
    return apart(op(groups(front(dy, on_dy, size), size), folded(w), **many), size)


@rounds_once
def convolution_transpose(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The input's gradient, then the bias."""
    (x, w, b), (on_x, on_w, on_b) = values, mapped
    if on_x or on_w:
        y = convolution_dx(conv.convolution_dx, size, [on_x, on_w], [x, w], params)
    else:
        y = conv.convolution_dx(x, w, **params)
    if b is None:
        return y
    ones = (1,) * len(params["stride"])
    return y + b.reshape((size, 1, -1, *ones) if on_b else (-1, *ones))


def convolution_dw(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The weight's gradient of each sample: one group, or, if the input is shared, one set of output channels for each."""
    (x, dy), (on_x, on_dy), shape = values, mapped, params["shape"]
    many = {**params, "shape": (size * shape[0], *shape[1:])}
    if not on_x and params["groups"] == 1:
        return op(x, groups(dy, size), **many).reshape((size, *shape))
    many["groups"] = size * params["groups"]
    return op(groups(front(x, on_x, size), size), groups(front(dy, on_dy, size), size), **many).reshape((size, *shape))


@rounds_once
def with_activation(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """A layer with its activation: the two one after the other."""
    if op in (fused.convolution_act, fused.convolution_act_sums):
        z = convolution(conv.convolution, size, mapped, values, {n: params[n] for n in conv.GEOMETRY})
        y = fused.ACTIVATIONS[params["activation"]](z)
        return y if op is fused.convolution_act else (y, z)
    z = linear(layer.linear, size, mapped, values, params)
    return fused.ACTIVATIONS["relu"](z) if op is fused.linear_relu else (fused.ACTIVATIONS["gelu_tanh"](z), z)


def im2col(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Windows: samples join the batch."""
    return unfolded(op(folded(values[0]), **params), size, values[0].shape[1])


def pooling(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Rows over (N, C, *sizes): samples join the batch; a `shape` is that of the pooled input."""
    given = fronts(values, mapped, size)
    n = given[0].shape[1]
    if "shape" in params:
        params = {**params, "shape": (size * n, *params["shape"][1:])}
    found = op(*map(folded, given), **params)
    return tuple(unfolded(y, size, n) for y in found) if isinstance(found, tuple) else unfolded(found, size, n)


def attention(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples join the first dimension; a mask that is the same for all of it stays one."""
    place = op.inputs.index("mask")
    n = sample_shape(values[op.inputs.index("q")], mapped[op.inputs.index("q")])[0]
    ready = [None if v is None or i == place else folded(front(v, m, size)) for i, (v, m) in enumerate(zip(values, mapped, strict=True))]
    mask = values[place]
    if mask is not None and (mapped[place] or (len(mask.shape) == 4 and mask.shape[0] > 1)):
        mask = padded(front(mask, mapped[place], size), True, 4)
        mask = folded(mask.expand((size, n, *mask.shape[2:])))
    ready[place] = mask
    return tuple(unfolded(y, size, n) for y in op(*ready, **params))


def grid_sample(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples join the batch."""
    found = op(*[folded(front(v, m, size)) for v, m in zip(values, mapped, strict=True)], **params)
    n = values[0].shape[1 if mapped[0] else 0]
    return unfolded(found, size, n) if len(op.outputs) == 1 else tuple([unfolded(y, size, n) for y in found])


PRODUCTS = {
    "matmul": matmul, "wide_matmul": matmul, "linear": linear, "convolution": convolution, "convolution_dx": convolution_dx,
    "convolution_dw": convolution_dw, "convolution_transpose": convolution_transpose,
    "linear_relu": with_activation, "linear_gelu_tanh": with_activation, "convolution_act": with_activation,
    "convolution_act_sums": with_activation,
    "scaled_dot_product_attention": attention, "scaled_dot_product_attention_backward": attention,
    "grid_sample": grid_sample, "grid_sample_backward": grid_sample,
    "im2col": im2col, "col2im": im2col, "solve": aligned, "ldl_solve": leading, "solve_triangular": aligned,
} | dict.fromkeys(
    ("max_pool", "max_pool_backward", "max_pool_gather", "max_unpool", "adaptive_max_pool", "avg_pool", "avg_pool_backward"), pooling
) | dict.fromkeys(
    ("cholesky", "qr", "eig", "eigh", "svd", "lu", "ldl", "inverse", "det", "cofactor", "slogdet", "pinv", "matrix_exp",
     "lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward"), leading
)  # fmt: skip
