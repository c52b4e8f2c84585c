"""Compiles the C++ of CPU programs with the machine's compiler, and keeps what was built on disk by its content."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
SLOWEST = "gemm.cpp"  # to compile: it begins first


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


def _own() -> tuple[str, ...]:
    """Flags that only one of the compilers knows."""
    if compiler().is_zig:
        return ("-fno-sanitize=all",)  # which it switches on by itself
    # GNU's jump threading computes apart what a limit gives: two instructions of a clamp in a vector loop become six.
    return ("-fno-thread-jumps",) if "Free Software Foundation" in compiler().version else ()


def built(text: str, file: str = "") -> Path:
    """The shared library of a C++ text, or of a source in this directory, compiled unless it is in the cache."""
    source = _text(file) if file else text
    headers = [_text(name) for name in _included(source)]
    directory = cache_directory().parent / "programs"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = (*FLAGS, FUSED if file else EXACT, *_own())
    target = directory / f"{digest(source, *headers, *flags, _processor())}.so"
    if not target.exists():
        with Workshop(target) as shop:
            if not file:
                (shop.directory / "program.cpp").write_text(text)
            library = shop.directory / "program.so"
            include = [f"-I{HERE}", f"-I{source_directory()}"]
            run([*flags, *include, HERE / file if file else "program.cpp", "-o", library], "a compiled CPU program", shop.directory)
            shop.deliver(library)
    return target


@functools.cache
def _text(name: str) -> str:
    """A source or header beside this module or among the kernels."""
    return next(path for folder in (HERE, source_directory()) if (path := folder / name).exists()).read_text()


def _included(source: str) -> list[str]:
    """The headers of ours that a source includes, directly or through others."""
    found: list[str] = []
    waiting = _INCLUDE.findall(source)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            waiting += _INCLUDE.findall(_text(name))
    return sorted(found)


_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_DEFINED = re.compile(r'^(?:GRADLAB_KERNEL|extern "C" \w+) (\w+)\(', re.MULTILINE)


@functools.cache
def loaded(path: Path) -> ctypes.CDLL:
    """A library, opened once."""
    return ctypes.CDLL(str(path))


@functools.cache
def _sources() -> dict[str, str]:
    """Of each function written by hand its file: every .cpp file beside this module is a library of its own."""
    return {name: path.name for path in sorted(HERE.glob("*.cpp")) for name in _DEFINED.findall(_text(path.name))}


def libraries(names: Iterable[str], text: str = "") -> Callable[[str], Any]:
    """A function that gives the functions of these names, written by hand or in a generated text.

    What is not in the cache is compiled, several files at a time; what no program needs is not compiled at all.
    """
    files = {name: _sources().get(name, "") for name in names}
    wanted = sorted({file for file in files.values() if file}, key=lambda file: (file != SLOWEST, -len(_text(file))))
    jobs = [(text, "")] * bool(text) + [("", file) for file in wanted]
    paths: Iterable[Path]
    if len(jobs) > 1:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            paths = list(pool.map(lambda job: built(*job), jobs))
    else:
        paths = [built(*job) for job in jobs]
    owners = {file: loaded(path) for (_, file), path in zip(jobs, paths)}
    return lambda name: getattr(owners[files[name]], name)


@functools.cache
def function(name: str) -> Any:
    """One function written by hand, as ctypes sees it."""
    return libraries([name])(name)


@functools.cache
def runtime() -> ctypes.CDLL:
    """The pool that runs programs."""
    library = loaded(built("", "pool.cpp"))
    library.gradlab_run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    library.gradlab_run.restype = ctypes.c_int64
    library.gradlab_step.argtypes = [ctypes.c_void_p]
    library.gradlab_step.restype = ctypes.c_int64
    library.gradlab_bases.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    library.gradlab_bases.restype = None
    return library
