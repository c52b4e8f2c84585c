"""PyTorch's modules and functions as its own exporter writes them: name, module, example, which dimensions are open."""

from __future__ import annotations

import torch
from onnx_torch_functions import BATCH, EVERY, FUNCTIONS, IMAGE, Call, real, whole
from torch import nn
from torch.nn import functional as F


def activations():
    x = (real(3, 8) * 2,)
    for name in ("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "Mish", "PReLU",
                 "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink"):  # fmt: skip
        yield name, getattr(nn, name)(), x, EVERY if name != "PReLU" else BATCH
    yield "GELU tanh", nn.GELU("tanh"), x, EVERY
    yield "PReLU channels", nn.PReLU(8), x, BATCH
    yield "GLU", nn.GLU(1), x, BATCH
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        for dim in (0, -1):
            yield f"{name} {dim}", getattr(nn, name)(dim), x, EVERY
    yield "Threshold", nn.Threshold(0.3, -2), x, EVERY
    yield "Softmax2d", nn.Softmax2d(), (real(2, 3, 4, 5),), IMAGE


def convolutions():
    for rank in (1, 2, 3):
        x, open_ = (real(*(2, 4, 7, 6, 5)[: rank + 2]),), {0: {0: "n", **{d: f"s{d}" for d in range(2, rank + 2)}}}
        conv, back = getattr(nn, f"Conv{rank}d"), getattr(nn, f"ConvTranspose{rank}d")
        for i, options in enumerate(({"padding": 1}, {"stride": 2, "groups": 2}, {"dilation": 2, "bias": False, "padding": 2},
                                     {"padding": "same"}, {"padding": 1, "padding_mode": "reflect"},
                                     {"padding": 2, "padding_mode": "circular"}, {"padding": 1, "padding_mode": "replicate"})):  # fmt: skip
            if not (rank == 3 and i == 4):
                yield f"Conv{rank}d {i}", conv(4, 6, 3, **options), x, open_
        for i, options in enumerate(({"stride": 2, "output_padding": 1}, {"stride": 2, "padding": 1, "groups": 2}, {"dilation": 2},
                                     {"stride": 3, "padding": 1, "output_padding": 2, "bias": False})):  # fmt: skip
            yield f"ConvTranspose{rank}d {i}", back(4, 6, 3, **options), x, open_


def pools():
    for rank in (1, 2, 3):
        x, open_ = (real(*(2, 3, 9, 8, 7)[: rank + 2]),), {0: {0: "n", **{d: f"s{d}" for d in range(2, rank + 2)}}}
        kind = f"{rank}d"
        yield f"MaxPool{kind}", getattr(nn, "MaxPool" + kind)(2), x, open_
        yield f"MaxPool{kind} odd", getattr(nn, "MaxPool" + kind)(3, 2, 1, dilation=2, ceil_mode=True), x, open_
        yield f"MaxPool{kind} places", getattr(nn, "MaxPool" + kind)(3, 2, 1, return_indices=True), x, {0: {0: "n"}}
        yield f"AvgPool{kind}", getattr(nn, "AvgPool" + kind)(2), x, open_
        yield f"AvgPool{kind} odd", getattr(nn, "AvgPool" + kind)(3, 2, 1, ceil_mode=True, count_include_pad=False), x, open_
        yield f"AdaptiveAvgPool{kind}", getattr(nn, "AdaptiveAvgPool" + kind)(1), x, open_
        if rank < 3:
            yield f"LPPool{kind}", getattr(nn, "LPPool" + kind)(2, 3), x, open_
    yield "AdaptiveMaxPool2d", nn.AdaptiveMaxPool2d(1), (real(2, 3, 6, 6),), BATCH
    yield "AdaptiveAvgPool2d 2", nn.AdaptiveAvgPool2d(2), (real(2, 3, 6, 8),), BATCH


def norms():
    x = real(4, 6, 5, 3)
    for rank in (1, 2, 3):
        part = real(*(4, 6, 5, 3, 2)[: rank + 2])
        batch = getattr(nn, f"BatchNorm{rank}d")(6)
        batch.running_mean.copy_(real(6)), batch.running_var.copy_(real(6).abs() + 0.5)
        yield f"BatchNorm{rank}d", batch, (part,), BATCH
        yield f"InstanceNorm{rank}d", getattr(nn, f"InstanceNorm{rank}d")(6, affine=rank == 2), (part,), BATCH
    yield "BatchNorm1d 2", nn.BatchNorm1d(6, affine=False), (real(4, 6),), BATCH
    yield "LayerNorm", nn.LayerNorm([5, 3]), (x,), {0: {0: "n", 1: "c"}}
    yield "LayerNorm plain", nn.LayerNorm(3, elementwise_affine=False), (x,), {0: {0: "n", 1: "c", 2: "h"}}
    yield "GroupNorm", nn.GroupNorm(3, 6), (x,), IMAGE
    yield "LocalResponseNorm", nn.LocalResponseNorm(3), (x,), IMAGE
    yield "RMSNorm", nn.RMSNorm(3), (x,), {0: {0: "n", 1: "c", 2: "h"}}


def layers():
    x = real(3, 8)
    yield "Linear", nn.Linear(8, 5), (x,), BATCH
    yield "Linear 4d", nn.Linear(5, 2, bias=False), (real(2, 3, 4, 5),), {0: {0: "n", 1: "a", 2: "b"}}
    yield "Bilinear", nn.Bilinear(4, 5, 3), (real(2, 4), real(2, 5)), {0: {0: "n"}, 1: {0: "n"}}
    yield "Embedding", nn.Embedding(9, 4, padding_idx=0), (whole(9, 2, 5),), EVERY
    yield "EmbeddingBag", nn.EmbeddingBag(9, 4, mode="sum"), (whole(9, 3, 5),), {}
    yield "Dropout", nn.Dropout(0.4), (x,), EVERY
    yield "Flatten", nn.Flatten(), (real(2, 3, 4, 5),), BATCH
    yield "Unflatten", nn.Unflatten(1, (2, 4)), (x,), BATCH
    yield "PixelShuffle", nn.PixelShuffle(2), (real(1, 8, 3, 4),), IMAGE
    yield "PixelUnshuffle", nn.PixelUnshuffle(2), (real(1, 2, 6, 4),), BATCH
    yield "ChannelShuffle", nn.ChannelShuffle(2), (real(2, 4, 3, 3),), BATCH
    yield "Unfold", nn.Unfold(3, padding=1, stride=2), (real(2, 3, 7, 6),), BATCH
    yield "Fold", nn.Fold((5, 6), 2, stride=1), (real(2, 12, 20),), BATCH
    yield "CosineSimilarity", nn.CosineSimilarity(1), (x, real(3, 8, seed=2)), {0: {0: "n"}, 1: {0: "n"}}
    yield "PairwiseDistance", nn.PairwiseDistance(2), (x, real(3, 8, seed=2)), {0: {0: "n"}, 1: {0: "n"}}
    for name, pad in (("ConstantPad2d", 2), ("ReflectionPad2d", 1), ("ReplicationPad2d", (1, 2, 0, 1)), ("ZeroPad2d", (0, 1, 2, 1)),
                      ("CircularPad2d", 1)):  # fmt: skip
        yield name, getattr(nn, name)(pad, 1.5) if name == "ConstantPad2d" else getattr(nn, name)(pad), (real(2, 3, 5, 6),), IMAGE
    yield "Upsample nearest", nn.Upsample(scale_factor=2), (real(1, 2, 3, 4),), IMAGE
    yield "Upsample size", nn.Upsample(size=(7, 5), mode="nearest"), (real(1, 2, 3, 4),), BATCH
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        for factor in (2.0, 1.5, 0.6):
            more = {"align_corners": factor != 1.5} if mode.startswith("bi") else {}
            if mode != "nearest-exact":
                call = Call(lambda x, f=factor, m=mode, o=more: F.interpolate(x, scale_factor=f, mode=m, **o))
                yield f"interpolate {mode} {factor}", call, (real(1, 2, 7, 6),), IMAGE
    yield "interpolate linear", Call(lambda x: F.interpolate(x, size=9, mode="linear")), (real(2, 3, 5),), BATCH
    yield "interpolate trilinear", Call(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear")), (real(1, 2, 3, 4, 3),), BATCH
    again = Call(lambda x: F.interpolate(x, scale_factor=1.7, recompute_scale_factor=True))
    yield "interpolate recompute", again, (real(1, 2, 5, 6),), BATCH
    like = Call(lambda x, y: F.interpolate(x, size=y.shape[2:], mode="bilinear"))
    yield "interpolate like", like, (real(1, 2, 3, 4), real(1, 2, 7, 9)), {**IMAGE, 1: {2: "a", 3: "b"}}
    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            yield (f"grid_sample {mode} {pad}", Call(lambda x, g, m=mode, p=pad: F.grid_sample(x, g, m, p, align_corners=m == "nearest")),
                   (real(2, 3, 5, 6), real(2, 4, 3, 2, seed=4) * 0.8), {0: {0: "n"}, 1: {0: "n", 1: "a"}})  # fmt: skip
    yield "affine_grid", Call(lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False)), (real(2, 2, 3),), {}


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(4, 5, **options)

    def forward(self, x, *state):
        return self.rnn(x, *state)


class Cells(nn.Module):
    """A cell called for each of three steps."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(4, 5)

    def forward(self, x):
        state = None
        for t in range(3):
            state = self.cell(x[t], state)
        return state


def sequences():
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        name = kind.__name__
        both = {"bidirectional": True}
        for i, options in enumerate(({}, {"batch_first": True, **both}, {"num_layers": 2, "bias": False, **both},
                                     {"num_layers": 2, "batch_first": True})):  # fmt: skip
            first = 0 if options.get("batch_first") else 1
            yield f"{name} {i}", Recurrent(kind, **options), (real(3, 4, 4),), {0: {first: "n", 1 - first: "t"}}
        yield f"{name}Cell", Cells(getattr(nn, name + "Cell")), (real(3, 2, 4),), {0: {1: "n"}}
    yield "RNN relu", Recurrent(nn.RNN, nonlinearity="relu"), (real(3, 2, 4),), {0: {0: "t", 1: "n"}}
    yield "GRU state", Recurrent(nn.GRU), (real(3, 2, 4), real(1, 2, 5)), {0: {0: "t", 1: "n"}, 1: {1: "n"}}
    yield "LSTM state", Call(Recurrent(nn.LSTM)), (real(3, 2, 4), (real(1, 2, 5), real(1, 2, 5))), {0: {0: "t", 1: "n"}, 1: {1: "n"},
                                                                                                   2: {1: "n"}}  # fmt: skip


class Attention(nn.Module):
    def __init__(self, causal=False, padding=False, **options):
        super().__init__()
        self.inner, self.causal, self.padding = nn.MultiheadAttention(8, 2, **options), causal, padding

    def forward(self, x, mask=None):
        size = x.shape[1] if self.inner.batch_first else x.shape[0]
        shape = torch.triu(torch.ones(size, size, dtype=torch.bool), 1) if self.causal else None
        return self.inner(x, x, x, key_padding_mask=mask, attn_mask=shape)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x, memory):
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
        return self.inner(x, memory, tgt_mask=mask)


class Masked(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options), 2, enable_nested_tensor=False)

    def forward(self, x, mask):
        return self.inner(x, src_key_padding_mask=mask)


class Gpt(nn.Module):
    """Token and position tables, blocks with causal attention, shared weights."""

    def __init__(self):
        super().__init__()
        self.table, self.places, self.mix, self.out = nn.Embedding(11, 8), nn.Embedding(16, 8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens):
        n, t = tokens.shape
        x = self.table(tokens) + self.places(torch.arange(t))
        q, k, v = (p.view(n, t, 2, 4).transpose(1, 2) for p in self.mix(self.norm(x)).split(8, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 8))
        return x @ self.table.weight.t()


def attention():
    open_ = {0: {0: "n", 1: "t"}}
    x, mask = real(2, 5, 8), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()
    yield "MultiheadAttention", Attention(batch_first=True), (x,), open_
    yield "MultiheadAttention causal", Attention(True, batch_first=True), (x,), open_
    yield "MultiheadAttention padding", Attention(batch_first=True), (x, mask), {0: {0: "n", 1: "t"}, 1: {0: "n", 1: "t"}}
    yield "MultiheadAttention odd", Attention(add_bias_kv=True, add_zero_attn=True), (x,), open_
    for norm in (False, True):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm, activation="gelu" if norm else "relu")
        yield f"TransformerEncoderLayer {norm}", layer, (x,), open_
    yield "TransformerEncoder padding", Masked(), (x, mask), {0: {0: "n", 1: "t"}, 1: {0: "n", 1: "t"}}
    yield "TransformerDecoder", Decoder(), (x, real(2, 4, 8)), {0: {0: "n", 1: "t"}, 1: {0: "n", 1: "s"}}
    yield "Transformer", nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (x, real(2, 4, 8)), {0: {0: "n", 1: "t"}, 1: {0: "n", 1: "s"}}
    yield "gpt", Gpt(), (whole(11, 2, 6),), EVERY
    q = real(2, 2, 5, 4)
    yield "sdpa mask", Call(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m)), (q, real(5, 5) > 0), {0: {0: "n"}}
    yield "sdpa bias", Call(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m, scale=0.3)), (q, real(5, 5)), {0: {0: "n"}}


def functions():
    for name, (function, args, open_) in FUNCTIONS.items():
        yield name, Call(function), args, open_


@torch.jit.script
def doubled(x: torch.Tensor, n: int):
    for _ in range(n):
        x = x * 0.5 + 1
    return x


@torch.jit.script
def branched(x: torch.Tensor):
    if bool(x.sum() > 0):
        y = x * 2
    else:
        y = x - 1
    return y


@torch.jit.script
def stepped(x: torch.Tensor):
    h = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        h = torch.tanh(h + x[i])
    return h


@torch.jit.script
def until(x: torch.Tensor):
    n = 0
    while bool(x.abs().max() > 0.1) and n < 20:
        x = x * 0.5
        n += 1
    return x


class Scripted(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def control():
    yield "script loop", Call(lambda x: doubled(x, 3)), (real(3, 4),), EVERY
    yield "script branch", Call(branched), (real(3, 4),), EVERY
    yield "script steps", Call(stepped), (real(3, 4),), EVERY
    yield "script until", Call(until), (real(3, 4),), EVERY


def models():
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.SiLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 5))  # fmt: skip
    yield "cnn", cnn, (real(2, 3, 12, 10),), IMAGE
    yield "mlp", nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3), nn.LogSoftmax(-1)), (real(3, 8),), BATCH
    yield "weight_norm", nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), (real(3, 8),), BATCH
    yield "spectral_norm", nn.utils.parametrizations.spectral_norm(nn.Linear(8, 5)), (real(3, 8),), BATCH


def zoo():
    torch.manual_seed(0)
    for family in (activations, convolutions, pools, norms, layers, sequences, attention, functions, control, models):
        yield from family()
