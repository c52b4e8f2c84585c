"""How each model of gradlab.models is trained on real data: its batches, loss, optimizer and steps, and the result that it reaches.

Written once for gradlab and PyTorch (`lib` is one of the two). Read by tests/test_models_trained.py, tests/test_models_torch.py,
bench/models.py and bench/mixed_precision.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from model_data import (
    Batches,
    as_table,
    drawn,
    images,
    neighbours,
    overlap,
    pieces,
    shuffled,
    sunspots,
    text,
    topics,
    with_noise,
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """What a model is trained by. `score` of the trained model is at least `least`, or at most `most`, for the seeds tried."""

    model: Callable[[Any], Any]  # of the names of gradlab.models
    data: str
    batches: Callable[[], Batches]  # without end, the same at each call
    loss: Callable[..., Any]  # (lib, model, *batch)
    score: Callable[[Any, Any], float]  # (lib, model), in evaluation mode and without gradients
    what: str  # the score, in words
    steps: int
    lr: float
    least: float = -np.inf
    most: float = np.inf
    optimizer: str = "AdamW"
    settings: dict[str, Any] = field(default_factory=dict)  # of the optimizer
    pace: float = 1.0  # of the learning rate, where PyTorch's losses are its own: at more, 20 float32 losses differ from float64's by 1e-4
    parts: tuple[str, ...] = ("",)  # of the model that have an optimizer each; the losses are then those of `loss`, one after the other


class Training:
    """A recipe under way in one library."""

    def __init__(self, recipe: Recipe, lib: Any, model: Any, pace: float = 1.0) -> None:
        self.recipe, self.lib, self.model = recipe, lib, model
        parts = [model if not name else getattr(model, name) for name in recipe.parts]
        rate, make, cycle = pace * recipe.lr, getattr(lib.optim, recipe.optimizer), lib.optim.lr_scheduler.OneCycleLR
        self.optimizers = [make(part.parameters(), lr=rate, **recipe.settings) for part in parts]
        self.schedulers = [cycle(o, rate, total_steps=recipe.steps + 1, cycle_momentum=False) for o in self.optimizers]
        self.batches = recipe.batches()

    def backward(self, loss: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def step(self, *batch: Any) -> Any:
        if len(self.optimizers) == 1:
            loss = self.recipe.loss(self.lib, self.model, *batch)
            self.backward(loss, self.optimizers[0])
            return loss.detach()
        return sum(self.model.training_step(batch[0], *self.optimizers, *batch[1:]))

    def run(self, steps: int, step: Callable[..., Any] | None = None) -> list[Any]:
        """The losses of so many steps, as tensors."""
        step = step or self.step
        losses = []
        for _ in range(steps):
            losses.append(step(*(self.lib.from_numpy(part) for part in next(self.batches))))
            for scheduler in self.schedulers:
                scheduler.step()
        return losses

    def result(self) -> float:
        self.model.eval()
        with self.lib.no_grad():
            return float(self.recipe.score(self.lib, self.model))


class Mixed(Training):
    """A training under autocast, with a scaler in float16."""

    def __init__(self, recipe: Recipe, lib: Any, model: Any, dtype: str, device: str = "cpu") -> None:
        super().__init__(recipe, lib, model.to(device))
        self.dtype, self.device = getattr(lib, dtype), device
        self.scaler = lib.amp.GradScaler(device, init_scale=2.0**16, growth_interval=100, enabled=dtype == "float16")

    def step(self, *batch: Any) -> Any:
        with self.lib.autocast(self.device, self.dtype, enabled=self.dtype != self.lib.float32):
            loss = self.recipe.loss(self.lib, self.model, *batch)
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
        return loss.detach()

    def run(self, steps: int, step: Callable[..., Any] | None = None) -> list[Any]:
        step = step or self.step
        return super().run(steps, lambda *batch: step(*(x.to(self.device) for x in batch)))


def cross_entropy(lib, model, *batch):
    logits, target = model(*batch[:-1]), batch[-1]
    return lib.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def accuracy(lib, logits, labels):
    return (logits.argmax(-1).reshape(-1) == lib.from_numpy(labels).reshape(-1)).to(lib.float32).mean()


def classifier(make, steps, lr, scale=1, least=0.95, batch=64, **settings):
    """A model of the digits. Over seeds and processors they end at 0.957 to 0.99 of 355 held ones."""
    data = images(scale)
    return Recipe(
        make,
        "digits" if scale == 1 else f"digits, {8 * scale}×{8 * scale}",
        lambda: shuffled(data.x, data.y, batch=batch),
        cross_entropy,
        lambda lib, model: accuracy(lib, model(lib.from_numpy(data.held_x)), data.held_y),
        "accuracy",
        steps,
        lr,
        least,
        **settings,
    )


def table():
    data = images()
    held = as_table(data.held_x)
    return Recipe(
        lambda m: m.TableModel(60, [17] * 4, 10, dropout=0.0),
        "digits as a table",
        lambda: shuffled(*as_table(data.x), data.y),
        cross_entropy,
        lambda lib, model: accuracy(lib, model(*map(lib.from_numpy, held)), data.held_y),
        "accuracy",
        250,
        1e-2,
        0.97,
    )


def unet():
    """Which pixels hold ink, seen through noise."""
    data = images(2)
    mask, held = (data.x > 0.5).astype("f4"), data.held_x > 0.5

    def batches():
        rng = np.random.default_rng(0)
        for x, y in shuffled(data.x, mask, batch=32):
            yield (x + rng.normal(0, 0.35, x.shape)).astype("f4"), y

    return Recipe(
        lambda m: m.UNet(1, 1, width=8, depth=2),
        "digits, 16×16, in noise",
        batches,
        lambda lib, model, x, y: lib.nn.functional.binary_cross_entropy_with_logits(model(x), y),
        lambda lib, model: overlap(model(lib.from_numpy(with_noise(data.held_x, 1))).numpy() > 0, held),
        "intersection over union",
        150,
        1e-2,
        0.85,
    )


def semi_supervised(make, least, steps, edges=True):
    """Few labels are known; the others are asked for. The same layers without edges do not reach it."""
    g = neighbours()
    inputs = (g.x, g.edges) if edges else (g.x,)

    def batches():
        while True:
            yield (*inputs, g.known, g.labels[g.known])

    def loss(lib, model, *batch):
        *given, known, labels = batch
        return lib.nn.functional.cross_entropy(model(*given)[known], labels)

    def score(lib, model):
        return accuracy(lib, model(*map(lib.from_numpy, inputs))[lib.from_numpy(g.others)], g.labels[g.others])

    return Recipe(make, "digits, 30 labels", batches, loss, score, "accuracy", steps, 1e-2, least, settings={"weight_decay": 5e-2})


def language_model(make, steps, lr, most, length=64, batch=16):
    data = text()

    def batches():
        rng = np.random.default_rng(0)
        while True:
            rows = data.training[rng.integers(0, len(data.training) - length - 1, batch)[:, None] + np.arange(length + 1)]
            yield np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])

    def score(lib, model):
        count = min(64, (len(data.held) - 1) // length)
        starts = np.linspace(0, len(data.held) - length - 1, count).astype(int)
        rows = data.held[starts[:, None] + np.arange(length + 1)]
        return cross_entropy(lib, model, lib.from_numpy(rows[:, :-1].copy()), lib.from_numpy(rows[:, 1:].copy()))

    return Recipe(make, "topics, characters", batches, cross_entropy, score, "nats a character", steps, lr, most=most)


def encoder():
    data = topics()
    return Recipe(
        lambda m: m.TransformerClassifier(data.size, 6, d_model=64, dim_feedforward=128, num_layers=1, max_length=data.length, dropout=0.0),
        "topics, words",
        pieces,
        cross_entropy,
        lambda lib, model: accuracy(lib, model(lib.from_numpy(data.held_x)), data.held_y),
        "accuracy",
        300,
        5e-3,
        0.65,
    )


def series(network):
    """The error on the years held out, as a share of that of the last value carried on."""
    data = sunspots()

    def score(lib, model):
        found = model(lib.from_numpy(data.held_x)).numpy()
        return float(np.abs(found - data.held_y).mean() / np.abs(data.held_x[:, -1:] - data.held_y).mean())

    return Recipe(
        lambda m: m.SeriesModel(data.window, 1, data.horizon, network=network, dropout=0.0),
        "sunspots, 4 years ahead",
        lambda: shuffled(data.x, data.y, batch=32),
        lambda lib, model, x, y: lib.nn.functional.mse_loss(model(x), y),
        score,
        "error, naive as 1",
        300,
        5e-3,
        most=0.6,
    )


@cache
def reader():
    """gradlab's classifier of digits, which looks at what generators draw."""
    import gradlab as gl

    with gl.random.fork_rng(), gl.enable_grad():
        gl.manual_seed(0)
        training = Training(RECIPES["mlp"], gl, gl.models.MLP(64, (128, 128), 10))
        training.run(RECIPES["mlp"].steps, gl.compile(training.step))
    training.model.eval()
    return training.model


def looks(pictures: np.ndarray) -> tuple[float, float, int]:
    """How pictures with ink as 1 look beside digits: the share of which the classifier and the nearest training picture say the same;
    their mean distance to it, that of the pictures held out as 1; and how many of the ten digits the two agree on."""
    import gradlab as gl

    data = images()

    def nearest(x):
        distance = np.sqrt(((x.reshape(len(x), 1, 64) - data.x.reshape(1, -1, 64)) ** 2).sum(2))
        return distance.argmin(1), distance.min(1).mean()

    with gl.no_grad():
        read = reader()(gl.from_numpy(pictures.astype("f4"))).argmax(1).numpy()
    at, distance = nearest(pictures)
    alike = read == data.y[at]
    return float(alike.mean()), float(distance / nearest(data.held_x)[1]), len(set(read[alike]))


def vae():
    data = images()

    def batches():
        rng = np.random.default_rng(0)
        for (x,) in shuffled(data.x):
            yield x, rng.normal(size=(len(x), 8)).astype("f4")

    return Recipe(
        lambda m: m.VAE((1, 8, 8), hidden=128, latent=8),
        "digits",
        batches,
        lambda lib, model, x, noise: model.loss(x, noise),
        lambda lib, model: model.loss(lib.from_numpy(data.held_x), lib.from_numpy(drawn(len(data.held_x), 8))),
        "nats a picture (negative ELBO)",
        400,
        5e-3,
        most=26.0,
    )


def dcgan():
    data = images()

    def batches():
        rng = np.random.default_rng(0)
        for (x,) in shuffled(data.x):
            yield 2 * x - 1, rng.normal(size=(len(x), 16)).astype("f4")

    return Recipe(
        lambda m: m.DCGAN(8, 1, latent=16, width=16),
        "digits",
        batches,
        lambda lib, model, *batch: None,
        lambda lib, model: looks((model.sample(200, lib.from_numpy(drawn(200, 16))).numpy() + 1) / 2)[0],
        "share of samples read alike",
        800,
        2e-3,
        0.45,
        settings={"betas": (0.5, 0.999), "weight_decay": 0.0},
        parts=("generator", "discriminator"),
    )


def ddpm():
    data = images()

    def batches():
        rng = np.random.default_rng(0)
        for (x,) in shuffled(data.x):
            yield 2 * x - 1, rng.integers(0, 100, len(x)), rng.normal(size=x.shape).astype("f4")

    return Recipe(
        lambda m: m.DDPM(m.NoisePredictor(1, width=16, depth=1), (1, 8, 8), steps=100),
        "digits",
        batches,
        lambda lib, model, *batch: model.loss(*batch),
        lambda lib, model: model.loss(*map(lib.from_numpy, next(held_noise()))),
        "error of the noise",
        300,
        5e-3,
        most=0.2,
    )


def held_noise():
    data = images()
    rng = np.random.default_rng(1)
    count = len(data.held_x)
    yield 2 * data.held_x - 1, rng.integers(0, 100, count), rng.normal(size=data.held_x.shape).astype("f4")


MOMENTUM: dict[str, Any] = {"optimizer": "SGD", "settings": {"momentum": 0.9, "weight_decay": 5e-4}}
SMALL_MOBILE = ((64, 1), (128, 2), (128, 1))
SMALL_GPT = {"block_size": 64, "n_layer": 2, "n_head": 4, "n_embd": 64}

RECIPES: dict[str, Recipe] = {
    "mlp": classifier(lambda m: m.MLP(64, (128, 128), 10), 300, 5e-3),
    "table": table(),
    "digits mlp": classifier(lambda m: m.DigitsMLP(dropout=0.0), 300, 5e-3),
    "digits cnn": classifier(lambda m: m.DigitsCNN(dropout=0.0), 150, 1e-2),
    "cnn": classifier(lambda m: m.CNN(10, 1, width=16, stages=2, dropout=0.0), 100, 1e-2),
    "lenet": classifier(lambda m: m.LeNet(10, 1, size=16), 300, 5e-3, scale=2),
    "resnet20": classifier(lambda m: m.resnet20(10, in_channels=1), 120, 0.05, pace=0.01, **MOMENTUM),
    "resnet18": classifier(lambda m: m.resnet18(10, in_channels=1), 80, 0.02, scale=2, pace=1e-4, **MOMENTUM),
    "mobilenet": classifier(lambda m: m.MobileNet(10, 1, 0.5, SMALL_MOBILE, stride=1), 200, 1e-2),
    "unet": unet(),
    "vit": classifier(lambda m: m.ViT(8, 2, 1, 10, dim=48, depth=3, heads=4, mlp_ratio=2.0), 400, 3e-3),
    "gpt": language_model(lambda m: m.GPT(m.GPTConfig(vocab_size=text().size, **SMALL_GPT)), 300, 3e-3, 2.25),
    "lstm": language_model(lambda m: m.RecurrentLanguageModel(text().size, width=96, layers=1), 300, 1e-2, 2.2, batch=8),
    "gru": language_model(lambda m: m.RecurrentLanguageModel(text().size, width=96, layers=1, kind="gru"), 300, 1e-2, 2.2, batch=8),
    "encoder": encoder(),
    "series gru": series("gru"),
    "series convolutions": series("convolutions"),
    "gcn": semi_supervised(lambda m: m.GCN(64, 32, 10, dropout=0.0), 0.88, 60),
    "gat": semi_supervised(lambda m: m.GAT(64, 8, 10, heads=4, dropout=0.0), 0.87, 60),
    "vae": vae(),
    "dcgan": dcgan(),
    "ddpm": ddpm(),
}
