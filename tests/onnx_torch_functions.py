"""PyTorch's functions as modules, for the files of its exporter: what is computed, an example, which dimensions are open."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

BATCH = {0: {0: "n"}}
EVERY = {0: {0: "n", 1: "m"}}
IMAGE = {0: {0: "n", 2: "h", 3: "w"}}


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def real(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


FUNCTIONS = {
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), (real(2, 3, 4), real(2, 4, 5)), {0: {0: "n"}, 1: {0: "n"}}),
    "einsum diagonal": (lambda x: torch.einsum("bii->bi", x), (real(2, 3, 3),), {}),
    "einsum outer": (lambda x, y: torch.einsum("i,j->ij", x, y), (real(3), real(4)), {0: {0: "n"}, 1: {0: "m"}}),
    "gather": (lambda x, i: x.gather(1, i), (real(3, 5), whole(5, 3, 2)), {0: {0: "n"}, 1: {0: "n"}}),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), (real(3, 5), torch.tensor([[0, 2], [1, 3], [4, 0]]), real(3, 2)), {}),
    "scatter_add": (lambda x, i, s: x.scatter_add(1, i, s), (real(3, 5), whole(5, 3, 4), real(3, 4)), {}),
    "index_select": (lambda x, i: x.index_select(1, i), (real(3, 5), whole(5, 4)), {0: {0: "n"}, 1: {0: "k"}}),
    "index": (lambda x, i, j: x[i, j], (real(4, 5, 3), whole(4, 3), whole(5, 3)), {1: {0: "k"}, 2: {0: "k"}}),
    "index slices": (lambda x, i: x[:, i, 1:], (real(4, 5, 3), whole(5, 3)), {0: {0: "n"}}),
    "index_put": (lambda x, i, s: x.index_put((i,), s), (real(4, 5), torch.tensor([1, 3]), real(2, 5)), {}),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), (real(4, 5), torch.tensor([1, 3, 1]), real(3, 5)), {}),
    "index_copy": (lambda x, i, s: x.index_copy(0, i, s), (real(4, 5), torch.tensor([1, 3]), real(2, 5)), {}),
    "masked_fill": (lambda x, m: x.masked_fill(m, -3.5), (real(3, 4), real(3, 4) > 0), {0: {0: "n"}, 1: {0: "n"}}),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m, s), (real(3, 4), real(3, 4, seed=2) > 0, real(12)), {}),
    "where": (lambda x, y: torch.where(x > y, x, y * 2), (real(3, 4), real(4)), EVERY | {1: {0: "m"}}),
    "where number": (lambda x: torch.where(x > 0, x, 0.5), (real(3, 4),), EVERY),
    "slices": (lambda x: x[1:, ::2, -3:] + x[:-1, 1::2, :3], (real(4, 6, 5),), {0: {0: "n", 2: "k"}}),
    "select": (lambda x: x[:, -1] - x[:, 0], (real(4, 6, 5),), {0: {0: "n", 1: "t"}}),
    "narrow": (lambda x: x.narrow(1, 1, x.shape[1] - 2), (real(2, 6),), EVERY),
    "chunk": (lambda x: x.chunk(2, 1), (real(3, 6),), BATCH),
    "split": (lambda x: x.split([1, 2, 3], 1), (real(3, 6),), BATCH),
    "unbind": (lambda x: x.unbind(1), (real(3, 4),), BATCH),
    "stack": (lambda x, y: torch.stack([x, y], 1), (real(3, 4), real(3, 4)), {0: {0: "n"}, 1: {0: "n"}}),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), (real(3, 4), real(3, 2)), {0: {0: "n", 1: "a"}, 1: {0: "n", 1: "b"}}),
    "view": (lambda x: x.view(x.size(0), -1), (real(2, 3, 4),), {0: {0: "n", 1: "m"}}),
    "view heads": (lambda x: x.view(*x.shape[:-1], 2, -1).transpose(1, 2).contiguous(), (real(2, 3, 8),), EVERY),
    "permute": (lambda x: x.permute(2, 0, 1).reshape(x.shape[2], -1), (real(2, 3, 4),), {0: {0: "n", 1: "m", 2: "k"}}),
    "expand": (lambda x: x.unsqueeze(1).expand(-1, 4, -1), (real(3, 5),), EVERY),
    "expand as": (lambda x, y: x.expand_as(y), (real(1, 4), real(3, 4)), {1: {0: "n"}}),
    "repeat": (lambda x: x.repeat(2, 1, 3), (real(3, 4),), EVERY),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (real(3, 4),), BATCH),
    "tile": (lambda x: x.tile(2, 2), (real(3, 4),), EVERY),
    "roll": (lambda x: x.roll((1, -2), (0, 1)), (real(3, 4),), EVERY),
    "flip": (lambda x: x.flip(1), (real(3, 4),), EVERY),
    "tril": (lambda x: x.tril(-1) + x.triu(1), (real(4, 4),), {}),
    "diagonal": (lambda x: x.diagonal(dim1=1, dim2=2), (real(2, 4, 4),), BATCH),
    "arange": (lambda x: torch.arange(x.shape[1]) * 2 + x, (real(3, 4),), EVERY),
    "zeros": (lambda x: torch.cat([x, torch.zeros(x.shape[0], 2), torch.ones_like(x)], 1), (real(3, 4),), EVERY),
    "full": (lambda x: torch.full((x.shape[0],), 2.5) + x[:, 0], (real(3, 4),), EVERY),
    "new_zeros": (lambda x: x.new_zeros(x.shape[1]).add_(1) + x, (real(3, 4),), EVERY),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), (real(3), real(4)), {0: {0: "n"}, 1: {0: "m"}}),
    "one_hot": (lambda i: F.one_hot(i, 6).float(), (whole(6, 3, 4),), EVERY),
    "sum": (lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True)), (real(2, 3, 4),), {0: {0: "n", 1: "m"}}),
    "mean": (lambda x: (x.mean(), x.mean(-1, keepdim=True)), (real(2, 3, 4),), {0: {0: "n", 1: "m"}}),
    "var": (lambda x: (x.var(), x.var(1, unbiased=False), x.std(-1, keepdim=True)), (real(2, 3, 4),), {}),
    "max": (lambda x: (x.max(), *x.max(1), *x.min(-1, keepdim=True)), (real(2, 3, 4),), {0: {0: "n", 1: "m"}}),
    "argmax": (lambda x: (x.argmax(1), x.argmin(-1, keepdim=True)), (real(2, 3, 4),), {0: {0: "n", 1: "m"}}),
    "prod": (lambda x: (x.prod(1), x.prod()), (real(2, 3),), EVERY),
    "cumsum": (lambda x: x.cumsum(1), (real(2, 5),), EVERY),
    "logsumexp": (lambda x: x.logsumexp(1), (real(2, 5),), EVERY),
    "norm": (lambda x: (x.norm(), x.norm(dim=1), x.norm(1, -1, keepdim=True), torch.linalg.vector_norm(x, dim=0)), (real(3, 5),), EVERY),
    "topk": (lambda x: x.topk(3, 1), (real(2, 6),), EVERY),
    "sort": (lambda x: x.sort(1, descending=True), (real(2, 6),), EVERY),
    "argsort": (lambda x: x.argsort(1), (real(2, 6),), EVERY),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + x.clamp(max=0.1), (real(3, 4),), EVERY),
    "minimum": (lambda x, y: torch.minimum(x, y) + torch.maximum(x, y) * 2, (real(3, 4), real(4)), EVERY | {1: {0: "m"}}),
    "pow": (lambda x: x.abs() ** 1.5 + x**2 + 2**x, (real(3, 4),), EVERY),
    "remainder": (lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 0.7), (real(3, 4),), EVERY),
    "floor_divide": (lambda x: torch.div(x, 0.7, rounding_mode="floor") + torch.div(x, 0.7, rounding_mode="trunc"), (real(3, 4),), EVERY),
    "integers": (lambda i, j: (i // j, i % j, i * j - 3, i / j), (whole(20, 3, 4) - 10, whole(4, 3, 4) + 1), EVERY | {1: {0: "n", 1: "m"}}),
    "bits": (lambda i: (i & 6, i | 1, i ^ 3, i << 1, i >> 1), (whole(20, 3, 4),), EVERY),
    "logical": (lambda x: ((x > 0) & (x < 1) | ~(x == 0)).float(), (real(3, 4),), EVERY),
    "any": (lambda x: ((x > 0).any(1), (x > -9).all()), (real(3, 4),), EVERY),
    "round": (lambda x: x.round() + x.floor() + x.ceil() + x.trunc() + x.sign(), (real(3, 4) * 3,), EVERY),
    "trigonometry": (lambda x: x.sin() + x.cos() + x.tan() + x.atan() + x.asinh() + (x / 9).asin(), (real(3, 4),), EVERY),
    "atan2": (lambda x, y: torch.atan2(x, y), (real(3, 4), real(3, 4, seed=3)), EVERY | {1: {0: "n", 1: "m"}}),
    "erf": (lambda x: x.erf() + x.exp() + x.abs().log1p() + x.expm1() + x.abs().rsqrt() + x.sigmoid(), (real(3, 4),), EVERY),
    "matmul": (lambda x, y: x @ y, (real(2, 1, 3, 4), real(5, 4, 2)), {0: {0: "n"}}),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0), (real(5), real(3, 4), real(4, 5)), {1: {0: "n"}}),
    "baddbmm": (lambda b, x, y: torch.baddbmm(b, x, y), (real(2, 3, 5), real(2, 3, 4), real(2, 4, 5)), {}),
    "outer": (lambda x, y: torch.outer(x, y), (real(3), real(4)), {0: {0: "n"}, 1: {0: "m"}}),
    "cdist": (lambda x, y: torch.cdist(x, y), (real(2, 3, 4), real(2, 5, 4, seed=2)), {}),
    "cross": (lambda x, y: torch.cross(x, y, dim=1), (real(4, 3), real(4, 3, seed=2)), {}),
    "casts": (lambda x: (x.int().float() + x.double().float() + (x > 0).long()), (real(3, 4) * 3,), EVERY),
    "bool sums": (lambda x: (x > 0).sum(1), (real(3, 4),), EVERY),
    "half": (lambda x: (x.half() * 2).float(), (real(3, 4),), EVERY),
    "pad": (lambda x: F.pad(x, (1, 2), value=0.5) + F.pad(x, (2, 1), "reflect"), (real(2, 3, 4),), EVERY),
    "pad cut": (lambda x: F.pad(x, (-1, 2, 0, -1)), (real(2, 3, 4),), {0: {0: "n"}}),
    "unfold": (lambda x: x.unfold(1, 3, 2), (real(2, 7),), BATCH),
    "pad sequence": (lambda x: F.pad(x, (0, 0, 0, 8 - x.shape[1])), (real(2, 5, 3),), {0: {0: "n", 1: "t"}}),
    "normalize": (lambda x: F.normalize(x, dim=1), (real(3, 4),), EVERY),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (real(3, 4), whole(4, 3)), {0: {0: "n"}, 1: {0: "n"}}),
    "nll_loss": (lambda x, t: F.nll_loss(x.log_softmax(1), t, reduction="none", ignore_index=1), (real(3, 4), whole(4, 3)), {}),
    "bce": (lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(2.0)), (real(3, 4), real(3, 4).sigmoid()), {}),
    "mse": (lambda x, t: (F.mse_loss(x, t), F.l1_loss(x, t), F.smooth_l1_loss(x, t)), (real(3, 4), real(3, 4, seed=2)), {}),
    "kl": (lambda x, t: F.kl_div(x.log_softmax(1), t.softmax(1), reduction="batchmean"), (real(3, 4), real(3, 4, seed=2)), {}),
    "stft-free": (lambda x: torch.hann_window(8) * x, (real(2, 8),), BATCH),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x))), (real(2, 8, 2),), {}),
    "stft": (lambda x: torch.view_as_real(torch.stft(x, 8, 4, window=torch.ones(8), return_complex=True)), (real(2, 32),), {}),
    "nonzero": (lambda x: x[x > 0], (real(3, 4),), {}),
    "numel": (lambda x: x.sum() / x.numel() + x.shape[0] * 0.5, (real(3, 4),), EVERY),
    "half sizes": (lambda x: x[: x.shape[0] // 2], (real(6, 4),), EVERY),
    "shape as result": (lambda x: (x * 2, torch.tensor(x.shape[1])), (real(3, 4),), {}),
    "searchsorted-free": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), (real(3, 4),), EVERY),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (real(3, 4), real(3, 4, seed=2)), {}),
    "unique": (lambda i: torch.unique(i), (whole(5, 12),), {}),
    "linspace": (lambda x: torch.linspace(0, 1, 4) + x, (real(3, 4),), BATCH),
    "log_softmax": (lambda x: F.log_softmax(x * 80, -1), (real(3, 4),), EVERY),
    "square": (lambda x: x.square().mean(0).sqrt() + x.reciprocal()[0], (real(3, 4),), EVERY),
    "weight_norm-free": (lambda x: x / x.norm(dim=1, keepdim=True), (real(3, 4),), EVERY),
    "det": (lambda x: torch.det(x), (real(2, 3, 3),), BATCH),
    "movedim": (lambda x: x.movedim(0, -1).swapaxes(0, 1).squeeze(), (real(2, 1, 4),), BATCH),
    "flatten": (lambda x: x.flatten(1, 2).unflatten(1, (3, -1)), (real(2, 3, 4, 5),), BATCH),
}  # fmt: skip
