"""More shapes of work than the seven: each is a training step written once for gradlab and PyTorch, whose names are the same.

mobilenet   depthwise 3×3 and pointwise convolutions, batch 32 of 32×32    dcgan        a generator and a discriminator, two optimizers
unet        transposed convolutions and concatenation, 8 of 64×64          ppo          the update of two small MLPs, 256 moves
vit         4 pre-norm encoder layers of width 192, 32 of 32×32            pinn         LBFGS on second derivatives of a tanh MLP
gru         two layers, both ways, over 32 packed sequences                per-sample   gradients by vmap(grad), clipped, batch 64
wavenet     gated dilated convolutions in one dimension, 8 of 1,024        graph        scatter and gather, 2,000 nodes, 10,000 edges
"""

import numpy as np


def _classes(lib, logits, y):
    return lib.nn.functional.cross_entropy(logits, y)


def _trained(model, optimizer, loss_of):
    """The usual step of a model and one optimizer."""

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def mobilenet(lib):
    nn, r = lib.nn, np.random.default_rng(1)

    def layer(a, b, stride):
        deep = nn.Conv2d(a, a, 3, stride, 1, groups=a, bias=False)
        return nn.Sequential(deep, nn.BatchNorm2d(a), nn.ReLU6(), nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU6())

    first = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
    layers = [layer(a, b, s) for a, b, s in ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1))]
    model = nn.Sequential(first, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x = r.normal(size=(32, 3, 32, 32)).astype("f")
    return [model], _trained(model, optimizer, lambda out, y: _classes(lib, out, y)), (x, r.integers(0, 10, 32))


def unet(lib):
    nn, r = lib.nn, np.random.default_rng(1)

    def pair(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([pair(1, 16), pair(16, 32), pair(32, 64)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
            self.joined = nn.ModuleList([pair(64, 32), pair(32, 16)])
            self.last = nn.Conv2d(16, 1, 1)

        def forward(self, x):
            kept = []
            for block in self.down[:2]:
                kept.append(block(x))
                x = lib.nn.functional.max_pool2d(kept[-1], 2)
            x = self.down[2](x)
            for up, joined, skip in zip(self.up, self.joined, reversed(kept)):
                x = joined(lib.cat([skip, up(x)], 1))
            return self.last(x)

    model = UNet()
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    loss = lib.nn.functional.binary_cross_entropy_with_logits
    x = r.normal(size=(8, 1, 64, 64)).astype("f")
    return [model], _trained(model, optimizer, loss), (x, (x > 0.3).astype("f"))


def vit(lib):
    nn, r = lib.nn, np.random.default_rng(1)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.place = nn.Conv2d(3, 192, 4, 4), nn.Parameter(lib.zeros(1, 64, 192))
            layer = nn.TransformerEncoderLayer(192, 3, 768, 0.0, "gelu", batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2) + self.place
            return self.head(self.norm(self.layers(x)).mean(1))

    model = ViT()
    optimizer = lib.optim.AdamW(model.parameters(), lr=3e-4)
    x = r.normal(size=(32, 3, 32, 32)).astype("f")
    return [model], _trained(model, optimizer, lambda out, y: _classes(lib, out, y)), (x, r.integers(0, 10, 32))


def gru(lib):
    nn, r = lib.nn, np.random.default_rng(1)
    lengths = sorted((int(n) for n in r.integers(10, 41, 32)), reverse=True)
    pack = nn.utils.rnn.pack_padded_sequence

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(32, 64, 2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(256, 5)

        def forward(self, x):
            _, last = self.gru(pack(x, lengths, batch_first=True))
            return self.head(last.transpose(0, 1).flatten(1))

    model = Tagger()
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    x = r.normal(size=(32, 40, 32)).astype("f")
    return [model], _trained(model, optimizer, lambda out, y: _classes(lib, out, y)), (x, r.integers(0, 5, 32))


def wavenet(lib):
    nn, r = lib.nn, np.random.default_rng(1)

    class Layer(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.both, self.out, self.reach = nn.Conv1d(32, 64, 2, dilation=dilation), nn.Conv1d(32, 32, 1), dilation

        def forward(self, x):
            value, gate = self.both(lib.nn.functional.pad(x, (self.reach, 0))).chunk(2, 1)
            return x + self.out(lib.tanh(value) * lib.sigmoid(gate))

    model = nn.Sequential(nn.Conv1d(1, 32, 1), *[Layer(2**i) for i in range(8)], nn.ReLU(), nn.Conv1d(32, 1, 1))
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    x = r.normal(size=(8, 1, 1024)).astype("f")
    return [model], _trained(model, optimizer, lib.nn.functional.mse_loss), (x, np.roll(x, -1, 2))


def graph(lib):
    nn, r = lib.nn, np.random.default_rng(1)
    source, target = (lib.from_numpy(r.integers(0, 2000, 10000)) for _ in range(2))

    class Layer(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.own, self.others = nn.Linear(a, b), nn.Linear(a, b, bias=False)

        def forward(self, x):
            sums = lib.zeros(x.shape[0], x.shape[1]).index_add(0, target, x[source])
            return self.own(x) + self.others(sums)

    model = nn.Sequential(Layer(64, 128), nn.ReLU(), Layer(128, 128), nn.ReLU(), Layer(128, 7))
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    x = r.normal(size=(2000, 64)).astype("f")
    return [model], _trained(model, optimizer, lambda out, y: _classes(lib, out, y)), (x, r.integers(0, 7, 2000))


def dcgan(lib):
    nn, r = lib.nn, np.random.default_rng(1)
    make = nn.Sequential(
        nn.ConvTranspose2d(64, 64, 4, 1, 0, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    tell = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
        nn.Conv2d(32, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 4), nn.Flatten(),
    )  # fmt: skip
    of_make, of_tell = (lib.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (make, tell))
    loss = lib.nn.functional.binary_cross_entropy_with_logits

    def step(real, noise):
        made = make(noise)
        of_tell.zero_grad()
        told = loss(tell(real), lib.ones(64, 1)) + loss(tell(made.detach()), lib.zeros(64, 1))
        told.backward()
        of_tell.step()
        of_make.zero_grad()
        fooled = loss(tell(made), lib.ones(64, 1))
        fooled.backward()
        of_make.step()
        return told + fooled

    return [make, tell], step, (r.normal(size=(64, 1, 32, 32)).astype("f"), r.normal(size=(64, 64, 1, 1)).astype("f"))


def ppo(lib):
    nn, r = lib.nn, np.random.default_rng(1)
    policy, value = (nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n)) for n in (4, 1))
    optimizer = lib.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-4, eps=1e-5)

    def step(seen, action, old, advantage, reward):
        kind = lib.distributions.Categorical(logits=policy(seen))
        ratio = (kind.log_prob(action) - old).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = lib.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = -gain + 0.5 * (value(seen).squeeze(-1) - reward).pow(2).mean() - 0.01 * kind.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 0.5)
        optimizer.step()
        return loss

    floats = [r.normal(size=256).astype("f") for _ in range(2)]
    old = np.full(256, -np.log(4), "f")
    return [policy, value], step, (r.normal(size=(256, 8)).astype("f"), r.integers(0, 4, 256), old, *floats)


def pinn(lib):
    """u'' = -sin x on [0, π], zero at both ends; the closure is what is compiled, LBFGS calls it."""
    nn = lib.nn
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = lib.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def loss_of(x, ends):
        optimizer.zero_grad()
        x = x.detach().requires_grad_()
        u = model(x)
        (slope,) = lib.autograd.grad(u.sum(), x, create_graph=True)
        (curve,) = lib.autograd.grad(slope.sum(), x, create_graph=True)
        loss = (curve + lib.sin(x)).pow(2).mean() + model(ends).pow(2).mean()
        loss.backward()
        return loss

    def step(x, ends, loss_of=loss_of):
        return optimizer.step(lambda: loss_of(x, ends))

    step.compiled = loss_of
    x = np.linspace(0, np.pi, 512, dtype="f")[:, None]
    return [model], step, (x, np.array([[0], [np.pi]], "f"))


def per_sample(lib):
    """One step of differentially private SGD without its noise: each sample's gradient, clipped to norm 1, then their mean."""
    nn, r = lib.nn, np.random.default_rng(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
    call = lib.func.functional_call

    def step(x, y):
        parameters = dict(model.named_parameters())

        def loss_of(values, one, label):
            return _classes(lib, call(model, values, (one[None],)), label[None])

        values = {k: p.detach() for k, p in parameters.items()}
        each, losses = lib.func.vmap(lib.func.grad_and_value(loss_of), in_dims=(None, 0, 0))(values, x, y)
        norms = sum(g.flatten(1).pow(2).sum(1) for g in each.values()).sqrt()
        scale = (1 / (norms + 1e-6)).clamp(max=1.0)
        with lib.no_grad():
            for key, p in parameters.items():
                p.sub_(0.1 * lib.tensordot(scale, each[key], 1) / 64)
        return losses.mean()

    return [model], step, (r.normal(size=(64, 64)).astype("f"), r.integers(0, 10, 64))


FURTHER = {
    "mobilenet": mobilenet, "unet": unet, "vit": vit, "gru": gru, "wavenet": wavenet,
    "graph": graph, "dcgan": dcgan, "ppo": ppo, "pinn": pinn, "per-sample": per_sample,
}  # fmt: skip
