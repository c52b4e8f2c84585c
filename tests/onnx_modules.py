"""Every module of gradlab.nn with arguments and example inputs, for the tests of ONNX export."""

from __future__ import annotations

import gradlab as gl
from gradlab import nn


def real(*shape):
    return gl.randn(*shape)


def unit(*shape):
    return gl.rand(*shape) * 0.8 + 0.1


def signs(*shape):
    return gl.randint(0, 2, shape) * 2.0 - 1.0


def choice(high, *shape):
    return gl.randint(0, high, shape)


class Both(nn.Module):
    """Modules whose second input comes of the first, so that it is a valid one."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.second(*self.first(x))


class Held(nn.Module):
    """Calls one of the containers of parameters or modules."""

    def __init__(self, kind):
        super().__init__()
        if kind is nn.ModuleList:
            self.parts = kind([nn.Linear(3, 3), nn.Tanh()])
        elif kind is nn.ModuleDict:
            self.parts = kind({"a": nn.Linear(3, 3), "b": nn.Tanh()})
        elif kind is nn.ParameterList:
            self.parts = kind([gl.randn(3), gl.randn(3)])
        else:
            self.parts = kind({"a": gl.randn(3), "b": gl.randn(3)})

    def forward(self, x):
        for part in self.parts.values() if hasattr(self.parts, "values") else self.parts:
            x = part(x) if isinstance(part, nn.Module) else x * part
        return x


def activations():
    for name in (
        "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "Mish", "PReLU", "RReLU",
        "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    ):  # fmt: skip
        yield name, lambda name=name: getattr(nn, name)(), (real(3, 4) * 2,)
    yield "CELU", lambda: nn.CELU(0.7), (real(3, 4),)
    yield "ELU", lambda: nn.ELU(0.5), (real(3, 4),)
    yield "GELU", lambda: nn.GELU(approximate="tanh"), (real(3, 4),)
    yield "PReLU", lambda: nn.PReLU(4), (real(3, 4),)
    yield "Softplus", lambda: nn.Softplus(2.0, 5.0), (real(3, 4) * 4,)
    yield "Threshold", lambda: nn.Threshold(0.1, 20.0), (real(3, 4),)
    yield "GLU", lambda: nn.GLU(1), (real(3, 4),)
    yield "Softmax", lambda: nn.Softmax(1), (real(3, 4),)
    yield "Softmax2d", lambda: nn.Softmax2d(), (real(2, 3, 4, 4),)
    yield "Softmin", lambda: nn.Softmin(1), (real(3, 4),)
    yield "LogSoftmax", lambda: nn.LogSoftmax(1), (real(3, 4),)


def layers():
    yield "Linear", lambda: nn.Linear(4, 3), (real(2, 4),)
    yield "Linear", lambda: nn.Linear(4, 3, bias=False), (real(2, 5, 4),)
    yield "Linear", lambda: nn.Linear(4, 3), (real(4),)
    yield "LazyLinear", lambda: nn.LazyLinear(3), (real(2, 4),)
    yield "Bilinear", lambda: nn.Bilinear(3, 4, 2), (real(5, 3), real(5, 4))
    yield "Identity", lambda: nn.Identity(), (real(2, 3),)
    yield "Flatten", lambda: nn.Flatten(), (real(2, 3, 4),)
    yield "Unflatten", lambda: nn.Unflatten(1, (2, 3)), (real(2, 6),)
    yield "Sequential", lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (real(2, 3),)
    for kind in (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict):
        yield kind.__name__, lambda kind=kind: Held(kind), (real(2, 3),)
    yield "Embedding", lambda: nn.Embedding(7, 3, padding_idx=0), (choice(7, 2, 5),)
    for mode in ("sum", "mean", "max"):
        yield "EmbeddingBag", lambda mode=mode: nn.EmbeddingBag(7, 3, mode=mode), (choice(7, 3, 4),)
    ranks = {"Dropout": 2, "Dropout1d": 3, "Dropout2d": 4, "Dropout3d": 5, "AlphaDropout": 2, "FeatureAlphaDropout": 4}
    for name, rank in ranks.items():
        yield name, lambda name=name: getattr(nn, name)(0.5), (real(*(2, 3, 2, 2, 2)[:rank]),)
    yield "CosineSimilarity", lambda: nn.CosineSimilarity(1), (real(3, 4), real(3, 4))
    yield "PairwiseDistance", lambda: nn.PairwiseDistance(), (real(3, 4), real(3, 4))
    yield "PixelShuffle", lambda: nn.PixelShuffle(2), (real(1, 8, 3, 3),)
    yield "PixelUnshuffle", lambda: nn.PixelUnshuffle(2), (real(1, 2, 4, 6),)
    yield "ChannelShuffle", lambda: nn.ChannelShuffle(2), (real(1, 6, 3, 3),)
    yield "Unfold", lambda: nn.Unfold(2, padding=1, stride=2), (real(2, 3, 5, 6),)
    yield "Fold", lambda: nn.Fold((5, 6), 2, padding=1, stride=2), (real(2, 12, 12),)
    yield "UpsamplingNearest2d", lambda: nn.UpsamplingNearest2d(scale_factor=2), (real(1, 2, 3, 4),)
    yield "UpsamplingBilinear2d", lambda: nn.UpsamplingBilinear2d(scale_factor=2), (real(1, 2, 3, 4),)
    modes = (("nearest", 3), ("nearest", 4), ("nearest-exact", 4), ("linear", 3), ("bilinear", 4), ("bicubic", 4), ("trilinear", 5))
    for mode, rank in modes:
        shape = (1, 2, 3, 4, 5)[:rank]
        yield "Upsample", lambda mode=mode: nn.Upsample(scale_factor=2.0, mode=mode), (real(*shape),)
    yield "Upsample", lambda: nn.Upsample((5, 7), mode="bilinear", align_corners=True), (real(1, 2, 3, 4),)


def convolutions():
    for rank in (1, 2, 3):
        shape = (2, 4, 7, 6, 5)[: rank + 2]
        for lazy in ("", "Lazy"):
            first = () if lazy else (4,)
            for name in (f"{lazy}Conv{rank}d", f"{lazy}ConvTranspose{rank}d"):
                yield name, lambda name=name, first=first: getattr(nn, name)(*first, 6, 3), (real(*shape),)
        yield f"Conv{rank}d", lambda rank=rank: getattr(nn, f"Conv{rank}d")(
            4, 6, 2, stride=2, padding=1, dilation=2, groups=2), (real(*shape),)  # fmt: skip
        yield f"ConvTranspose{rank}d", lambda rank=rank: getattr(nn, f"ConvTranspose{rank}d")(
            4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False), (real(*shape),)  # fmt: skip
    for mode in ("reflect", "replicate", "circular"):
        yield "Conv2d", lambda mode=mode: nn.Conv2d(4, 3, 3, padding=1, padding_mode=mode), (real(2, 4, 5, 6),)
    yield "Conv1d", lambda: nn.Conv1d(4, 3, 4, padding="same"), (real(2, 4, 7),)


def norms():
    for rank in (1, 2, 3):
        shape = (3, 4, 5, 3, 2)[: rank + 2]
        for lazy in ("", "Lazy"):
            size = () if lazy else (4,)
            for name in (f"{lazy}BatchNorm{rank}d", f"{lazy}InstanceNorm{rank}d"):
                yield name, lambda name=name, size=size: getattr(nn, name)(*size), (real(*shape),)
        yield f"InstanceNorm{rank}d", lambda rank=rank: getattr(nn, f"InstanceNorm{rank}d")(4, affine=True), (real(*shape),)
    yield "BatchNorm1d", lambda: nn.BatchNorm1d(4), (real(3, 4),)
    yield "BatchNorm2d", lambda: nn.BatchNorm2d(4, affine=False), (real(3, 4, 2, 2),)
    yield "GroupNorm", lambda: nn.GroupNorm(2, 4), (real(3, 4, 5),)
    yield "LayerNorm", lambda: nn.LayerNorm((4, 5)), (real(3, 4, 5),)
    yield "LayerNorm", lambda: nn.LayerNorm(5, elementwise_affine=False), (real(3, 4, 5),)
    yield "LayerNorm", lambda: nn.LayerNorm(5, bias=False), (real(3, 4, 5),)
    yield "RMSNorm", lambda: nn.RMSNorm(5), (real(3, 4, 5),)
    yield "LocalResponseNorm", lambda: nn.LocalResponseNorm(3), (real(2, 5, 4, 4),)
    yield "CrossMapLRN2d", lambda: nn.CrossMapLRN2d(3), (real(2, 5, 4, 4),)


def pools():
    for rank in (1, 2, 3):
        x = (real(*(2, 3, 8, 7, 6)[: rank + 2]),)
        even = (real(*(2, 3, 8, 6, 4)[: rank + 2]),)
        kind = f"{rank}d"
        yield "MaxPool" + kind, lambda kind=kind: getattr(nn, "MaxPool" + kind)(2), x
        yield "MaxPool" + kind, lambda kind=kind: getattr(nn, "MaxPool" + kind)(3, 2, 1, return_indices=True), x
        yield "MaxPool" + kind, lambda kind=kind: getattr(nn, "MaxPool" + kind)(2, 2, dilation=2, ceil_mode=True, return_indices=True), x
        yield "AvgPool" + kind, lambda kind=kind: getattr(nn, "AvgPool" + kind)(2), x
        yield "AvgPool" + kind, lambda kind=kind: getattr(nn, "AvgPool" + kind)(3, 2, 1, ceil_mode=True), x
        yield "AvgPool" + kind, lambda kind=kind: getattr(nn, "AvgPool" + kind)(3, 2, 1, count_include_pad=False), x
        yield "LPPool" + kind, lambda kind=kind: getattr(nn, "LPPool" + kind)(2, 2), x
        yield "MaxUnpool" + kind, lambda kind=kind: Both(
            getattr(nn, "MaxPool" + kind)(2, return_indices=True), getattr(nn, "MaxUnpool" + kind)(2)), even  # fmt: skip
        for size in (1, 2, 3):
            yield "AdaptiveAvgPool" + kind, lambda kind=kind, size=size: getattr(nn, "AdaptiveAvgPool" + kind)(size), x
            yield "AdaptiveMaxPool" + kind, lambda kind=kind, size=size: getattr(nn, "AdaptiveMaxPool" + kind)(size, return_indices=True), x
    yield "AvgPool2d", lambda: nn.AvgPool2d(2, divisor_override=3), (real(2, 3, 8, 7),)
    for rank in (1, 2, 3):
        x = (real(*(2, 3, 5, 6, 4)[: rank + 2]),)
        for name in ("Circular", "Reflection", "Replication", "Zero"):
            full = f"{name}Pad{rank}d"
            yield full, lambda full=full: getattr(nn, full)(2), x
            yield full, lambda full=full, rank=rank: getattr(nn, full)(tuple(range(2 * rank))[::-1] if rank < 3 else 1), x
        yield f"ConstantPad{rank}d", lambda rank=rank: getattr(nn, f"ConstantPad{rank}d")(2, 3.5), x


def sequences():
    for name in ("RNN", "LSTM", "GRU"):
        kind = getattr(nn, name)
        yield name, lambda kind=kind: kind(3, 4), (real(5, 2, 3),)
        yield name, lambda kind=kind: kind(3, 4, 2, batch_first=True, bidirectional=True), (real(2, 3, 3),)
        yield f"{name}Cell", lambda name=name: getattr(nn, name + "Cell")(3, 4), (real(2, 3),)
    yield "RNN", lambda: nn.RNN(3, 4, nonlinearity="relu"), (real(5, 3),)
    yield "LSTM", lambda: nn.LSTM(3, 4, proj_size=2), (real(4, 2, 3), (real(1, 2, 2), real(1, 2, 4)))
    yield "MultiheadAttention", lambda: nn.MultiheadAttention(4, 2), (real(5, 2, 4), real(3, 2, 4), real(3, 2, 4))
    x = real(2, 5, 4)
    yield "MultiheadAttention", lambda: nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True), (x, x, x)
    yield "TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(4, 2, 8), (real(5, 2, 4),)
    yield "TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(4, 2, 8, norm_first=True, activation="gelu"), (real(5, 2, 4),)
    yield "TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(4, 2, 8), (real(5, 2, 4), real(3, 2, 4))
    yield "TransformerEncoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2), (real(5, 2, 4),)
    yield "TransformerDecoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2), (real(5, 2, 4), real(3, 2, 4))
    yield "Transformer", lambda: nn.Transformer(4, 2, 1, 1, 8), (real(5, 2, 4), real(3, 2, 4))


def losses():
    pair = (real(4, 3), real(4, 3))
    for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"):
        for reduction in ("mean", "sum", "none"):
            yield name, lambda name=name, reduction=reduction: getattr(nn, name)(reduction=reduction), pair
    yield "BCELoss", lambda: nn.BCELoss(), (unit(4, 3), unit(4, 3))
    yield "BCEWithLogitsLoss", lambda: nn.BCEWithLogitsLoss(pos_weight=gl.tensor([1.0, 2.0, 3.0])), (real(4, 3), unit(4, 3))
    yield "CosineEmbeddingLoss", lambda: nn.CosineEmbeddingLoss(0.1), (real(4, 3), real(4, 3), signs(4))
    yield "CrossEntropyLoss", lambda: nn.CrossEntropyLoss(), (real(4, 3), choice(3, 4))
    weight = gl.tensor([1.0, 2.0, 0.5])
    yield "CrossEntropyLoss", lambda: nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1), (real(4, 3, 2), choice(3, 4, 2))
    yield "CrossEntropyLoss", lambda: nn.CrossEntropyLoss(ignore_index=1, reduction="none"), (real(4, 3), choice(3, 4))
    yield "CrossEntropyLoss", lambda: nn.CrossEntropyLoss(), (real(4, 3), unit(4, 3))
    yield "NLLLoss", lambda: nn.NLLLoss(), (real(4, 3), choice(3, 4))
    yield "AdaptiveLogSoftmaxWithLoss", lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]), (real(4, 8), choice(20, 4))
    yield "CTCLoss", lambda: nn.CTCLoss(), (real(6, 2, 5).log_softmax(2), gl.randint(1, 5, (2, 3)), [6, 5], [3, 2])
    yield "GaussianNLLLoss", lambda: nn.GaussianNLLLoss(), (*pair, unit(4, 3))
    yield "HingeEmbeddingLoss", lambda: nn.HingeEmbeddingLoss(), (real(4, 3), signs(4, 3))
    yield "KLDivLoss", lambda: nn.KLDivLoss(reduction="batchmean"), (unit(4, 3).log(), unit(4, 3))
    yield "MarginRankingLoss", lambda: nn.MarginRankingLoss(0.1), (real(4), real(4), signs(4))
    yield "MultiLabelMarginLoss", lambda: nn.MultiLabelMarginLoss(), (real(2, 4), gl.tensor([[3, 0, -1, 1], [1, -1, 0, 2]]))
    yield "MultiLabelSoftMarginLoss", lambda: nn.MultiLabelSoftMarginLoss(), (real(4, 3), choice(2, 4, 3).float())
    yield "MultiMarginLoss", lambda: nn.MultiMarginLoss(), (real(4, 3), choice(3, 4))
    yield "PoissonNLLLoss", lambda: nn.PoissonNLLLoss(full=True), (real(4, 3), unit(4, 3) * 5)
    yield "SoftMarginLoss", lambda: nn.SoftMarginLoss(), (real(4, 3), signs(4, 3))
    yield "TripletMarginLoss", lambda: nn.TripletMarginLoss(swap=True), (real(4, 3), real(4, 3), real(4, 3))
    yield "TripletMarginWithDistanceLoss", lambda: nn.TripletMarginWithDistanceLoss(), (real(4, 3), real(4, 3), real(4, 3))


def cases():
    """(name of the class, how the module is made, its arguments)"""
    gl.manual_seed(3)
    for family in (activations, layers, convolutions, norms, pools, sequences, losses):
        yield from family()
