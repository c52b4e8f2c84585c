"""Many small matrix products: each is a loop of its own, with the sizes known; packing its operands would take longer than the product."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradlab.backends.native.lowering import Lowering, TaskSpec, widest
from gradlab.backends.native.place import Place
from gradlab.dtype import FLOAT32, FLOAT64

MOST = 4096  # multiplications of a product
WIDE = 16  # columns of one
FEW = 8  # products that are worth it
TOGETHER = 4  # rows


def is_small(c: Place, depth: int, batch: int) -> bool:
    """Whether a batch of products is of that kind."""
    m, n = c.shape[-2:]
    fits = batch >= FEW and n <= WIDE and 0 < m * n * depth <= MOST
    return c.dtype in (FLOAT32, FLOAT64) and fits and (c.strides[-1] == 1 or n == 1)


def small_products(
    c: Place, a: Place, b: Place, sizes: Sequence[int], steps: Sequence[Sequence[int]], ctx: Lowering
) -> TaskSpec:
    """c = a @ b for two batch dimensions; steps: of a, b and c along those."""
    kind = "float" if c.dtype == FLOAT32 else "double"
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    at = ["".join(f" + {'xy'[d]} * {s}LL" for d, s in enumerate(step)) for step in steps]
    dense = b.strides[-1] == 1 or n == 1
    copied = [] if dense else [
        f"    {kind} w[{k * n}];", f"    for (int64_t p = 0; p < {k}; ++p)",
        f"      for (int64_t j = 0; j < {n}; ++j) w[p * {n} + j] = b[p * {b.strides[-2]}LL + j * {b.strides[-1]}LL];",
    ]  # fmt: skip
    right = f"b + p * {b.strides[-2]}LL" if dense else f"w + p * {n}"
    text = ['#include "runtime.h"']
    widths = _widths(n, 32 // c.dtype.itemsize)
    for lanes in sorted({lanes for _, lanes in widths}):
        form = f"__attribute__((vector_size({lanes * c.dtype.itemsize}), aligned({c.dtype.itemsize}), may_alias))"
        text.append(f"typedef {kind} @K_{lanes}{f' {form}' if lanes > 1 else ''};")
    text += [
        "GRADLAB_KERNEL @K(char** q, const int64_t*, int part, int parts) {",
        f"  const Share mine = share({sizes[0] * sizes[1]}LL, part, parts);",
        "  for (int64_t u = mine.first; u < mine.last; ++u) {", f"    const int64_t x = u / {sizes[1]}LL, y = u % {sizes[1]}LL;",
        f"    const {kind}* const a = (const {kind}*)q[1]{at[0]};", f"    const {kind}* const b = (const {kind}*)q[2]{at[1]};",
        f"    {kind}* const c = ({kind}*)q[0]{at[2]};", *copied, "    int64_t i = 0;",
    ]  # fmt: skip
    for rows in (TOGETHER, 1):
        if m >= rows and (rows > 1 or m % TOGETHER):
            text += _rows(rows, m, k, kind, widths, right, a, c)
    text += ["  }", "}"]
    return TaskSpec(ctx.generate("\n".join(text)), (), (c, a, b), widest(m * n * k * math.prod(sizes) / 3))


def _widths(n: int, most: int) -> list[tuple[int, int]]:
    """The columns in vectors: (first, how many)."""
    found, at, lanes = [], 0, most
    while at < n:
        while lanes > n - at:
            lanes //= 2
        found.append((at, lanes))
        at += lanes
    return found


def _rows(rows: int, m: int, k: int, kind: str, widths: list[tuple[int, int]], right: str, a: Place, c: Place) -> list[str]:
    """So many rows of the result at a time."""
    text = [f"    for (; i + {rows} <= {m}; i += {rows}) {{"]
    text += [f"      @K_{lanes} s{r}_{j} = {{}};" for r in range(rows) for j, lanes in widths]
    text += [f"      for (int64_t p = 0; p < {k}; ++p) {{", f"        const {kind}* const w_p = {right};"]
    text += [f"        const @K_{lanes} v{j} = *(const @K_{lanes}*)(w_p + {j});" for j, lanes in widths]
    for r in range(rows):
        text.append(f"        const {kind} l{r} = a[(i + {r}) * {a.strides[-2]}LL + p * {a.strides[-1]}LL];")
        text += [f"        s{r}_{j} += l{r} * v{j};" for j, _ in widths]
    text.append("      }")
    text += [f"      *(@K_{lanes}*)(c + (i + {r}) * {c.strides[-2]}LL + {j}) = s{r}_{j};" for r in range(rows) for j, lanes in widths]
    return [*text, "    }"]
