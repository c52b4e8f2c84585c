"""All families of lowerings: importing this module registers them."""

from gradlab.backends.native.lowerings import (
    attention as attention,
    batch_norm as batch_norm,
    conv as conv,
    conv_weight_gradient as conv_weight_gradient,
    ctc as ctc,
    factorization as factorization,
    grid as grid,
    gru as gru,
    indexing as indexing,
    lines as lines,
    movements as movements,
    optimizers as optimizers,
    optimizers_rare as optimizers_rare,
    pooling as pooling,
    products as products,
    quantized as quantized,
    random_numbers as random_numbers,
    reductions as reductions,
    reordering as reordering,
    rowwise as rowwise,
    sequences as sequences,
    sorting as sorting,
    unrolling as unrolling,
)

__all__ = [
    "attention", "batch_norm", "conv", "conv_weight_gradient", "ctc", "factorization", "grid", "gru", "indexing", "lines", "movements",
    "optimizers", "optimizers_rare", "pooling", "products", "quantized", "random_numbers", "reductions", "reordering", "rowwise",
    "sequences", "sorting", "unrolling",
]  # fmt: skip
