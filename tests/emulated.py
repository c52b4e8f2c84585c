"""Kernels for the tests of the emulated GPU: compiled from tests/faults or from text, or skipped where there is no C++ compiler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlab.backends.cuda.emulator import (
    CompilerMissing,
    EmulatedFunction,
    GuardedMemory,
    KernelFault,
    compile_kernels,
)

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
