"""A variational autoencoder: Kingma and Welling, "Auto-encoding variational Bayes" (2013), appendix C."""

from __future__ import annotations

import math
from collections.abc import Sequence

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.nn import functional as F


class VAE(nn.Module):
    """float32 pictures [batch, *shape] with values 0 to 1 to what generates them: `latent` numbers a picture, normally distributed.

    `loss` is what is trained; `sample` draws new pictures; `encode` and `decode` are the two halves. The probability of a pixel is a
    Bernoulli distribution's, whose mean is the grey level.

    >>> import gradlab as gl
    >>> vae = gl.models.VAE((1, 8, 8), hidden=32, latent=4)
    >>> vae.loss(gl.rand(5, 1, 8, 8)).shape, vae.sample(3).shape
    ((), (3, 1, 8, 8))
    """

    def __init__(self, shape: Sequence[int] = (1, 28, 28), hidden: int = 500, latent: int = 20) -> None:
        super().__init__()
        self.shape, self.latent = tuple(shape), latent
        pixels = math.prod(shape)
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(pixels, hidden), nn.Tanh())
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, pixels))

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of what may have generated each picture, [batch, latent] both."""
        hidden = self.encoder(images)
        return self.mean(hidden), self.log_variance(hidden)

    def decode(self, z: Tensor) -> Tensor:
        """The logits of the pixels' means, [batch, *shape], of float32 [batch, latent]."""
        return self.decoder(z).view(-1, *self.shape)

    def forward(self, images: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the pictures drawn again, and what `encode` gives. noise: normal numbers [batch, latent], drawn where not given."""
        mean, log_variance = self.encode(images)
        noise = gl.randn_like(mean) if noise is None else noise
        return self.decode(mean + (log_variance / 2).exp() * noise), mean, log_variance

    def loss(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """How far below the pictures' log probability the bound is (the negative ELBO, equation 10): nats a picture, their mean."""
        logits, mean, log_variance = self(images, noise)
        drawn = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        divergence = (mean * mean + log_variance.exp() - 1 - log_variance).sum() / 2
        return (drawn + divergence) / images.shape[0]

    @gl.no_grad()
    def sample(self, count: int, noise: Tensor | None = None) -> Tensor:
        """New pictures, float32 [count, *shape]: the pixels' means for normal numbers [count, latent], drawn where not given."""
        noise = gl.randn(count, self.latent, device=self.mean.weight.device) if noise is None else noise
        return self.decode(noise).sigmoid()
