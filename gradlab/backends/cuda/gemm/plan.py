"""Prepared products: descriptors, layouts and the algorithm are made once for each problem; a call packs addresses and calls.

`Blas` is one driver's library with what belongs to its devices and streams. Products may be captured into a CUDA graph once `warm` has been
called and each problem has been met; work space is then the graph's own.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import addressof, c_double, c_float, c_int, c_void_p, sizeof
from typing import Any

import numpy as np

from gradlab.backends.cuda.driver import Driver
from gradlab.backends.cuda.gemm.binding import (
    DATA_TYPES,
    DESC_TYPES,
    MATRIX_TYPES,
    PREFERENCE_TYPES,
    REDUCE_ANY,
    REDUCE_IN_COMPUTE_TYPE,
    BlasError,
    ComputeType,
    DataType,
    Desc,
    Epilogue,
    HeuristicResult,
    Matrix,
    Operation,
    Preference,
    Status,
    check,
)
from gradlab.backends.cuda.gemm.operands import Problem
from gradlab.dtype import HALF

MOST_PREPARED = 4096
WITH_BIAS = {
    Epilogue.BIAS, Epilogue.RELU_BIAS, Epilogue.GELU_BIAS, Epilogue.RELU_AUX_BIAS, Epilogue.GELU_AUX_BIAS, Epilogue.DRELU_BGRAD,
    Epilogue.DGELU_BGRAD, Epilogue.BGRADA, Epilogue.BGRADB,
}  # fmt: skip
ALIGNED = 256  # what the library asks of addresses unless told otherwise
UNSUPPORTED = (Status.NOT_SUPPORTED, Status.ARCH_MISMATCH)
FAILURES = (Status.NOT_INITIALIZED, Status.ALLOC_FAILED, Status.MAPPING_ERROR, Status.EXECUTION_FAILED)  # of the GPU, whatever was asked


class Refused(RuntimeError):
    """The library refuses at run time what it had an algorithm for. It is remembered: preparing the problem again gives None."""


def lacks(problem: Problem, error: BlasError) -> bool:
    """Whether the library just does not have what a problem asks for. Which products may have an epilogue differs between versions and
    GPUs, and so does the answer where one may not. Only the stand-in gives a reason: what it calls misuse is our mistake."""
    if error.status in UNSUPPORTED:
        return True
    return problem.epilogue is not Epilogue.DEFAULT and error.reason is None


def alignment_of(addresses: int) -> int:
    """How well all of some addresses, joined by |, are aligned: 256, 16, 8, 4, 2 or 1 bytes."""
    lowest = addresses & -addresses
    return ALIGNED if addresses & (ALIGNED - 1) == 0 else min(lowest, 16)


class Handle:
    """Something made by the library, dropped with this object."""

    __slots__ = ("_drop", "_library", "_set", "_types", "value")

    def __init__(self, library: Any, kind: str, types: Any, *arguments: int) -> None:
        made = c_void_p()
        check(library, f"cublasLt{kind}Create", getattr(library, f"cublasLt{kind}Create")(addressof(made), *arguments))
        assert made.value
        self.value: int = made.value
        self._library, self._types = library, types
        self._drop = getattr(library, f"cublasLt{kind}Destroy")
        self._set = f"cublasLt{kind}SetAttribute"

    def set(self, attribute: Any, value: int) -> None:
        """Set an attribute."""
        packed = self._types[attribute](value)
        check(self._library, self._set, getattr(self._library, self._set)(self.value, attribute, addressof(packed), sizeof(packed)))

    def __del__(self) -> None:
        value = getattr(self, "value", None)
        if value and not sys.is_finalizing():  # at the end of the process the device may be gone before
            self._drop(value)


class Prepared:
    """A problem ready to run on one device, for addresses of at least one alignment."""

    __slots__ = ("_aux", "_bias", "_blas", "_choice", "_constants", "_fixed", "_handles", "_lock", "_matmul", "_plain", "problem", "timed")

    def __init__(self, blas: Blas, problem: Problem, device: int, alignment: int) -> None:
        library = blas.library
        self.problem, self._blas, self._matmul = problem, blas, library.cublasLtMatmul
        scale = DataType.R_64F if problem.compute is ComputeType.F64 else DataType.R_32F
        desc = Handle(library, "MatmulDesc", DESC_TYPES, problem.compute, scale)
        if problem.transpose_a:
            desc.set(Desc.TRANSA, Operation.T)
        if problem.transpose_b:
            desc.set(Desc.TRANSB, Operation.T)
        self._plain = problem.epilogue is Epilogue.DEFAULT
        if not self._plain:
            desc.set(Desc.EPILOGUE, problem.epilogue)
            # The heuristic takes the alignment from these addresses; it does not look behind them.
            if problem.epilogue in WITH_BIAS:
                desc.set(Desc.BIAS_POINTER, alignment)
                if problem.stride_bias:
                    desc.set(Desc.BIAS_BATCH_STRIDE, problem.stride_bias)
            if problem.ld_aux:
                desc.set(Desc.EPILOGUE_AUX_POINTER, alignment)
                desc.set(Desc.EPILOGUE_AUX_LD, problem.ld_aux)
                if problem.stride_aux:
                    desc.set(Desc.EPILOGUE_AUX_BATCH_STRIDE, problem.stride_aux)
        self._bias = self._aux = alignment
        self.timed = False
        rows, columns, depth = problem.rows, problem.columns, problem.depth
        a = self._layout(problem.dtype, (rows, depth), problem.transpose_a, problem.ld_a, problem.stride_a)
        b = self._layout(problem.dtype, (depth, columns), problem.transpose_b, problem.ld_b, problem.stride_b)
        d = self._layout(problem.out, (rows, columns), False, problem.ld_d, problem.stride_d)
        self._handles = (desc, a, b, d)
        constant = c_double if problem.compute is ComputeType.F64 else c_float
        self._constants = (constant(1), constant(problem.beta))
        self._lock = threading.Lock()
        handle = blas.handle(device)
        self._fixed = (handle, desc.value, addressof(self._constants[0]), a.value, b.value, addressof(self._constants[1]), d.value)
        self._use(blas.candidates(self._handles, handle, problem, alignment, 1)[0])

    def _layout(self, dtype: np.dtype[Any], sizes: tuple[int, int], transposed: bool, ld: int, stride: int) -> Handle:
        """The stored matrix, by the sizes that it has in the product."""
        rows, columns = reversed(sizes) if transposed else sizes
        made = Handle(self._blas.library, "MatrixLayout", MATRIX_TYPES, DATA_TYPES[dtype], rows, columns, ld)
        if self.problem.batch > 1:
            made.set(Matrix.BATCH_COUNT, self.problem.batch)
            made.set(Matrix.STRIDED_BATCH_OFFSET, stride)
        return made

    def _use(self, found: HeuristicResult) -> None:
        self._choice = (addressof(found), found.workspace, found)  # the result begins with the algorithm

    def run(self, a: int, b: int, d: int, bias: int = 0, aux: int = 0) -> None:
        """Compute, on the current stream, with matrices at these addresses (cuBLAS's order: a is the first factor). Refused, and nothing
        computed, where the library does not do it after all."""
        if self._plain:
            self._call(a, b, d)
            return
        with self._lock:  # the addresses of bias and aux are part of the descriptor
            desc = self._handles[0]
            if bias and bias != self._bias:
                desc.set(Desc.BIAS_POINTER, bias)
                self._bias = bias
            if aux and aux != self._aux:
                desc.set(Desc.EPILOGUE_AUX_POINTER, aux)
                self._aux = aux
            self._call(a, b, d)

    def add_to(self, a: int, b: int, c: int, d: int) -> None:
        """The product added to the matrix at c, which lies as the result at d does."""
        self._call(a, b, d, c)

    def _call(self, a: int, b: int, d: int, c: int = 0) -> None:
        handle, desc, alpha, layout_a, layout_b, beta, layout_d = self._fixed
        stream = self._blas.stream()
        algorithm, size, _ = self._choice
        space = self._blas.workspace(stream) if size else 0
        status = self._matmul(
            handle, desc, alpha, a, layout_a, b, layout_b, beta, c or d, layout_d, d, layout_d, algorithm, space, size, stream
        )
        if status:
            try:
                check(self._blas.library, "cublasLtMatmul", status)
            except BlasError as error:
                if error.status in FAILURES or not lacks(self.problem, error):
                    raise
                self._blas.forget(self)
                raise Refused(str(error)) from error

    def choose_by_time(self, a: int, b: int, d: int, bias: int, number: int, alignment: int) -> None:
        """Run the library's best candidates and keep the fastest. The result is the same up to rounding."""
        self.timed = True
        driver = self._blas.driver
        found = self._blas.candidates(self._handles, self._fixed[0], self.problem, alignment, number)
        times = []
        for candidate in found:
            self._use(candidate)
            try:
                self.run(a, b, d, bias)  # the first run loads the kernel
            except Refused:
                times.append(math.inf)
                continue
            start, end = driver.new_event(True), driver.new_event(True)
            stream = driver.current_stream()
            driver.record_event(start, stream)
            for _ in range(5):
                self.run(a, b, d, bias)
            driver.record_event(end, stream)
            driver.synchronize_event(end)
            times.append(driver.elapsed(start, end))
        self._use(found[min(range(len(found)), key=times.__getitem__)])


class Blas:
    """One driver's cuBLASLt.

    library     the real one, or the stand-in: something with its functions.
    workspace   bytes that each stream offers to algorithms.
    """

    def __init__(self, driver: Driver, library: Any, workspace_size: int, stream: Callable[[], int]) -> None:
        self.driver, self.library, self.workspace_size, self.stream = driver, library, workspace_size, stream
        self._handles: dict[int, Handle] = {}
        self._workspaces: dict[tuple[int, int], Any] = {}
        self._captured: weakref.WeakKeyDictionary[Any, dict[tuple[int, int], Any]] = weakref.WeakKeyDictionary()  # while it goes on
        self._prepared: dict[tuple[Problem, int, int], Prepared | None] = {}
        self._lock = threading.RLock()
        self.refusals = 0  # at run time

    def handle(self, device: int) -> int:
        """The library's context of a device, which must be the current one."""
        with self._lock:
            found = self._handles.get(device)
            if found is None:
                found = self._handles[device] = Handle(self.library, "", {})
            return found.value

    def workspace(self, stream: int) -> int:
        """Address of the current stream's work space, which its first use allocates: it goes with the stream, whose handle another stream
        may get. In a capture it is memory of the graph, another for each stream that joins: a graph outlives them and shares with none."""
        driver = self.driver
        capture = driver.capture()
        spaces = self._workspaces if capture is None else self._captured.setdefault(capture, {})
        key = (driver.current_device(), stream)
        memory = spaces.get(key)
        if memory is None:
            with self._lock:
                memory = spaces.get(key)
                if memory is None:
                    memory = spaces[key] = driver.empty((self.workspace_size,), np.dtype(np.uint8))
                    if capture is None and stream:
                        weakref.finalize(driver.current_stream(), spaces.pop, key, None).atexit = False
        return driver.pointer(memory)

    def warm(self) -> None:
        """Make what products on the current device need: before a capture, and so that the first product is not slow."""
        self.handle(self.driver.current_device())

    def prepare(self, problem: Problem, alignment: int) -> Prepared | None:
        """The problem made ready for the current device. None where the library has no algorithm for it."""
        device = self.driver.current_device()
        key = (problem, device, alignment)
        try:
            return self._prepared[key]
        except KeyError:
            pass
        with self._lock:
            if key not in self._prepared:
                if len(self._prepared) >= MOST_PREPARED:
                    self._prepared.clear()
                self._prepared[key] = self._make(problem, device, alignment)
            return self._prepared[key]

    def forget(self, refused: Prepared) -> None:
        """Remember that the library refuses what it was prepared for."""
        with self._lock:
            self._prepared |= dict.fromkeys([key for key, found in self._prepared.items() if found is refused])
            self.refusals += 1

    def _make(self, problem: Problem, device: int, alignment: int) -> Prepared | None:
        try:
            return Prepared(self, problem, device, alignment)
        except BlasError as error:
            if not lacks(problem, error):
                raise
        if problem.compute is ComputeType.F32_FAST_TF32:  # a GPU without TF32
            return self._make(problem._replace(compute=ComputeType.F32), device, alignment)
        return None

    def candidates(self, handles: Sequence[Handle], handle: int, problem: Problem, alignment: int, number: int) -> list[HeuristicResult]:
        """The library's choices, best first. BlasError where there are none."""
        desc, a, b, d = handles
        preference = Handle(self.library, "MatmulPreference", PREFERENCE_TYPES)
        preference.set(Preference.MAX_WORKSPACE_BYTES, self.workspace_size)
        # Parts of a sum over k stay in float32 until they are added, also where the result is a half type.
        preference.set(Preference.REDUCTION_SCHEME_MASK, REDUCE_IN_COMPUTE_TYPE if problem.out in HALF else REDUCE_ANY)
        if alignment != ALIGNED:
            for matrix in "ABCD":
                preference.set(Preference[f"MIN_ALIGNMENT_{matrix}_BYTES"], alignment)
        results, found = (HeuristicResult * number)(), c_int()
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            handle, desc.value, a.value, b.value, d.value, d.value, preference.value, number, addressof(results), addressof(found)
        )
        check(self.library, "cublasLtMatmulAlgoGetHeuristic", status)
        usable = [_copy(r) for r in results[: found.value] if r.state == Status.SUCCESS]
        if not usable:
            raise BlasError("cublasLtMatmulAlgoGetHeuristic", Status.NOT_SUPPORTED, None)
        return usable


def _copy(result: HeuristicResult) -> HeuristicResult:
    """One result in memory of its own."""
    return HeuristicResult.from_buffer_copy(ctypes.string_at(addressof(result), sizeof(result)))
