"""Ready-made models, each written as a user would write it: plain `nn.Module` classes to read, copy and change.

One file a family, loaded when one of its names is asked for. docs/models.md has a line about each, with the results they reach.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradlab.tensor.missing_names import absent as _absent

if TYPE_CHECKING:
    from gradlab.models.cnn import CNN as CNN
    from gradlab.models.dcgan import DCGAN as DCGAN
    from gradlab.models.ddpm import DDPM as DDPM, NoisePredictor as NoisePredictor
    from gradlab.models.digits import DigitsCNN as DigitsCNN, DigitsMLP as DigitsMLP
    from gradlab.models.gpt import GPT as GPT, GPTConfig as GPTConfig
    from gradlab.models.graph import GAT as GAT, GCN as GCN, GATConv as GATConv, GCNConv as GCNConv, knn_graph as knn_graph
    from gradlab.models.language import RecurrentLanguageModel as RecurrentLanguageModel, generate as generate
    from gradlab.models.lenet import LeNet as LeNet
    from gradlab.models.mlp import MLP as MLP
    from gradlab.models.mobilenet import MobileNet as MobileNet
    from gradlab.models.resnet import (
        ImageResNet as ImageResNet,
        ResNet as ResNet,
        resnet18 as resnet18,
        resnet20 as resnet20,
        resnet32 as resnet32,
        resnet34 as resnet34,
        resnet56 as resnet56,
    )
    from gradlab.models.series import SeriesModel as SeriesModel
    from gradlab.models.table import TableModel as TableModel
    from gradlab.models.transformer import TransformerClassifier as TransformerClassifier
    from gradlab.models.unet import UNet as UNet
    from gradlab.models.vae import VAE as VAE
    from gradlab.models.vit import ViT as ViT, vit_tiny as vit_tiny

_FAMILIES = {
    "cnn": ("CNN",),
    "dcgan": ("DCGAN",),
    "ddpm": ("DDPM", "NoisePredictor"),
    "digits": ("DigitsCNN", "DigitsMLP"),
    "gpt": ("GPT", "GPTConfig"),
    "graph": ("GAT", "GATConv", "GCN", "GCNConv", "knn_graph"),
    "language": ("RecurrentLanguageModel", "generate"),
    "lenet": ("LeNet",),
    "mlp": ("MLP",),
    "mobilenet": ("MobileNet",),
    "resnet": ("ImageResNet", "ResNet", "resnet18", "resnet20", "resnet32", "resnet34", "resnet56"),
    "series": ("SeriesModel",),
    "table": ("TableModel",),
    "transformer": ("TransformerClassifier",),
    "unet": ("UNet",),
    "vae": ("VAE",),
    "vit": ("ViT", "vit_tiny"),
}
_HOME = {name: family for family, names in _FAMILIES.items() for name in names}

__all__ = [
    "CNN", "DCGAN", "DDPM", "GAT", "GATConv", "GCN", "GCNConv", "GPT", "GPTConfig", "DigitsCNN", "DigitsMLP", "ImageResNet", "LeNet",
    "MLP", "MobileNet", "NoisePredictor", "RecurrentLanguageModel", "ResNet", "SeriesModel", "TableModel", "TransformerClassifier", "UNet",
    "VAE", "ViT", "generate", "knn_graph", "resnet18", "resnet20", "resnet32", "resnet34", "resnet56", "vit_tiny",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"gradlab.models.{_HOME[name]}"), name)
    raise _absent("gradlab.models", name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__", "__path__"])
