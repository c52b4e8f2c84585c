"""What launch rules work with: kernels, launches, scratch memory, strided copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.arguments import KINDS, packer_of
from gradlab.backends.cuda.compiler import Compiler
from gradlab.backends.cuda.driver import Driver, Function
from gradlab.backends.cuda.kernel_faults import Faults
from gradlab.backends.cuda.layout import element_strides, merged, pack_layout_of
from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import immediate, wide
from gradlab.spec import Spec, count as elements

THREADS = 256
MOST_ROWS = 32768  # of a grid's second dimension; the hardware has 65,535
TURNED = 16  # rows and columns from which a copy goes through tiles
WORD_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


class Work:
    """Handed to every launch rule."""

    def __init__(self, driver: Driver, compiler: Compiler) -> None:
        self.driver, self.compiler = driver, compiler
        self.faults = Faults(driver)
        self._kernels: dict[Any, Function] = {}
        self.pointer = driver.pointer
        self.empty = driver.empty

    # ------------------------------------------------------------ kernels

    def kernel(self, file: str, name: str, *types: Any) -> Function:
        """The instance of a function template for these template arguments: dtypes become their storage types."""
        key = (file, name, types, self.driver.current_device())
        found = self._kernels.get(key)
        if found is not None:
            return found
        written = ", ".join(
            STORAGE[t.name] if isinstance(t, np.dtype) else str(t).lower() if isinstance(t, bool) else str(t) for t in types
        )
        found = self._kernels[key] = self.compiler.from_file(file, f"gradlab::{name}<{written}>" if types else f"gradlab::{name}")
        return found

    def launch(self, function: Function, blocks: int, threads: int, *values: Any, rows: int = 1, shared: int = 0) -> None:
        """Launch `blocks` x `rows` blocks; a kernel asks `second_place` where there may be more rows than a grid has (`most_rows`).

        Values: arrays (their address), None (a null pointer), ints (int64), bytes, NumPy scalars.
        """
        high = self.most_rows(rows)
        self.launch_grid(function, (blocks, high, -(-rows // high)), threads, *values, shared=shared)

    def launch_grid(self, function: Function, grid: tuple[int, int, int], threads: int, *values: Any, shared: int = 0) -> None:
        """The same for a grid of three dimensions."""
        pointer, array_type = self.pointer, self.driver.array_type
        kinds: list[str | int] = []
        found: list[Any] = []
        for v in values:
            kind = type(v)
            if kind is array_type:
                kinds.append("P")
                found.append(pointer(v))
            elif v is None:
                kinds.append("P")
                found.append(0)
            elif kind is bytes:
                kinds.append(len(v))
                found.append(v)
            else:
                kinds.append(KINDS[kind])
                found.append(v)
        packer = packer_of(tuple(kinds))
        packet = packer.fill(*found)
        self.driver.launch(function, grid, (threads, 1, 1), packet.address, shared)
        packer.done(packet)

    @staticmethod
    def most_rows(rows: int) -> int:
        """So many rows, or as many as a grid has: for kernels that walk over the others, and see no third dimension."""
        return min(rows, MOST_ROWS)

    def each(self, function: Function, count: int, *values: Any) -> None:
        """Launch one thread for each of `count` elements (none for nothing); the kernel's last argument is the count."""
        if count:
            self.launch(function, -(-count // THREADS), THREADS, *values, count)

    # ------------------------------------------------------------ memory

    def contiguous(self, array: Any) -> Any:
        """The array, or a copy in row-major order."""
        if array.flags.c_contiguous:
            return array
        made = self.driver.empty(array.shape, array.dtype)
        self.copy(made, array)
        return made

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Zeros in memory of their own."""
        made = self.driver.empty(shape, dtype)
        if made.size:
            self.driver.fill_zero(made)
        return made

    def copy(self, target: Any, source: Any) -> None:
        """Copy elements of one dtype between arrays of one shape, strided or not, which may be parts of the same memory (not
        overlapping)."""
        shape = target.shape
        size = elements(shape)
        if size == 0:
            return
        if target.flags.c_contiguous and source.flags.c_contiguous:
            self.driver.copy(target, source)
            return
        strides, width = [element_strides(target), element_strides(source)], target.dtype.itemsize
        if width == 16:  # complex128: two words each
            shape, size, width = (*shape, 2), 2 * size, 8
            strides = [(*(2 * s for s in apart), 1) for apart in strides]
        turned = self.turned_copy(shape, strides, target.dtype)
        if turned is not None:
            turned(target, source)
            return
        layout, widest = pack_layout_of(shape, strides)
        index = "long long" if widest > 2**31 - 1 or size > 2**31 - 1 else "unsigned int"
        function = self.kernel("movement.cu", "copy", WORD_TYPES[width], index)
        self.each(function, size, target, source, layout)

    def turned_copy(
        self, shape: tuple[int, ...], strides: Sequence[tuple[int, ...]], dtype: np.dtype[Any]
    ) -> Callable[[Any, Any], None] | None:
        """What copies a source into a target, of that shape and with these strides (target, source), through tiles in shared memory: what
        lies along one dimension in the target and along the next one in the source. None for other arrays."""
        sizes, (to, at) = merged(shape, strides)  # the innermost dimension first
        word = WORD_TYPES.get(dtype.itemsize)
        if word is None or not 2 <= len(sizes) <= 3 or min(sizes[:2]) < TURNED or to[0] != 1 or at[1] != 1:
            return None
        columns, rows, batch, to_batch, at_batch = *sizes[:2], *((sizes[2], to[2], at[2]) if len(sizes) == 3 else (1, 0, 0))
        numbers = tuple(map(int, (batch, rows, columns, to_batch, to[1], at_batch, at[0])))
        blocks = -(-rows // 32) * -(-columns // 32)

        def run(target: Any, source: Any) -> None:
            function = self.kernel("movement.cu", "copy_turned", word)
            self.launch(function, blocks, THREADS, target, source, *numbers, rows=self.most_rows(batch))

        return run

    def converted(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """The array in another dtype, contiguous."""
        array = self.contiguous(array)
        if array.dtype == dtype:
            return array
        made = self.driver.empty(array.shape, dtype)
        self.each(self.kernel("movement.cu", "convert", array.dtype, dtype), made.size, array, made)
        return made

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """A view of the array in a larger shape."""
        return np.broadcast_to(array, shape)

    def number(self, value: float, spec: Spec) -> Any:
        """A Python number as a 0-d array on the device. Written by a kernel: a capture may hold no copy from the host."""
        made = self.driver.empty((), spec.dtype)
        size = spec.dtype.itemsize
        (word,) = np.asarray(immediate(value, spec.dtype)).reshape(1).view(f"u{size}")
        self.each(self.kernel("movement.cu", "fill", WORD_TYPES[size]), 1, made, word)
        return made

    wide = staticmethod(wide)  # the dtype that values of a dtype are accumulated in
