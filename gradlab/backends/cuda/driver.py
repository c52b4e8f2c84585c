"""What the CUDA backend needs of a GPU: memory, copies, compiled functions, launches, streams.

Two drivers offer it: `real.py` (CuPy and the CUDA driver) and `emulated.py` (NumPy memory and kernels compiled as C++). Everything above,
the backend, the launch rules and the parity suite, is the same code for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Function(Protocol):
    """A compiled kernel."""

    name: str


class Driver(Protocol):
    """One kind of GPU. Arrays are of `array_type`: they have shape, dtype, strides (bytes), size, nbytes, and NumPy's view methods."""

    name: str
    array_type: type

    def device_count(self) -> int:
        """How many devices there are."""

    def current_device(self) -> int:
        """The device that new arrays go to."""

    def set_device(self, index: int) -> None:
        """Make a device current in this thread."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A C-contiguous array on the current device, from the memory pool; MemoryError in words a user understands."""

    def pointer(self, array: Any) -> int:
        """Device address of an array's first element."""

    def device_of(self, array: Any) -> int:
        """Index of the device that holds an array."""

    def upload(self, host: np.ndarray[Any, Any]) -> Any:
        """A copy on the current device."""

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy in host memory, after the work before it on the current stream."""

    def fill_zero(self, array: Any) -> None:
        """Write zero bytes, on the current stream."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy the bytes of one C-contiguous array into another of the same size, on the current stream."""

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, Function]:
        """The kernels of those names (`name` of an extern "C" function, or a name expression such as `gradlab::softmax<float>`)."""

    def launch(
        self, function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int
    ) -> None:
        """Launch on the current stream. `parameters` is the address of a table of addresses, one for each parameter (cuLaunchKernel)."""

    def synchronize(self) -> None:
        """Wait for all work of the current device."""
