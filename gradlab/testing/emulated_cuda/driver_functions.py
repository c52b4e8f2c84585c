"""`libcuda.so.1`, as far as CuPy's module of the CUDA driver calls it: contexts, modules, launches. Arguments are 64-bit words."""

from __future__ import annotations

import ctypes
from typing import Any

from gradlab.testing.emulated_cuda import machine_code
from gradlab.testing.emulated_cuda.machine import SHARED, Kernel, Machine
from gradlab.testing.emulated_cuda.runtime_functions import DRIVER
from gradlab.testing.emulated_cuda.statuses import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNSUPPORTED,
    DEINITIALIZED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_IMAGE,
    INVALID_VALUE,
    LAUNCH_FAILED,
    NOT_FOUND,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    Refused,
    refusal,
)

MAX_THREADS, SHARED_BYTES, MAX_DYNAMIC_SHARED = 0, 1, 8  # CUfunction_attribute
MOST_SHARED = 227 << 10
NAMES = {
    0: ("CUDA_SUCCESS", "no error"),
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OUT_OF_MEMORY: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    DEINITIALIZED: ("CUDA_ERROR_DEINITIALIZED", "driver shutting down"),
    INVALID_DEVICE: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    INVALID_IMAGE: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    INVALID_CONTEXT: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    INVALID_HANDLE: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    NOT_FOUND: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    LAUNCH_FAILED: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    NOT_SUPPORTED: ("CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    CAPTURE_UNSUPPORTED: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"),
    CAPTURE_INVALIDATED: ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"),
}


class DriverFunctions:
    """Methods are the library's functions; they return a status, and write results where pointers say."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._texts: dict[bytes, Any] = {}  # what was given out as char*
        self._reason: dict[int, str] = {}  # why the last call failed with a status

    def failed(self, error: Exception) -> int:
        """The status of what a function raised; the error's text says more (CuPy asks for it)."""
        found = refusal(error)
        self._reason[found.status] = found.reason
        return found.status

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, version: int) -> int:
        ctypes.c_int.from_address(version).value = DRIVER
        return 0

    def _text(self, words: str) -> int:
        content = words.encode()
        kept = self._texts.setdefault(content, ctypes.create_string_buffer(content))
        return ctypes.addressof(kept)

    def cuGetErrorName(self, status: int, name: int) -> int:
        ctypes.c_void_p.from_address(name).value = self._text(NAMES.get(status & 0xFFFFFFFF, (f"CUDA_ERROR_{status}", ""))[0])
        return 0

    def cuGetErrorString(self, status: int, text: int) -> int:
        status &= 0xFFFFFFFF
        words = NAMES.get(status, ("", "an error"))[1]
        reason = self._reason.pop(status, "")
        ctypes.c_void_p.from_address(text).value = self._text(f"{words} ({reason})" if reason else words)
        return 0

    # ------------------------------------------------------------ contexts

    def cuCtxGetCurrent(self, context: int) -> int:
        device = self._machine.context
        ctypes.c_void_p.from_address(context).value = 0 if device is None else (device + 1) << 20
        return 0

    def cuCtxSetCurrent(self, context: int) -> int:
        device = (context >> 20) - 1 if context else None
        if device is not None and not 0 <= device < self._machine.device_count():
            raise Refused(INVALID_CONTEXT, f"{context:#x} is no context")
        if device is not None:
            self._machine.set_device(device)
        self._machine.context = device
        return 0

    def cuCtxGetDevice(self, device: int) -> int:
        ctypes.c_int.from_address(device).value = self._machine.need_context()
        return 0

    def cuStreamGetCtx(self, stream: int, context: int) -> int:
        ctypes.c_void_p.from_address(context).value = (self._machine.stream(stream).device_id + 1) << 20
        return 0

    def cuDevicePrimaryCtxRelease(self, device: int) -> int:
        return 0

    cuDevicePrimaryCtxRelease_v2 = cuDevicePrimaryCtxRelease

    # ------------------------------------------------------------ modules

    def cuModuleLoadData(self, module: int, image: int) -> int:
        machine = self._machine
        device = machine.need_context()
        machine.forbid_in_captures("loading a module")
        try:
            program = machine_code.at(image)
        except ValueError as error:
            raise Refused(INVALID_IMAGE, str(error)) from None
        loaded = {name: Kernel(function, device) for name, function in program.built().items()}
        ctypes.c_void_p.from_address(module).value = machine.modules.give(loaded)
        return 0

    def cuModuleUnload(self, module: int) -> int:
        self._machine.modules.take(module)
        return 0

    def cuModuleGetFunction(self, function: int, module: int, name: int) -> int:
        wanted = ctypes.string_at(name).decode()
        found = self._machine.modules.find(module).get(wanted)
        if found is None:
            raise Refused(NOT_FOUND, f"no kernel {wanted} in the module")
        ctypes.c_void_p.from_address(function).value = self._machine.kernels.give(found)
        return 0

    def cuModuleGetGlobal(self, address: int, size: int, module: int, name: int) -> int:
        wanted = ctypes.string_at(name).decode()
        raise Refused(NOT_FOUND, f"{wanted}: the emulated GPU gives no addresses of a module's variables")

    cuModuleGetGlobal_v2 = cuModuleGetGlobal

    # ------------------------------------------------------------ functions

    def cuFuncGetAttribute(self, value: int, attribute: int, function: int) -> int:
        kernel: Kernel = self._machine.kernels.find(function)
        found = {MAX_THREADS: 1024, MAX_DYNAMIC_SHARED: kernel.shared}.get(attribute & 0xFFFFFFFF, 0)
        ctypes.c_int.from_address(value).value = found
        return 0

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        self._machine.need_context()
        kernel: Kernel = self._machine.kernels.find(function)
        if attribute & 0xFFFFFFFF == MAX_DYNAMIC_SHARED:
            size = value & 0xFFFFFFFF
            if size > MOST_SHARED:
                raise Refused(INVALID_VALUE, f"{size} bytes of dynamic shared memory; the device has {MOST_SHARED}")
            kernel.shared = max(size, SHARED)
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: int, function: int, threads: int, shared: int) -> int:
        self._machine.kernels.find(function)
        ctypes.c_int.from_address(blocks).value = 2048 // max(threads & 0xFFFFFFFF, 1)
        return 0

    def cuOccupancyMaxPotentialBlockSize(self, grid: int, block: int, function: int, shared_of: int, shared: int, limit: int) -> int:
        self._machine.kernels.find(function)
        ctypes.c_int.from_address(grid).value = 4
        ctypes.c_int.from_address(block).value = min(limit & 0xFFFFFFFF or 1024, 1024)
        return 0

    def cuLaunchKernel(
        self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, parameters: int, extra: int
    ) -> int:
        gx, gy, gz, bx, by, bz, shared = (word & 0xFFFFFFFF for word in (gx, gy, gz, bx, by, bz, shared))
        if extra:
            raise Refused(NOT_SUPPORTED, "parameters in one piece (`extra`)")
        self._machine.start(function, (gx, gy, gz), (bx, by, bz), shared, stream, parameters)
        return 0
