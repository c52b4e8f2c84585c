"""The emulated GPU's cuBLASLt: the library's functions, called by the same prototypes, computing in NumPy on raw addresses.

Descriptors take the attributes that the real ones take (tests compare the two where the real library is installed). The heuristic answers
as the library does: an algorithm fits its problem, the alignments it was asked for, and a work space; running it with anything else is an
error, as is memory outside of an allocation. Misuse gives the status that the library gives, and `reason` says why in words.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.backends.cuda.gemm.arithmetic import (
    BIAS_GRADIENT,
    BIASED,
    BITS,
    DTYPES,
    GRADIENTS,
    INPUTS,
    Layout,
    Task,
    bias_count,
    compute,
)
from gradlab.backends.cuda.gemm.binding import (
    DATA_TYPES,
    DESC_TYPES,
    MATRIX_TYPES,
    PREFERENCE_TYPES,
    PROTOTYPES,
    ComputeType,
    DataType,
    Desc,
    Epilogue,
    HeuristicResult,
    Matrix,
    Operation,
    Order,
    Preference,
    Status,
)
from gradlab.dtype import FLOAT32, FLOAT64, HALF

KINDS: dict[str, tuple[dict[Any, Any], dict[Any, int]]] = {
    "MatmulDesc": (DESC_TYPES, {Desc.EPILOGUE: Epilogue.DEFAULT}),
    "MatrixLayout": (MATRIX_TYPES, {Matrix.BATCH_COUNT: 1}),
    "MatmulPreference": (
        PREFERENCE_TYPES,
        {Preference.REDUCTION_SCHEME_MASK: 7, **{p: 256 for p in Preference if p.name.startswith("MIN_ALIGNMENT")}},
    ),
}
SPLIT = 4096  # a sum over so many products is shared out, which takes work space


class Misuse(Exception):
    """A status and why."""

    def __init__(self, status: Status, reason: str | None) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def require(condition: bool, reason: str, status: Status = Status.INVALID_VALUE) -> None:
    if not condition:
        raise Misuse(status, reason)


class Descriptor:
    """Attributes by their numbers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.types, defaults = KINDS[kind]
        self.values: dict[Any, int] = dict.fromkeys(self.types, 0) | defaults

    def __getitem__(self, name: Any) -> int:
        return self.values[name]

    def type_of(self, attribute: int) -> Any:
        """The ctypes type of an attribute's value."""
        require(attribute in self.types, f"{self.kind}: no attribute {attribute}")
        return self.types[attribute]


Submit = Callable[[str, Sequence[int], Sequence[int], Callable[[], None], int], None]


class StandIn:
    """Has the functions of `binding.PROTOTYPES`.

    allocation   start and size of the allocation that holds an address, None where that is not known.
    submit       takes a piece of work: its name, the addresses that it reads and those that it writes, the work, its stream's handle. By
                 default it runs at once.
    """

    def __init__(self, allocation: Callable[[int], tuple[int, int] | None] | None = None, submit: Submit | None = None) -> None:
        self.reason: str | None = None
        self.raised: Exception | None = None  # what a call could not raise through C
        self.launches = 0
        # For tests: what the library has no algorithm for, or how else it refuses; a status of its own comes without a reason.
        self.refused: Callable[[Task], bool | Status] = lambda task: False
        self._allocation, self._submit = allocation, submit
        self._objects: dict[int, Descriptor] = {}
        self._contexts: set[int] = set()
        self._next = 0x1000
        for name, (result, arguments) in PROTOTYPES.items():
            setattr(self, name, ctypes.CFUNCTYPE(result, *arguments)(self._guarded(self._function(name))))

    def _function(self, name: str) -> Callable[..., Any]:
        """The Python side of an entry point."""
        for kind in KINDS:
            for action in ("Create", "Destroy", "SetAttribute", "GetAttribute"):
                if name == f"cublasLt{kind}{action}":
                    method = getattr(self, f"_{action.lower()}")
                    return lambda *arguments: method(kind, *arguments)
        own: dict[str, Callable[..., Any]] = {
            "cublasLtGetVersion": lambda: 130002,
            "cublasLtCreate": self._open,
            "cublasLtDestroy": self._close,
            "cublasLtMatmulAlgoGetHeuristic": self._heuristic,
            "cublasLtMatmul": self._matmul,
        }
        return own[name]

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., int]:
        """An exception may not leave a C callback: it becomes a status."""

        def call(*arguments: Any) -> int:
            self.reason = self.raised = None
            try:
                return function(*arguments) or 0
            except Misuse as misuse:
                self.reason = misuse.reason
                return misuse.status
            except Exception as error:
                self.reason, self.raised = f"{type(error).__name__}: {error}", error
                return Status.INTERNAL_ERROR

        return call

    # ------------------------------------------------------------ objects

    def _place(self) -> int:
        self._next += 16
        return self._next

    def _open(self, result: int) -> None:
        made = self._place()
        self._contexts.add(made)
        _write_pointer(result, made)

    def _close(self, handle: int) -> None:
        require(handle in self._contexts, "no such handle", Status.NOT_INITIALIZED)
        self._contexts.discard(handle)

    def _create(self, kind: str, result: int, *arguments: int) -> None:
        made = Descriptor(kind)
        names: tuple[Any, ...] = {
            "MatmulDesc": (Desc.COMPUTE_TYPE, Desc.SCALE_TYPE),
            "MatrixLayout": (Matrix.TYPE, Matrix.ROWS, Matrix.COLS, Matrix.LD),
            "MatmulPreference": (),
        }[kind]
        made.values.update(zip(names, arguments, strict=True))
        place = self._place()
        self._objects[place] = made
        _write_pointer(result, place)

    def _find(self, kind: str, handle: int | None) -> Descriptor:
        found = self._objects.get(handle or 0)
        if found is None or found.kind != kind:
            raise Misuse(Status.INVALID_VALUE, f"no {kind} at {handle:#x}" if handle else f"a null {kind}")
        return found

    def _destroy(self, kind: str, handle: int) -> None:
        self._find(kind, handle)
        del self._objects[handle]

    def _setattribute(self, kind: str, handle: int, attribute: int, value: int, size: int) -> None:
        found = self._find(kind, handle)
        expected = found.type_of(attribute)
        require(bool(value) and size == ctypes.sizeof(expected), f"{kind}: attribute {attribute} has not {size} bytes")
        found.values[attribute] = expected.from_address(value).value or 0

    def _getattribute(self, kind: str, handle: int, attribute: int, value: int, size: int, written: int) -> None:
        found = self._find(kind, handle)
        expected = found.type_of(attribute)
        if written:
            ctypes.c_size_t.from_address(written).value = ctypes.sizeof(expected)
        if size:
            require(bool(value) and size == ctypes.sizeof(expected), f"{kind}: attribute {attribute} has not {size} bytes")
            expected.from_address(value).value = found[attribute]

    # ------------------------------------------------------------ products

    def _layout(self, handle: int) -> Layout:
        found = self._find("MatrixLayout", handle)
        order, rows, columns, ld = found[Matrix.ORDER], found[Matrix.ROWS], found[Matrix.COLS], found[Matrix.LD]
        require(found[Matrix.TYPE] in DTYPES, f"data type {found[Matrix.TYPE]}", Status.NOT_SUPPORTED)
        require(order in {Order.COL, Order.ROW}, f"order {order}", Status.NOT_SUPPORTED)
        require(rows > 0 and columns > 0, f"an empty matrix: {rows} rows, {columns} columns")
        require(max(rows, columns) < 2**31, f"{rows} rows and {columns} columns: the library counts in 32 bits", Status.NOT_SUPPORTED)
        by_rows = order == Order.ROW
        least = columns if by_rows else rows
        require(ld >= least, f"leading dimension {ld} is less than {least}: {'rows' if by_rows else 'columns'} would overlap")
        require(found[Matrix.BATCH_COUNT] > 0, f"batch count {found[Matrix.BATCH_COUNT]}")
        batch, stride = found[Matrix.BATCH_COUNT], found[Matrix.STRIDED_BATCH_OFFSET]
        return Layout(DTYPES[DataType(found[Matrix.TYPE])], rows, columns, ld, batch, stride, by_rows)

    def _task(
        self, desc: int, layouts: Sequence[int], scalars: tuple[float, float] = (1.0, 0.0), places: Sequence[int] = (0, 0, 0, 0)
    ) -> Task:
        """The problem, checked. Layouts and places: of A, B, C, D."""
        found = self._find("MatmulDesc", desc)
        require(found[Desc.EPILOGUE] in set(Epilogue), f"epilogue {found[Desc.EPILOGUE]}")
        require(found[Desc.COMPUTE_TYPE] in set(ComputeType), f"compute type {found[Desc.COMPUTE_TYPE]}", Status.NOT_SUPPORTED)
        require(found[Desc.POINTER_MODE] == 0, "scalars in device memory", Status.NOT_SUPPORTED)
        require(found[Desc.TRANSC] == Operation.N, "a transposed C", Status.NOT_SUPPORTED)
        require({found[Desc.TRANSA], found[Desc.TRANSB]} <= {Operation.N, Operation.T}, "an unknown operation")
        a, b, c, d = map(self._layout, layouts)
        at_a, at_b, at_c, at_d = places
        task = Task(
            ComputeType(found[Desc.COMPUTE_TYPE]), bool(found[Desc.TRANSA]), bool(found[Desc.TRANSB]), *scalars, a, b, c, d,
            at_a, at_b, at_c, at_d, Epilogue(found[Desc.EPILOGUE]), found[Desc.BIAS_POINTER], found[Desc.BIAS_BATCH_STRIDE],
            found[Desc.EPILOGUE_AUX_POINTER], found[Desc.EPILOGUE_AUX_LD], found[Desc.EPILOGUE_AUX_BATCH_STRIDE],
        )  # fmt: skip
        _check_types(task, found[Desc.SCALE_TYPE])
        _check_shapes(task)
        _check_epilogue(task)
        refused = self.refused(task)
        if refused:
            raise Misuse(refused, None) if isinstance(refused, Status) else Misuse(Status.NOT_SUPPORTED, "a test refuses it")
        return task

    def _heuristic(
        self, handle: int, desc: int, a: int, b: int, c: int, d: int, preference: int, wanted: int, results: int, number: int
    ) -> None:
        require(handle in self._contexts, "no such handle", Status.NOT_INITIALIZED)
        require(wanted > 0 and bool(results) and bool(number), "no room for results")
        task, asked = self._task(desc, (a, b, c, d)), self._find("MatmulPreference", preference)
        found = 0
        for choice in range(min(wanted, 3)):
            space = (choice + 1) * 1024 if task.a.rows * task.a.columns // task.d.rows >= SPLIT or choice else 0
            if space > asked[Preference.MAX_WORKSPACE_BYTES]:
                continue
            result = HeuristicResult.from_address(results + found * ctypes.sizeof(HeuristicResult))
            aligned = [asked[Preference[f"MIN_ALIGNMENT_{m}_BYTES"]] for m in "ABD"]
            result.algorithm.data[:] = (_signature(task), *aligned, space, choice, 0, 0)
            result.workspace, result.state, result.waves = space, Status.SUCCESS, 1.0
            found += 1
        ctypes.c_int.from_address(number).value = found
        require(found > 0, "not enough work space for any algorithm", Status.NOT_SUPPORTED)

    def _matmul(
        self, handle: int, desc: int, alpha: int, at_a: int, a: int, at_b: int, b: int, beta: int, at_c: int, c: int, at_d: int, d: int,
        algorithm: int, space: int, size: int, stream: int,
    ) -> None:  # fmt: skip
        require(handle in self._contexts, "no such handle", Status.NOT_INITIALIZED)
        require(bool(alpha) and bool(beta) and bool(algorithm), "a null scalar or algorithm")
        scale = ctypes.c_double if self._find("MatmulDesc", desc)[Desc.SCALE_TYPE] == DataType.R_64F else ctypes.c_float
        scalars = (scale.from_address(alpha).value, scale.from_address(beta).value)
        task = self._task(desc, (a, b, c, d), scalars, [place or 0 for place in (at_a, at_b, at_c, at_d)])
        signature, *aligned, needed = HeuristicResult.from_address(algorithm).algorithm.data[:5]
        require(signature == _signature(task), "the algorithm was chosen for another problem")
        require(size >= needed, f"the algorithm needs {needed} bytes of work space, there are {size}")
        for name, at, layout, least in zip("ABD", (task.at_a, task.at_b, task.at_d), (task.a, task.b, task.d), aligned, strict=True):
            require(bool(at), f"{name} is a null pointer")
            require(at % max(least, layout.dtype.itemsize) == 0, f"{name} at {at:#x} is not aligned to {least} bytes, as was promised")
            self._inside(name, at, layout.extent() * layout.dtype.itemsize)
        if task.beta:
            self._inside("C", task.at_c, task.c.extent() * task.c.dtype.itemsize)
        if needed:
            require(bool(space) and space % 16 == 0, f"work space at {space or 0:#x}")
            self._inside("the work space", space, needed)
        if task.epilogue in BIASED | BIAS_GRADIENT:
            require(bool(task.bias) and task.bias % 16 == 0, f"bias at {task.bias:#x} is not aligned to 16 bytes")
            self._inside("bias", task.bias, ((task.d.batch - 1) * task.bias_stride + bias_count(task)) * task.d.dtype.itemsize)
        if task.epilogue in BITS | INPUTS:
            require(bool(task.aux) and task.aux % 16 == 0, f"aux at {task.aux:#x} is not aligned to 16 bytes")
            elements = (task.d.batch - 1) * task.aux_stride + (task.d.columns - 1) * task.aux_ld + task.d.rows
            self._inside("aux", task.aux, -(-elements // 8) if task.epilogue in BITS else elements * task.d.dtype.itemsize)
        self.launches += 1
        if self._submit is None:
            compute(task)
        else:
            reads = [task.at_a, task.at_b, *([task.at_c] if task.beta else [])]
            writes = [task.at_d, *([space] if needed else [])]
            if task.epilogue in BIASED | BIAS_GRADIENT:
                (reads if task.epilogue in BIASED else writes).append(task.bias)
            if task.epilogue in BITS | INPUTS:
                (reads if task.epilogue in GRADIENTS else writes).append(task.aux)
            self._submit("cublasLtMatmul", reads, writes, lambda: compute(task), stream or 0)

    def _inside(self, name: str, address: int, size: int) -> None:
        """The bytes belong to one allocation, where that is known; no allocation begins in the first pages."""
        require(address >= 1 << 16, f"{name} at {address:#x} is no memory", Status.EXECUTION_FAILED)
        found = self._allocation(address) if self._allocation is not None else None
        if found is not None:
            start, length = found
            beyond = address + size - start - length
            require(beyond <= 0, f"{name} reaches {beyond} bytes beyond an array of {length} bytes", Status.EXECUTION_FAILED)


def _write_pointer(place: int, value: int) -> None:
    ctypes.c_void_p.from_address(place).value = value


def _signature(task: Task) -> int:
    """A number of the problem without addresses and scalars."""
    kept = task._replace(alpha=0.0, beta=0.0, at_a=0, at_b=0, at_c=0, at_d=0, bias=0, aux=0)
    return zlib.crc32(repr(kept).encode())


def _check_types(task: Task, scale: int) -> None:
    a, b, c, d = task.a.dtype, task.b.dtype, task.c.dtype, task.d.dtype
    expected = DataType.R_64F if task.compute is ComputeType.F64 else DataType.R_32F
    require(scale == expected, f"scale type {scale}", Status.NOT_SUPPORTED)
    require(a == b and c == d, f"types {a}, {b}, {c}, {d}", Status.NOT_SUPPORTED)
    allowed = {
        ComputeType.F64: a == d == FLOAT64,
        ComputeType.F32: (a == d == FLOAT32) or (a in HALF and d in {a, FLOAT32}),
        ComputeType.F32_FAST_TF32: a == d == FLOAT32,
    }[task.compute]
    require(allowed, f"{task.compute.name} of {a} into {d}", Status.NOT_SUPPORTED)
    assert a in DATA_TYPES


def _check_shapes(task: Task) -> None:
    a, b, d = task.a, task.b, task.d
    m, k = (a.columns, a.rows) if task.transpose_a else (a.rows, a.columns)
    k2, n = (b.columns, b.rows) if task.transpose_b else (b.rows, b.columns)
    require(k == k2, f"op(A) has {k} columns, op(B) {k2} rows")
    require((d.rows, d.columns) == (m, n), f"D is {d.rows} by {d.columns}, the product {m} by {n}")
    require(task.c[1:3] == d[1:3], "C and D differ in shape")
    require(a.batch == b.batch == task.c.batch == d.batch, f"batch counts {a.batch}, {b.batch}, {task.c.batch}, {d.batch}")
    require(d.batch == 1 or d.stride >= d._replace(batch=1).extent(), f"batch stride {d.stride}: matrices of D would overlap")
    require(min(a.stride, b.stride) >= 0, "a negative batch stride")


def _check_epilogue(task: Task) -> None:
    epilogue, d = task.epilogue, task.d
    if epilogue is Epilogue.DEFAULT:
        return
    require(task.compute is not ComputeType.F64, "an epilogue in float64", Status.NOT_SUPPORTED)
    require(not d.by_rows, "an epilogue with D in row order", Status.NOT_SUPPORTED)
    for kinds, unit in ((BITS, 128), (INPUTS, 8)):
        if epilogue in kinds:
            ld, stride = task.aux_ld, task.aux_stride
            require(ld % unit == 0 and ld >= d.rows, f"aux leading dimension {ld}: a multiple of {unit}, at least {d.rows}")
            apart = stride % unit == 0 and stride >= ld * d.columns
            require(d.batch == 1 or apart, f"aux batch stride {stride}: a multiple of {unit}, at least {ld * d.columns}")
    if epilogue in BIAS_GRADIENT:
        require(d.batch == 1 or task.bias_stride >= bias_count(task), f"bias batch stride {task.bias_stride}: gradients would overlap")
    if epilogue in GRADIENTS:
        require(bool(task.aux), "a gradient without aux")
