"""The rows `fft`, `rfft` and `irfft` by cuFFT: its plans transform up to three last dimensions, others are brought there by a copy.

False from each function: nothing is done, and the caller's own kernels compute it, as where sizes are so small that these take two
launches.
"""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.cufft.binding import MOST_DIMENSIONS
from gradlab.backends.cuda.cufft.plans import Plan, transforms_of, type_of
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import COMPLEX, real_of
from gradlab.spec import count

SMALL = 16  # numbers of a transform that the own kernels make


def _plan(work: Work, source: Any, target: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Plan | None:
    """For the dimensions of an array, all of whose real shape is given."""
    transforms = transforms_of(work.driver)
    n = tuple([shape[d] for d in dims])
    if transforms is None:
        return None
    return transforms.plan(n, count(shape) // count(n), type_of(source, target))


def _order(rank: int, dims: tuple[int, ...]) -> list[int]:
    """All dimensions, with these at the end."""
    return [*(d for d in range(rank) if d not in dims), *dims]


def _back(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _gathered(work: Work, x: Any, order: list[int]) -> Any:
    """Contiguous and aligned, the dimensions in this order; x itself where it is that."""
    x = x.transpose(order)
    if x.flags.c_contiguous and work.pointer(x) % 16 == 0:
        return x
    made = work.empty(x.shape, x.dtype)
    work.copy(made, x)
    return made


def _run(work: Work, plan: Plan, source: Any, order: list[int], target: Any, inverse: bool) -> None:
    """Of a contiguous source in the given order of dimensions, into the target in its own order. The library writes to aligned memory."""
    to = target
    if order != sorted(order) or work.pointer(target) % 16:
        to = work.empty(tuple([target.shape[d] for d in order]), target.dtype)
    plan.run(work.pointer(source), work.pointer(to), inverse)
    if to is not target:
        work.copy(target, to.transpose(_back(order)))


def _scaled(work: Work, y: Any, scale: float) -> None:
    if scale != 1:
        real = real_of(y.dtype)
        numbers = y.view(real) if y.dtype in COMPLEX else y
        work.each(work.kernel("fft.cu", "fft_scale", real), numbers.size, numbers, scale)


def _groups(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """As few as one plan can take each, the last dimensions first."""
    ordered = tuple(sorted(dims))
    return [ordered[max(0, end - MOST_DIMENSIONS) : end] for end in range(len(ordered), 0, -MOST_DIMENSIONS)]


def _complex_plans(work: Work, y: Any, dims: tuple[int, ...]) -> list[tuple[tuple[int, ...], Plan]] | None:
    found = []
    for group in _groups(dims):
        plan = _plan(work, y.dtype, y.dtype, y.shape, group)
        if plan is None:
            return None
        found.append((group, plan))
    return found


def _complex(work: Work, x: Any, plans: list[tuple[tuple[int, ...], Plan]], inverse: bool, y: Any) -> None:
    for group, plan in plans:
        order = _order(len(y.shape), group)
        _run(work, plan, _gathered(work, x, order), order, y, inverse)
        x = y


def fft(work: Work, x: Any, dims: tuple[int, ...], inverse: bool, scale: float, y: Any) -> bool:
    """All of `dims` of the complex x, into y."""
    if count([y.shape[d] for d in dims]) <= SMALL:
        return False
    plans = _complex_plans(work, y, dims)
    if plans is None:
        return False
    _complex(work, x, plans, inverse, y)
    _scaled(work, y, scale)
    return True


def rfft(work: Work, x: Any, dims: tuple[int, ...], scale: float, y: Any) -> bool:
    """The first half, along the last of `dims`, of the real x's spectrum."""
    if count([x.shape[d] for d in dims]) <= SMALL:
        return False
    group, rest = dims[-MOST_DIMENSIONS:], dims[:-MOST_DIMENSIONS]
    plan, plans = _plan(work, x.dtype, y.dtype, x.shape, group), _complex_plans(work, y, rest)
    if plan is None or plans is None:
        return False
    order = _order(len(x.shape), group)
    _run(work, plan, _gathered(work, x, order), order, y, False)
    _complex(work, y, plans, False, y)
    _scaled(work, y, scale)
    return True


def irfft(work: Work, x: Any, dims: tuple[int, ...], scale: float, y: Any) -> bool:
    """The real numbers of the first half of their spectrum. Of coefficients that should be real the real part counts, as on the CPU, for
    which the complex dimensions are transformed before; the library writes over the input of its last step."""
    if count([y.shape[d] for d in dims]) <= SMALL:
        return False
    plan, plans = _plan(work, x.dtype, y.dtype, y.shape, dims[-1:]), _complex_plans(work, x, dims[:-1])
    if plan is None or plans is None:
        return False
    source = x
    if plans:
        source = work.empty(x.shape, x.dtype)
        _complex(work, x, plans, True, source)
    order = _order(len(x.shape), dims[-1:])
    source = _gathered(work, source, order)
    spectrum = work.empty(source.shape, x.dtype)
    n, real = y.shape[dims[-1]], y.dtype
    work.each(work.kernel("fft.cu", "fft_hermitian", real), spectrum.size, source.view(real), spectrum.view(real), n)
    _run(work, plan, spectrum, order, y, True)
    _scaled(work, y, scale)
    return True
