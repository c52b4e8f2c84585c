"""Layer, group and other norms, under the name of PyTorch's file."""

from gradlab.nn.modules.norm import (
    GroupNorm as GroupNorm,
    LayerNorm as LayerNorm,
    LocalResponseNorm as LocalResponseNorm,
    RMSNorm as RMSNorm,
)
