"""The graphs of `gradlab.fx` beside those of PyTorch: the same nodes under the same names."""

import importlib
import math

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
ENGINES = ("torch", "gradlab")


def programs(name):
    """The same modules and functions, of one engine."""
    engine = importlib.import_module(name)
    importlib.import_module(f"{name}.fx")
    nn, F = engine.nn, engine.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.downSample = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
            self.weight = nn.Parameter(engine.ones(1))
            self.register_buffer("shift", engine.ones(1))

        def forward(self, input, scale=2.0):
            y = F.relu(self.bn1(self.conv1(input)), inplace=True)
            y = y + self.downSample(input) * self.weight + self.shift
            a, b = y.chunk(2, dim=1)
            y = engine.cat([a, -b], dim=1)
            y += 1
            return {"out": y.flatten(1).mean(dim=1) * scale, "more": (y[:, 0], y.shape[0], y.size(-1))}

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x):
            n, t, d = x.shape
            q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
            weights = engine.softmax(q @ k.transpose(-2, -1) / math.sqrt(4), dim=-1)
            return x + self.out((weights @ v).transpose(1, 2).reshape(n, t, d))

    def arithmetic(x, y, *rest, **options):
        z = (1 - x) ** 2 / 3 // y % 2 + abs(x) - ~(x > y) * (2 @ y)
        return engine.where(z == y, x, z.clamp(min=0)), rest[0], options["a"], x.T, engine.max(x).sum(), engine.float32

    def several(x):
        a = engine.sin(x) + engine.sin(x)
        return engine.stack([a, engine.sum(x)]).to(engine.float64).size()[0] + len([a])

    return {
        "block": Block(), "attention": Attention(), "arithmetic": arithmetic, "several": several, "linear": nn.Linear(2, 3),
        "sequential": nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), nn.Linear(8, 2)),
        "lstm": nn.Sequential(nn.Embedding(4, 3), nn.LSTM(3, 2)),
        "transformer": nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16), nn.LayerNorm(8)),
    }  # fmt: skip


def shown(value, engine):
    if isinstance(value, (tuple, list)):
        return [shown(part, engine) for part in value]
    if isinstance(value, dict):
        return {key: shown(part, engine) for key, part in value.items()}
    return str(value).replace(engine, "engine")


def table(name, program):
    graph = importlib.import_module(f"{name}.fx").symbolic_trace(program).graph
    rows = []
    for node in graph.nodes:
        target = node.target if isinstance(node.target, str) else node.target.__name__
        rows.append((node.op, node.name, target, shown(node.args, name), shown(node.kwargs, name), sorted(map(str, node.users))))
    return rows


PROGRAMS = {name: programs(name) for name in ENGINES}


@pytest.mark.parametrize("program", PROGRAMS["torch"])
def test_graphs(program):
    theirs, ours = (table(name, PROGRAMS[name][program]) for name in ENGINES)
    assert len(ours) == len(theirs)
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine == yours


@pytest.mark.parametrize("program", ["block", "attention", "arithmetic", "several", "sequential"])
def test_code(program):
    """PyTorch writes annotations and blank lines besides."""
    texts = []
    for name in ENGINES:
        lines = importlib.import_module(f"{name}.fx").symbolic_trace(PROGRAMS[name][program]).code.replace(name, "engine").splitlines()
        texts.append([line.rstrip() for line in lines if line.strip() and not line.startswith("def")])
    assert texts[1] == texts[0]
