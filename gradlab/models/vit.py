"""A vision transformer: Dosovitskiy and others, "An image is worth 16x16 words: transformers for image recognition at scale" (2020).

The tiny one has the sizes of Touvron and others, "Training data-efficient image transformers & distillation through attention" (2020).
Parameters are named as in timm, so that files of weights for its `vit_tiny_patch16_224` fit.
"""

from __future__ import annotations

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.nn import functional as F


class PatchEmbed(nn.Module):
    """Pictures [batch, channels, height, width] to tokens [batch, patches, dim]: a linear map of each patch."""

    def __init__(self, patch_size: int, in_channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Every token looks at every token: [batch, tokens, dim] to the same."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, dim = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, dim // self.heads).transpose(1, 2) for part in self.qkv(x).split(dim, dim=2)
        )
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, dim))


class Mlp(nn.Module):
    """Two layers on each token by itself."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """Attention, then layers on each token, both of normalised tokens and added to them."""

    def __init__(self, dim: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim, eps=1e-6), Attention(dim, heads)
        self.norm2, self.mlp = nn.LayerNorm(dim, eps=1e-6), Mlp(dim, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attn(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    """float32 pictures [batch, in_channels, image_size, image_size] to logits [batch, num_classes].

    The picture is cut into patches, each of which becomes a token; one more, learned, token gathers what the classifier reads. mlp_ratio:
    neurons between the two layers on a token, for each of its numbers. ValueError where patches do not tile the pictures, heads do not
    share the width, or pictures have another size.

    >>> import gradlab as gl
    >>> net = gl.models.ViT(image_size=8, patch_size=2, in_channels=1, num_classes=10, dim=64, depth=4, heads=4)
    >>> net(gl.randn(5, 1, 8, 8)).shape
    (5, 10)
    """

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        num_classes: int = 1000,
        dim: int = 192,
        depth: int = 12,
        heads: int = 3,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if image_size % patch_size or dim % heads:
            given = f"image_size={image_size}, patch_size={patch_size}, dim={dim}, heads={heads}"
            raise ValueError(f"ViT: image_size has to be a multiple of patch_size, and dim one of heads; got {given}")
        self.image_size = image_size
        self.patch_embed = PatchEmbed(patch_size, in_channels, dim)
        self.cls_token = nn.Parameter(gl.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(gl.zeros(1, (image_size // patch_size) ** 2 + 1, dim))
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(dim, heads, int(dim * mlp_ratio), dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim in (2, 3):  # linear layers, the token and the places
                nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[-2:]) != (self.image_size, self.image_size):
            raise ValueError(f"ViT: made for pictures of {self.image_size}×{self.image_size}, got {tuple(images.shape)}; pass image_size=")
        x = self.patch_embed(images)
        x = self.pos_drop(gl.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def vit_tiny(num_classes: int = 1000, image_size: int = 224, patch_size: int = 16, in_channels: int = 3, dropout: float = 0.0) -> ViT:
    """Twelve blocks of width 192 with three heads; 5,717,416 parameters for 1000 classes of 224×224 pictures in colour."""
    return ViT(image_size, patch_size, in_channels, num_classes, dropout=dropout)
