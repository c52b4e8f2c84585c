"""Normalisation rows: layer_norm, rms_norm and batch_norm (with the statistics of the batch), and their fused derivatives.

All three are one computation, y = (x - mean)·rstd·weight + bias with rstd = 1/√(var + eps), over other dimensions. A `Layout` says over
which the statistics are taken and along which the parameters lie; the formulas of second order are written once for all of them.
Sources: Ioffe and Szegedy, "Batch normalization" (2015); Ba, Kiros and Hinton, "Layer normalization" (2016); Zhang and Sennrich, "Root mean
square layer normalization" (2019).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gradlab.dtype import wide
from gradlab.kernel import Elementwise, Kernel
from gradlab.op import Op
from gradlab.ops.reduction import about_mean_cpu, has_zero, sum_cpu
from gradlab.spec import Spec, broadcast, count, expect_shape

_add_reduce: Any = np.add.reduce


class Layout(NamedTuple):
    """Where a normalisation's statistics and parameters lie. Shapes have the input's rank, so that they broadcast against it."""

    dims: tuple[int, ...]  # averaged over for the statistics
    others: tuple[int, ...]  # summed over for the gradients of weight and bias
    stats: tuple[int, ...]  # shape of mean and rstd
    parameters: tuple[int, ...]  # shape of weight and bias
    size: int  # number of elements that one mean is of


def last_dims(shape: tuple[int, ...], k: int) -> Layout:
    """Statistics over the last k dimensions, parameters of their shape."""
    shape = tuple(shape)
    lead = len(shape) - k
    stats, parameters = (*shape[:lead], *(1,) * k), (*(1,) * lead, *shape[lead:])
    return Layout(tuple(range(lead, len(shape))), tuple(range(lead)), stats, parameters, count(shape[lead:]))


def channels(shape: tuple[int, ...]) -> Layout:
    """Statistics over all dimensions but 1, parameters along dimension 1."""
    shape = tuple(shape)
    dims = (0, *range(2, len(shape)))
    kept = (1, shape[1], *(1,) * (len(shape) - 2))
    return Layout(dims, dims, kept, kept, count(shape) // (shape[1] or 1))


# ---------------------------------------------------------------- rules


def _statistics(x: Spec, *given: Spec) -> None:
    """Statistics are of the type in which x is computed, not rounded to a half type."""
    for found in given:
        if found.dtype != wide(x.dtype):
            raise TypeError(f"statistics of {x.dtype} are {wide(x.dtype)}, not {found.dtype}")


def _way_back(dy: Spec, x: Spec, weight: Spec | None, parameters: tuple[int, ...], stats: tuple[int, ...], *given: Spec) -> None:
    expect_shape("the gradient", dy, x.shape)
    expect_shape("weight", weight, parameters)
    for found in given:
        expect_shape("a statistic", found, stats)


def layer_rule(x: Spec, weight: Spec | None, bias: Spec | None, *, k: int, eps: float) -> tuple[Spec, Spec, Spec]:
    """Rule: the output, and the mean and 1/√(var + eps) of each row (sizes of 1 stand for the normalised dimensions)."""
    expect_shape("weight", weight, x.shape[len(x.shape) - k :])
    expect_shape("bias", bias, x.shape[len(x.shape) - k :])
    stats = Spec(last_dims(x.shape, k).stats, wide(x.dtype))
    return x, stats, stats


def layer_backward_rule(dy: Spec, x: Spec, weight: Spec | None, mean: Spec, rstd: Spec, *, k: int) -> tuple[Spec, Spec, Spec]:
    """Rule: gradients of input, weight and bias."""
    _statistics(x, mean, rstd)
    parameters = Spec(x.shape[len(x.shape) - k :], x.dtype)
    _way_back(dy, x, weight, parameters.shape, last_dims(x.shape, k).stats, mean, rstd)
    return x, parameters, parameters


def rms_rule(x: Spec, weight: Spec | None, *, k: int, eps: float) -> tuple[Spec, Spec]:
    """Rule: the output, and 1/√(mean square + eps) of each row."""
    expect_shape("weight", weight, x.shape[len(x.shape) - k :])
    return x, Spec(last_dims(x.shape, k).stats, wide(x.dtype))


def rms_backward_rule(dy: Spec, x: Spec, weight: Spec | None, rstd: Spec, *, k: int) -> tuple[Spec, Spec]:
    """Rule: gradients of input and weight."""
    _statistics(x, rstd)
    parameters = Spec(x.shape[len(x.shape) - k :], x.dtype)
    _way_back(dy, x, weight, parameters.shape, last_dims(x.shape, k).stats, rstd)
    return x, parameters


def batch_rule(x: Spec, weight: Spec | None, bias: Spec | None, *, eps: float) -> tuple[Spec, Spec, Spec, Spec]:
    """Rule: the output; of each channel the mean, 1/√(var + eps) and the variance (divided by n)."""
    channel = Spec(x.shape[1:2], wide(x.dtype))
    expect_shape("weight", weight, channel.shape)
    expect_shape("bias", bias, channel.shape)
    return x, channel, channel, channel


def batch_backward_rule(dy: Spec, x: Spec, weight: Spec | None, mean: Spec, rstd: Spec) -> tuple[Spec, Spec, Spec]:
    """Rule: gradients of input, weight and bias."""
    _statistics(x, mean, rstd)
    _way_back(dy, x, weight, x.shape[1:2], x.shape[1:2], mean, rstd)
    return x, Spec(x.shape[1:2], x.dtype), Spec(x.shape[1:2], x.dtype)


# ---------------------------------------------------------------- NumPy: rows (m, n), statistics of each row


def rows(x: Any, k: int) -> Any:
    """As a matrix: one row for each group that is normalised."""
    if k == 1 and x.ndim == 2:
        return x
    size = count(x.shape[x.ndim - k :])
    return x.reshape(count(x.shape[: x.ndim - k]), size)


def layer_cpu(x: Any, weight: Any, bias: Any, y: Any, mean: Any, rstd: Any, *, k: int, eps: float) -> None:
    x, out, centre, scale = rows(x, k), rows(y, k), mean.reshape(-1, 1), rstd.reshape(-1, 1)
    n = max(x.shape[1], 1)
    _add_reduce(x, 1, None, centre, True)
    centre /= n
    np.subtract(x, centre, out)
    np.vecdot(out, out, scale[:, 0])
    inverse_root(scale, n, eps)
    if far(centre, scale):
        about_mean_cpu(np.vecdot(out, out)[:, None], np.add.reduce(out, axis=1, keepdims=True), scale, n=n)
        inverse_root(scale, n, eps)
    out *= scale
    if has_zero(scale):
        lost = scale[:, 0] == 0
        out[lost], centre[lost], scale[lost], _ = in_more_range(x[lost], 1, eps)
    if weight is not None:
        out *= weight.reshape(-1)
    if bias is not None:
        out += bias.reshape(-1)


def in_more_range(x: Any, axis: int | tuple[int, ...], eps: float, centred: bool = True) -> tuple[Any, Any, Any, Any]:
    """Of numbers whose squares overflow: (x - mean)·rstd, mean, rstd and variance, computed in the processor's widest type."""
    wide = x.astype(np.longdouble)
    mean = np.mean(wide, axis=axis, keepdims=True) if centred else np.longdouble(0)
    wide -= mean
    var = np.mean(wide * wide, axis=axis, keepdims=True)
    rstd = 1 / np.sqrt(var + eps)
    return wide * rstd, mean, rstd, var


def inverse_root(scale: Any, n: int, eps: float) -> None:
    """From the sum of squares in `scale` to 1/√(mean + eps)."""
    scale += n * eps
    np.true_divide(n, scale, scale)
    np.sqrt(scale, scale)


def far(mean: Any, rstd: Any) -> bool:
    """Whether some mean is so many deviations from 0 that its rounding counts in the variance (see `about_mean`). True of NaN."""
    distance = (mean * rstd).ravel()
    return not distance.dot(distance) < 2.0**18  # the method: numpy.vdot goes through NumPy's Python dispatcher


def layer_backward_cpu(
    dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, dx: Any, dweight: Any, dbias: Any, *, k: int
) -> None:
    dy, x, out, scale = rows(dy, k), rows(x, k), rows(dx, k), rstd.reshape(-1, 1)
    normal = np.subtract(x, mean.reshape(-1, 1))
    normal *= scale
    np.multiply(dy, normal, out)
    sum_cpu(out, dweight.reshape(-1), dim=(0,), keepdim=False)
    sum_cpu(dy, dbias.reshape(-1), dim=(0,), keepdim=False)
    u = dy if weight is None else dy * weight.reshape(-1)
    n = max(x.shape[1], 1)
    normal *= np.vecdot(u, normal)[:, None] / n
    normal += np.add.reduce(u, axis=1, keepdims=True) / n
    np.subtract(u, normal, out)
    out *= scale


def rms_cpu(x: Any, weight: Any, y: Any, rstd: Any, *, k: int, eps: float) -> None:
    x, out, scale = rows(x, k), rows(y, k), rstd.reshape(-1, 1)
    np.vecdot(x, x, scale[:, 0])
    inverse_root(scale, max(x.shape[1], 1), eps)
    np.multiply(x, scale, out)
    if has_zero(scale):
        lost = scale[:, 0] == 0
        out[lost], _, scale[lost], _ = in_more_range(x[lost], 1, eps, centred=False)
    if weight is not None:
        out *= weight.reshape(-1)


def rms_backward_cpu(dy: Any, x: Any, weight: Any, rstd: Any, dx: Any, dweight: Any, *, k: int) -> None:
    dy, x, out, scale = rows(dy, k), rows(x, k), rows(dx, k), rstd.reshape(-1, 1)
    normal = x * scale
    np.multiply(dy, normal, out)
    sum_cpu(out, dweight.reshape(-1), dim=(0,), keepdim=False)
    u = dy if weight is None else dy * weight.reshape(-1)
    normal *= np.vecdot(u, normal)[:, None] / max(x.shape[1], 1)
    np.subtract(u, normal, out)
    out *= scale


# ---------------------------------------------------------------- NumPy: (batch, channel, place), statistics of each channel


def planes(x: Any) -> Any:
    """As (batch, channel, place)."""
    return x.reshape(*x.shape[:2], count(x.shape[2:]))


def channel_sum(x: Any, y: Any = None) -> Any:
    """Sums of a product (or of x) for each channel: pairwise or by dot products along the places, then in float64 over the batch."""
    if x.shape[2] == 1:
        product = x[:, :, 0] if y is None else x[:, :, 0] * y[:, :, 0]
        if len(product) <= 256:
            return np.add.reduce(product, axis=0)
        parts = np.add.reduceat(product, range(0, len(product), 256), axis=0)
    else:
        parts = np.add.reduce(x, axis=2) if y is None else np.vecdot(x, y)
    return np.add.reduce(parts, axis=0, dtype=np.float64).astype(x.dtype)


def batch_cpu(x: Any, weight: Any, bias: Any, y: Any, mean: Any, rstd: Any, var: Any, *, eps: float) -> None:
    x, out = planes(x), planes(y)
    n = max(x.shape[0] * x.shape[2], 1)
    np.true_divide(channel_sum(x), n, mean)
    np.subtract(x, mean[:, None], out)
    var[...] = rstd[...] = channel_sum(out, out)
    inverse_root(rstd, n, eps)
    if far(mean, rstd):
        about_mean_cpu(channel_sum(out, out), channel_sum(out), var, n=n)
        rstd[...] = var
        inverse_root(rstd, n, eps)
    var /= n
    if has_zero(rstd):
        lost = ~np.isfinite(var)
        _, found, own, _ = in_more_range(x[:, lost], (0, 2), eps)
        mean[lost], rstd[lost] = found[0, :, 0], own[0, :, 0]
        out[:, lost] = x[:, lost] - mean[lost, None]
    out *= (rstd if weight is None else rstd * weight)[:, None]
    if bias is not None:
        out += bias[:, None]


def batch_backward_cpu(dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, dx: Any, dweight: Any, dbias: Any) -> None:
    dy, x, out = planes(dy), planes(x), planes(dx)
    n = max(x.shape[0] * x.shape[2], 1)
    np.subtract(x, mean[:, None], out)
    dbias[...] = channel_sum(dy)
    np.multiply(channel_sum(dy, out), rstd, dweight)
    scale = rstd if weight is None else rstd * weight
    out *= (dweight * rstd / -n)[:, None]
    out += dy
    out -= (dbias / n)[:, None]
    out *= scale[:, None]


# ---------------------------------------------------------------- formulas for all of them, of first and second order


def core_backward(g: Any, normal: Any, rstd: Any, at: Layout, centred: bool) -> Any:
    """The gradient through (x - mean)·rstd: rstd·(g - mean(g) - normal·mean(g·normal)). As a function of g it is its own adjoint."""
    found = g - normal * (g * normal).mean(at.dims, keepdim=True)
    return rstd * (found - g.mean(at.dims, keepdim=True) if centred else found)


def through_statistics(dx: Any, g_mean: Any, g_rstd: Any, g_var: Any, x: Any, mean: Any, rstd: Any, at: Layout) -> Any:
    """Add to `dx` what comes by gradients of the statistics themselves (None where nothing comes). No `mean`: it is taken as 0."""
    if g_mean is not None:
        dx = dx + g_mean.reshape(at.stats) / at.size
    if g_rstd is None and g_var is None:
        return dx
    centred = x if mean is None else x - mean.reshape(at.stats)
    if g_rstd is not None:
        r = rstd.reshape(at.stats)
        dx = dx - centred * (g_rstd.reshape(at.stats) * (r * r * r) / at.size)
    return dx if g_var is None else dx + centred * (g_var.reshape(at.stats) * (2 / at.size))


def second(
    g_dx: Any, g_dweight: Any, g_dbias: Any, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, at: Layout
) -> tuple[Any, Any, Any, Any, Any]:
    """Gradients of a fused derivative's inputs (dy, x, weight, mean, rstd) from those of its outputs (dx, dweight, dbias).

    With n = (x - mean)·rstd and u = dy·weight: dx = core_backward(u), dweight = Σ dy·n, dbias = Σ dy.
    """
    r = rstd.reshape(at.stats)
    centred = x if mean is None else x - mean.reshape(at.stats)
    n = centred * r
    w = None if weight is None else weight.reshape(at.parameters)
    u = dy if w is None else dy * w
    gu = core_backward(g_dx, n, r, at, mean is not None)
    g_n = -r * (g_dx * (u * n).mean(at.dims, keepdim=True) + u * (g_dx * n).mean(at.dims, keepdim=True))
    g_r = (g_dx * (core_backward(u, n, r, at, mean is not None) / r)).sum(at.dims, keepdim=True)
    g_dy = gu if w is None else gu * w
    if g_dweight is not None:
        g_dweight = g_dweight.reshape(at.parameters)
        g_n = g_n + dy * g_dweight
        g_dy = g_dy + n * g_dweight
    if g_dbias is not None:
        g_dy = g_dy + g_dbias.reshape(at.parameters)
    g_weight = None if w is None else (gu * dy).sum_to_size(at.parameters).reshape(weight.shape)
    g_r = g_r + (g_n * centred).sum(at.dims, keepdim=True)
    g_x = g_n * r
    g_mean = None if mean is None else -g_x.sum(at.dims, keepdim=True).reshape(mean.shape)
    return g_dy, g_x, g_weight, g_mean, g_r.reshape(rstd.shape)


def _layer_gradient(g_y: Any, x: Any, weight: Any, mean: Any, rstd: Any, k: int, g_mean: Any = None, g_rstd: Any = None) -> Any:
    dx, dweight, dbias = layer_norm_backward(g_y, x, weight, mean, rstd, k=k)
    return through_statistics(dx, g_mean, g_rstd, None, x, mean, rstd, last_dims(x.shape, k)), dweight, dbias


def _rms_gradient(g_y: Any, x: Any, weight: Any, rstd: Any, k: int, g_rstd: Any = None) -> Any:
    dx, dweight = rms_norm_backward(g_y, x, weight, rstd, k=k)
    return through_statistics(dx, None, g_rstd, None, x, None, rstd, last_dims(x.shape, k)), dweight


def _batch_gradient(
    g_y: Any, x: Any, weight: Any, mean: Any, rstd: Any, g_mean: Any = None, g_rstd: Any = None, g_var: Any = None
) -> Any:
    dx, dweight, dbias = batch_norm_backward(g_y, x, weight, mean, rstd)
    return through_statistics(dx, g_mean, g_rstd, g_var, x, mean, rstd, channels(x.shape)), dweight, dbias


def _layer_second(g_dx: Any, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, k: int, g_dweight: Any = None, g_dbias: Any = None) -> Any:
    return second(g_dx, g_dweight, g_dbias, dy, x, weight, mean, rstd, last_dims(x.shape, k))


def _rms_second(g_dx: Any, dy: Any, x: Any, weight: Any, rstd: Any, k: int, g_dweight: Any = None) -> Any:
    g_dy, g_x, g_weight, _, g_rstd = second(g_dx, g_dweight, None, dy, x, weight, None, rstd, last_dims(x.shape, k))
    return g_dy, g_x, g_weight, g_rstd


def _batch_second(g_dx: Any, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, g_dweight: Any = None, g_dbias: Any = None) -> Any:
    return second(g_dx, g_dweight, g_dbias, dy, x, weight, mean, rstd, channels(x.shape))


# ---------------------------------------------------------------- the rows

layer_norm = Op("layer_norm", layer_rule, params=("k", "eps"), outputs=("y", "mean", "rstd"), cpu=layer_cpu, promote="same",
                cuda=Kernel("norm.cu", "layer_norm", "row"), autocast="float32", roundings=1,
                grad={("x", "weight", "bias"): _layer_gradient})  # fmt: skip
layer_norm_backward: Op = Op("layer_norm_backward", layer_backward_rule, params=("k",), outputs=("dx", "dweight", "dbias"),
                         cpu=layer_backward_cpu, cuda=Kernel("norm.cu", "layer_norm_backward", "row"),
                         grad={("dy", "x", "weight", "mean", "rstd"): _layer_second})  # fmt: skip
rms_norm = Op("rms_norm", rms_rule, params=("k", "eps"), outputs=("y", "rstd"), cpu=rms_cpu, promote="same",
              cuda=Kernel("norm.cu", "rms_norm", "row"), autocast="float32", roundings=1,
              grad={("x", "weight"): _rms_gradient})  # fmt: skip
rms_norm_backward: Op = Op("rms_norm_backward", rms_backward_rule, params=("k",), outputs=("dx", "dweight"), cpu=rms_backward_cpu,
                       cuda=Kernel("norm.cu", "rms_norm_backward", "row"),
                       grad={("dy", "x", "weight", "rstd"): _rms_second})  # fmt: skip
batch_norm = Op("batch_norm", batch_rule, params=("eps",), outputs=("y", "mean", "rstd", "var"), cpu=batch_cpu, promote="same",
                cuda=Kernel("norm.cu", "batch_norm", "channel"), autocast="float32", roundings=1,
                grad={("x", "weight", "bias"): _batch_gradient})  # fmt: skip
batch_norm_backward: Op = Op("batch_norm_backward", batch_backward_rule, outputs=("dx", "dweight", "dbias"), cpu=batch_backward_cpu,
                         cuda=Kernel("norm.cu", "batch_norm_backward", "channel"),
                         grad={("dy", "x", "weight", "mean", "rstd"): _batch_second})  # fmt: skip


def running_cpu(average: Any, value: Any, y: Any, *, keep: float, take: float) -> None:
    np.multiply(value, value.dtype.type(take), y)
    y += average * average.dtype.type(keep)


def running_rule(average: Spec, value: Spec, *, keep: float, take: float) -> Spec:
    """Rule: two inputs of one dtype, broadcast."""
    return broadcast(average, value)


running = Op("running", running_rule, params=("keep", "take"), cpu=running_cpu, promote="float",
             cuda=Elementwise("average * T(keep) + value * T(take)"),
             grad={"average": lambda g, keep: g * keep, "value": lambda g, take: g * take})  # fmt: skip
