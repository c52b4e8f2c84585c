"""Kernels for the tests of the emulated GPU: compiled from tests/faults or from text, or skipped where there is no C++ compiler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlab.backends.cuda.arguments import packer_of
from gradlab.backends.cuda.compiler import Compiler
from gradlab.backends.cuda.emulated import EmulatedDriver
from gradlab.backends.cuda.emulator import (
    CompilerMissing,
    EmulatedFunction,
    GuardedMemory,
    KernelFault,
    compile_kernels,
)
from gradlab.backends.cuda.launch_context import Work

FAULTS = Path(__file__).resolve().parent / "faults"


def compiled(source: str, *names: str, label: str = "test.cu", **options: Any) -> list[EmulatedFunction]:
    """The kernels of a text, in the order of their names."""
    try:
        made = compile_kernels(source, names, label=label, **options)
    except CompilerMissing as error:
        pytest.skip(str(error))
    return [made[name] for name in names]


def planted(file: str, *names: str) -> list[EmulatedFunction]:
    """Kernels of a file in tests/faults."""
    return compiled((FAULTS / file).read_text(encoding="utf-8"), *names, label=file)


def guarded(shape: tuple[int, ...], dtype: str, fill: float | None = None) -> np.ndarray:
    """An array in guarded memory; NaN patterns unless filled."""
    made = GuardedMemory(int(np.prod(shape)) * np.dtype(dtype).itemsize).array(shape, dtype)
    if fill is not None:
        made.fill(fill)
    return made


def fault(function: EmulatedFunction | Callable[..., None], *arguments: Any, **options: Any) -> KernelFault:
    """The fault that a launch raises."""
    run = function.run if isinstance(function, EmulatedFunction) else function
    with pytest.raises(KernelFault) as caught:
        run(*arguments, **options)
    return caught.value


ADD = 'extern "C" __global__ void add(const float* x, float* y, float by, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i] + by; }'


class Bench:
    """A driver of its own with one kernel, for tests of streams, memory and captures."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self.driver = driver
        self.work = Work(driver, Compiler(driver))
        try:
            self.kernel = driver.compile(ADD, ["add"], "add.cu")["add"]
        except CompilerMissing as error:
            pytest.skip(str(error))

    def filled(self, count: int, value: float) -> Any:
        return self.driver.upload(np.full(count, value, np.float32))

    def add(self, x: Any, by: float) -> Any:
        """x + by in new memory, on the current stream."""
        y = self.driver.empty(x.shape, x.dtype)
        self.work.launch(self.kernel, 1, x.size, x, y, np.float32(by), np.int32(x.size))
        return y

    def launch_raw(self, x: int, y: int) -> None:
        """Launch `add` for one element at these addresses."""
        packer = packer_of(("P", "P", "f", "i"))
        packet = packer.fill(x, y, 1.0, 1)
        try:
            self.driver.launch(self.kernel, (1, 1, 1), (1, 1, 1), packet.address, 0)
        finally:
            packer.done(packet)

    @staticmethod
    def seen(x: Any) -> float:
        """The one number that all elements hold right now, without waiting for anything."""
        assert np.array_equal(x._host, np.full_like(x._host, x._host[0]), equal_nan=True)
        return float(x._host[0])

    def stream(self) -> Any:
        return self.driver.new_stream(0)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before = self.driver.current_stream()
        self.driver.use_stream(stream)
        try:
            yield
        finally:
            self.driver.use_stream(before)

    def event(self, stream: Any = None) -> Any:
        """An event recorded in a stream (the current one)."""
        made = self.driver.new_event(True)
        self.driver.record_event(made, self.driver.current_stream() if stream is None else stream)
        return made

    def wait(self, stream: Any, event: Any) -> None:
        self.driver.wait_event(stream, event)


def bench(devices: int = 1, schedule: str = "late", memory: int = 1 << 20) -> Bench:
    """A driver of its own."""
    return Bench(EmulatedDriver(devices, memory, schedule))
