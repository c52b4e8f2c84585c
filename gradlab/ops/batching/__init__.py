"""The rows' rules for `vmap`: how a row that is given a whole batch computes each sample's result at once.

A rule is `rule(op, size, mapped, values, params)`. `values` are the row's inputs: tensors whose first dimension is the batch where `mapped`
says so, otherwise the same for every sample; or numbers and None. `params` are those of one sample. It returns a tensor (a tuple for
several outputs) with the batch in front. Like a gradient formula a rule is written with Tensor methods and rows only, so it runs on every
device, is recorded and traced. A rule that has no way for these inputs returns None, and the samples are taken one by one.

Most rows need no rule: that of elementwise rows, and of rows whose parameters name dimensions (`dim`, `dims`, …: reductions, scans, sorts),
follows from the row. A row's own `batch` comes first; `attach` fills it in for the rows of this package.
Used by `func/vmap_levels.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.batching.common import PLACES, aligned, shifted
from gradlab.ops.batching.indexing import INDEXING
from gradlab.ops.batching.layers import LAYERS
from gradlab.ops.batching.products import PRODUCTS
from gradlab.ops.batching.quantized import QUANTIZED
from gradlab.ops.batching.residual import RESIDUAL
from gradlab.ops.batching.shapes import SHAPES
from gradlab.strides import like_operands

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {**SHAPES, **PRODUCTS, **INDEXING, **LAYERS, **QUANTIZED, **RESIDUAL}

__all__ = ["RULES", "attach", "rule_of"]


def rule_of(op: Op) -> Rule | None:
    """The row's rule; None where the samples have to be taken one by one."""
    if op.batch is not None:
        return op.batch
    if op.inputs and (op.lies is like_operands or isinstance(op.cuda, Elementwise)):
        return aligned
    return shifted if PLACES & set(op.params) and not (op.foreign or op.dynamic) else None


def attach(rows: dict[str, Op]) -> None:
    """Give the rows their rules. Raises KeyError for a rule whose row is not there."""
    for name, rule in RULES.items():
        if rows[name].batch is None:
            rows[name].batch = rule
