"""Puts the emulated CUDA below CuPy, before CuPy is imported."""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradlab.backends.cuda.cufft import binding as cufft
from gradlab.backends.cuda.cufft.standin import StandIn as FourierStandIn
from gradlab.backends.cuda.emulator import KernelFault
from gradlab.backends.cuda.emulator.guarded_memory import allocation
from gradlab.backends.cuda.gemm import binding as cublaslt
from gradlab.backends.cuda.gemm.standin import StandIn as ProductStandIn
from gradlab.testing.emulated_cuda.driver_functions import DriverFunctions
from gradlab.testing.emulated_cuda.entry_points import CLibrary, CythonTable, by_name, signature
from gradlab.testing.emulated_cuda.fourier_functions import FourierFunctions
from gradlab.testing.emulated_cuda.machine import Machine
from gradlab.testing.emulated_cuda.nvrtc import Compiler
from gradlab.testing.emulated_cuda.runtime_functions import WITHOUT_CONTEXT, Runtime
from gradlab.testing.emulated_cuda.statuses import AsItIs, Refused, refusal

RUNTIME = "cupy_backends.cuda.api.runtime"
SONAMES = {  # by CUDA's version
    13: ("libnvrtc.so.13", "libcublasLt.so.13", "libcufft.so.12"),
    12: ("libnvrtc.so.12", "libcublasLt.so.12", "libcufft.so.11"),
}
OWN = {"check_status", "runtimeGetVersion", "_getCUDAMajorVersion"}  # functions of CuPy's module that ask nothing of a GPU

installed: Installed | None = None


class Installed:
    """What was put in place; `machine` is the emulated GPU behind it, `offered` and `missing` the names of the runtime's functions."""

    def __init__(self, devices: int) -> None:
        runtime = importlib.import_module(RUNTIME)
        version = runtime.runtimeGetVersion()
        names = SONAMES.get(version // 1000)
        if names is None:
            raise RuntimeError(f"this CuPy is for CUDA {version // 1000}; the emulated CUDA knows {', '.join(map(str, SONAMES))}")
        self.machine = machine = Machine(devices)
        driver, compiler = DriverFunctions(machine), Compiler((version // 1000, version % 1000 // 10))
        self._libraries = [
            CLibrary("libcuda.so.1", by_name(driver, "cu"), driver.failed),
            CLibrary(names[0], by_name(compiler, "nvrtc"), compiler.failed),
            _over(names[1], ProductStandIn(allocation, machine.submit), cublaslt.PROTOTYPES, cublaslt.Status.INTERNAL_ERROR),
            CLibrary(
                names[2], FourierFunctions(FourierStandIn(allocation, machine.submit)).functions, lambda error: cufft.Status.INTERNAL_ERROR
            ),
            self._table(runtime),
        ]
        atexit.register(self._close)

    def _table(self, runtime: Any) -> CythonTable:
        ours, table = Runtime(self.machine, runtime), runtime.__pyx_capi__
        functions: dict[str, tuple[str, Callable[..., Any]]] = {}
        self.offered: list[str] = []
        self.missing: list[str] = []
        for name, capsule in table.items():
            text = _text_of(capsule)
            if name in OWN or signature(text) is None:
                continue
            found = getattr(ours, name, None)
            (self.missing if found is None else self.offered).append(name)
            function = _missing(name) if found is None else _raising(found, name not in WITHOUT_CONTEXT, self.machine, runtime)
            functions[name] = (text, function)
        made = CythonTable("libgradlab_emulated_runtime.so", functions)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._names = {name: ctypes.create_string_buffer(text.encode()) for name, (text, _) in functions.items()}
        for name, (_, function) in functions.items():
            table[name] = new(made.address(f"gradlab_{name}"), ctypes.addressof(self._names[name]), None)
            if not name.startswith("_") or hasattr(runtime, name):
                setattr(runtime, name, function)
        return made

    def _close(self) -> None:
        """CuPy's objects may go after Python: nothing may call it then."""
        for library in self._libraries:
            library.close()


def install(devices: int = 2) -> Installed:
    """Put the emulated CUDA below CuPy, with so many devices. RuntimeError where CuPy is imported already, ImportError where there is
    none, CompilerMissing without a C++ compiler."""
    global installed
    if installed is None:
        if "cupy" in sys.modules:
            raise RuntimeError("cupy is imported already, over the CUDA that is there: call install() before")
        os.environ["CUPY_ACCELERATORS"] = ""  # CUB's own kernels are machine code, and CuPy does not ask whether they ran
        installed = Installed(devices)
    return installed


def _text_of(capsule: Any) -> str:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    return str(name(capsule).decode())


def _missing(name: str) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"cupy.cuda.runtime.{name} is not there on the emulated GPU")

    return function


def _raising(function: Callable[..., Any], with_context: bool, machine: Machine, runtime: Any) -> Callable[..., Any]:
    """The function as CuPy's module has it: a status becomes its exception, with the reason."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            if with_context:
                machine.enter()
            return function(*arguments, **named)
        except AsItIs as error:
            raise RuntimeError(str(error)) from None
        except NotImplementedError:
            raise
        except (Refused, RuntimeError, MemoryError) as error:
            found, reason = refusal(error), error if isinstance(error, KernelFault) else None
        made = runtime.CUDARuntimeError(found.status)
        made.args = (f"{made.args[0]} ({found.reason})",)
        raise made from reason

    return call


def _over(name: str, standin: Any, prototypes: Mapping[str, tuple[Any, Sequence[Any]]], failed: int) -> CLibrary:
    """A library whose functions are a stand-in's."""
    functions = {entry: (len(arguments), getattr(standin, entry)) for entry, (_, arguments) in prototypes.items()}
    return CLibrary(name, functions, lambda error: failed)
