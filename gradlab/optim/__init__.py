"""Optimizers: how parameters follow their gradients. Names, arguments and formulas are PyTorch's."""

from __future__ import annotations

from gradlab.optim import lr_scheduler as lr_scheduler
from gradlab.optim.adam import Adam as Adam, AdamW as AdamW
from gradlab.optim.adam_variants import Adamax as Adamax, NAdam as NAdam, RAdam as RAdam
from gradlab.optim.adaptive import (
    ASGD as ASGD,
    Adadelta as Adadelta,
    Adagrad as Adagrad,
    RMSprop as RMSprop,
    Rprop as Rprop,
)
from gradlab.optim.lbfgs import LBFGS as LBFGS
from gradlab.optim.optimizer import Optimizer as Optimizer
from gradlab.optim.sgd import SGD as SGD
