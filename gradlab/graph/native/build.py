"""Compiles the C++ of CPU programs with the machine's compiler, and keeps what was built on disk by its content."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path

from gradlab.backends.cuda.emulator.toolchain import CompilerMissing, Workshop, cache_directory, compiler, digest, run
from gradlab.kernel import source_directory

HERE = Path(__file__).resolve().parent
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-w", "-fwrapv", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-pthread",
)  # fmt: skip
# Generated loops keep every rounding: x*x - x*x has to be 0 here as in eager mode. The kernels written by hand may use fused
# multiplication and addition, which doubles the speed of a product.
EXACT, FUSED = "-ffp-contract=off", "-ffp-contract=fast"


@functools.cache
def available() -> bool:
    """Whether compiled CPU programs can be made here. GRADLAB_COMPILER=none says no."""
    if os.environ.get("GRADLAB_COMPILER") == "none":
        return False
    try:
        compiler()
    except CompilerMissing:
        return False
    return True


@functools.cache
def _processor() -> str:
    """What -march=native depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(r"^(?:flags|Features)\s*:.*$", text, re.MULTILINE)
    return found.group() if found else ""


def built(text: str, *files: str) -> Path:
    """The shared library of a C++ text (and of sources in this directory), compiled unless it is in the cache."""
    sources = [(HERE / name).read_text() for name in files]
    headers = [path.read_text() for path in (*sorted(HERE.glob("*.h")), *sorted(source_directory().glob("*.h")))]
    directory = cache_directory().parent / "programs"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = (*FLAGS, FUSED if files else EXACT, *(("-fno-sanitize=all",) if compiler().is_zig else ()))  # zig switches some on by itself
    target = directory / f"{digest(text, *sources, *headers, *flags, _processor())}.so"
    if not target.exists():
        with Workshop(target) as shop:
            (shop.directory / "program.cpp").write_text(text)
            library = shop.directory / "program.so"
            places = [HERE / name for name in files]
            include = [f"-I{HERE}", f"-I{source_directory()}"]
            run([*flags, *include, "program.cpp", *places, "-o", library], "a compiled CPU program", shop.directory)
            shop.deliver(library)
    return target


@functools.cache
def loaded(path: Path) -> ctypes.CDLL:
    """A library, opened once."""
    return ctypes.CDLL(str(path))


@functools.cache
def runtime() -> ctypes.CDLL:
    """The pool and the kernels written by hand: every .cpp file beside this module."""
    library = loaded(built("// gradlab's runtime", *sorted(path.name for path in HERE.glob("*.cpp"))))
    library.gradlab_run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    library.gradlab_run.restype = ctypes.c_int64
    library.gradlab_step.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_int64,
    ]  # fmt: skip
    library.gradlab_step.restype = ctypes.c_int64
    library.gradlab_bases.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    library.gradlab_bases.restype = None
    return library
