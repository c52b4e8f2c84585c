"""Matrix products. Constant matrices are packed when the program is built."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emitter, Step, broadcast, emits
from gradlab.deploy.types import Unsupported, ctype

FLOAT32 = np.dtype(np.float32)


def constant(pointer: str) -> str:
    """A pointer expression that fits any const parameter."""
    return "NULL" if pointer == "NULL" else f"(const void *)({pointer})"


def written(pointer: str) -> str:
    """A pointer expression that fits any parameter."""
    return f"(void *)({pointer})"


def packed(matrix: Any) -> Any:
    """A (k, n) matrix in panels of 16 columns, the last one filled up with zeros."""
    k, n = matrix.shape
    panels = -(-n // 16)
    wide = np.zeros((k, panels * 16), np.float32)
    wide[:, :n] = matrix
    return np.ascontiguousarray(wide.reshape(k, panels, 16).transpose(1, 0, 2))


def multiply(
    out: Emitter, sizes: tuple[int, int, int], a: str, a_steps: tuple[int, int], panels: str, c: str, bias: str = "NULL", add: str = "NULL",
    activation: int = 0,
) -> None:  # fmt: skip
    """The line of one float product with packed B."""
    m, n, k = sizes
    out.part("gemm.c")
    out.line(
        f"gl_multiply(&team, &(const gl_product){{{m}, {n}, {k}, {constant(a)}, {a_steps[0]}, {a_steps[1]}, {constant(panels)}, {k}, "
        f"{written(c)}, {n}, {{{constant(bias)}, NULL, {constant(add)}, {activation}}}, NULL, NULL, 1, {k}}})"
    )


def _matrix_rows(place: Place, out: Emitter) -> tuple[Place, int, int]:
    """(..., k) as a matrix: the place, and its steps from row to row and along a row. Copied where it is no matrix."""
    shape, strides = place.shape, place.strides
    if len(shape) == 1:
        return place, 0, strides[0]
    step = strides[-2]
    for d in range(len(shape) - 3, -1, -1):
        if shape[d] != 1 and strides[d] != strides[d + 1] * shape[d + 1]:
            place = out.dense(place) if not place.contiguous else place
            return place, shape[-1], 1
    rows = [d for d in range(len(shape) - 1) if shape[d] != 1]
    return place, strides[rows[-1]] if rows else step, strides[-1]


@emits("linear")
def linear(step: Step, out: Emitter) -> None:
    x, w, b = step.inputs[:3]
    y = step.outputs[0]
    n, k = w.shape
    if not y.size:
        return
    if not isinstance(x, Place):
        raise Unsupported("a number in place of its input")
    m = y.size // n
    source, row, column = _matrix_rows(x, out)
    bias = None if b is None else out.dense(b)
    if bias is not None and bias.size != n:
        wide = out.scratch((n,), b.dtype)
        out.copy(Place(b.base, b.offset, (n,), (0,), b.dtype), wide)
        bias = wide
    if y.dtype == FLOAT32:
        panels = _panels(out, step.known[1], Place(w.base, w.offset, (k, n), w.strides[::-1], w.dtype), True)
        activation = out.activations[step.activation] if step.activation else 0
        multiply(
            out, (m, n, k), out.pointer(source), (row, column), panels, out.pointer(y), out.pointer(bias), out.pointer(step.add), activation
        )
        return
    _plain(out, y, (m, n, k), out.pointer(source), (row, column), out.pointer(w), w.strides[::-1], out.pointer(bias), out.pointer(y))


def _panels(out: Emitter, known: Any, b: Place, transposed: bool) -> str:
    """The pointer to a (k, n) matrix in panels: made at build time, or by a line of the run."""
    k, n = b.shape
    if known is not None:
        return out.pointer(out.constant(packed(known.T if transposed else known), ("panels", b), "panels"))
    out.part("gemm.c")
    space = out.scratch((k * -(-n // 16) * 16,), np.float32)
    out.line(f"gl_pack(&team, {k}, {n}, {constant(out.pointer(b))}, {b.strides[0]}, {b.strides[1]}, {written(out.pointer(space))})")
    return out.pointer(space)


def _plain(out: Emitter, y: Place, sizes: tuple[int, int, int], a: str, a_steps: Any, b: str, b_steps: Any, bias: str, c: str) -> None:
    kind = ctype(y.dtype)
    out.part("products.c", y.dtype)
    m, n, k = sizes
    out.line(
        f"gl_product_{kind.suffix}({m}, {n}, {k}, {constant(a)}, {a_steps[0]}, {a_steps[1]}, {constant(b)}, {b_steps[0]}, {b_steps[1]}, "
        f"{constant(bias)}, {written(c)})"
    )


@emits("matmul", "wide_matmul")
def matmul(step: Step, out: Emitter) -> None:
    a, b = step.inputs[:2]
    y = step.outputs[0]
    if not isinstance(a, Place) or not isinstance(b, Place):
        raise Unsupported("a number in place of a matrix")
    if not y.size:
        return
    if len(a.shape) == 1:
        a = Place(a.base, a.offset, (1, *a.shape), (0, *a.strides), a.dtype)
    if len(b.shape) == 1:
        b = Place(b.base, b.offset, (*b.shape, 1), (*b.strides, 0), b.dtype)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if all(size == 1 for size in b.shape[:-2]) and len(a.shape) > 2:  # one product of all rows
        source, row, column = _matrix_rows(a, out)
        flat = Place(source.base, source.offset, (y.size // n, k), (row, column), a.dtype)
        _one(step, out, flat, Place(b.base, b.offset, (k, n), b.strides[-2:], b.dtype), y, y.size // n, 0, step.known[1])
        return
    if len(batch) and int(np.prod(batch)) > 256:
        _many(out, a, b, y, batch)
        return
    a_steps, b_steps = (broadcast(Place(0, 0, p.shape[:-2], p.strides[:-2], p.dtype), batch) for p in (a, b))
    for i, at in enumerate(product(*map(range, batch))):
        shift_a, shift_b = (sum(x * s for x, s in zip(at, steps)) for steps in (a_steps, b_steps))
        size = a.dtype.itemsize
        own_a = Place(a.base, a.offset + shift_a * size, a.shape[-2:], a.strides[-2:], a.dtype)
        own_b = Place(b.base, b.offset + shift_b * size, b.shape[-2:], b.strides[-2:], b.dtype)
        known = None if step.known[1] is None else np.broadcast_to(step.known[1], (*batch, k, n))[at]
        _one(step, out, own_a, own_b, y, m, i * m * n * size, known)


def _one(step: Step, out: Emitter, a: Place, b: Place, y: Place, m: int, shift: int, known: Any) -> None:
    k, n = b.shape
    c = out.pointer(Place(y.base, y.offset + shift, y.shape, y.strides, y.dtype))
    if y.dtype == FLOAT32:
        taken = out._taken
        multiply(out, (m, n, k), out.pointer(a), (a.strides[0], a.strides[1]), _panels(out, known, b, False), c)
        out._taken = taken
    else:
        _plain(out, y, (m, n, k), out.pointer(a), a.strides, out.pointer(b), b.strides, "NULL", c)


def _many(out: Emitter, a: Place, b: Place, y: Place, batch: tuple[int, ...]) -> None:
    """Many small products: one loop."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    kind = ctype(y.dtype)
    out.part("products.c", y.dtype)
    steps = [broadcast(Place(0, 0, p.shape[:-2], p.strides[:-2], p.dtype), batch) for p in (a, b, y)]
    text = ["static void @F(const void *p0, const void *p1, void *p2) {", f"  const {kind.storage} *const a = p0, *const b = p1;",
            f"  {kind.storage} *const c = p2;"]  # fmt: skip
    for d, size in enumerate(batch):
        text.append(f"{'  ' * (d + 1)}for (int64_t i{d} = 0; i{d} < {size}; ++i{d})")
    at = [" + ".join(f"i{d} * {s}" for d, s in enumerate(own)) for own in steps]
    text.append(
        f"{'  ' * (len(batch) + 1)}gl_product_{kind.suffix}({m}, {n}, {k}, a + {at[0]}, {a.strides[-2]}, {a.strides[-1]}, b + {at[1]}, "
        f"{b.strides[-2]}, {b.strides[-1]}, NULL, c + {at[2]});"
    )
    out.call("\n".join([*text, "}"]), a, b, y)
