"""Lowering of matrix products and fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.movements import packed
from gradlab.backends.native.lowerings.small_products import is_small, small_products
from gradlab.backends.native.place import Place, place_of
from gradlab.call import Call, Value
from gradlab.dtype import FLOAT32, FLOAT64

SHARED = 3  # products of one operand that make it worth packing it once
PANEL = 32  # columns that are packed together, on the machine with the widest vectors (gemm.h)
LONG = 512  # a depth that is worth two halves
LARGE = 1 << 18  # elements of a result that is not
HALVES = 100  # the parameter that says so
FEW = 3  # rows of a result for which packing the second operand costs more than it saves
KERNELS = {FLOAT32: "gradlab_product_float", FLOAT64: "gradlab_product_double"}
BFLOAT16 = "gradlab_product_bfloat16"  # of float32 that it rounds


class Ending(NamedTuple):
    """What the kernel does with the result at once: a kind of `epilogues.h`, the operands that it takes, simple operations an element."""

    kind: int = 0
    places: tuple[Place, ...] = ()
    cost: float = 0


PLAIN = Ending()


def products(
    c: Place, a: Place, b: Place, bias: Place | None, ctx: Lowering, end: Ending = PLAIN, bfloat16: bool = False
) -> list[TaskSpec]:  # fmt: skip
    """c = a @ b + bias; an operand b that several products share is packed once, before the first of them. bfloat16: a and b rounded."""
    if bfloat16:
        return [_product(c, a, b, bias, end)._replace(kernel=BFLOAT16)]
    few = _few_rows(c, a, b, bias, end)
    if few is not None:
        return [few]
    if ctx.operands[b] < SHARED or len(b.shape) != 2 or c.dtype != FLOAT32:
        return [_product(c, a, b, bias, end)]
    first = []
    if b not in ctx.packed:
        k, n = b.shape
        space = ctx.packed[b] = ctx.reserve(-(-n // PANEL) * PANEL * k * 4)
        first = [TaskSpec("gradlab_pack_float", (n, k, *b.strides), (space, b), widest(n * k / 2))]
    task = _product(c, a, b, bias, end)
    parameters = (*task.parameters[:8], task.parameters[8] + 2, *task.parameters[9:])
    return [*first, task._replace(parameters=parameters, places=(c, a, ctx.packed[b], *task.places[3:]))]


def _product(c: Place, a: Place, b: Place, bias: Place | None, end: Ending = PLAIN) -> TaskSpec:
    """c = a @ b for matrices with up to two batch dimensions; `bias` is added to every row."""
    if a.dtype != c.dtype or b.dtype != c.dtype or c.dtype not in KERNELS or c.size == 0 or a.size == 0:
        raise Unsupported
    batch = c.shape[:-2]
    sizes, steps = _batches(batch, [_spread(p, batch) for p in (a, b, c)])
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    if bias is not None and (bias.shape != (n,) or bias.strides != (1,)):
        raise Unsupported
    parameters = [m, n, k, a.strides[-2], a.strides[-1], b.strides[-2], b.strides[-1], c.strides[-2], bias is not None, end.kind, *sizes]
    for step in steps:
        parameters += step
    places = (c, a, b) if bias is None else (c, a, b, bias)
    work = m * n * math.prod(sizes) * (k / 8 + end.cost)
    return TaskSpec(KERNELS[c.dtype], tuple(map(int, parameters)), (*places, *end.places), widest(work))


def _few_rows(c: Place, a: Place, b: Place, bias: Place | None, end: Ending) -> TaskSpec | None:
    """A product of few rows, or of one column, which is the row of the product the other way round; None for another."""
    if math.prod(c.shape[:-2]) != 1 or not a.dtype == b.dtype == c.dtype == FLOAT32 or c.size == 0 or a.size == 0:
        return None
    (m, n), k = c.shape[-2:], a.shape[-1]
    (a_row, along), (b_row, b_column), (c_row, c_column), added = a.strides[-2:], b.strides[-2:], c.strides[-2:], int(bias is not None)
    places = [c, a, b]
    if bias is not None and bias.shape != (n,):
        return None
    if n == 1 and m > FEW:
        m, n, (a_row, along), (b_row, b_column), (c_row, c_column) = 1, m, (0, b_row), (along, a_row), (0, c_row)
        places, added = [c, b, a], 2 * added
    if m > FEW or (along != 1 and k > 1) or (c_column != 1 and n > 1) or 1 not in (b_row, b_column):
        return None
    if bias is not None and added == 1 and bias.strides != (1,):
        return None
    parameters = (m, n, k, a_row, b_row, b_column, c_row, added, end.kind)
    operands = (*places, *(() if bias is None else (bias,)), *end.places)
    return TaskSpec("gradlab_few_rows", tuple(map(int, parameters)), operands, widest(m * n * (k / 8 + end.cost)))


def _in_halves(task: TaskSpec, ctx: Lowering) -> list[TaskSpec]:
    """A product whose operands both have to be packed, and are long: each thread does a half of the length, and packs no more than that."""
    if task.kernel not in (BFLOAT16, *KERNELS.values()):
        return [task]
    c, a, _ = task.places
    (m, k), n = a.shape, c.shape[-1]
    if a.strides[1] == 1 or c.dtype != FLOAT32 or not c.contiguous or k < LONG or m * n > LARGE or task.widest < 2 or task.parameters[8]:
        return [task]
    rest = ctx.scratch(m * n * 4)
    halves = task._replace(parameters=(*task.parameters[:9], HALVES, *task.parameters[10:]), places=(*task.places, rest))
    return [halves, TaskSpec("gradlab_add_rest", (m * n,), (c, rest), widest(m * n / 4))]


def _spread(p: Place, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of the batch dimensions, 0 where they are repeated."""
    lead = len(batch) - (len(p.shape) - 2)
    return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(p.shape[:-2], p.strides[:-2]))


def _batches(batch: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Batch dimensions as two, neighbours merged where all operands allow; Unsupported for more."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(batch):
        if n == 1:
            continue
        own = [s[d] for s in strides]
        if sizes and all(mine[-1] == step * n for mine, step in zip(steps, own)):
            sizes[-1] *= n
            for mine, step in zip(steps, own):
                mine[-1] = step
            continue
        sizes.append(n)
        for mine, step in zip(steps, own):
            mine.append(step)
    if len(sizes) > 2:
        raise Unsupported
    pad = 2 - len(sizes)
    return [1] * pad + sizes, [[0] * pad + mine for mine in steps]


def rows_of(p: Place) -> Place:
    """All dimensions but the last as one; Unsupported where that would copy."""
    if len(p.shape) == 2:
        return p
    if not p.contiguous:
        raise Unsupported
    last = p.shape[-1]
    return Place(p.base, p.offset, (math.prod(p.shape[:-1]), last), (last, 1), p.dtype)


def operand_of(call: Call, places: dict[int, Place]) -> Place | None:
    """The second operand of a product, as the kernels see it."""
    if call.op.name not in ("matmul", "linear") or not isinstance(call.inputs[1], Value):
        return None  # those of bfloat16 pack both
    found = places[call.inputs[1].id]
    if call.op.name == "linear":
        found = found._replace(shape=found.shape[::-1], strides=found.strides[::-1])
    return found


@lowers("matmul", "matmul_bfloat16")
def matmul(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """a @ b."""
    a, b = ctx.place(call.inputs[0]), ctx.place(call.inputs[1])
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Unsupported
    c = ctx.place(call.outputs[0])
    batch = c.shape[:-2]
    bfloat16 = call.op.name != "matmul"
    small = not bfloat16 and ctx.generates and not ctx.general and a.dtype == b.dtype == c.dtype
    if small and is_small(c, a.shape[-1], math.prod(batch)):
        return [small_products(c, a, b, *_batches(batch, [_spread(p, batch) for p in (a, b, c)]), ctx)]
    found = products(c, a, b, None, ctx, PLAIN, bfloat16)
    return _in_halves(found[0], ctx) if len(found) == 1 and len(a.shape) == len(b.shape) == 2 else found


@lowers("linear", "linear_bfloat16")
def linear(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """x @ w.T + b."""
    return product_of(call, ctx.place(call.outputs[0]), PLAIN, ctx)


def product_of(call: Call, target: Place, end: Ending, ctx: Lowering) -> list[TaskSpec]:
    """A product of matrices or a fully connected layer with an ending; the result lies at `target`, with an ending in row-major order."""
    x, w, *rest = call.inputs
    if end.kind:
        made = place_of(target.base, call.outputs[0].spec, target.offset)
        target = made._replace(shape=(math.prod(made.shape[:-1]), made.shape[-1]), strides=(made.shape[-1], 1))
    bfloat16 = call.op.name.endswith("_bfloat16")
    if call.op.name.startswith("matmul"):
        return products(target, ctx.place(x), ctx.place(w), None, ctx, end, bfloat16)
    bias = rest[0]
    source, first = packed(ctx.place(x), ctx) if len(x.spec.shape) != 2 else (ctx.place(x), [])
    a, weight = rows_of(source), ctx.place(w)
    transposed = Place(weight.base, weight.offset, weight.shape[::-1], weight.strides[::-1], weight.dtype)
    return [*first, *products(rows_of(target), a, transposed, None if bias is None else ctx.place(bias), ctx, end, bfloat16)]
