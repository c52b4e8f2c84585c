"""Reduction rows: the array seen as [outer, count, inner], and the launches that reduce its middle dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.arguments import Packer
from gradlab.backends.cuda.compiler import program
from gradlab.backends.cuda.generate import reads
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.dtype import COMPLEX, COMPLEX128, FLOAT32, FLOAT64, FLOATING, HALF
from gradlab.kernel import Reduction
from gradlab.op import Op
from gradlab.spec import Spec, count as elements

TARGET_BLOCKS = 1056  # eight for each of an H100's 132 multiprocessors
MOST_OUTER = 512  # partial results that a thread joins one after another, where dimensions around others are reduced


SUM, PRODUCT = "a + b", "a * b"  # what is combined wider than it is computed in


def total_type(description: Reduction, out: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of partial results: sums of runs of float elements, and products, are added up (multiplied) in float64."""
    if out in COMPLEX:
        return COMPLEX128 if description.combine == SUM else out
    return FLOAT64 if description.combine in (SUM, PRODUCT) and out in FLOATING else FLOAT32 if out in HALF else out


def total_name(description: Reduction, out: np.dtype[Any]) -> str:
    """Its C++ type. Products have powers of two beside it, that nothing overflows on the way."""
    return "Scaled" if description.combine == PRODUCT and out in FLOATING else STORAGE[total_type(description, out).name]


def flags_of(op: Op) -> list[str]:
    """The parameters that the description reads."""
    return [p for p in op.params if any(reads(text, p) for text in op.cuda[:4])]


def reduction_source(op: Op, x: np.dtype[Any], y: np.dtype[Any]) -> tuple[str, dict[str, str]]:
    """The text of a row's reduction kernels (without its include line), and their names by form."""
    description = op.cuda
    assert isinstance(description, Reduction)
    base = f"{op.name}_{x.name}_to_{y.name}"
    total = total_name(description, y)
    accumulator = total if description.combine == PRODUCT or description.wide else "bool" if y.kind == "b" else compute_type(y)
    flags = flags_of(op)
    members = [f"const {STORAGE[x.name]}* {name}_" for name in op.inputs] + [f"long long {p}" for p in flags]
    values = " ".join(f"const auto {name} = gradlab::load({name}_[i]);" for name in op.inputs)
    struct = f"""struct {base}_r {{
    typedef {accumulator} A;
    typedef {total} Total;
    typedef {STORAGE[y.name]} Out;
    typedef A T;
    {" ".join(f"{member};" for member in members)}
    __device__ __forceinline__ A load(int64 i) const {{ {values} return static_cast<A>({description.load}); }}
    template <class T> static __device__ __forceinline__ T combine(T a, T b) {{ return static_cast<T>({description.combine}); }}
    static __device__ __forceinline__ A identity() {{ return {description.identity}; }}
    __device__ __forceinline__ Out finish(Total a, int64 n) const {{
        typedef Total T;
        (void)n;
        return store<Out>({description.finish});
    }}
}};"""
    io = ", ".join([*members, f"{total}* partial, {STORAGE[y.name]}* y"])
    make = f"{base}_r{{{', '.join([*(f'{name}_' for name in op.inputs), *flags])}}}"
    names = {form: f"{base}_{form}" for form in ("row", "column", "parts")}
    kernels = [
        f"__global__ void __launch_bounds__(512) {names['row']}({io}, int64 count, int64 parts, int64 total) "
        f"{{ reduce_row<{base}_r>({make}, partial, y, count, parts, total); }}",
        f"__global__ void __launch_bounds__(256, 1) {names['column']}({io}, int64 columns, int64 inner, int64 count, "
        f"int64 parts, int64 total) {{ reduce_column<{base}_r>({make}, partial, y, columns, inner, count, parts, total); }}",
        f"__global__ void __launch_bounds__(256) {names['parts']}({io}, int64 columns, int64 stride, int64 step, int64 parts, int64 total) "
        f"{{ reduce_parts<{base}_r>({make}, partial, y, columns, stride, step, parts, total); }}",
    ]
    return "\n".join([struct, *kernels]), names


def _parts(blocks: int, count: int, least: int) -> int:
    """How many blocks share one reduction: enough to fill the GPU, none with fewer than `least` elements; a fixed function of sizes."""
    return max(1, min(TARGET_BLOCKS // max(blocks, 1), count // least, 1024))


def plan(work: Work, op: Op, arrays: list[Any], specs: list[Any], out: Spec, params: dict[str, Any]) -> Callable[..., Any]:
    """A plan that reduces `dim` (normalised, sorted; all dimensions for rows without it) of inputs of one shape."""
    driver = work.driver
    shape, dtype = specs[0].shape, specs[0].dtype
    rank = len(shape)
    if elements(out.shape) == 0:
        return lambda _, outs=None: driver.empty(out.shape, out.dtype) if outs is None else outs[0]
    dims = [d for d in params.get("dim", tuple(range(rank))) if shape[d] != 1]
    order: tuple[int, ...] | None = None
    outer = 1
    kept = [d for d in range(rank) if d not in dims and shape[d] != 1]
    if dims and any(dims[0] < d < dims[-1] for d in kept):
        if all(d < kept[0] or d > kept[-1] for d in dims) and 0 < elements(shape[: kept[0]]) <= MOST_OUTER:
            outer = elements(shape[: kept[0]])  # dimensions around the others, as of a bias in front of a picture: first the last ones
        else:  # reduced dimensions apart: bring them to the end
            kept = [d for d in range(rank) if d not in dims]
            order = (*kept, *dims)
            shape = tuple(shape[d] for d in order)
            dims = list(range(len(kept), rank))
    first, last = (dims[0], dims[-1]) if dims else (rank, rank - 1)
    inner = elements(shape[last + 1 :]) if dims else 1
    count = elements([shape[d] for d in dims])
    columns = elements(out.shape) if outer > 1 else (elements(shape[:first]) if dims else elements(shape)) * inner
    flags = [int(params[p]) for p in flags_of(op)]
    senders: list[Callable[..., None]] = []
    sizes: tuple[int, ...]

    def functions() -> dict[str, Any]:
        key = ("reduce", op.name, dtype, out.dtype)
        source, names = reduction_source(op, dtype, out.dtype)
        kernels = [f"gradlab::{name}" for name in names.values()]
        found = work.compiler.generated(key, lambda: program("reduce.cuh", source), kernels, f"{op.name}_{dtype.name}")
        return {form: found[f"gradlab::{name}"] for form, name in names.items()}

    ready = order is None and all(a.flags.c_contiguous for a in arrays)
    assert isinstance(op.cuda, Reduction)
    # Without inner elements a block walks a row of neighbours; else neighbouring threads walk neighbouring columns.
    if inner == 1:
        parts = 1 if outer > 1 else _parts(columns, count, 4096)
        length = count // outer
        block = 32 if length <= 128 else 128 if length <= 2048 else 512
        blocks, rows, form, sizes = outer * columns * parts, 1, "row", (length, parts)
        stride, step, parts = (1, columns, outer) if outer > 1 else (parts, 1, parts)
    else:
        block, blocks = 256, -(-columns // 256)
        parts = _parts(blocks, count, 64)
        rows, form, sizes, stride, step = parts, "column", (columns, inner, count, parts), 1, columns

    make, pointer = driver.maker(out.shape, out.dtype), work.pointer
    words = 2 if op.cuda.combine == PRODUCT else 1
    make_partial = driver.maker((columns * parts * words,), total_type(op.cuda, out.dtype))
    head: list[str | int] = [*"P" * len(specs), *"q" * len(flags), "P", "P"]

    def first_use() -> None:
        """The kernels are compiled when they are first launched."""
        found = functions()
        packer = Packer([*head, *"q" * (len(sizes) + 1)])
        senders.append(packer.sender(driver.launcher(found[form], (blocks, rows, 1), (block, 1, 1), 0)))
        if parts > 1:
            launcher = driver.launcher(found["parts"], (-(-columns // 256), 1, 1), (256, 1, 1), 0)
            senders.append(Packer([*head, *"qqqqq"]).sender(launcher))

    def run(arrays: list[Any], outs: Sequence[Any] | None = None) -> Any:
        if not senders:
            first_use()
        inputs = arrays if ready else [work.contiguous(x if order is None else x.transpose(order)) for x in arrays]
        y = make() if outs is None else outs[0]
        values = [*map(pointer, inputs), *flags]
        if parts == 1:
            senders[0](*values, 0, pointer(y), *sizes, count)
            return y
        partial = make_partial()
        values += (pointer(partial), pointer(y))
        senders[0](*values, *sizes, count)
        senders[1](*values, columns, stride, step, parts, count)
        return y

    return run
