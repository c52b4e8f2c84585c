"""A driver's plans: made once for each device, sizes, batch and type; a call packs addresses and calls.

Plans own tables on the device, which a captured graph reads as well: what a capture has used is kept for good, other plans are dropped
when there are many. Work space is not the library's but comes from the driver's memory at each call, as other scratch memory does, so in a
capture it is the graph's.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import warnings
from collections.abc import Callable
from ctypes import addressof, c_int, c_int64, c_size_t
from typing import Any

import numpy as np

from gradlab.backends.cuda.cufft.binding import FORWARD, INVERSE, Status, TransformError, Type, check, load
from gradlab.backends.cuda.driver import Driver
from gradlab.backends.cuda.nvidia_libraries import LibraryMissing
from gradlab.dtype import COMPLEX, real_of

MOST_PLANS = 1024
BYTES = np.dtype(np.uint8)
Key = tuple[int, tuple[int, ...], int, Type]


def type_of(source: np.dtype[Any], target: np.dtype[Any]) -> Type:
    """What turns numbers of one dtype into those of the other."""
    double = real_of(target).itemsize == 8
    if source in COMPLEX and target in COMPLEX:
        return Type.Z2Z if double else Type.C2C
    if source in COMPLEX:
        return Type.Z2D if double else Type.C2R
    return Type.D2Z if double else Type.R2C


class Plan:
    """`batch` contiguous transforms of sizes `n`, one after the other."""

    def __init__(self, transforms: Transforms, n: tuple[int, ...], batch: int, kind: Type) -> None:
        self._transforms, self._library, self.kind = transforms, transforms.library, kind
        handle, sizes, space = c_int(), (c_int64 * len(n))(*n), c_size_t()
        check(self._library, "cufftCreate", addressof(handle))
        self.handle: int | None = handle.value
        check(self._library, "cufftSetAutoAllocation", handle.value, 0)
        # No padding: strides and distances are those of contiguous memory, which null pointers stand for.
        check(
            self._library, "cufftMakePlanMany64", handle.value, len(n), addressof(sizes), 0, 1, 0, 0, 1, 0, kind, batch, addressof(space)
        )  # fmt: skip
        self.space = space.value
        self._execute = f"cufftExec{kind.name}"

    def run(self, source: int, target: int, inverse: bool = False) -> None:
        """Transform what lies at an address into another, which may be the same, on the current stream."""
        transforms, handle = self._transforms, self.handle
        assert handle is not None
        memory = transforms.driver.empty((self.space,), BYTES) if self.space else None
        direction = (INVERSE if inverse else FORWARD,) if self.kind in (Type.C2C, Type.Z2Z) else ()
        with transforms.lock:  # stream and work space belong to the plan until the call
            check(self._library, "cufftSetStream", handle, transforms.stream())
            if memory is not None:
                check(self._library, "cufftSetWorkArea", handle, transforms.driver.pointer(memory))
            check(self._library, self._execute, handle, source, target, *direction)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None and not sys.is_finalizing():  # at the end of the process the device may be gone before
            self._library.cufftDestroy(handle)


class Transforms:
    """One driver's cuFFT: the real library, or the stand-in, something with its functions; and the plans."""

    def __init__(self, driver: Driver, library: Any, stream: Callable[[], int]) -> None:
        self.driver, self.library, self.stream = driver, library, stream
        self.lock = threading.RLock()
        self.plans: dict[Key, Plan | None] = {}
        self.captured: set[Plan] = set()
        self._warned = False

    def plan(self, n: tuple[int, ...], batch: int, kind: Type) -> Plan | None:
        """The plan for the current device. None where the library has none, which is remembered, or in a capture, which may make none."""
        key = (self.driver.current_device(), n, batch, kind)
        capturing = self.driver.capture() is not None
        with self.lock:
            if key not in self.plans:
                if capturing:
                    return None
                if len(self.plans) >= MOST_PLANS:
                    self.driver.synchronize()  # nothing may run whose tables go
                    self.plans.clear()
                try:
                    self.plans[key] = Plan(self, n, batch, kind)
                except TransformError as error:
                    if error.reason is not None:  # the stand-in's: our mistake
                        raise
                    if error.status == Status.ALLOC_FAILED:  # perhaps not the next time
                        return None
                    self.plans[key] = None
                    self._say(error)
            found = self.plans[key]
            if capturing and found is not None:
                self.captured.add(found)
            return found

    def _say(self, error: TransformError) -> None:
        if not self._warned:
            self._warned = True
            said = f"gradlab's own kernels, which are slower, do a Fourier transform on the GPU: {error}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)


def transforms_of(driver: Any) -> Transforms | None:
    """The driver's cuFFT; None, with one warning, where there is none."""
    return _made(driver)


@functools.cache
def _made(driver: Any) -> Transforms | None:
    if driver.name == "emulated":
        standin = importlib.import_module("gradlab.backends.cuda.cufft.standin")  # a real GPU does not need it
        guarded = importlib.import_module("gradlab.backends.cuda.emulator.guarded_memory")
        return Transforms(driver, standin.StandIn(guarded.allocation, driver.submit), lambda: driver.current_stream().ptr)
    try:
        library = load()
    except LibraryMissing as error:
        warnings.warn(f"large Fourier transforms on the GPU are slow: {error}", RuntimeWarning, stacklevel=2)
        return None
    return Transforms(driver, library, lambda: driver.current_stream().ptr)
