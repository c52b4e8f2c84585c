"""Optimizers: how parameters follow their gradients. Names, arguments and formulas are PyTorch's."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradlab.optim import lr_scheduler as lr_scheduler
from gradlab.optim.adafactor import Adafactor as Adafactor
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
from gradlab.optim.lion import Lion as Lion
from gradlab.optim.muon import Muon as Muon
from gradlab.optim.offload import offload_state as offload_state
from gradlab.optim.optimizer import Optimizer as Optimizer
from gradlab.optim.sgd import SGD as SGD
from gradlab.optim.sparse_adam import SparseAdam as SparseAdam
from gradlab.tensor.missing_names import absent as _absent

if TYPE_CHECKING:
    from gradlab.optim import swa_utils as swa_utils


def __getattr__(name: str) -> Any:
    if name == "swa_utils":  # it needs the modules, which an optimizer does not
        return import_module("gradlab.optim.swa_utils")
    raise _absent("gradlab.optim", name)
