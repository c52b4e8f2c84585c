"""Which values a parameter or a sample may have. Names and meanings follow `torch.distributions.constraints`.

>>> import gradlab as gl
>>> from gradlab.distributions import constraints
>>> constraints.unit_interval.check(gl.tensor([0.5, 2.0]))
tensor([ True, False])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab import linalg
from gradlab.dtype import bool_, float64
from gradlab.tensor import Tensor
from gradlab.tensor.creation import eye, ones
from gradlab.tensor.shape import cat as joined, stack as stacked
from gradlab.tensor.where import where

CLOSE = 1e-6  # how far sums of shares and entries of symmetric matrices may be off


class Constraint:
    """A set of values. event_dim: how many of the last dimensions are one value; is_discrete: whether values are whole numbers."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        raise NotImplementedError(f"{type(self).__name__} has no check")

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_") + "()"


class _Dependent(Constraint):
    """One that depends on other parameters, so that it can be asked only of a distribution."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> _Dependent:
        """Another with other properties."""
        return _Dependent(
            is_discrete=self.is_discrete if is_discrete is None else is_discrete,
            event_dim=self.event_dim if event_dim is None else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        """ValueError: it has to be asked of a distribution."""
        raise ValueError("a constraint that depends on parameters cannot be checked by itself: ask the distribution's .support")


def is_dependent(constraint: Any) -> bool:
    """Whether it depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of a distribution whose value is a constraint; asked of the class it is a dependent one."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> _DependentProperty:  # type: ignore[override]
        """As a decorator with arguments."""
        return _DependentProperty(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class _Bounded(Constraint):
    """Numbers between two bounds, which belong to it or not."""

    lower_bound: Any = None
    upper_bound: Any = None
    closed = (True, True)

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        fits: Any = (value % 1 == 0) if self.is_discrete else value == value  # noqa: PLR0124 - NaN is in no interval
        if self.lower_bound is not None:
            fits = fits & (value >= self.lower_bound if self.closed[0] else value > self.lower_bound)
        if self.upper_bound is not None:
            fits = fits & (value <= self.upper_bound if self.closed[1] else value < self.upper_bound)
        return fits

    def __repr__(self) -> str:
        bounds = [f"{side}_bound={bound}" for side in ("lower", "upper") if (bound := getattr(self, f"{side}_bound")) is not None]
        return f"{type(self).__name__.lstrip('_')}({', '.join(bounds)})"


class _Between(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _Above(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(_Bounded):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


# As in PyTorch none of these is a kind of another: what is chosen by the class of a constraint is chosen for that class alone.
class _Interval(_Between):
    pass


class _HalfOpenInterval(_Between):
    closed = (True, False)


class _IntegerInterval(_Between):
    is_discrete = True


class _GreaterThan(_Above):
    closed = (False, False)


class _GreaterThanEq(_Above):
    pass


class _IntegerGreaterThan(_Above):
    is_discrete = True


class _LessThan(_Below):
    closed = (False, False)


class _IntegerLessThan(_Below):
    is_discrete = True


class _Multinomial(Constraint):
    """Counts whose sum is at most a number."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


class _IndependentConstraint(Constraint):
    """Another one of arrays of values: true where all are in it."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete, self.event_dim = base_constraint.is_discrete, base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which arrays are in it."""
        fits = self.base_constraint.check(value)
        if fits.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"expected {self.event_dim} dimensions or more, got {value.dim()}")
        return fits.flatten(fits.dim() - self.reinterpreted_batch_ndims).all(-1) if self.reinterpreted_batch_ndims else fits

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The values of a mixture's components."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint, self.is_discrete, self.event_dim = base_constraint, base_constraint.is_discrete, base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in that of all components."""
        fits = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return fits.flatten(fits.dim() - 1 - self.event_dim if fits.dim() > self.event_dim else 0).all(-1) if fits.dim() else fits


class _Parts(Constraint):
    """Several, each of its part along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)


class _Cat(_Parts):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        return joined([c.check(part) for c, part in zip(self.cseq, value.split(self.lengths, self.dim), strict=True)], self.dim)


class _Stack(_Parts):
    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        return stacked([c.check(part) for c, part in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim)


class _Boolean(Constraint):
    """0 or 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """A 1 among zeros."""

    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which vectors are in it."""
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Real(Constraint):
    """Every number, but not NaN."""

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which values are in it."""
        return value == value  # noqa: PLR0124 - NaN is not equal to itself


class _Simplex(Constraint):
    """Shares whose sum is 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which vectors are in it."""
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < CLOSE)


class _LowerTriangular(Constraint):
    """Matrices with zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which matrices are in it."""
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    """Lower triangular ones with a positive diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which matrices are in it."""
        return lower_triangular.check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Those whose rows have the length 1."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which matrices are in it."""
        return lower_cholesky.check(value) & ((value.square().sum(-1) - 1).abs() < 1e-4).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: true of all, or of none."""
        return ones(value.shape[:-2], dtype=bool_, device=value.device) & (value.shape[-2] == value.shape[-1])


class _Symmetric(_Square):
    """Those that are their own mirror images."""

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which matrices are in it."""
        square_ones = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return square_ones
        return ((value - value.mT).abs() <= CLOSE * (1 + value.abs())).flatten(-2).all(-1)


class _BoundedEigenvalues(_Symmetric):
    """Those whose eigenvalues are all in a set."""

    def _fits(self, eigenvalues: Tensor) -> Tensor:
        raise NotImplementedError

    def check(self, value: Tensor) -> Tensor:
        """A mask of bool: which matrices are in it."""
        same = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return same
        asked = where(same[..., None, None], value.detach().double(), eye(value.shape[-1], dtype=float64, device=value.device))
        return same & self._fits(linalg.eigvalsh(asked)).all(-1)


class _PositiveSemidefinite(_BoundedEigenvalues):
    """Those with no eigenvalue below 0."""

    def _fits(self, eigenvalues: Tensor) -> Tensor:
        return eigenvalues >= 0


class _PositiveDefinite(_BoundedEigenvalues):
    """Those whose eigenvalues are all above 0."""

    def _fits(self, eigenvalues: Tensor) -> Tensor:
        return eigenvalues > 0


boolean, one_hot, real, simplex = _Boolean(), _OneHot(), _Real(), _Simplex()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
independent = _IndependentConstraint
real_vector = _IndependentConstraint(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval = _Interval, _HalfOpenInterval
unit_interval = _Interval(0.0, 1.0)
multinomial, cat, stack = _Multinomial, _Cat, _Stack
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
dependent, dependent_property = _Dependent(), _DependentProperty

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip
