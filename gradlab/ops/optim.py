"""Rows of the optimizers: one row is one parameter's whole update, with all that it keeps.

Inputs are the parameter `p`, its gradient `grad`, the buffers, the number of steps done so far (`step`, 0-d) and the hyper-parameters
`h`, a float64 vector; they are inputs and not parameters of the row so that a schedule can change them between two runs of a static
program. Outputs are the new parameter and the new buffers. A `cpu` function may be given its own inputs as outputs: that is how the eager
step works in place.
Bias corrections are computed in float64 inside the row, so eager and static runs agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT64
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec

BLOCK = 32768  # elements that a large update works on at a time: all operands of a block stay in the cache


def like(p: Spec, grad: Spec, *buffers: Spec | None) -> tuple[Spec, ...]:
    """The Specs of the new parameter and its elementwise buffers; raises where the gradient or a buffer does not fit the parameter."""
    for found in (grad, *buffers):
        if found is not None and found.shape != p.shape:
            raise ShapeError(f"the parameter has shape {p.shape}, its gradient or a buffer has shape {found.shape}")
        if found is not None and found.dtype != p.dtype:
            raise TypeError(f"the parameter has dtype {p.dtype}, its gradient or a buffer has dtype {found.dtype}")
    return (p,) * (1 + len(buffers))


def numbers(h: Any) -> tuple[float, ...]:
    """The hyper-parameters as Python numbers."""
    return tuple((h if h.dtype is FLOAT64 else h.astype(FLOAT64)).tolist())


def packed(h: Any) -> bytes:
    """The hyper-parameters as the bytes of float64 numbers: the fastest key to look up what was computed of them before."""
    return (h if h.dtype is FLOAT64 else h.astype(FLOAT64)).tobytes()


def unpacked(h: bytes) -> list[float]:
    """The numbers again."""
    numbers: list[float] = np.frombuffer(h, FLOAT64).tolist()
    return numbers


def constants(dtype: Any, *values: float | None) -> tuple[Any, ...]:
    """Numbers as 0-d arrays: NumPy computes much faster with them than with Python numbers. None and 0 give None."""
    return tuple(np.array(v, dtype) if v else None for v in values)


def blockwise(kernel: Callable[..., None], scalars: Any, arrays: Sequence[Any], two: bool = True) -> None:
    """`kernel(scalars, scratch, scratch, *arrays)` on the whole arrays, or block by block where they are large.

    two: whether the first scratch is needed.
    """
    p = arrays[0]
    if p.size <= BLOCK or not all(a is None or a.flags.c_contiguous for a in arrays):
        t = np.empty(p.shape, p.dtype)
        kernel(scalars, np.empty(p.shape, p.dtype) if two else t, t, *arrays)
        return
    flat = [None if a is None else a.reshape(-1) for a in arrays]
    s, t = np.empty(BLOCK, p.dtype), np.empty(BLOCK, p.dtype)
    for start in range(0, p.size, BLOCK):
        part = slice(start, start + BLOCK)
        length = min(BLOCK, p.size - start)
        kernel(scalars, s[:length], t[:length], *[None if a is None else a[part] for a in flat])


def decayed(g: Any, p: Any, weight_decay: Any, maximize: bool, s: Any, t: Any) -> Any:
    """The gradient to use: negated to maximize, with the weight decay's part; itself, or in `s`."""
    if maximize:
        g = np.negative(g, s)
    if weight_decay is not None:
        g = np.add(g, np.multiply(p, weight_decay, t), s)
    return g


def average(mean: Any, g: Any, weight: Any, out: Any, t: Any) -> None:
    """mean + weight · (g - mean)"""
    np.subtract(g, mean, t)
    np.multiply(t, weight, t)
    np.add(mean, t, out)


def average_square(mean: Any, g: Any, keep: Any, weight: Any, out: Any, t: Any) -> None:
    """keep · mean + weight · g²; a factor of 0 comes as None."""
    if keep is None:
        out.fill(0)
    else:
        np.multiply(mean, keep, out)
    if weight is not None:
        np.multiply(g, g, t)
        np.multiply(t, weight, t)
        np.add(out, t, out)


# ---------------------------------------------------------------- SGD: h = lr, weight_decay, momentum, dampening


def sgd_rule(p: Spec, grad: Spec, h: Spec, *, maximize: bool) -> Spec:
    """Rule: the new parameter."""
    return like(p, grad)[0]


@lru_cache(64)
def _sgd_constants(dtype: str, h: bytes) -> tuple[Any, ...]:
    lr, weight_decay, momentum, dampening = unpacked(h)
    share = None if dampening == 0 else np.array(1 - dampening, dtype)
    return np.array(lr, dtype), *constants(dtype, weight_decay), np.array(momentum, dtype), share


def sgd_cpu(p: Any, g: Any, h: Any, new_p: Any, *, maximize: bool) -> None:
    """p - lr · (g + weight_decay · p)"""

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, new_p: Any) -> None:
        g = decayed(g, p, c[1], maximize, s, t)
        np.subtract(p, np.multiply(g, c[0], t), new_p)

    found = _sgd_constants(p.dtype.char, packed(h))
    blockwise(kernel, found, (p, g, new_p), maximize or found[1] is not None)


sgd_update = Op("sgd_update", sgd_rule, cpu=sgd_cpu, cuda=Kernel("optim.cu", "sgd_update", "update"), params=("maximize",))


def sgd_momentum_rule(p: Spec, grad: Spec, buffer: Spec | None, h: Spec, *, nesterov: bool, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter and momentum buffer."""
    return like(p, grad, buffer)


def sgd_momentum_cpu(
    p: Any, g: Any, buffer: Any, h: Any, new_p: Any, new_buffer: Any, *, nesterov: bool, maximize: bool
) -> None:
    """buffer = momentum · buffer + (1 - dampening) · g, at first g itself; p - lr · that, with Nesterov p - lr · (g + momentum · that)."""

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, buffer: Any, new_p: Any, new_buffer: Any) -> None:
        lr, weight_decay, momentum, share = c
        g = decayed(g, p, weight_decay, maximize, s, t)
        if buffer is None:
            np.copyto(new_buffer, g)
        else:
            np.multiply(buffer, momentum, new_buffer)
            np.add(new_buffer, g if share is None else np.multiply(g, share, t), new_buffer)
        step = new_buffer
        if nesterov:
            step = np.add(np.multiply(new_buffer, momentum, t), g, t)
        np.subtract(p, np.multiply(step, lr, t), new_p)

    found = _sgd_constants(p.dtype.char, packed(h))
    blockwise(kernel, found, (p, g, buffer, new_p, new_buffer), maximize or found[1] is not None)


sgd_momentum_update = Op("sgd_momentum_update", sgd_momentum_rule, cpu=sgd_momentum_cpu, params=("nesterov", "maximize"),
                         cuda=Kernel("optim.cu", "sgd_momentum_update", "update"), outputs=("new_p", "new_buffer"))  # fmt: skip

# ---------------------------------------------------------------- Adam and AdamW: h = lr, beta1, beta2, eps, weight_decay


def adam_rule(p: Spec, grad: Spec, mean: Spec, square: Spec, step: Spec, h: Spec, *, decoupled: bool, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, running mean and running mean of squares, and the count of steps."""
    return (*like(p, grad, mean, square), step)


def amsgrad_rule(
    p: Spec, grad: Spec, mean: Spec, square: Spec, largest: Spec, step: Spec, h: Spec, *, decoupled: bool, maximize: bool
) -> tuple[Spec, ...]:
    """Rule: as Adam's, with the largest running mean of squares so far."""
    return (*like(p, grad, mean, square, largest), step)


@lru_cache(64)
def _adam_constants(dtype: str, h: bytes, step: float) -> tuple[Any, ...]:
    lr, beta1, beta2, eps, weight_decay = unpacked(h)
    root = (1 - beta2**step) ** 0.5
    size = lr * root / (1 - beta1**step)
    return (
        *constants(dtype, 1 - beta1, beta2, 1 - beta2, weight_decay),
        *(np.array(v, dtype) for v in (eps * root, size, 1 - lr * weight_decay)),
    )


def _adam_kernel(
    c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, square: Any, largest: Any,
    new_p: Any, new_mean: Any, new_square: Any, new_largest: Any, *, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    weight1, beta2, weight2, weight_decay, eps, size, shrink = c
    g = decayed(g, p, None if decoupled else weight_decay, maximize, s, t)
    average(mean, g, weight1, new_mean, t)
    average_square(square, g, beta2, weight2, new_square, t)
    if largest is None:
        np.sqrt(new_square, t)
    else:
        np.sqrt(np.maximum(largest, new_square, out=new_largest), t)
    np.add(t, eps, t)
    np.divide(new_mean, t, t)
    np.multiply(t, size, t)
    if decoupled and weight_decay is not None:
        p = np.multiply(p, shrink, new_p)
    np.subtract(p, t, new_p)


def adam_cpu(
    p: Any, g: Any, mean: Any, square: Any, step: Any, h: Any,
    new_p: Any, new_mean: Any, new_square: Any, new_step: Any, *, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    """Adam (Kingma and Ba, 2015, algorithm 1) with weight decay in the gradient, or decoupled from it (Loshchilov and Hutter, 2019)."""

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, square: Any, new_p: Any, new_mean: Any, new_square: Any) -> None:
        _adam_kernel(c, s, t, p, g, mean, square, None, new_p, new_mean, new_square, None, decoupled=decoupled, maximize=maximize)

    count = step.item() + 1
    found = _adam_constants(p.dtype.char, packed(h), count)
    blockwise(kernel, found, (p, g, mean, square, new_p, new_mean, new_square), maximize or found[3] is not None)
    new_step[...] = count


def amsgrad_cpu(
    p: Any, g: Any, mean: Any, square: Any, largest: Any, step: Any, h: Any,
    new_p: Any, new_mean: Any, new_square: Any, new_largest: Any, new_step: Any, *, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    """Adam with the largest running mean of squares in place of the last (Reddi, Kale and Kumar, 2018)."""

    def kernel(c: Any, s: Any, t: Any, *arrays: Any) -> None:
        _adam_kernel(c, s, t, *arrays, decoupled=decoupled, maximize=maximize)

    count = step.item() + 1
    arrays = (p, g, mean, square, largest, new_p, new_mean, new_square, new_largest)
    blockwise(kernel, _adam_constants(p.dtype.char, packed(h), count), arrays)
    new_step[...] = count


adam_update = Op("adam_update", adam_rule, cpu=adam_cpu, cuda=Kernel("optim.cu", "adam_update", "update"), params=("decoupled", "maximize"),
                 outputs=("new_p", "new_mean", "new_square", "new_step"))  # fmt: skip
amsgrad_update = Op("amsgrad_update", amsgrad_rule, cpu=amsgrad_cpu, cuda=Kernel("optim.cu", "amsgrad_update", "update"),
                    params=("decoupled", "maximize"),
                    outputs=("new_p", "new_mean", "new_square", "new_largest", "new_step"))  # fmt: skip

# ---------------------------------------------------------------- Lion: h = lr, beta1, beta2, weight_decay


def lion_rule(p: Spec, grad: Spec, mean: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter and running mean."""
    return like(p, grad, mean)


@lru_cache(64)
def _lion_constants(dtype: str, h: bytes) -> tuple[Any, ...]:
    lr, beta1, beta2, weight_decay = unpacked(h)
    return tuple(np.array(v, dtype) for v in (lr, beta1, 1 - beta1, beta2, 1 - beta2, 1 - lr * weight_decay))


def lion_cpu(p: Any, g: Any, mean: Any, h: Any, new_p: Any, new_mean: Any, *, maximize: bool) -> None:
    """(1 - lr · weight_decay) · p - lr · sign(beta1 · mean + (1 - beta1) · g); mean = beta2 · mean + (1 - beta2) · g (Chen, 2023)."""

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, new_p: Any, new_mean: Any) -> None:
        lr, beta1, weight1, beta2, weight2, shrink = c
        if maximize:
            g = np.negative(g)
        np.add(np.multiply(mean, beta1, t), np.multiply(g, weight1, s), t)
        np.multiply(np.sign(t, t), lr, t)
        np.add(np.multiply(mean, beta2, new_mean), np.multiply(g, weight2, s), new_mean)
        np.subtract(np.multiply(p, shrink, new_p), t, new_p)

    blockwise(kernel, _lion_constants(p.dtype.char, packed(h)), (p, g, mean, new_p, new_mean))


lion_update = Op("lion_update", lion_rule, cpu=lion_cpu, cuda=Kernel("optim.cu", "lion_update", "update"), params=("maximize",),
                 outputs=("new_p", "new_mean"))  # fmt: skip
