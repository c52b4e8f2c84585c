"""A training loop that one can read and own: `fit`, what it calls on its way, and how it goes on where it was stopped.

In comes a model, batches, a loss and an optimizer; out goes a `Run` with its history. Runs (gradlab/runs) are trained by it.
"""

from __future__ import annotations

from gradlab.train.callbacks import (
    Bar,
    BestWeights,
    Callback,
    Curves,
    EarlyStop,
    TableOfEpochs,
    TensorBoard,
)
from gradlab.train.checkpoints import Checkpoint, read_checkpoint
from gradlab.train.divergence import Diverged
from gradlab.train.fit import Run, StateError, evaluate, fit, predict
from gradlab.train.interruption import interruption
from gradlab.train.range_test import RangeTest, find_learning_rate
from gradlab.train.recipe import Recipe
from gradlab.train.schedule import warm_cosine
from gradlab.train.sharing import shared

__all__ = [
    "Bar", "BestWeights", "Callback", "Checkpoint", "Curves", "Diverged", "EarlyStop", "RangeTest", "Recipe", "Run", "StateError",
    "TableOfEpochs", "TensorBoard", "evaluate", "find_learning_rate", "fit", "interruption", "predict", "read_checkpoint",
    "shared", "warm_cosine",
]  # fmt: skip
