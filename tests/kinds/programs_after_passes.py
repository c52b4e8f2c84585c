"""What the passes make of programs: for each of a list of them, on the CPU, which passes change it and which operations are left.

`python -m tests.kinds.programs_after_passes` writes programs_after_passes.txt.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["GRADLAB_NATIVE"] = "0"  # as tests/conftest.py has it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gradlab as gl
from gradlab import nn
from gradlab.graph import trace
from gradlab.graph.passes import PASSES, optimize
from gradlab.models.gpt import GPT, GPTConfig

FILE = Path(__file__).with_name("programs_after_passes.txt")
HEAD = """\
# By `python -m tests.kinds.programs_after_passes`: a program, and how many operations were traced; the passes that change which operations
# there are, in their order; the operations that are left, and how many of each.
"""
F = nn.functional


def steps(model: Any, *inputs: Any, loss: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """A training step without its update: the loss and all gradients."""
    parameters = list(model.parameters())

    def step(*given: Any) -> Any:
        found = model(*given)
        total = loss(found) if loss else (found[0] if isinstance(found, tuple) else found).square().mean()
        return (total, *gl.autograd.grad(total, parameters))

    return step, inputs


def only(model: Any, *inputs: Any) -> tuple[Any, tuple[Any, ...]]:
    """A forward pass."""

    def run(*given: Any) -> Any:
        with gl.no_grad():
            return model(*given)

    return run, inputs


class Residual(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.short = nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.Conv2d(8, 16, 1, 2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.norms[2](self.short(x)))


class Heads(nn.Module):
    """Several products of one input, and a table that is looked up before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.parts = nn.Embedding(11, 8), nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, i: Any) -> Any:
        x = self.table(i)
        q, k, v = (part(x) for part in self.parts)
        return F.scaled_dot_product_attention(q, k, v)


class Joined(nn.Module):
    """What is joined along channels, as in a dense network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(4 * i, 4, 3, padding=1) for i in (1, 2, 3)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = gl.cat([x, F.relu(layer(x))], 1)
        return F.avg_pool2d(x, 2)


def convolutions(*tail: Any) -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *tail)


def pooled(before: int, after: int) -> tuple[Any, ...]:
    return nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)


def image(channels: int = 3) -> Any:
    return gl.rand(2, channels, 12, 12)


def algebra(x: Any) -> Any:
    """What is written more than once, or for nothing."""
    y = (x * 1).t().t() + 0.0
    z = (x - 0.0).double().float().reshape(-1).reshape(x.shape) / 1
    return gl.neg(-y) * z.exp() + z.exp(), x[:, :].squeeze().permute(1, 0).permute(1, 0), gl.arange(4).float() * 2 + gl.ones(4)


def orders(x: Any) -> Any:
    """Orders of dimensions that do not undo one another, and types that do not hold what they are given."""
    y = x.reshape(2, 3, 5)
    turned = y.permute(2, 0, 1).permute(1, 2, 0), y.permute(2, 0, 1).permute(1, 0, 2), y.transpose(0, 2).permute(1, 2, 0)
    types = (x * 9).int().float(), (x * 9).double().float(), (x * 3).half().float(), x.double().int().double(), (x > 0.5).float().bool()
    return (*turned, y.mT.permute(2, 0, 1), *types)



def statistics(x: Any) -> Any:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(), x.std(0), (x * x).sum(0), x.mean(0)


def lookups(table: Any, w: Any, i: Any) -> Any:
    return F.embedding(i, table) @ w, F.embedding(i, table * 2).sum(1), table.index_select(0, i[0])


def parts(x: Any, w: Any) -> Any:
    y = gl.zeros(6, 8)
    y[:3] = x @ w
    y[3:] += (x * 2) @ w
    return gl.cat([y[:, :4].relu(), y[:, 4:]], 1), x[:, 2:].contiguous(), gl.stack([x, x]).sum(0)


def of_parts(x: Any) -> tuple[Any, ...]:
    """Gradients that are put together from those of parts: of all of them, and with one of the whole."""
    def gradient(f: Any) -> Any:
        y = x.detach().clone().requires_grad_()
        return gl.autograd.grad(f(y), y)[0]

    def both(y: Any) -> Any:
        return (y[:2] * 3).sum() + (y[2:] * 5).exp().sum()

    return gradient(both), gradient(lambda y: both(y) + y.sin().sum()), gradient(lambda y: (y[:2] * 3).sum() + y[2:].float().exp().sum())


def programs() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The programs, made anew."""
    gl.manual_seed(0)
    words = gl.arange(12).reshape(2, 6) % 11
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    found = {
        "algebra": (algebra, (gl.rand(3, 4),)), "orders": (orders, (gl.rand(2, 15) * 3 - 1,)), "statistics": (statistics, (gl.rand(6, 5),)),
        "lookups": (lookups, (gl.rand(11, 4), gl.rand(4, 3), words)), "parts": (parts, (gl.rand(3, 5), gl.rand(5, 8))),
        "perceptron": steps(nn.Sequential(nn.Linear(5, 7), nn.GELU("tanh"), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 3)), gl.rand(4, 5)),
        "convolutions": steps(convolutions(nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), image()),
        "convolutions, run": only(convolutions(nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.SiLU()).eval(), image()),
        "pooled": steps(nn.Sequential(*pooled(3, 8), *pooled(8, 4), nn.Flatten(), nn.Linear(36, 3)), image()),
        "pooled, run": only(nn.Sequential(*pooled(3, 8), *pooled(8, 4)), image()),
        "pooled by 3": steps(convolutions(nn.MaxPool2d(3, 2, 1)), image()), "averaged": steps(convolutions(nn.AvgPool2d(2)), image()),
        "averaged over all": steps(convolutions(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)), image()),
        "residual": steps(Residual(), image(8)), "residual, run": only(Residual().eval(), image(8)), "joined": steps(Joined(), image(4)),
        "heads": steps(Heads(), words), "heads, run": only(Heads(), words), "encoder": steps(encoder, gl.rand(2, 5, 8)),
        "encoder, run": only(encoder.eval(), gl.rand(2, 5, 8)), "LSTM": steps(nn.LSTM(4, 6), gl.rand(5, 2, 4)),
        "GRU": steps(nn.GRU(4, 6, 2), gl.rand(5, 2, 4)), "dropout": steps(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), gl.rand(3, 4)),
        "GPT": steps(GPT(GPTConfig(vocab_size=11, block_size=6, n_layer=1, n_head=2, n_embd=8)), words),
        "classes": steps(nn.Linear(5, 3), gl.rand(4, 5), loss=lambda y: F.cross_entropy(y, gl.tensor([0, 2, 1, 1]))),
        "rms": steps(nn.Sequential(nn.Linear(4, 8), nn.RMSNorm(8), nn.SiLU(), nn.LayerNorm(8)), gl.rand(3, 4)),
        "groups": steps(nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.ReLU()), image(4)),
    }  # fmt: skip
    half = gl.bfloat16
    found |= {
        "gradients of parts": (of_parts, (gl.rand(4, 3),)), "gradients of parts, halves": (of_parts, (gl.rand(4, 3).to(half),)),
        "heads, halves": steps(Heads().to(half), words), "LSTM, halves": steps(nn.LSTM(4, 6).to(half), gl.rand(5, 2, 4).to(half)),
        "RNN, halves": steps(nn.RNN(4, 6).to(half), gl.rand(5, 2, 4).to(half)),
        "convolutions, halves": steps(convolutions(nn.AvgPool2d(2), nn.Conv2d(8, 4, 3)).to(half), image().to(half)),
    }
    return found


def graphs(name: str) -> tuple[Any, Any, list[str]]:
    """A program as it was traced, after all passes, and the passes that changed it."""
    function, inputs = programs()[name]
    graph = traced = trace(function, *inputs).graph
    changed = []
    for one, run in PASSES.items():
        after = run(graph)
        if [c.op.name for c in after.calls] != [c.op.name for c in graph.calls]:
            changed.append(one)
        graph = after
    return traced, optimize(traced, dict.fromkeys(PASSES, True)), changed


def line(name: str) -> str:
    """What is written of a program."""
    traced, graph, changed = graphs(name)
    counted = Counter(c.op.name for c in graph.calls)
    left = " ".join(f"{op}×{n}" if n > 1 else op for op, n in sorted(counted.items()))
    return f"{name}: {len(traced.calls)}\n    {' '.join(changed)}\n    {left}"


if __name__ == "__main__":
    FILE.write_text(HEAD + "".join(f"{line(name)}\n" for name in programs()), encoding="utf-8")
