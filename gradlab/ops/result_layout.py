"""How the results of rows that are not elementwise lie in memory where their operands do not lie row by row; all others lie row by row.

As PyTorch's on a CPU: what works on images keeps channels last, what only moves or draws elements keeps the order of its operand.
"""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.strides import like_all_images, like_first, like_image_or_weight, like_images, like_operands, like_pictures

_RULES: dict[Any, str] = {
    like_image_or_weight: "convolution convolution_dx convolution_transpose",
    like_images: "max_pool max_pool_backward batch_norm batch_norm_backward pad resample resample_backward",
    like_pictures: "max_unpool adaptive_max_pool avg_pool avg_pool_backward",
    like_all_images: "cat",
    like_operands: "nextafter",
    like_first: "flip sort dropout slice_scatter diagonal_scatter index_put",
}  # fmt: skip


def attach(rows: dict[str, Op]) -> None:
    """Give the rows their rules. Raises KeyError for a rule whose row is not there."""
    for rule, names in _RULES.items():
        for name in names.split():
            rows[name].lies = rule
