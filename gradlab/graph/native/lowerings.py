"""All families of lowerings: importing this module registers them."""

from gradlab.graph.native import (
    attention as attention,
    batch_norm as batch_norm,
    conv as conv,
    direct_slope as direct_slope,
    gru as gru,
    indexing as indexing,
    layouts as layouts,
    lines as lines,
    movements as movements,
    optimizers as optimizers,
    products as products,
    random as random,
    reductions as reductions,
    rowwise as rowwise,
    sorting as sorting,
    unrolling as unrolling,
    updates as updates,
    windows as windows,
)

__all__ = [
    "attention", "batch_norm", "conv", "direct_slope", "gru", "indexing", "layouts", "lines", "movements", "optimizers", "products",
    "random", "reductions", "rowwise", "sorting", "unrolling", "updates", "windows",
]  # fmt: skip
