"""Pictures from noise: Ho, Jain, Abbeel, "Denoising diffusion probabilistic models" (2020).

The cosine schedule is of Nichol and Dhariwal, "Improved denoising diffusion probabilistic models" (2021); sampling in fewer steps is of
Song, Meng, Ermon, "Denoising diffusion implicit models" (2020).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.nn import functional as F


class Residual(nn.Module):
    """Two convolutions to which the time is added in between, around which the input is added: [batch, inp, h, w] to [batch, out, h, w]."""

    def __init__(self, inp: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(min(8, inp), inp), nn.Conv2d(inp, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(min(8, out), out), nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(inp, out, 1) if inp != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.shortcut(x)


class NoisePredictor(nn.Module):
    """A small U-Net: noisy pictures [batch, channels, height, width] and int64 steps [batch] to the noise in them, of the pictures' shape.

    As in the paper, with two sizes less and without attention. The picture is halved `depth` times, with `width` channels at first, a
    multiple of 8, and twice as many after each halving. Height and width have to be multiples of 2**depth, else ValueError.

    >>> import gradlab as gl
    >>> net = gl.models.NoisePredictor(channels=1, width=16)
    >>> net(gl.randn(5, 1, 8, 8), gl.tensor([0, 10, 20, 30, 40])).shape
    (5, 1, 8, 8)
    """

    def __init__(self, channels: int = 1, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        if width % 8:
            raise ValueError(f"NoisePredictor: width has to be a multiple of 8, got {width}")
        sizes, time = [width * 2**i for i in range(depth + 1)], 4 * width
        self.depth = depth
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList([Residual(size, size, time) for size in sizes[:-1]])
        self.smaller = nn.ModuleList([nn.Conv2d(size, 2 * size, 3, stride=2, padding=1) for size in sizes[:-1]])
        self.bottom = Residual(sizes[-1], sizes[-1], time)
        self.larger = nn.ModuleList([nn.Conv2d(2 * size, size, 3, padding=1) for size in sizes[-2::-1]])
        self.up = nn.ModuleList([Residual(2 * size, size, time) for size in sizes[-2::-1]])
        self.norm, self.last = nn.GroupNorm(8, width), nn.Conv2d(width, channels, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        # Sines and cosines of the step, of wave lengths 2π to 20000π, as of a transformer's places.
        self.register_buffer("frequencies", (gl.arange(width // 2) * (-math.log(10000) / (width // 2))).exp(), persistent=False)

    def forward(self, images: Tensor, steps: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if height % 2**self.depth or width % 2**self.depth:
            raise ValueError(f"NoisePredictor: pictures of {height}×{width} cannot be halved {self.depth} times; pad them")
        angles = steps.to(self.frequencies.dtype)[:, None] * self.frequencies
        time = self.time(gl.cat([angles.sin(), angles.cos()], 1))
        x, beside = self.first(images), []
        for block, smaller in zip(self.down, self.smaller, strict=True):
            x = block(x, time)
            beside.append(x)
            x = smaller(x)
        x = self.bottom(x, time)
        for larger, block in zip(self.larger, self.up, strict=True):
            x = larger(F.interpolate(x, scale_factor=2, mode="nearest"))
            x = block(gl.cat([beside.pop(), x], 1), time)
        noise: Tensor = self.last(F.silu(self.norm(x)))
        return noise


class DDPM(nn.Module):
    """Noise is added to pictures in `steps` steps until it is all there is, and `predictor` learns to see it, so that it can be taken off.

    predictor: a network (noisy pictures, int64 steps [batch]) to noise; `NoisePredictor` or one's own. shape: of a picture, (channels,
    height, width), with values -1 to 1. schedule: "cosine", or "linear" as in the paper, with the same amount of noise for any `steps`.

    >>> import gradlab as gl
    >>> ddpm = gl.models.DDPM(gl.models.NoisePredictor(1, width=16), (1, 8, 8), steps=50)
    >>> ddpm.loss(gl.rand(5, 1, 8, 8) * 2 - 1).shape, ddpm.sample(2, steps=5).shape
    ((), (2, 1, 8, 8))
    """

    def __init__(self, predictor: nn.Module, shape: Sequence[int], steps: int = 200, schedule: str = "cosine") -> None:
        super().__init__()
        if steps < 1 or schedule not in ("cosine", "linear"):
            raise ValueError(f'DDPM: steps is at least 1, schedule "cosine" or "linear"; got steps={steps}, schedule={schedule!r}')
        self.predictor, self.shape, self.steps = predictor, tuple(shape), steps
        if schedule == "cosine":
            level = [math.cos((t / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(steps + 1)]
            betas = gl.tensor([min(1 - after / before, 0.999) for before, after in itertools.pairwise(level)])
        else:
            betas = (gl.linspace(1e-4, 0.02, steps) * (1000 / steps)).clamp(max=0.999)
        self.register_buffer("kept", (1 - betas.double()).cumprod(0).float())  # the share of a picture's variance left after each step

    def noised(self, images: Tensor, steps: Tensor, noise: Tensor) -> Tensor:
        """Pictures [batch, *shape] after steps, int64 [batch], of noise that is added up (equation 4)."""
        kept = self.kept[steps][:, None, None, None]
        return kept.sqrt() * images + (1 - kept).sqrt() * noise

    def loss(self, images: Tensor, steps: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """The mean squared error of the noise that is seen in noisy pictures (equation 14). Steps and noise are drawn where not given."""
        steps = gl.randint(0, self.steps, (images.shape[0],), device=images.device) if steps is None else steps
        noise = gl.randn_like(images) if noise is None else noise
        return F.mse_loss(self(self.noised(images, steps, noise), steps), noise)

    def forward(self, images: Tensor, steps: Tensor) -> Tensor:
        """The noise in noisy pictures [batch, *shape] at steps, int64 [batch]."""
        noise: Tensor = self.predictor(images, steps)
        return noise

    @gl.no_grad()
    def sample(self, count: int, steps: int | None = None, eta: float = 1.0) -> Tensor:
        """New pictures, float32 [count, *shape] with values -1 to 1, from noise by `steps` steps (all of them, where not given).

        eta: how much of the noise that is taken off comes back as fresh noise: 1 is the paper's sampler, 0 the implicit one, which needs
        fewer steps. Use it in `eval` mode. ValueError where steps are not 1 to those of the model.
        """
        steps = self.steps if steps is None else steps
        if not 1 <= steps <= self.steps:
            raise ValueError(f"DDPM.sample: steps are 1 to {self.steps}, got {steps}")
        device = self.kept.device
        x = gl.randn(count, *self.shape, device=device)
        times = [round(i * (self.steps - 1) / max(steps - 1, 1)) for i in range(steps)] if steps > 1 else [self.steps - 1]
        levels = self.kept.tolist()
        for i in reversed(range(steps)):
            kept, next_kept = levels[times[i]], levels[times[i - 1]] if i else 1.0
            noise = self(x, gl.full((count,), times[i], dtype=gl.int64, device=device))
            image = ((x - math.sqrt(1 - kept) * noise) / math.sqrt(kept)).clamp(-1, 1)
            noise = (x - math.sqrt(kept) * image) / math.sqrt(1 - kept)  # of the picture that was clamped
            spread = eta * math.sqrt((1 - next_kept) / (1 - kept) * (1 - kept / next_kept))
            x = math.sqrt(next_kept) * image + math.sqrt(max(1 - next_kept - spread**2, 0.0)) * noise
            if spread:
                x = x + spread * gl.randn_like(x)
        return x
