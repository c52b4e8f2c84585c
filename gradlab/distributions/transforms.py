"""All transforms, where `torch.distributions.transforms` has them."""

from __future__ import annotations

from gradlab.distributions.distribution import Distribution as Distribution
from gradlab.distributions.element_transforms import (
    AbsTransform as AbsTransform,
    AffineTransform as AffineTransform,
    ExpTransform as ExpTransform,
    PowerTransform as PowerTransform,
    SigmoidTransform as SigmoidTransform,
    SoftmaxTransform as SoftmaxTransform,
    SoftplusTransform as SoftplusTransform,
    StickBreakingTransform as StickBreakingTransform,
    TanhTransform as TanhTransform,
)
from gradlab.distributions.joined_transforms import (
    CatTransform as CatTransform,
    CumulativeDistributionTransform as CumulativeDistributionTransform,
    StackTransform as StackTransform,
)
from gradlab.distributions.matrix_transforms import (
    CorrCholeskyTransform as CorrCholeskyTransform,
    LowerCholeskyTransform as LowerCholeskyTransform,
    PositiveDefiniteTransform as PositiveDefiniteTransform,
)
from gradlab.distributions.transform import (
    ComposeTransform as ComposeTransform,
    IndependentTransform as IndependentTransform,
    ReshapeTransform as ReshapeTransform,
    Transform as Transform,
    _InverseTransform as _InverseTransform,
    identity_transform as identity_transform,
)
from gradlab.distributions.utils import lazy_property as lazy_property
from gradlab.tensor import Tensor as Tensor
