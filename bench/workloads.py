"""Training steps to measure: the same seven, with the same sizes and weights, for gradlab and PyTorch.

mlp       784-256-256-10, ReLU, batch 128, SGD with momentum       cnn     two 3×3 convolutions and two linear layers, batch 64, Adam
mlp-adam  784-512-512-10, GELU, batch 256, AdamW                   resnet  ResNet-20, batch 64 of 32×32, SGD with momentum
gpt       4 layers of width 128, 128 characters, batch 16, AdamW   lstm    256 units, 64 characters, batch 32, Adam
tiny      2-16-16-1, tanh, batch 32, SGD
"""

import itertools

import numpy as np
from further_workloads import FURTHER

NAMES = ("mlp", "mlp-adam", "cnn", "resnet", "gpt", "lstm", "tiny")


def data(name):
    """Inputs and targets as NumPy arrays."""
    r = np.random.default_rng(1)
    if name in ("mlp", "mlp-adam"):
        batch = 128 if name == "mlp" else 256
        return r.normal(size=(batch, 784)).astype("f"), r.integers(0, 10, batch)
    if name == "cnn":
        return r.normal(size=(64, 1, 28, 28)).astype("f"), r.integers(0, 10, 64)
    if name == "resnet":
        return r.normal(size=(64, 3, 32, 32)).astype("f"), r.integers(0, 10, 64)
    if name in ("gpt", "lstm"):
        tokens = r.integers(0, 65, (16, 129) if name == "gpt" else (32, 65))
        return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
    x = r.normal(size=(32, 2)).astype("f")
    return x, np.sin(x.sum(1, keepdims=True)).astype("f")


def network(name, nn, F, cat):
    """The model, written once for both engines: `nn` and `F` are theirs."""

    class MLP(nn.Module):
        def __init__(self, sizes, act):
            super().__init__()
            self.l = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(sizes)])
            self.act = act

        def forward(self, x):
            return self.l[2](self.act(self.l[1](self.act(self.l[0](x)))))

    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
            self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
            return self.fc2(F.relu(self.fc1(x.flatten(1))))

    class Block(nn.Module):
        def __init__(self, ci, co, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(ci, co, 3, stride, 1, bias=False), nn.BatchNorm2d(co)
            self.conv2, self.bn2 = nn.Conv2d(co, co, 3, 1, 1, bias=False), nn.BatchNorm2d(co)
            self.extra = co - ci

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            if self.extra:
                q = self.extra // 2
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, q, q))
            return F.relu(x + y)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
            blocks, ci = [], 16
            for co in (16, 32, 64):
                for i in range(3):
                    blocks.append(Block(ci, co, 2 if co > 16 and i == 0 else 1))
                    ci = co
            self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(64, 10)

        def forward(self, x):
            return self.fc(self.blocks(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))

    class GPTBlock(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.heads = heads

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(65, 128), nn.Embedding(128, 128)
            self.h = nn.ModuleList([GPTBlock(128, 4) for _ in range(4)])
            self.lnf, self.head = nn.LayerNorm(128), nn.Linear(128, 65, bias=False)

        def forward(self, x):
            x = self.wte(x) + self.wpe.weight
            for block in self.h:
                x = block(x)
            return self.head(self.lnf(x))

    class LSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.lstm, self.fc = nn.Embedding(65, 256), nn.LSTM(256, 256, batch_first=True), nn.Linear(256, 65)

        def forward(self, x):
            return self.fc(self.lstm(self.emb(x))[0])

    make = {
        "mlp": lambda: MLP([784, 256, 256, 10], F.relu),
        "mlp-adam": lambda: MLP([784, 512, 512, 10], lambda x: F.gelu(x, approximate="tanh")),
        "cnn": CNN,
        "resnet": ResNet,
        "gpt": GPT,
        "lstm": LSTM,
        "tiny": lambda: MLP([2, 16, 16, 1], F.tanh),
    }
    return make[name]()


def weights(shapes):
    """Initial values by parameter name: the same for both engines."""
    r = np.random.default_rng(0)
    found = {}
    for key, shape in shapes.items():
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        norm = len(shape) == 1 and (".bn" in key or key.startswith(("bn", "ln")) or ".ln" in key)
        if norm:
            found[key] = np.full(shape, 1.0 if key.endswith("weight") else 0.0, "f")
        elif key.startswith(("wte", "wpe", "emb")):
            found[key] = r.normal(0, 0.02 if key[0] == "w" else 1.0, shape).astype("f")
        else:
            found[key] = (r.uniform(-1, 1, shape) / np.sqrt(fan if len(shape) > 1 else 64)).astype("f")
    return found


def step_of(name, model, F, optim, x, y):
    """The training step, as a user writes it."""
    if name in ("mlp", "resnet"):
        optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    elif name == "tiny":
        optimizer = optim.SGD(model.parameters(), lr=0.01)
    elif name in ("mlp-adam", "gpt"):
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    else:
        optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        out = model(x)
        if name == "tiny":
            loss = F.mse_loss(out, y)
        elif out.dim() == 3:
            loss = F.cross_entropy(out.flatten(0, 1), y.flatten())
        else:
            loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def prepared(name, lib, compiled=None):
    """A step without arguments, and what was compiled (None in eager mode), with the values that every engine begins with.

    lib: gradlab or torch; compiled: what turns a function into its compiled form.
    """
    if name in FURTHER:
        lib.manual_seed(0)
        models, step, arrays = FURTHER[name](lib)
    else:
        models = [network(name, lib.nn, lib.nn.functional, lib.cat)]
        arrays = data(name)
        step = step_of(name, models[0], lib.nn.functional, lib.optim, *arrays)
    with lib.no_grad():
        for model in models:
            values = weights({k: tuple(p.shape) for k, p in model.named_parameters()})
            for key, p in model.named_parameters():
                p.copy_(lib.from_numpy(values[key]))
    inputs = [lib.from_numpy(a) for a in arrays]
    if compiled is None:
        return (lambda: step(*inputs)), None
    if (part := getattr(step, "compiled", None)) is not None:  # what calls it is no static program
        whole = compiled(part)
        return (lambda: step(*inputs, whole)), whole
    whole = compiled(step)
    return (lambda: whole(*inputs)), whole
