"""Event files that TensorBoard shows: scalars, histograms, images, texts, graphs. They are written here, without any other package."""

from __future__ import annotations

from gradlab.utils.tensorboard.records import FileWriter
from gradlab.utils.tensorboard.writer import SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
