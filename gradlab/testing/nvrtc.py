"""NVIDIA's run-time compiler, through its C interface: compiles kernels on a machine without a GPU, without CuPy.

The library comes with a CUDA toolkit, with CuPy's [ctk] extra, or with the wheels of gradlab's extra `kernels`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MISSING = (
    "NVRTC, NVIDIA's run-time compiler, is not installed, so no kernel was compiled for a GPU. "
    'Install it with: pip install "gradlab-engine[kernels]" (no GPU and no driver are needed)'
)


class NvrtcMissing(RuntimeError):
    """There is no NVRTC on this machine."""


class Compiled(NamedTuple):
    """What NVRTC made of a program: whether it could, its log, the mangled name of each name expression, the machine code if asked for."""

    ok: bool
    log: str
    lowered: dict[str, str]
    cubin: bytes = b""


class Nvrtc:
    """A loaded NVRTC. `include` is the directory of the CUDA headers that belong to it, or None."""

    def __init__(self, path: Path) -> None:
        for name in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)  # where the wheel's directory is in no search path
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.path, self.version = path, (major.value, minor.value)
        candidates = (
            path.parent.parent / "include",
            path.parent.parent.parent / "cuda_runtime" / "include",
            Path("/usr/local/cuda/include"),
        )
        self.include = next((place for place in candidates if (place / "cuda_fp16.h").is_file()), None)

    def architectures(self) -> list[int]:
        """The architectures it compiles for: 75 is sm_75."""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        values = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(values))
        return list(values)

    def compile(self, source: str, label: str, options: Sequence[str], names: Sequence[str], *, cubin: bool = False) -> Compiled:
        """Compile to machine code. Errors of the source are in the result; RuntimeError is an error of NVRTC's."""
        program = ctypes.c_void_p()
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), label.encode(), 0, None, None))
        try:
            for name in names:
                self._check(self._library.nvrtcAddNameExpression(program, name.encode()))
            encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            ok = self._library.nvrtcCompileProgram(program, len(options), encoded) == 0
            size = ctypes.c_size_t()
            self._check(self._library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
            log = ctypes.create_string_buffer(size.value + 1)
            self._check(self._library.nvrtcGetProgramLog(program, log))
            lowered = {name: self._lowered(program, name) for name in names} if ok else {}
            return Compiled(ok, log.value.decode(errors="replace"), lowered, self._cubin(program) if ok and cubin else b"")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _cubin(self, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        room = ctypes.create_string_buffer(size.value)
        self._check(self._library.nvrtcGetCUBIN(program, room))
        return room.raw

    def _lowered(self, program: ctypes.c_void_p, name: str) -> str:
        lowered = ctypes.c_char_p()
        self._check(self._library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered)))
        return (lowered.value or b"").decode()

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"NVRTC: {self._library.nvrtcGetErrorString(status).decode()}")


@functools.cache
def load() -> Nvrtc:
    """The NVRTC of NVIDIA's wheels or of a toolkit. Raises NvrtcMissing."""
    for place in _places():
        for path in sorted(place.glob("libnvrtc.so.*")):
            return Nvrtc(path)
    named = ctypes.util.find_library("nvrtc")
    if named:
        return Nvrtc(Path(named))
    raise NvrtcMissing(MISSING)


def _places() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    wheels = [
        Path(folder, name, "lib") for folder in (spec.submodule_search_locations or () if spec else ()) for name in ("cu13", "cuda_nvrtc")
    ]
    roots = [Path(os.environ[variable]) for variable in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(variable)]
    return wheels + [root / folder for root in (*roots, Path("/usr/local/cuda")) for folder in ("lib64", "lib")]
