"""Ready-made models, each written as a user would write it: plain `nn.Module` classes to read, copy and change."""

from gradlab.models.digits import DigitsCNN as DigitsCNN, DigitsMLP as DigitsMLP
from gradlab.models.gpt import GPT as GPT, GPTConfig as GPTConfig
from gradlab.models.resnet import ResNet as ResNet, resnet20 as resnet20, resnet32 as resnet32, resnet56 as resnet56
from gradlab.models.series import SeriesModel as SeriesModel
from gradlab.models.table import TableModel as TableModel

__all__ = ["DigitsCNN", "DigitsMLP", "GPT", "GPTConfig", "ResNet", "SeriesModel", "TableModel", "resnet20", "resnet32", "resnet56"]
