"""All families of lowerings: importing this module registers them."""

from gradlab.graph.native import (
    attention as attention,
    movements as movements,
    products as products,
    reductions as reductions,
    rowwise as rowwise,
    updates as updates,
)

__all__ = ["attention", "movements", "products", "reductions", "rowwise", "updates"]
