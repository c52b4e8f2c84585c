"""Two networks that learn from each other: Radford, Metz, Chintala, "Unsupervised representation learning with deep convolutional
generative adversarial networks" (2015), after Goodfellow and others, "Generative adversarial networks" (2014).
"""

from __future__ import annotations

import itertools
from typing import Any

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.nn import functional as F


def generator(latent: int, channels: int, width: int, doublings: int) -> nn.Sequential:
    """[batch, latent, 1, 1] to pictures [batch, channels, size, size] with values -1 to 1, by transposed convolutions."""
    sizes = [width * 2**i for i in range(doublings - 1, -1, -1)]
    layers: list[nn.Module] = [nn.ConvTranspose2d(latent, sizes[0], 4, bias=False), nn.BatchNorm2d(sizes[0]), nn.ReLU()]
    for inp, out in itertools.pairwise(sizes):
        layers += [nn.ConvTranspose2d(inp, out, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1), nn.Tanh())


def discriminator(channels: int, width: int, halvings: int) -> nn.Sequential:
    """Pictures to logits [batch, 1, 1, 1]: how much they look like those of the data."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    for i in range(halvings - 1):
        inp, out = width * 2**i, width * 2 ** (i + 1)
        layers += [nn.Conv2d(inp, out, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(width * 2 ** (halvings - 1), 1, 4))


class DCGAN(nn.Module):
    """A generator of float32 pictures [batch, channels, size, size] with values -1 to 1, and a discriminator of them.

    size: 8, 16, 32, 64, …; ValueError else. width: channels beside the picture, doubled wherever it is halved. `training_step` does both
    optimizers' steps on a batch; `sample` draws pictures. The paper trains with Adam, a learning rate of 2e-4 and betas of (0.5, 0.999).

    >>> import gradlab as gl
    >>> gan = gl.models.DCGAN(size=8, channels=1, latent=16, width=16)
    >>> adam = [gl.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999)) for part in (gan.generator, gan.discriminator)]
    >>> of_generator, of_discriminator = gan.training_step(gl.rand(8, 1, 8, 8) * 2 - 1, *adam)
    >>> gan.sample(3).shape
    (3, 1, 8, 8)
    """

    def __init__(self, size: int = 64, channels: int = 3, latent: int = 100, width: int = 64) -> None:
        super().__init__()
        halvings = (size // 4).bit_length() - 1
        if size < 8 or size != 4 * 2**halvings:
            raise ValueError(f"DCGAN: pictures are of size 8, 16, 32, 64, …, not {size}; scale or pad them")
        self.latent = latent
        self.generator = generator(latent, channels, width, halvings)
        self.discriminator = discriminator(channels, width, halvings)
        for parameter in self.parameters():
            if parameter.ndim == 4:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, z: Tensor) -> Tensor:
        """Pictures of float32 [batch, latent]."""
        images: Tensor = self.generator(z[:, :, None, None])
        return images

    def noise(self, count: int) -> Tensor:
        """What pictures are generated from: normal numbers [count, latent]."""
        return gl.randn(count, self.latent, device=next(self.parameters()).device)

    def discriminator_loss(self, real: Tensor, z: Tensor | None = None) -> Tensor:
        """How badly real pictures are told from as many generated ones: two mean cross-entropies added. No gradient to the generator."""
        with gl.no_grad():
            made = self(self.noise(real.shape[0]) if z is None else z)
        scores, others = self.discriminator(real), self.discriminator(made)
        return F.binary_cross_entropy_with_logits(scores, gl.ones_like(scores)) + F.binary_cross_entropy_with_logits(
            others, gl.zeros_like(others)
        )

    def generator_loss(self, count: int, z: Tensor | None = None) -> Tensor:
        """How seldom `count` generated pictures pass for real ones: the mean of -log D(G(z)). Gradients reach both networks."""
        scores = self.discriminator(self(self.noise(count) if z is None else z))
        return F.binary_cross_entropy_with_logits(scores, gl.ones_like(scores))

    def training_step(
        self, real: Tensor, generator_optimizer: Any, discriminator_optimizer: Any, z: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The discriminator's step on real pictures [batch, channels, size, size], then the generator's. Both losses, generator's first."""
        discriminator_optimizer.zero_grad()
        of_discriminator = self.discriminator_loss(real, z)
        of_discriminator.backward()
        discriminator_optimizer.step()
        generator_optimizer.zero_grad()
        of_generator = self.generator_loss(real.shape[0], z)
        of_generator.backward()
        generator_optimizer.step()
        return of_generator.detach(), of_discriminator.detach()

    @gl.no_grad()
    def sample(self, count: int, z: Tensor | None = None) -> Tensor:
        """New pictures, float32 [count, channels, size, size], of normal numbers [count, latent], drawn where not given."""
        return self(self.noise(count) if z is None else z)
