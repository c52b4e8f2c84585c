"""Compiled kernels: their parameters, the checks before a launch, and the launch."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.emulator import bounds
from gradlab.backends.cuda.emulator.guarded_memory import allocation, damage_around, nearest
from gradlab.backends.native.seals import opened
from gradlab.backends.native.toolchain import source_line

ORDERS = ("forward", "reverse", "random", "warps")

_WIDTHS = {"int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
MOST_THREADS = 1024
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED = 48 << 10
MOST_BLOCKS = 8  # of a cluster, on every GPU that has clusters
MOST_SHARED = 227 << 10  # of compute capability 9.0; a launch over 48 KiB has to be asked for, as on the hardware


class KernelFault(RuntimeError):
    """What a kernel did that the hardware would punish, or not even notice.

    `kernel` is its name. `thread` and `block` are indices (x, y, z), `file` and `line` a place in the kernel's source; None where the
    fault has none.
    """

    def __init__(
        self,
        kernel: str,
        reason: str,
        *,
        thread: tuple[int, int, int] | None = None,
        block: tuple[int, int, int] | None = None,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        self.kernel, self.reason, self.thread, self.block, self.file, self.line = kernel, reason, thread, block, file, line
        places = [
            f"at {file}:{line}" if file else "",
            f"in thread {thread}" if thread else "",
            (f"of block {block}" if thread else f"in block {block}") if block else "",
        ]
        super().__init__(" ".join(filter(None, [f"{kernel}: {reason}", *places])))


class Parameter(NamedTuple):
    """One parameter of a kernel. `dtype` is a dtype's name, "struct" or "void"; for a pointer it is what the pointer points at."""

    dtype: str
    size: int
    pointer: bool = False
    constant: bool = False

    def __str__(self) -> str:
        name = f"struct of {self.size} bytes" if self.dtype == "struct" and not self.pointer else self.dtype
        return f"{'const ' if self.constant else ''}{name}{'*' if self.pointer else ''}"

    def refusal(self, value: Any) -> str | None:
        """Why a value cannot be this parameter, (an address as int, a struct as bytes, a NumPy scalar); None if it can."""
        if type(value) is int:
            fits = self.pointer or (self.size == 8 and self.dtype in {"int64", "uint64"})
            return None if fits else f"a Python int is passed as 8 bytes, which {self} is not"
        if isinstance(value, bytes):
            return None if len(value) == self.size else f"{len(value)} bytes for {self}"
        dtype = getattr(value, "dtype", None)
        if dtype is None or getattr(value, "shape", None) != ():
            return f"{type(value).__name__} for {self}: pass a NumPy scalar, bytes, or an address as int"
        if self.pointer or (self.dtype != "struct" and str(dtype) != self.dtype) or dtype.itemsize != self.size:
            return f"a {dtype} value for {self} (the GPU would read its raw bytes)"
        return None


class _Fault(ctypes.Structure):
    """The runtime's record of an error (native/scheduler.h)."""

    _fields_ = [
        ("message", ctypes.c_char * 768),
        ("file", ctypes.c_char * 256),
        ("line", ctypes.c_int),
        ("in_thread", ctypes.c_int),
        ("thread", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("offset", ctypes.c_longlong),
        ("address", ctypes.c_ulonglong),
        ("raced", ctypes.c_ulonglong),
    ]


class Runtime:
    """The loaded runtime library."""

    def __init__(self, path: Path) -> None:
        self._library = opened(path)
        self.launch = self._library.gradlab_emulator_launch
        self.launch.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint * 3, ctypes.c_uint * 3, ctypes.c_uint * 3, ctypes.c_size_t,
            ctypes.c_int, ctypes.c_uint, ctypes.c_int, ctypes.POINTER(_Fault),
        ]  # fmt: skip
        if bounds.mapped():
            ctypes.c_ulonglong.in_dll(self._library, "gradlab_emulator_shadow").value = bounds.SHADOW
        self.misplaced = self._library.gradlab_emulator_misplaced
        self.misplaced.restype = ctypes.c_char_p


@functools.cache
def load_runtime(path: Path) -> Runtime:
    """One runtime for a process and set of sanitizers."""
    return Runtime(path)


class EmulatedFunction:
    """A kernel compiled for the emulated GPU. `signature` describes its parameters."""

    def __init__(self, name: str, index: int, library: ctypes.CDLL, runtime: Runtime) -> None:
        self.name = name
        self.signature = _signature(library, index)
        self.cluster = _clusters(library).get(name.partition("<")[0].rpartition("::")[2], (1, 1, 1))
        self._pointers = [position for position, parameter in enumerate(self.signature) if parameter.pointer and not parameter.constant]
        # As CuPy's RawKernel: dynamic shared memory over 48 KiB has to be allowed first.
        self.max_dynamic_shared_size_bytes = STATIC_SHARED
        self._library = library  # keeps the code mapped
        self._entry = ctypes.cast(library[f"gradlab_call_{index}"], ctypes.c_void_p)
        self._runtime = runtime
        # The processor flushes subnormals of float and double together, the GPU those of float alone.
        self._flush = "double" not in name and all(parameter.dtype != "float64" for parameter in self.signature)

    def __repr__(self) -> str:
        return f"EmulatedFunction({self.name}({', '.join(map(str, self.signature))}))"

    def check(self, values: Sequence[Any]) -> None:
        """Raise KernelFault unless these values (addresses as ints, structs as bytes, NumPy scalars) are what the kernel takes."""
        if len(values) != len(self.signature):
            raise KernelFault(self.name, f"it takes {len(self.signature)} parameters, not {len(values)}")
        for position, (parameter, value) in enumerate(zip(self.signature, values)):
            refusal = parameter.refusal(value)
            if refusal:
                raise KernelFault(self.name, f"parameter {position}: {refusal}")

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: int,
        shared: int,
        *,
        order: str = "forward",
        seed: int = 0,
    ) -> None:
        """Run the kernel to its end. `parameters` is the address of a table of addresses, one for each parameter, as for cuLaunchKernel.

        `order` is the order in which threads run: "forward", "reverse", "random" (a switch at every barrier, shuffle and some atomics),
        or "warps" (one warp as far ahead of the others as barriers let it). A correct kernel gives one result in all of them. `seed`
        chooses among random orders.
        """
        self.check_launch(grid, block, shared)
        if order not in ORDERS:
            raise ValueError(f"order is {order!r}; it may be {', '.join(ORDERS)}")
        fault = _Fault()
        threes = ctypes.c_uint * 3
        failed = self._runtime.launch(
            self._entry, parameters, threes(*grid), threes(*block), threes(*self.cluster), shared, ORDERS.index(order), seed & 0xFFFFFFFF,
            self._flush, fault,
        )  # fmt: skip
        if failed:
            raise self._explained(fault, parameters)
        for position in self._pointers:
            damage = damage_around(_address_at(parameters, position))
            if damage:
                raise KernelFault(self.name, f"parameter {position}: {damage}")

    def run(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        shared: int = 0,
        order: str = "forward",
        seed: int = 0,
    ) -> None:
        """Launch with NumPy arrays, whose memory the kernel reads and writes, and NumPy scalars (or bytes, for a struct)."""
        self.check([self._address(position, a) if isinstance(a, np.ndarray) else a for position, a in enumerate(arguments)])
        values = [_raw(a.ctypes.data if isinstance(a, np.ndarray) else a) for a in arguments]
        table = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
        self.launch(_three(grid), _three(block), ctypes.addressof(table), shared, order=order, seed=seed)

    def _address(self, position: int, array: np.ndarray[Any, Any]) -> int:
        parameter = self.signature[position] if position < len(self.signature) else None
        if parameter and parameter.pointer and parameter.dtype not in {"void", "struct", str(array.dtype)}:
            raise KernelFault(self.name, f"parameter {position}: an array of {array.dtype} for {parameter}")
        if parameter and parameter.pointer and not parameter.constant and not array.flags.writeable:
            raise KernelFault(self.name, f"parameter {position}: a read-only array for {parameter}")
        return int(array.ctypes.data)

    def check_launch(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int) -> None:
        """Raise KernelFault for a launch that the hardware would refuse."""
        for what, extent, most in (("grid", grid, MOST_GRID), ("block", block, MOST_BLOCK)):
            if len(extent) != 3 or any(not 0 < n <= limit for n, limit in zip(extent, most)):
                raise KernelFault(self.name, f"{what} {tuple(extent)} is not within (1, 1, 1) and {most}")
        if block[0] * block[1] * block[2] > MOST_THREADS:
            raise KernelFault(self.name, f"block {tuple(block)} has more than {MOST_THREADS} threads")
        together = self.cluster[0] * self.cluster[1] * self.cluster[2]
        if together > 1:
            if any(n % size for n, size in zip(grid, self.cluster)):
                raise KernelFault(self.name, f"grid {tuple(grid)} is no multiple of the cluster {self.cluster}")
            if together > MOST_BLOCKS:
                raise KernelFault(self.name, f"cluster {self.cluster} has more than {MOST_BLOCKS} blocks, which not every GPU takes")
            if block[0] * block[1] * block[2] % 32:
                raise KernelFault(self.name, f"block {tuple(block)} is not of whole warps; in a cluster that is not emulated")
        if not 0 <= shared <= MOST_SHARED:
            raise KernelFault(self.name, f"{shared} bytes of dynamic shared memory; the hardware has {MOST_SHARED}")
        if shared > self.max_dynamic_shared_size_bytes:
            raise KernelFault(
                self.name,
                f"{shared} bytes of dynamic shared memory, but {self.max_dynamic_shared_size_bytes} are allowed; "
                "set max_dynamic_shared_size_bytes first",
            )

    def _beside(self, address: int, access: str, parameters: int) -> str:
        """In words, an access ("a read") to forbidden memory: which parameter's array it is beside."""
        found = nearest(address)
        if found is None:
            return f"{access} beside an array that is gone"
        start, size = found
        side, distance = ("before", start - address) if address < start else ("after", address - start - size)
        words = f"{access} {side} an array of {size} bytes" + (f", {distance} bytes away" if distance > 256 else "")
        for position, parameter in enumerate(self.signature):
            if parameter.pointer and start <= _address_at(parameters, position) <= start + size:
                return f"parameter {position}: {words}"
        return words

    def _shared(self, address: int, reason: str, parameters: int) -> str:
        """In words, a race: in which parameter's array, and in which of its elements."""
        for position, parameter in enumerate(self.signature):
            start = _address_at(parameters, position) if parameter.pointer else 0
            found = allocation(start) if start else None
            if found and found[0] <= address < sum(found):
                width = _WIDTHS.get(parameter.dtype.lstrip("u"), 1)
                return f"parameter {position}, element {(address - start) // width}: {reason}"
        return reason

    def _explained(self, fault: _Fault, parameters: int) -> KernelFault:
        file, line = fault.file.decode(errors="replace"), int(fault.line)
        reason = fault.message.decode(errors="replace")
        if fault.address:
            reason = self._beside(fault.address, reason, parameters)
        if fault.raced:
            reason = self._shared(fault.raced, reason, parameters)
        if fault.offset:
            file, line = source_line(Path(self._library._name), fault.offset)
        return KernelFault(
            self.name,
            reason,
            thread=_indices(fault.thread) if fault.in_thread == 2 else None,
            block=_indices(fault.block) if fault.in_thread else None,
            file=file or None,
            line=line if file else None,
        )


def _indices(values: Sequence[int]) -> tuple[int, int, int]:
    return int(values[0]), int(values[1]), int(values[2])


def _three(extent: tuple[int, ...]) -> tuple[int, int, int]:
    return _indices((*extent, 1, 1))


def _address_at(table: int, position: int) -> int:
    """The value of a pointer parameter."""
    entry = ctypes.c_void_p.from_address(table + position * ctypes.sizeof(ctypes.c_void_p)).value
    return (ctypes.c_void_p.from_address(entry).value or 0) if entry else 0


def _raw(value: Any) -> ctypes.Array[ctypes.c_char]:
    """The bytes of one argument, as the kernel reads them, at an address aligned for any type."""
    content = value.to_bytes(8, "little") if type(value) is int else value if isinstance(value, bytes) else np.asarray(value).tobytes()
    room = ctypes.create_string_buffer(len(content) + 16)
    aligned = (ctypes.c_char * len(content)).from_buffer(room, -ctypes.addressof(room) % 16)
    aligned.raw = content
    return aligned


def _clusters(library: ctypes.CDLL) -> dict[str, tuple[int, int, int]]:
    """By the names of kernels that run in clusters: of how many blocks."""
    text = ctypes.c_char_p(ctypes.addressof(ctypes.c_char.in_dll(library, "gradlab_clusters"))).value or b""
    found = (line.split() for line in text.decode().splitlines())
    return {name: _indices([int(size) for size in sizes]) for name, *sizes in found}


def _signature(library: ctypes.CDLL, index: int) -> tuple[Parameter, ...]:
    describe = library[f"gradlab_describe_{index}"]
    describe.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    describe.restype = None
    text = ctypes.create_string_buffer(1 << 17)  # parameters have at most 4 KiB together
    describe(text, len(text))
    return tuple(_parameter(line) for line in text.value.decode().splitlines())


def _parameter(line: str) -> Parameter:
    """A line such as "const float32* 8"."""
    *qualifier, dtype, size = line.split()
    return Parameter(dtype.rstrip("*"), int(size), dtype.endswith("*"), bool(qualifier))
