"""Reduction rows: the array seen as [outer, count, inner], and the launches that reduce its middle dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.backends.cuda.arguments import Arguments
from gradlab.backends.cuda.compiler import Compiler, program
from gradlab.backends.cuda.driver import Driver
from gradlab.backends.cuda.generate import STORAGE, compute_type
from gradlab.kernel import Reduction
from gradlab.op import Op
from gradlab.spec import count as elements

TARGET_BLOCKS = 1056  # eight for each of an H100's 132 multiprocessors


def reduction_source(op: Op, x: np.dtype[Any], y: np.dtype[Any]) -> tuple[str, dict[str, str]]:
    """The text of a row's reduction kernels, and their names by form."""
    description = op.cuda
    assert isinstance(description, Reduction)
    base = f"{op.name}_{x.name}_to_{y.name}"
    accumulator = "bool" if y.kind == "b" else compute_type(y)
    struct = f"""struct {base}_r {{
    typedef {STORAGE[x.name]} In;
    typedef {accumulator} A;
    typedef {STORAGE[y.name]} Out;
    typedef A T;
    static __device__ __forceinline__ A load(In stored) {{ const auto x = gradlab::load(stored); return static_cast<A>({description.load}); }}
    static __device__ __forceinline__ A combine(A a, A b) {{ return {description.combine}; }}
    static __device__ __forceinline__ A identity() {{ return {description.identity}; }}
    static __device__ __forceinline__ Out finish(A a, int64 n) {{ (void)n; return store<Out>({description.finish}); }}
}};"""
    io = f"const {STORAGE[x.name]}* x, {accumulator}* partial, {STORAGE[y.name]}* y"
    kernels = []
    names = {}
    for form, final in (("final", "true"), ("partial", "false")):
        names[f"row_{form}"] = f"{base}_row_{form}"
        kernels.append(
            f'extern "C" __global__ void __launch_bounds__(512) {base}_row_{form}({io}, int64 count, int64 parts, int64 total) '
            f"{{ reduce_row<{base}_r, {final}>(x, partial, y, count, parts, total); }}"
        )
        names[f"column_{form}"] = f"{base}_column_{form}"
        kernels.append(
            f'extern "C" __global__ void __launch_bounds__(256) {base}_column_{form}({io}, int64 columns, int64 inner, int64 count, '
            f"int64 parts, int64 total) {{ reduce_column<{base}_r, {final}>(x, partial, y, columns, inner, count, parts, total); }}"
        )
    names["parts"] = f"{base}_parts"
    kernels.append(
        f'extern "C" __global__ void __launch_bounds__(256) {base}_parts(const {accumulator}* partial, {STORAGE[y.name]}* y, int64 columns, '
        f"int64 stride, int64 step, int64 parts, int64 total) {{ reduce_parts<{base}_r>(partial, y, columns, stride, step, parts, total); }}"
    )
    return program("reduce.cuh", struct, *kernels), names


class ReductionLauncher:
    """Runs rows that are described by a Reduction."""

    def __init__(self, driver: Driver, compiler: Compiler, contiguous: Callable[[Any], Any]) -> None:
        self.driver, self.compiler, self.contiguous = driver, compiler, contiguous

    def run(self, op: Op, x: Any, out: Any, dim: tuple[int, ...]) -> None:
        """Reduce `dim` (normalised, sorted) of x into `out`."""
        if out.size == 0:
            return
        rank = len(x.shape)
        dims = [d for d in dim if x.shape[d] != 1]
        if dims and dims != list(range(dims[0], dims[-1] + 1)):
            kept = [d for d in range(rank) if d not in dims]  # reduced dimensions apart: bring them to the end
            x = x.transpose(*kept, *dims)
            dims = list(range(len(kept), rank))
        x = self.contiguous(x)
        first, last = (dims[0], dims[-1]) if dims else (rank, rank - 1)
        inner = elements(x.shape[last + 1 :]) if dims else 1
        count = elements([x.shape[d] for d in dims])
        outer = elements(x.shape[:first]) if dims else x.size
        source, names = reduction_source(op, x.dtype, out.dtype)
        functions = self.compiler.generated(("reduce", op.name, x.dtype, out.dtype), source, list(names.values()), f"{op.name}_{x.dtype.name}")
        columns = outer * inner
        accumulator = np.dtype(np.float32) if out.dtype.itemsize == 2 else out.dtype
        # Without inner elements a block walks a row of neighbours; else neighbouring threads walk neighbouring columns.
        if inner == 1:
            parts = self._parts(columns, count, 4096)
            block = 32 if count <= 128 else 128 if count <= 2048 else 512
            grid, form = (columns * parts, 1, 1), "row"
            sizes = [np.int64(count), np.int64(parts)]
            stride, step = parts, 1
        else:
            blocks = -(-columns // 256)
            parts = self._parts(blocks, count, 64)
            block, grid, form = 256, (blocks, parts, 1), "column"
            sizes = [np.int64(columns), np.int64(inner), np.int64(count), np.int64(parts)]
            stride, step = 1, columns
        pointer = self.driver.pointer
        total = np.int64(count)
        if parts == 1:
            arguments = Arguments([pointer(x), 0, pointer(out), *sizes, total])
            self.driver.launch(functions[names[f"{form}_final"]], grid, (block, 1, 1), arguments.address, 0)
            return
        partial = self.driver.empty((columns * parts,), accumulator)
        arguments = Arguments([pointer(x), pointer(partial), pointer(out), *sizes, total])
        self.driver.launch(functions[names[f"{form}_partial"]], grid, (block, 1, 1), arguments.address, 0)
        arguments = Arguments([pointer(partial), pointer(out), np.int64(columns), np.int64(stride), np.int64(step), np.int64(parts), total])
        self.driver.launch(functions[names["parts"]], (-(-columns // 256), 1, 1), (256, 1, 1), arguments.address, 0)

    @staticmethod
    def _parts(blocks: int, count: int, least: int) -> int:
        """How many blocks share one reduction: enough to fill the GPU, none with fewer than `least` elements; a fixed function of sizes."""
        return max(1, min(TARGET_BLOCKS // max(blocks, 1), count // least, 1024))
