"""Rows of sampling at the points of a grid.

x (N, C, *sizes), grid (N, *outputs, rank) with coordinates from -1 to 1, the last dimension's first.

`nn.functional.grid_sample` uses them on the CPU outside of traces; elsewhere, and for gradients of gradients, it is composed of gathers.
"""

from __future__ import annotations

from typing import Any

from gradlab.above import above
from gradlab.dtype import FLOATING
from gradlab.op import Op
from gradlab.ops import grid_cpu
from gradlab.spec import ShapeError, Spec

HOW = ("mode", "padding", "aligned")


def grid_sample_rule(x: Spec, grid: Spec, *, mode: str, padding: str, aligned: bool) -> Spec:
    """Rule: (N, C, *sizes) and (N, *outputs, rank) to (N, C, *outputs)."""
    rank = len(x.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2 or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank or 0 in x.shape[2:]:
        raise ShapeError(f"an input of shape {x.shape} is not read at the points of a grid of shape {grid.shape}")
    if x.dtype != grid.dtype or x.dtype not in FLOATING:
        raise TypeError(f"input and grid have one floating point dtype, not {x.dtype} and {grid.dtype}")
    return Spec((*x.shape[:2], *grid.shape[1:-1]), x.dtype)


def grid_sample_backward_rule(g: Spec, x: Spec, grid: Spec, *, mode: str, padding: str, aligned: bool) -> tuple[Spec, Spec]:
    """Rule: those of the input and of the grid."""
    want = grid_sample_rule(x, grid, mode=mode, padding=padding, aligned=aligned)
    if want.shape != g.shape:
        raise ShapeError(f"the gradient of a result of shape {want.shape} has shape {g.shape}")
    return x, grid


def _slopes(g: Any, x: Any, grid: Any, mode: str, padding: str, aligned: bool) -> Any:
    return above("slopes of grid_sample")(g, x, grid, mode, padding, aligned)


grid_sample: Op = Op(
    "grid_sample", grid_sample_rule, params=HOW, cpu=grid_cpu.grid_sample_cpu, autocast="float32", roundings=1,
    grad={("x", "grid"): _slopes},
)  # fmt: skip
grid_sample_backward: Op = Op(
    "grid_sample_backward", grid_sample_backward_rule, params=HOW, outputs=("dx", "dgrid"), cpu=grid_cpu.grid_sample_backward_cpu,
)  # fmt: skip
