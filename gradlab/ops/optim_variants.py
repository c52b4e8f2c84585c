"""Rows of the less common optimizers; what holds for all of them is said in `ops/optim.py`. Formulas as in PyTorch's documentation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.optim import average, average_square, blockwise, constants, decayed, like, numbers, packed, unpacked
from gradlab.spec import Spec


def zero_d(dtype: Any, *values: float) -> tuple[Any, ...]:
    """Numbers as 0-d arrays, zeros too."""
    return tuple(np.array(v, dtype) for v in values)


# ---------------------------------------------------------------- RMSprop: h = lr, alpha, eps, weight_decay, momentum


@lru_cache(64)
def _rmsprop_constants(dtype: str, h: bytes) -> tuple[Any, ...]:
    lr, alpha, eps, weight_decay, momentum = unpacked(h)
    return *constants(dtype, weight_decay, alpha, 1 - alpha), *zero_d(dtype, lr, eps, momentum)


def _rmsprop(
    p: Any, grad: Any, square: Any, mean: Any, buffer: Any, h: Any,
    new_p: Any, new_square: Any, new_mean: Any, new_buffer: Any, maximize: bool,
) -> None:  # fmt: skip
    """g / (sqrt(running mean of g², centered: minus that of g, squared) + eps), added up with momentum, times lr."""

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, square: Any, mean: Any, buffer: Any, *outs: Any) -> None:
        new_p, new_square, new_mean, new_buffer = outs
        weight_decay, alpha, share, lr, eps, momentum = c
        g = decayed(g, p, weight_decay, maximize, s, t)
        average_square(square, g, alpha, share, new_square, t)
        if mean is None:
            np.sqrt(new_square, t)
        else:
            if share is not None:
                average(mean, g, share, new_mean, t)
            elif new_mean is not mean:
                np.copyto(new_mean, mean)
            np.multiply(new_mean, new_mean, t)
            np.sqrt(np.maximum(np.subtract(new_square, t, t), 0, out=t), t)  # rounding may leave a variance of 0 below 0
        np.add(t, eps, t)
        np.divide(g, t, t)
        if buffer is not None:
            np.multiply(buffer, momentum, new_buffer)
            np.add(new_buffer, t, new_buffer)
            np.multiply(new_buffer, lr, t)
        else:
            np.multiply(t, lr, t)
        np.subtract(p, t, new_p)

    blockwise(kernel, _rmsprop_constants(p.dtype.char, packed(h)), (p, grad, square, mean, buffer, new_p, new_square, new_mean, new_buffer))


def rmsprop_rule(p: Spec, grad: Spec, square: Spec, step: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, running mean of squares, count of steps."""
    return (*like(p, grad, square), step)


def rmsprop_cpu(p: Any, grad: Any, square: Any, step: Any, h: Any, new_p: Any, new_square: Any, new_step: Any, *, maximize: bool) -> None:
    _rmsprop(p, grad, square, None, None, h, new_p, new_square, None, None, maximize)
    np.add(step, 1, out=new_step)


def rmsprop_two_rule(p: Spec, grad: Spec, square: Spec, other: Spec, step: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: as above, with one more buffer: the running mean, or the momentum."""
    return (*like(p, grad, square, other), step)


def rmsprop_centered_cpu(
    p: Any, grad: Any, square: Any, other: Any, step: Any, h: Any,
    new_p: Any, new_square: Any, new_other: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    _rmsprop(p, grad, square, other, None, h, new_p, new_square, new_other, None, maximize)
    np.add(step, 1, out=new_step)


def rmsprop_momentum_cpu(
    p: Any, grad: Any, square: Any, other: Any, step: Any, h: Any,
    new_p: Any, new_square: Any, new_other: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    _rmsprop(p, grad, square, None, other, h, new_p, new_square, None, new_other, maximize)
    np.add(step, 1, out=new_step)


def rmsprop_three_rule(
    p: Spec, grad: Spec, square: Spec, mean: Spec, buffer: Spec, step: Spec, h: Spec, *, maximize: bool
) -> tuple[Spec, ...]:
    """Rule: as above, with both."""
    return (*like(p, grad, square, mean, buffer), step)


def rmsprop_full_cpu(
    p: Any, grad: Any, square: Any, mean: Any, buffer: Any, step: Any, h: Any,
    new_p: Any, new_square: Any, new_mean: Any, new_buffer: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    _rmsprop(p, grad, square, mean, buffer, h, new_p, new_square, new_mean, new_buffer, maximize)
    np.add(step, 1, out=new_step)


def _row(name: str, rule: Any, cpu: Any, outputs: tuple[str, ...], params: tuple[str, ...] = ("maximize",)) -> Op:
    return Op(name, rule, cpu=cpu, cuda=Kernel("optim.cu", name, "update"), params=params, outputs=tuple(f"new_{o}" for o in outputs))


rmsprop_update = _row("rmsprop_update", rmsprop_rule, rmsprop_cpu, ("p", "square", "step"))
rmsprop_centered_update = _row("rmsprop_centered_update", rmsprop_two_rule, rmsprop_centered_cpu, ("p", "square", "other", "step"))
rmsprop_momentum_update = _row("rmsprop_momentum_update", rmsprop_two_rule, rmsprop_momentum_cpu, ("p", "square", "other", "step"))
rmsprop_centered_momentum_update = _row(
    "rmsprop_centered_momentum_update", rmsprop_three_rule, rmsprop_full_cpu, ("p", "square", "mean", "buffer", "step")
)

# ---------------------------------------------------------------- Adagrad: h = lr, lr_decay, weight_decay, eps


def adagrad_rule(p: Spec, grad: Spec, total: Spec, step: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, sum of squares, count of steps."""
    return (*like(p, grad, total), step)


def adagrad_cpu(p: Any, grad: Any, total: Any, step: Any, h: Any, new_p: Any, new_total: Any, new_step: Any, *, maximize: bool) -> None:
    """lr / (1 + (step - 1) · lr_decay) · g / (sqrt(sum of g²) + eps)"""
    lr, lr_decay, weight_decay, eps = numbers(h)
    count = step.item() + 1

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, total: Any, new_p: Any, new_total: Any) -> None:
        g = decayed(g, p, c[0], maximize, s, t)
        np.add(total, np.multiply(g, g, t), new_total)
        np.add(np.sqrt(new_total, t), c[1], t)
        np.multiply(np.divide(g, t, t), c[2], t)
        np.subtract(p, t, new_p)

    scalars = *constants(p.dtype, weight_decay), *zero_d(p.dtype, eps, lr / (1 + (count - 1) * lr_decay))
    blockwise(kernel, scalars, (p, grad, total, new_p, new_total))
    new_step[...] = count


adagrad_update = _row("adagrad_update", adagrad_rule, adagrad_cpu, ("p", "total", "step"))

# ---------------------------------------------------------------- Adadelta: h = lr, rho, eps, weight_decay


def adadelta_rule(p: Spec, grad: Spec, square: Spec, delta: Spec, step: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, running means of the squares of gradients and of changes, count of steps."""
    return (*like(p, grad, square, delta), step)


def adadelta_cpu(
    p: Any, grad: Any, square: Any, delta: Any, step: Any, h: Any,
    new_p: Any, new_square: Any, new_delta: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    """sqrt(mean square of changes + eps) / sqrt(mean square of gradients + eps) · g, times lr (Zeiler, 2012)."""
    lr, rho, eps, weight_decay = numbers(h)

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, square: Any, delta: Any, new_p: Any, new_square: Any, new_delta: Any) -> None:
        decay, keep, share, eps, lr = c
        g = decayed(g, p, decay, maximize, s, t)
        average_square(square, g, keep, share, new_square, t)
        np.sqrt(np.add(delta, eps, t), t)
        change = np.multiply(g, t, s)
        np.sqrt(np.add(new_square, eps, t), t)
        np.divide(change, t, change)
        average_square(delta, change, keep, share, new_delta, t)
        np.subtract(p, np.multiply(change, lr, t), new_p)

    scalars = *constants(p.dtype, weight_decay, rho, 1 - rho), *zero_d(p.dtype, eps, lr)
    blockwise(kernel, scalars, (p, grad, square, delta, new_p, new_square, new_delta))
    np.add(step, 1, out=new_step)


adadelta_update = _row("adadelta_update", adadelta_rule, adadelta_cpu, ("p", "square", "delta", "step"))

# ---------------------------------------------------------------- Adamax: h = lr, beta1, beta2, eps, weight_decay


def adamax_rule(p: Spec, grad: Spec, mean: Spec, largest: Spec, step: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, running mean, decaying maximum, count of steps."""
    return (*like(p, grad, mean, largest), step)


def adamax_cpu(
    p: Any, grad: Any, mean: Any, largest: Any, step: Any, h: Any,
    new_p: Any, new_mean: Any, new_largest: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    """lr / (1 - beta1^step) · mean / max(beta2 · largest, |g| + eps) (Kingma and Ba, 2015, algorithm 2)."""
    lr, beta1, beta2, eps, weight_decay = numbers(h)
    count = step.item() + 1

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, largest: Any, new_p: Any, new_mean: Any, new_largest: Any) -> None:
        decay, share, beta2, eps, size = c
        g = decayed(g, p, decay, maximize, s, t)
        average(mean, g, share, new_mean, t)
        np.add(np.abs(g, t), eps, t)
        np.multiply(largest, beta2, new_largest)
        np.maximum(new_largest, t, out=new_largest)
        np.multiply(np.divide(new_mean, new_largest, t), size, t)
        np.subtract(p, t, new_p)

    scalars = *constants(p.dtype, weight_decay), *zero_d(p.dtype, 1 - beta1, beta2, eps, lr / (1 - beta1**count))
    blockwise(kernel, scalars, (p, grad, mean, largest, new_p, new_mean, new_largest))
    new_step[...] = count


adamax_update = _row("adamax_update", adamax_rule, adamax_cpu, ("p", "mean", "largest", "step"))

# ---------------------------------------------------------------- NAdam: h = lr, beta1, beta2, eps, weight_decay, momentum_decay


def nadam_rule(
    p: Spec, grad: Spec, mean: Spec, square: Spec, product: Spec, step: Spec, h: Spec, *, decoupled: bool, maximize: bool
) -> tuple[Spec, ...]:
    """Rule: the new parameter, running means, product of momenta (0-d), count of steps."""
    return (*like(p, grad, mean, square), product, step)


def nadam_cpu(
    p: Any, grad: Any, mean: Any, square: Any, product: Any, step: Any, h: Any,
    new_p: Any, new_mean: Any, new_square: Any, new_product: Any, new_step: Any, *, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    """Adam with Nesterov's momentum (Dozat, 2016), with the momentum schedule mu = beta1 · (1 - 0.96^(step · momentum_decay) / 2)."""
    lr, beta1, beta2, eps, weight_decay, momentum_decay = numbers(h)
    count = step.item() + 1
    mu = beta1 * (1 - 0.5 * 0.96 ** (count * momentum_decay))
    following = beta1 * (1 - 0.5 * 0.96 ** ((count + 1) * momentum_decay))
    new_product[...] = float(product) * mu
    done = float(new_product)
    root = (1 - beta2**count) ** 0.5

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, square: Any, new_p: Any, new_mean: Any, new_square: Any) -> None:
        decay, share1, keep, share2, eps, by_gradient, by_mean, shrink = c
        g = decayed(g, p, None if decoupled else decay, maximize, s, t)
        average(mean, g, share1, new_mean, t)
        average_square(square, g, keep, share2, new_square, t)
        np.multiply(g, by_gradient, s)
        np.add(s, np.multiply(new_mean, by_mean, t), s)
        np.divide(s, np.add(np.sqrt(new_square, t), eps, t), s)
        if decoupled and decay is not None:
            p = np.multiply(p, shrink, new_p)
        np.subtract(p, s, new_p)

    scalars = (
        *constants(p.dtype, weight_decay),
        *zero_d(p.dtype, 1 - beta1),
        *constants(p.dtype, beta2, 1 - beta2),
        *zero_d(
            p.dtype, eps * root, lr * (1 - mu) / (1 - done) * root, lr * following / (1 - done * following) * root, 1 - lr * weight_decay
        ),
    )
    blockwise(kernel, scalars, (p, grad, mean, square, new_p, new_mean, new_square))
    new_step[...] = count


nadam_update = _row("nadam_update", nadam_rule, nadam_cpu, ("p", "mean", "square", "product", "step"), ("decoupled", "maximize"))

# ---------------------------------------------------------------- RAdam: h = lr, beta1, beta2, eps, weight_decay


def radam_rule(p: Spec, grad: Spec, mean: Spec, square: Spec, step: Spec, h: Spec, *, decoupled: bool, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, running means, count of steps."""
    return (*like(p, grad, mean, square), step)


def radam_cpu(
    p: Any, grad: Any, mean: Any, square: Any, step: Any, h: Any,
    new_p: Any, new_mean: Any, new_square: Any, new_step: Any, *, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    """Adam with its variance rectified; plain momentum while there are too few steps to estimate it (Liu et al., 2020)."""
    lr, beta1, beta2, eps, weight_decay = numbers(h)
    count = step.item() + 1
    correction1, correction2 = 1 - beta1**count, 1 - beta2**count
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * count * beta2**count / correction2
    size = lr / correction1
    rectified = length > 5
    if rectified:
        size *= ((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length) * correction2) ** 0.5

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, square: Any, new_p: Any, new_mean: Any, new_square: Any) -> None:
        decay, share1, keep, share2, eps, size, shrink = c
        g = decayed(g, p, None if decoupled else decay, maximize, s, t)
        average(mean, g, share1, new_mean, t)
        average_square(square, g, keep, share2, new_square, t)
        if decoupled and decay is not None:
            p = np.multiply(p, shrink, new_p)
        if rectified:
            np.divide(new_mean, np.add(np.sqrt(new_square, t), eps, t), t)
            np.multiply(t, size, t)
        else:
            np.multiply(new_mean, size, t)
        np.subtract(p, t, new_p)

    scalars = (
        *constants(p.dtype, weight_decay),
        *zero_d(p.dtype, 1 - beta1),
        *constants(p.dtype, beta2, 1 - beta2),
        *zero_d(p.dtype, eps, size, 1 - lr * weight_decay),
    )
    blockwise(kernel, scalars, (p, grad, mean, square, new_p, new_mean, new_square))
    new_step[...] = count


radam_update = _row("radam_update", radam_rule, radam_cpu, ("p", "mean", "square", "step"), ("decoupled", "maximize"))

# ---------------------------------------------------------------- ASGD: h = lr, lambd, alpha, t0, weight_decay


def asgd_rule(
    p: Spec, grad: Spec, mean: Spec, eta: Spec, mu: Spec, step: Spec, h: Spec, *, maximize: bool
) -> tuple[Spec, ...]:
    """Rule: the new parameter, its average, step size and weight of the next step (0-d), count of steps."""
    return (*like(p, grad, mean), eta, mu, step)


def asgd_cpu(
    p: Any, grad: Any, mean: Any, eta: Any, mu: Any, step: Any, h: Any,
    new_p: Any, new_mean: Any, new_eta: Any, new_mu: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    """p · (1 - lambd · eta) - eta · g, averaged from step t0 on (Polyak and Juditsky, 1992; schedule as in Bottou's sgd)."""
    lr, lambd, alpha, t0, weight_decay = numbers(h)
    count = step.item() + 1
    size, weight = float(eta), float(mu)
    next_size = lr / (1 + lambd * lr * count) ** alpha  # before anything is written: Python may refuse it
    if isinstance(next_size, complex):
        raise ValueError(f"1 + lambd·lr·step is negative and has no power: lambd={lambd}, lr={lr}, step {count}")

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, mean: Any, new_p: Any, new_mean: Any) -> None:
        decay, shrink, size, weight = c
        g = decayed(g, p, decay, maximize, s, t)
        np.multiply(p, shrink, new_p)
        np.subtract(new_p, np.multiply(g, size, t), new_p)
        if weight is None:
            np.copyto(new_mean, new_p)
        else:
            average(mean, new_p, weight, new_mean, t)

    scalars = *constants(p.dtype, weight_decay), *zero_d(p.dtype, 1 - lambd * size, size)
    blockwise(kernel, (*scalars, None if weight == 1 else np.array(weight, p.dtype)), (p, grad, mean, new_p, new_mean))
    new_eta[...] = next_size
    new_mu[...] = 1 / max(1, count - t0)
    new_step[...] = count


asgd_update = _row("asgd_update", asgd_rule, asgd_cpu, ("p", "mean", "eta", "mu", "step"))

# ---------------------------------------------------------------- Rprop: h = eta-, eta+, smallest, largest


def rprop_rule(p: Spec, grad: Spec, previous: Spec, size: Spec, step: Spec, h: Spec, *, maximize: bool) -> tuple[Spec, ...]:
    """Rule: the new parameter, the gradient to compare with next time, step sizes, count of steps."""
    return (*like(p, grad, previous, size), step)


def rprop_cpu(
    p: Any, grad: Any, previous: Any, size: Any, step: Any, h: Any,
    new_p: Any, new_previous: Any, new_size: Any, new_step: Any, *, maximize: bool,
) -> None:  # fmt: skip
    """Each element has a step size: larger where the gradient kept its sign, smaller where it changed; there it is skipped once."""

    def kernel(c: Any, s: Any, t: Any, p: Any, g: Any, previous: Any, size: Any, new_p: Any, new_previous: Any, new_size: Any) -> None:
        less, more, smallest, largest = c
        if maximize:
            g = np.negative(g, s)
        np.multiply(g, previous, t)
        turned = t < 0
        kept = t > 0
        t.fill(1)
        np.copyto(t, less, where=turned)
        np.copyto(t, more, where=kept)
        np.multiply(size, t, new_size)
        np.clip(new_size, smallest, largest, out=new_size)
        np.copyto(new_previous, g)
        np.copyto(new_previous, 0, where=turned)
        np.sign(new_previous, t)
        np.subtract(p, np.multiply(t, new_size, t), new_p)

    blockwise(kernel, zero_d(p.dtype, *numbers(h)), (p, grad, previous, size, new_p, new_previous, new_size))
    np.add(step, 1, out=new_step)


rprop_update = _row("rprop_update", rprop_rule, rprop_cpu, ("p", "previous", "size", "step"))
