"""Learning rate schedulers. Names, arguments and trajectories are PyTorch's."""

from __future__ import annotations

from gradlab.optim.lr_scheduler.base import LRScheduler as LRScheduler
from gradlab.optim.lr_scheduler.combined import ChainedScheduler as ChainedScheduler
from gradlab.optim.lr_scheduler.combined import ReduceLROnPlateau as ReduceLROnPlateau
from gradlab.optim.lr_scheduler.combined import SequentialLR as SequentialLR
from gradlab.optim.lr_scheduler.cycles import CyclicLR as CyclicLR
from gradlab.optim.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from gradlab.optim.lr_scheduler.formulas import ConstantLR as ConstantLR
from gradlab.optim.lr_scheduler.formulas import CosineAnnealingLR as CosineAnnealingLR
from gradlab.optim.lr_scheduler.formulas import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from gradlab.optim.lr_scheduler.formulas import ExponentialLR as ExponentialLR
from gradlab.optim.lr_scheduler.formulas import LambdaLR as LambdaLR
from gradlab.optim.lr_scheduler.formulas import LinearLR as LinearLR
from gradlab.optim.lr_scheduler.formulas import MultiplicativeLR as MultiplicativeLR
from gradlab.optim.lr_scheduler.formulas import MultiStepLR as MultiStepLR
from gradlab.optim.lr_scheduler.formulas import PolynomialLR as PolynomialLR
from gradlab.optim.lr_scheduler.formulas import StepLR as StepLR
