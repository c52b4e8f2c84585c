"""All families of lowerings: importing this module registers them."""

from gradlab.graph.executables.native import (
    attention as attention,
    batch_norm as batch_norm,
    conv as conv,
    conv_weight_gradient as conv_weight_gradient,
    gru as gru,
    indexing as indexing,
    lines as lines,
    movements as movements,
    optimizers as optimizers,
    optimizers_rare as optimizers_rare,
    pooling as pooling,
    products as products,
    random as random,
    reductions as reductions,
    reordering as reordering,
    rowwise as rowwise,
    sorting as sorting,
    unrolling as unrolling,
)

__all__ = [
    "attention", "batch_norm", "conv", "conv_weight_gradient", "gru", "indexing", "lines", "movements", "optimizers", "products",
    "optimizers_rare", "pooling", "random", "reductions", "reordering", "rowwise", "sorting", "unrolling",
]  # fmt: skip
