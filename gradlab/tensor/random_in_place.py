"""In-place methods that fill a tensor with random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradlab.autograd import inplace
from gradlab.autograd.base import Differentiable, version_of
from gradlab.autograd.mode import current
from gradlab.dtype import ALL, COMPLEX, FLOAT64, FLOATING, INEXACT, needs_floating
from gradlab.tensor.generator import Generator, undisturbed
from gradlab.tensor.in_place_methods import assign, ordinary

if TYPE_CHECKING:
    pass
from gradlab.tensor.random import KINDS, bernoulli, fitting, limits, make, multinomial, not_negative, trials, words_of

REAL = frozenset(d.dtype for d in ALL) - COMPLEX


def _fill(name: str, tensor: Any, make_values: Callable[[], Any], kinds: frozenset[Any] = FLOATING) -> Any:
    """Write freshly drawn numbers into a tensor."""
    inplace.check(name, tensor, current())
    if tensor._array.dtype not in kinds:
        raise RuntimeError(needs_floating(name, tensor.dtype, "fills floating point tensors, not"))
    values = make_values()
    return assign(name, tensor, values if values._array.dtype == tensor._array.dtype else values.to(tensor._array.dtype))


class RandomMethods(Differentiable):
    """The methods of this family. Each fills the tensor with numbers drawn from `generator` (default: the default generator)."""

    __slots__ = ()
    bernoulli, multinomial = bernoulli, multinomial

    def uniform_(self, low: float = 0.0, to: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Uniformly distributed over [low, to).

        >>> gl.zeros(2).uniform_(3, 3)
        tensor([3., 3.])
        """
        if not low <= to or math.isinf(float(to) - float(low)):
            raise RuntimeError(f"uniform_: the range from {low} to {to} is empty, or not finite")
        return _filled("uniform_", self, "uniform", generator, INEXACT, low=float(low), high=float(to))

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Normally distributed.

        >>> gl.zeros(2).normal_(5, 0)
        tensor([5., 5.])
        """
        not_negative("normal_", "std", std)
        return _filled("normal_", self, "normal", generator, INEXACT, mean=float(mean), std=float(std))

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Exponentially distributed with rate `lambd`.

        >>> bool((gl.zeros(9).exponential_() >= 0).all())
        True
        """
        if not lambd > 0:
            raise RuntimeError(f"exponential_: the rate is above zero, got {lambd}")
        return _filled("exponential_", self, "exponential", generator, rate=float(lambd))

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Any:
        """e to the power of normally distributed numbers of that mean and standard deviation.

        >>> bool((gl.zeros(9).log_normal_() > 0).all())
        True
        """
        if not std > 0:
            raise RuntimeError(f"log_normal_: std is above zero, got {std}")
        return _fill("log_normal_", self, lambda: _like(self, "normal", generator, FLOAT64, mean=float(mean), std=float(std)).exp())

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Cauchy distributed: median + sigma · tan(π (u - 1/2)).

        >>> gl.zeros(2).cauchy_().shape
        (2,)
        """
        if not sigma > 0:
            raise RuntimeError(f"cauchy_: sigma is above zero, got {sigma}")

        def values() -> Any:
            angle = _like(self, "uniform", generator, FLOAT64, low=-math.pi / 2, high=math.pi / 2)
            return angle.sin() / angle.cos() * sigma + median

        return _fill("cauchy_", self, values)

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Any:
        """Number of trials of probability p until the first success: ceil(log(1 - u) / log(1 - p)), at least 1.

        >>> bool((gl.zeros(9).geometric_(0.5) >= 1).all())
        True
        """
        if not 0 < p < 1:
            raise RuntimeError(f"geometric_: p lies between 0 and 1, got {p}")

        def values() -> Any:
            return (_like(self, "exponential", generator, FLOAT64, rate=1.0) / -math.log1p(-p)).ceil().clamp(1)

        return _fill("geometric_", self, values, REAL)

    def bernoulli_(self, p: Any = 0.5, *, generator: Generator | None = None) -> Any:
        """1 with probability p (a number or a tensor that broadcasts), else 0.

        >>> gl.zeros(2).bernoulli_(gl.tensor([0.0, 1.0]))
        tensor([0., 1.])
        """
        target: Any = self
        chances = p.expand(target.shape) if isinstance(p, Differentiable) else None  # type: ignore[attr-defined]

        def values() -> Any:
            if chances is None:
                return bernoulli(target.detach(), float(p), generator=generator)
            return trials(chances, target._array.dtype, generator)

        return _fill("bernoulli_", self, values, REAL)

    def random_(self, low: int | None = None, to: Any = ..., *, generator: Generator | None = None) -> Any:
        """Integers: `random_(low, to)` from low up to, but not including, to; `random_(to)` from 0; `random_()` all that the dtype holds
        exactly and that are not negative; `random_(low, None)` those from low on.

        >>> gl.zeros(2).random_(5, 6)
        tensor([5., 5.])
        """
        target: Any = self
        if target._array.dtype not in REAL:
            return _fill("random_", self, target.clone, REAL)  # refused there
        if to is ...:  # not given: the only number is where to end
            low, to = 0, low
        first, last = low or 0, limits(self._array.dtype)[1] + 1 if to is None else to
        first, last = fitting("random_", first, last, target._array.dtype)
        return _filled("random_", self, "integers", generator, REAL, low=first, high=last)


def _drawn_here(target: Any, kind: str, generator: Generator | None, **params: Any) -> bool:
    """Draw numbers into the memory of a small tensor for which a write is nothing but that; False, nothing being done, for others."""
    if not ordinary(target):
        return False
    source = undisturbed(generator)
    if source is None:
        return False
    y = target._array
    state = source._seed, source.advance(words_of(kind, y.shape, y.dtype))
    KINDS[kind].quietly(state, y, shape=y.shape, dtype=y.dtype, offset=0, **params)
    inplace.written(version_of(target))
    return True


def _filled(name: str, tensor: Any, kind: str, generator: Generator | None, kinds: frozenset[Any] = FLOATING, **params: Any) -> Any:
    """Fill with the numbers that the row `random_<kind>` makes."""
    if _drawn_here(tensor, kind, generator, **params):
        return tensor
    return _fill(name, tensor, lambda: _like(tensor, kind, generator, **params), kinds)


def _like(tensor: Any, kind: str, generator: Generator | None, dtype: Any = None, **params: Any) -> Any:
    return make(kind, tensor.shape, tensor._array.dtype if dtype is None else dtype, tensor.device, generator, **params)
