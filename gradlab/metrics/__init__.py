"""What a model is worth, in numbers that add up over batches: of classes, of scores, of quantities, of text.

A metric is fed with `update(prediction, target)`, asked with `compute()` and emptied with `reset()`; called like a function it gives
the value of that batch alone and counts it too. Predictions and targets are tensors on any device or NumPy arrays; what is kept lies on
the host in float64 and integers. The numbers are scikit-learn's where it has them.
"""

from __future__ import annotations

from gradlab.metrics.classes import F1, Accuracy, ConfusionMatrix, FBeta, Precision, Recall
from gradlab.metrics.metric import Metric, MetricCollection
from gradlab.metrics.quantities import MeanAbsoluteError, MeanAbsoluteScaledError, MeanSquaredError, R2Score, RootMeanSquaredError
from gradlab.metrics.scores import ROCAUC, AveragePrecision, CalibrationError, LogLoss
from gradlab.metrics.text import BLEU, BitsPerCharacter, Perplexity

__all__ = [
    "BLEU", "F1", "ROCAUC", "Accuracy", "AveragePrecision", "BitsPerCharacter", "CalibrationError", "ConfusionMatrix", "FBeta", "LogLoss",
    "MeanAbsoluteError", "MeanAbsoluteScaledError", "MeanSquaredError", "Metric", "MetricCollection", "Perplexity", "Precision", "R2Score",
    "Recall", "RootMeanSquaredError",
]  # fmt: skip
