"""All families of lowerings: importing this module registers them."""

from gradlab.graph.native import (
    attention as attention,
    conv as conv,
    movements as movements,
    products as products,
    reductions as reductions,
    rowwise as rowwise,
    updates as updates,
    windows as windows,
)

__all__ = ["attention", "conv", "movements", "products", "reductions", "rowwise", "updates", "windows"]
