"""Learning rate schedulers. Names, arguments and trajectories are PyTorch's."""

from __future__ import annotations

from gradlab.optim.lr_scheduler.base import LRScheduler as LRScheduler
from gradlab.optim.lr_scheduler.combined import (
    ChainedScheduler as ChainedScheduler,
    ReduceLROnPlateau as ReduceLROnPlateau,
    SequentialLR as SequentialLR,
)
from gradlab.optim.lr_scheduler.cycles import CyclicLR as CyclicLR, OneCycleLR as OneCycleLR
from gradlab.optim.lr_scheduler.formulas import (
    ConstantLR as ConstantLR,
    CosineAnnealingLR as CosineAnnealingLR,
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
    ExponentialLR as ExponentialLR,
    LambdaLR as LambdaLR,
    LinearLR as LinearLR,
    MultiplicativeLR as MultiplicativeLR,
    MultiStepLR as MultiStepLR,
    PolynomialLR as PolynomialLR,
    StepLR as StepLR,
)

_LRScheduler = LRScheduler  # the older name
