"""Random numbers: functions that make tensors of them. Methods that fill tensors are in `random_in_place.py`.

What a word of the generator means for each function is written down in `gradlab/ops/random.py`.
"""

from __future__ import annotations

import functools
import math
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import apply, bind, wrap
from gradlab.device import Device, default_device
from gradlab.dispatch import by_kernel
from gradlab.dtype import (
    BOOL,
    COMPLEX,
    FLOAT32,
    FLOAT64,
    FLOATING,
    INEXACT,
    INT64,
    as_numpy,
    finfo,
    from_numpy,
    get_default_dtype,
    iinfo,
    needs_floating,
    real_of,
    result_type,
)  # fmt: skip
from gradlab.named_errors import named_functions
from gradlab.op import NEVER
from gradlab.spec import broadcast_shapes, count, whole
from gradlab.tensor import common_arguments
from gradlab.tensor.complex import complex
from gradlab.tensor.generator import Generator, draw, undisturbed
from gradlab.tensor.memory_formats import copied, laid_as
from gradlab.tensor.shape import sizes

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
]  # fmt: skip

_rows = ops.random
_bernoulli, _poisson, _multinomial, _normal_of = map(bind, (_rows.bernoulli, _rows.poisson, _rows.multinomial, _rows.normal_of))


def _shape(values: tuple[Any, ...]) -> tuple[int, ...]:
    shape = sizes(values)
    if shape and min(shape) < 0:
        raise RuntimeError(f"a size cannot be negative: {shape}")
    return shape


def words_of(kind: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    size = prod(shape)
    if kind == "normal":
        return (size + 1) // 2 * 2
    return (size + 1) // 2 if kind == "uniform" and dtype != FLOAT64 else size


LARGE = 1 << 15  # elements that threads share
KINDS = {kind: getattr(_rows, f"random_{kind}") for kind in ("uniform", "normal", "integers", "exponential", "permutation")}
WHOLE = frozenset({"integers", "permutation"})
SHARED = frozenset({"uniform", "normal", "integers"})
_device = functools.lru_cache(maxsize=64)(Device)  # of a name


def make(
    kind: str, shape: tuple[int, ...], dtype: np.dtype[Any], device: Device, generator: Generator | None, **params: Any
) -> Tensor:
    """Run the row `random_<kind>`. Complex numbers are made of two real ones; `std` is that of the number, mean that of the real part."""
    if device.type == "cpu" and (dtype is FLOAT32 or dtype is FLOAT64 or (dtype is INT64 and kind in WHOLE)):
        source = undisturbed(generator)
        if source is not None:
            row = KINDS[kind]
            if kind in SHARED and prod(shape) >= LARGE and row.pays != NEVER:
                made = by_kernel(row, (source.state_array(),), {"shape": shape, "dtype": dtype, "offset": 0, **params})
                if made is not None:
                    source.advance(words_of(kind, shape, dtype))
                    return wrap(made)
            y = np.empty(shape, dtype)
            row.quietly((source._seed, source.advance(words_of(kind, shape, dtype))), y, shape=shape, dtype=dtype, offset=0, **params)
            return wrap(y)
    if dtype in COMPLEX:
        if kind not in ("normal", "uniform"):
            raise RuntimeError(f"random numbers of kind {kind} are real, not {from_numpy(dtype)}; make a complex number of two of them")
        mean = params.pop("mean", None)
        own = params if mean is None else {"mean": 0.0, "std": params["std"] / math.sqrt(2)}
        parts: Any = make(kind, (*shape, 2), real_of(dtype), device, generator, **own)
        found: Any = complex(parts.select(-1, 0), parts.select(-1, 1))
        return found + mean if mean else found
    state, offset = draw(generator, words_of(kind, shape, dtype), device)
    return apply(KINDS[kind], (state,), {"shape": shape, "dtype": dtype, "offset": offset, **params})


def _place(device: Any, generator: Generator | None) -> Device:
    if device is not None:
        return _device(device) if type(device) is str else Device(device)
    return generator.device if isinstance(generator, Generator) else default_device()


def _floating(name: str, dtype: Any) -> np.dtype[Any]:
    if dtype is None:
        return get_default_dtype().dtype
    chosen = as_numpy(dtype)
    if chosen not in INEXACT:
        raise RuntimeError(f"{name}: makes floating point numbers, not {from_numpy(chosen)}; use randint for integers")
    return chosen


def rand(
    *size: Any, generator: Generator | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """Numbers uniformly distributed over [0, 1).

    >>> x = gl.rand(1000)
    >>> x.min() >= 0, x.max() < 1
    (tensor(True), tensor(True))
    """
    if options:
        size = common_arguments.sized("rand", size, options)
    if out is not None:
        again = functools.partial(rand, *size, generator=generator)
        return common_arguments.made("rand", out, dtype, device, lambda dtype, device: again(dtype=dtype, device=device))
    made = make("uniform", _shape(size), _floating("rand", dtype), _place(device, generator), generator, low=0.0, high=1.0)
    return made.requires_grad_() if requires_grad else made


def randn(
    *size: Any, generator: Generator | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers of mean 0 and variance 1.

    >>> gl.randn(2, 3).shape
    (2, 3)
    """
    if options:
        size = common_arguments.sized("randn", size, options)
    if out is not None:
        again = functools.partial(randn, *size, generator=generator)
        return common_arguments.made("randn", out, dtype, device, lambda dtype, device: again(dtype=dtype, device=device))
    made = make("normal", _shape(size), _floating("randn", dtype), _place(device, generator), generator, mean=0.0, std=1.0)
    return made.requires_grad_() if requires_grad else made


def integers(name: str, low: int, high: int, shape: Any, dtype: np.dtype[Any], device: Device, generator: Generator | None) -> Tensor:
    low, high = fitting(name, low, high, dtype)
    return make("integers", shape, dtype, device, generator, low=low, high=high)


def fitting(name: str, low: Any, high: Any, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The ends of a range of integers. RuntimeError where it is empty, or the dtype does not hold all of it."""
    low, high = whole(low), whole(high)
    if low >= high:
        raise RuntimeError(f"{name}: there is no integer from {low} up to, but not including, {high}")
    first, last = limits(dtype)
    if low < first or high - 1 > last:
        raise RuntimeError(f"{name}: integers from {low} to {high - 1} do not fit {from_numpy(dtype)} (it holds {first} to {last} exactly)")
    return low, high


@functools.cache
def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The range of integers in which the dtype holds each one exactly."""
    if dtype == BOOL:
        return 0, 1
    if dtype in FLOATING:
        most = int(2 / finfo(dtype).eps)
        return -most, most
    info = iinfo(dtype)
    return info.min, info.max


def randint(
    low: Any = None, high: Any = None, size: Any = None, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """Integers from `low` up to, but not including, `high`; int64 unless `dtype` is given. Also `randint(high, size)`, from 0.

    >>> gl.randint(5, 6, (3,))
    tensor([5, 5, 5])
    """
    if options:
        common_arguments.plain("randint", options)
    if out is not None:
        return common_arguments.made(
            "randint", out, dtype, device, lambda dtype, device: randint(low, high, size, generator=generator, dtype=dtype, device=device)
        )
    if size is None:
        if high is None:
            raise TypeError("randint: size is missing; write randint(high, size) or randint(low, high, size)")
        if isinstance(high, (tuple, list)):
            low, high, size = 0, low, high
        else:
            raise TypeError("randint: size is missing, a tuple of numbers")
    elif high is None or low is None:
        low, high = 0, low if high is None else high
    chosen = INT64 if dtype is None else as_numpy(dtype)
    made = integers("randint", low, high, _shape((size,)), chosen, _place(device, generator), generator)
    return made.requires_grad_() if requires_grad else made


def randperm(
    n: int, *, generator: Generator | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The integers 0 to n - 1 in random order.

    >>> gl.randperm(4).sort().values
    tensor([0, 1, 2, 3])
    """
    if options:
        common_arguments.plain("randperm", options)
    if out is not None:
        return common_arguments.made(
            "randperm", out, dtype, device, lambda dtype, device: randperm(n, generator=generator, dtype=dtype, device=device)
        )
    if n < 0:
        raise RuntimeError(f"randperm: n is not negative, got {n}")
    chosen = INT64 if dtype is None else as_numpy(dtype)
    if n - 1 > limits(chosen)[1]:
        raise RuntimeError(f"randperm: {from_numpy(chosen)} does not hold {n - 1}")
    made = make("permutation", (int(n),), chosen, _place(device, generator), generator)
    return made.requires_grad_() if requires_grad else made


def _as(input: Tensor, dtype: Any, device: Any) -> tuple[np.dtype[Any], Device]:
    return input._array.dtype if dtype is None else as_numpy(dtype), input.device if device is None else Device(device)


def _in_order(drawn: Any, order: Any, requires_grad: bool) -> Any:
    """What was drawn, whose numbers do not depend on where they lie, in an order of dimensions in memory."""
    found = drawn if order is None else copied(drawn, order)
    return found.requires_grad_() if requires_grad else found


def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    **options: Any,
) -> Tensor:  # fmt: skip
    """`rand` of the input's shape, dtype and device.

    >>> gl.rand_like(gl.ones(2, 3)).shape
    (2, 3)
    """
    order = laid_as("rand_like", input, options.pop("memory_format", None))
    if options:
        common_arguments.plain("rand_like", options)
    chosen, place = _as(input, dtype, device)
    return _in_order(rand(input.shape, generator=generator, dtype=chosen, device=place), order, requires_grad)


def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    **options: Any,
) -> Tensor:  # fmt: skip
    """`randn` of the input's shape, dtype and device.

    >>> gl.randn_like(gl.ones(2, 3)).shape
    (2, 3)
    """
    order = laid_as("randn_like", input, options.pop("memory_format", None))
    if options:
        common_arguments.plain("randn_like", options)
    chosen, place = _as(input, dtype, device)
    return _in_order(randn(input.shape, generator=generator, dtype=chosen, device=place), order, requires_grad)


def randint_like(
    input: Tensor, low: int | None = None, high: int | None = None, *, generator: Generator | None = None, dtype: Any = None,
    device: Any = None, requires_grad: bool = False, **options: Any,
) -> Tensor:  # fmt: skip
    """`randint` of the input's shape, dtype and device: `randint_like(input, high)` or `randint_like(input, low, high)`.

    >>> gl.randint_like(gl.ones(2), 5, 6)
    tensor([5., 5.])
    """
    order = laid_as("randint_like", input, options.pop("memory_format", None))
    if options:
        common_arguments.plain("randint_like", options)
    chosen, place = _as(input, dtype, device)
    first, last = (0, low if high is None else high) if low is None or high is None else (low, high)
    return _in_order(randint(first, last, input.shape, generator=generator, dtype=chosen, device=place), order, requires_grad)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Any = None) -> Tensor:
    """1 with the probability that the input's element says (or with probability `p`), else 0; the input's shape and dtype.

    Raises RuntimeError for probabilities outside [0, 1], and for an integer input without `p`.

    >>> gl.bernoulli(gl.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    if out is not None:
        return common_arguments.into("bernoulli", out, bernoulli(input, p, generator=generator), warn=False)
    dtype = input._array.dtype
    if p is not None:
        shape = input.shape
        few = prod(shape) < LARGE  # a kernel takes them, and they are not much
        return trials(input.new_full(shape if few else (), p, dtype=FLOAT64).expand(shape), dtype, generator)
    if dtype not in FLOATING:
        raise RuntimeError(needs_floating("bernoulli", input.dtype, "probabilities are floating point, not"))
    return trials(input, dtype, generator)


def trials(p: Tensor, dtype: np.dtype[Any], generator: Generator | None) -> Tensor:
    state, offset = draw(generator, (p.numel() + 1) // 2, p.device)
    return _bernoulli(p, state, dtype=dtype, offset=offset)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson distributed counts of the given rates (not negative), in the input's floating point dtype.

    >>> gl.poisson(gl.zeros(2))
    tensor([0., 0.])
    """
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("poisson", input.dtype, "rates are floating point, not"))
    state, offset = draw(generator, input.numel(), input.device)
    return _poisson(input, state, offset=offset)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Category numbers (int64) drawn with probabilities proportional to the weights `input`, (categories,) or (rows, categories).

    Without replacement no category is drawn twice in a row. Raises RuntimeError for negative, infinite or NaN weights and for rows
    that do not have enough categories.

    >>> gl.multinomial(gl.tensor([0.0, 1.0, 0.0]), 1)
    tensor([1])
    """
    if out is not None:
        return common_arguments.into("multinomial", out, multinomial(input, num_samples, replacement, generator=generator), warn=False)
    num_samples = whole(num_samples)
    *rows, categories = input.shape or (0,)
    words = count(rows) * (num_samples if replacement else categories)
    state, offset = draw(generator, words, input.device)
    return _multinomial(input.detach(), state, samples=int(num_samples), replacement=bool(replacement), offset=offset)


def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, out: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers. `normal(mean, std, size)` of two numbers; or mean, std or both as tensors, which broadcast.

    Raises RuntimeError for a negative standard deviation.

    >>> gl.normal(gl.tensor([1.0, 2.0]), gl.zeros(2))
    tensor([1., 2.])
    """
    if options:
        common_arguments.plain("normal", options)
    if out is not None:
        if size is None:
            return common_arguments.into("normal", out, normal(mean, std, generator=generator))
        return common_arguments.made(
            "normal", out, dtype, device, lambda dtype, device: normal(mean, std, size, generator=generator, dtype=dtype, device=device)
        )
    tensors = [x for x in (mean, std) if isinstance(x, Differentiable)]
    if not tensors:
        if size is None:
            raise TypeError("normal: with two numbers give size, a tuple")
        not_negative("normal", "std", std)
        place = _place(device, generator)
        made = make("normal", _shape((size,)), _floating("normal", dtype), place, generator, mean=float(mean), std=float(std))
        return made.requires_grad_() if requires_grad else made
    if size is not None:
        raise TypeError("normal: size goes with two numbers; tensors have their own shapes")
    chosen = result_type([(x._array.dtype, len(x._array.shape)) for x in tensors])
    if chosen not in FLOATING:
        raise RuntimeError(f"normal: mean and std are floating point, not {from_numpy(chosen)}")
    like: Any = tensors[0]
    mean, std = (x if isinstance(x, Differentiable) else like.new_full((), x, dtype=FLOAT64) for x in (mean, std))
    shape = broadcast_shapes(mean._array.shape, std._array.shape)
    state, offset = draw(generator, words_of("normal", shape, chosen), like.device)
    return _normal_of(mean, std, state, dtype=chosen, offset=offset)


def not_negative(name: str, what: str, value: float) -> None:
    if not value >= 0:
        raise RuntimeError(f"{name}: {what} is not negative, got {value}")


named_functions(__name__)
