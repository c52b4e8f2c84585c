"""What sets transforms take and give, in one table: `domain` and `codomain` of the classes. They are set on them when this is imported."""

from __future__ import annotations

from typing import Any

from gradlab.distributions import constraints as c, element_transforms, joined_transforms, matrix_transforms, transform
from gradlab.distributions.transformed import TransformedDistribution


def _more(support: Any, dims: int) -> Any:
    return c.independent(support, dims) if dims else support


def _after(distribution: Any) -> Any:
    if not distribution.transforms:
        return distribution.base_dist.support
    found = distribution.transforms[-1].codomain
    return _more(found, len(distribution.event_shape) - found.event_dim)


_MATRICES = c.independent(c.real, 2)
# Of each transform: what it takes, and what it gives.
DOMAINS: dict[type, tuple[Any, Any]] = {
    element_transforms.ExpTransform: (c.real, c.positive), element_transforms.PowerTransform: (c.positive, c.positive),
    element_transforms.SigmoidTransform: (c.real, c.unit_interval), element_transforms.SoftplusTransform: (c.real, c.positive),
    element_transforms.TanhTransform: (c.real, c.interval(-1.0, 1.0)), element_transforms.AbsTransform: (c.real, c.positive),
    element_transforms.SoftmaxTransform: (c.real_vector, c.simplex), element_transforms.StickBreakingTransform: (c.real_vector, c.simplex),
    element_transforms.AffineTransform: (property(lambda t: _more(c.real, t.dim_in)), property(lambda t: _more(c.real, t.dim_out))),
    transform.ReshapeTransform: (property(lambda t: _more(c.real, t.dim_in)), property(lambda t: _more(c.real, t.dim_out))),
    transform.IndependentTransform: (property(lambda t: _more(t.base_transform.domain, t.reinterpreted_batch_ndims)),
                                     property(lambda t: _more(t.base_transform.codomain, t.reinterpreted_batch_ndims))),
    transform.ComposeTransform: (property(lambda t: _end(t, 0, "domain", t.dim_in)),
                                 property(lambda t: _end(t, -1, "codomain", t.dim_out))),
    transform._InverseTransform: (property(lambda t: t.inv.codomain), property(lambda t: t.inv.domain)),
    matrix_transforms.LowerCholeskyTransform: (_MATRICES, c.lower_cholesky),
    matrix_transforms.PositiveDefiniteTransform: (_MATRICES, c.positive_definite),
    matrix_transforms.CorrCholeskyTransform: (c.real_vector, c.corr_cholesky),
    joined_transforms.CumulativeDistributionTransform: (property(lambda t: t.distribution.support), c.unit_interval),
    joined_transforms.CatTransform: (property(lambda t: c.cat([p.domain for p in t.transforms], t.dim, t.lengths)),
                                     property(lambda t: c.cat([p.codomain for p in t.transforms], t.dim, t.lengths))),
    joined_transforms.StackTransform: (property(lambda t: c.stack([p.domain for p in t.transforms], t.dim)),
                                       property(lambda t: c.stack([p.codomain for p in t.transforms], t.dim))),
}  # fmt: skip


def _end(whole: Any, place: int, which: str, dims: int) -> Any:
    if not whole.parts:
        return c.real
    found = getattr(whole.parts[place], which)
    return _more(found, dims - found.event_dim)

for _kind, (_takes, _gives) in DOMAINS.items():
    _kind.domain, _kind.codomain = _takes, _gives  # type: ignore[attr-defined]
    if "bijective" not in vars(_kind):
        _kind.bijective = True  # type: ignore[attr-defined]
for _rising in (element_transforms.ExpTransform, element_transforms.SigmoidTransform, element_transforms.SoftplusTransform,
                element_transforms.TanhTransform, joined_transforms.CumulativeDistributionTransform):  # fmt: skip
    _rising.sign = 1  # type: ignore[assignment]
TransformedDistribution.support = c.dependent_property(_after)
