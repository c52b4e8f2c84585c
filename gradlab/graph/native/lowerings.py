"""All families of lowerings: importing this module registers them."""

from gradlab.graph.native import (
    attention as attention,
    batch_norm as batch_norm,
    conv as conv,
    movements as movements,
    products as products,
    reductions as reductions,
    rowwise as rowwise,
    updates as updates,
    windows as windows,
)

__all__ = ["attention", "batch_norm", "conv", "movements", "products", "reductions", "rowwise", "updates", "windows"]
