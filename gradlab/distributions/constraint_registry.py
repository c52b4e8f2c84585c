"""Transforms of all real numbers to those that a constraint allows: `biject_to`, whose transforms have an inverse, and `transform_to`.

>>> import gradlab as gl
>>> from gradlab.distributions import constraints, transform_to
>>> transform_to(constraints.positive)(gl.zeros(2))
tensor([1., 1.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.distributions import constraints
from gradlab.distributions.constraints import Constraint
from gradlab.distributions.element_transforms import (
    AffineTransform,
    ExpTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from gradlab.distributions.joined_transforms import CatTransform, StackTransform
from gradlab.distributions.matrix_transforms import CorrCholeskyTransform, LowerCholeskyTransform, PositiveDefiniteTransform
from gradlab.distributions.transform import ComposeTransform, IndependentTransform, Transform, identity_transform

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Constraints, or classes of them, each with the function that makes its transform."""

    def __init__(self) -> None:
        self._known: dict[Any, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Add a function for a constraint, or for all of a class; without one it is a decorator."""
        if factory is None:
            return lambda function: self.register(constraint, function)
        if not isinstance(constraint, Constraint) and not (isinstance(constraint, type) and issubclass(constraint, Constraint)):
            raise TypeError(f"register: expected a constraint or a class of them, not {constraint!r}")
        self._known[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Transform:
        """The transform for a constraint. NotImplementedError for one that nobody registered."""
        for key in (constraint, *type(constraint).__mro__):
            if key in self._known:
                return self._known[key](constraint)
        raise NotImplementedError(f"no transform is registered for the constraint {constraint!r}; register(constraint, factory) adds one")


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[Factory], Factory]:
    def kept(factory: Factory) -> Factory:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return kept


@_both(constraints.real)
def _real(constraint: Any) -> Transform:
    return identity_transform


@_both(type(constraints.positive), type(constraints.nonnegative))
def _above(constraint: Any) -> Transform:
    if isinstance(constraint.lower_bound, (int, float)) and constraint.lower_bound == 0:
        return ExpTransform()
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


@_both(constraints.less_than)
def _below(constraint: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


@_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _independent(registry: ConstraintRegistry) -> Factory:
    return lambda constraint: IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)


def _cat(registry: ConstraintRegistry) -> Factory:
    return lambda constraint: CatTransform([registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths)


def _stack(registry: ConstraintRegistry) -> Factory:
    return lambda constraint: StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


for _registry in (biject_to, transform_to):
    _registry.register(constraints.independent, _independent(_registry))
    _registry.register(constraints.cat, _cat(_registry))
    _registry.register(constraints.stack, _stack(_registry))
    _registry.register(constraints.corr_cholesky, lambda _: CorrCholeskyTransform())

biject_to.register(constraints.simplex, lambda _: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda _: PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda _: PositiveDefiniteTransform())

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
