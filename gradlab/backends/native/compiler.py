"""Compiles the C++ of CPU programs with the machine's compiler, and keeps what was built on disk by its content.

Without a compiler what the package carries prebuilt serves, if it does.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gradlab.advice import GradlabWarning, warn
from gradlab.backends.native import prebuilt
from gradlab.backends.native.compile_jobs import Job, works
from gradlab.backends.native.seals import intact, opened
from gradlab.backends.native.toolchain import CompileError, CompilerMissing, cache_directory, compiler, digest
from gradlab.kernel import source_folders

KERNELS, SHARED = source_folders("cpu")
MINIMAL_STD = KERNELS / "minimal_std"  # comes before the standard library's headers
FLAGS = (
    "-std=c++17", "-march=native", "-fPIC", "-shared", "-w", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing",
    "-pthread",
)  # fmt: skip
# Generated loops keep every rounding: x*x - x*x has to be 0 here as in eager mode. The kernels written by hand may use fused
# multiplication and addition, which doubles the speed of a product.
EXACT, FUSED = "-ffp-contract=off", "-ffp-contract=fast"
ROUNDED = frozenset(["grid.cpp"])  # by hand, with the roundings of the rows that traces have instead
# How hard the compiler tries: LOOPS for generated texts and files that are not named here. Where the vectors are written by hand it has
# nothing to gain from the rest, which takes it as long again; some loops are as fast with vectors and nothing else.
LOOPS, VECTORS, BY_HAND = ("-O3",), ("-O2", "-ftree-vectorize"), ("-O2",)
TUNING = {
    **dict.fromkeys(("avg_pool.cpp", "batch_norm.cpp", "cross_entropy.cpp", "max_pool.cpp", "softmax.cpp"), VECTORS),
    **dict.fromkeys(("batch_norm_chained.cpp", "batch_norm_backward_chained.cpp", "conv_behind_pool.cpp"), VECTORS),
    **dict.fromkeys(("depthwise.cpp", "direct.cpp"), VECTORS),
    **dict.fromkeys(("attention.cpp", "attention_backward.cpp", "few_pixels.cpp", "few_rows.cpp", "gemm.cpp"), BY_HAND),
    **dict.fromkeys(("gemm_bfloat16.cpp", "gemm_double.cpp"), BY_HAND),
    **dict.fromkeys(("lu.cpp", "triangular.cpp"), VECTORS),
    **dict.fromkeys(("gru.cpp", "lstm.cpp", "lstm_step.cpp", "movement.cpp", "sequences.cpp"), BY_HAND),
    **dict.fromkeys(("chain.cpp", "direct_weight_gradient.cpp", "planes.cpp", "thread_pool.cpp", "guards.cpp"), BY_HAND),
    **dict.fromkeys(("winograd.cpp", "winograd_weight_gradient.cpp", "winograd_tall.cpp", "winograd_weight_gradient_tall.cpp"), BY_HAND),
    **dict.fromkeys(("winograd_bfloat16.cpp", "winograd_weight_gradient_bfloat16.cpp"), BY_HAND),
}
# Of these GNU's compiler makes code as fast at -O1, in half the time: their vectors, and what lies in registers, are written down.
# Winograd's kernels and those behind a pooling lose a tenth to a half by it.
SOONER = frozenset([
    "attention.cpp", "attention_backward.cpp", "batch_norm.cpp", "batch_norm_backward_chained.cpp", "batch_norm_chained.cpp",
    "cross_entropy.cpp", "direct_weight_gradient.cpp", "few_rows.cpp", "gemm.cpp",
])  # fmt: skip
ALWAYS = ("thread_pool.cpp", "guards.cpp")  # what any program needs soon
# The dearest to compile begin first: these, and generated texts that are long.
DEAREST = (
    "gemm.cpp", "direct_weight_gradient.cpp", "direct.cpp", "winograd_weight_gradient.cpp", "winograd.cpp",
    "attention_backward.cpp", "attention.cpp",
)  # fmt: skip
AS_DEAR = 6e3  # characters of a text that take about as long as the cheapest of these
LONG = 2e4  # characters of a program's text, many small loops that are as fast at VECTORS all together and take two thirds of the time


def available() -> bool:
    """Whether CPU programs can run as machine code here: compiled, or by what is prebuilt."""
    return compiles() or prebuilt.level() is not None


@functools.cache
def compiles() -> bool:
    """Whether C++ can be compiled here. GRADLAB_COMPILER=none says no."""
    if os.environ.get("GRADLAB_COMPILER") == "none" or _given_up:
        return False
    try:
        compiler()
        cache_directory("programs")
    except CompilerMissing:
        return False
    except CompileError as error:
        give_up(error)
        return False
    return True


_given_up: list[str] = []  # why this process makes no more machine code


def give_up(error: Exception) -> None:
    """Let NumPy run programs from here on: the compiler, or what it made, cannot be used. It is said once."""
    compiles.cache_clear()
    if not _given_up:
        _given_up.append(str(error))
        instead = "by prebuilt kernels" if available() else "by NumPy"
        warn(GradlabWarning, f"compile: programs run {instead} from here on, without machine code of their own: {error}")


def hashed(*parts: str) -> str:
    """A name for what all parts together determine, whatever the compiler."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@functools.cache
def processor() -> str:
    """What -march=native depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(r"^(?:flags|Features)\s*:.*$", text, re.MULTILINE)
    return found.group() if found else ""


@functools.cache
def lanes() -> int:
    """How many numbers of float32 the widest vectors hold, as far as the system says."""
    level = None if compiles() else prebuilt.level()
    if level is not None:
        return level.lanes
    flags = processor().split()
    return 16 if "avx512f" in flags else 8 if "avx" in flags else 4


@functools.cache
def bfloat16() -> bool:
    """Whether the processor multiplies pairs of bfloat16 numbers (`avx512_bf16`), and kernels that do it are there. GRADLAB_BFLOAT16=0
    says no: bfloat16 is then float32 that is rounded."""
    if os.environ.get("GRADLAB_BFLOAT16") == "0":
        return False
    return "avx512_bf16" in processor().split() if compiles() else prebuilt.bfloat16()


def _own(effort: tuple[str, ...], file: str) -> tuple[str, ...]:
    """Flags for one of the compilers alone."""
    if compiler().is_zig:
        return ("-fno-sanitize=all",)  # which it switches on by itself
    if "Free Software Foundation" not in compiler().version:
        return ()
    checks = ("-fsanitize=address", "-fno-omit-frame-pointer") if "address" in os.environ.get("GRADLAB_SANITIZE", "") else ()
    # GNU's jump threading computes apart what a limit gives: two instructions of a clamp in a vector loop become six. At -O2 it would make
    # vectors of loops of a fixed length alone.
    # It sinks a load into the branch that alone needs it, loads with masks then, and where several columns' loads are a group (GNU 12, sums
    # of up to 16 elements) takes the first one's mask for all.
    model = ("-fvect-cost-model=dynamic",) * (effort is VECTORS)
    return ("-fno-thread-jumps", "-fno-tree-sink", *model, *["-O1"] * (file in SOONER), *checks)


def built(text: str, file: str = "") -> Path:
    """The shared library of a C++ text, or of a source in this directory, compiled unless it is in the cache."""
    wanted = job(text, file)
    if not intact(wanted.target):
        works.finish([wanted])
    return wanted.target


def job(text: str, file: str, effort: tuple[str, ...] | None = None) -> Job:
    """What the compiler has to do for a text or a source."""
    source = _text(file) if file else text
    directory = cache_directory("programs")
    effort = effort or TUNING.get(file, LOOPS)
    flags = (*FLAGS, *effort, FUSED if file and file not in ROUNDED else EXACT, *_own(effort, file))
    target = directory / f"{digest(content(source, *flags), processor())}.so"
    include = (f"-I{MINIMAL_STD}", f"-I{KERNELS}", f"-I{SHARED}")
    cost = len(DEAREST) - DEAREST.index(file) if file in DEAREST else len(source) / AS_DEAR
    return Job(target, (*flags, *include), str(KERNELS / file) if file else "", text, cost)


def part(file: str, names: Iterable[str], needs: int) -> Job:
    """What the compiler has to do for these functions of a source, as far as one program needs them (needs.py)."""
    whole, wanted = job("", file), set(names)
    flags = (*whole.arguments, f"-DGRADLAB_NEEDS={needs}")
    text = _WHOLE.sub(lambda found: found[0] if found[1] in wanted else "", _text(file))
    target = whole.target.with_name(f"{digest(content(text, *flags), processor())}.so")
    return Job(target, flags, "", text, whole.cost, file)


_begun: dict[str, Job] = {}  # of each file the part that was compiled for a program of this process


def _for_a_program(file: str, names: Iterable[str], needs: int) -> Job:
    """The library of a source for a program: all of it where that lies ready, or where another program wanted another part, which is sooner
    than a library for each."""
    whole = job("", file)
    if file in ALWAYS or intact(whole.target):
        return whole
    own = part(file, names, needs)
    return own if intact(own.target) or _begun.setdefault(file, own).target == own.target else whole


def content(source: str, *flags: str) -> str:
    """What a source, the headers that it includes and flags make together, as a name."""
    headers = [_text(name) for name in _included(source)]
    return hashlib.sha256("\0".join((source, *headers, _text("cmath"), *flags)).encode()).hexdigest()[:32]


@functools.cache
def _text(name: str) -> str:
    """A source or header beside this module or among the kernels."""
    return next(path for folder in (KERNELS, MINIMAL_STD, SHARED) if (path := folder / name).exists()).read_text()


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
_WHOLE = re.compile(r'^(?:GRADLAB_KERNEL|extern "C" \w+) (\w+)\([^{;]*\{(?:.*\}\n|\n(?:.*\n)*?\}\n)', re.MULTILINE)
_DEFINED = re.compile(r'^(?:GRADLAB_KERNEL|extern "C" \w+) (\w+)\(', re.MULTILINE)


@functools.cache
def loaded(path: Path) -> ctypes.CDLL:
    """A library of the cache, opened once. CompileError where it is damaged."""
    found: ctypes.CDLL = opened(path)
    return found


@functools.cache
def _known(file: str) -> Job:
    return job("", file)


def if_built(file: str) -> ctypes.CDLL | None:
    """The library of a source in this directory. Where it is not in the cache, it begins to be built, and there is none yet."""
    if not compiles():
        return prebuilt.libraries()[0] if available() else None
    wanted = _known(file)
    if intact(wanted.target):
        return loaded(wanted.target)
    works.begin([wanted])
    return None


@functools.cache
def _sources() -> dict[str, str]:
    """Of each function written by hand its file: every .cpp file beside this module is a library of its own."""
    return {name: path.name for path in sorted(KERNELS.glob("*.cpp")) for name in _DEFINED.findall(_text(path.name))}


def libraries(names: Iterable[str], text: str = "", needs: Mapping[str, int] | None = None) -> Callable[[str], Any]:
    """A function that gives the functions of these names, written by hand or in a generated text.

    What is not in the cache is compiled, several files at a time; what no program needs is not compiled at all. needs: of some functions
    the parts of their file that are enough (needs.py).
    """
    if not compiles():
        return prebuilt.function
    files = {name: _sources().get(name, "") for name in names}
    sources = [*[""] * bool(text), *dict.fromkeys(file for file in files.values() if file)]
    wanted = {file: [name for name, own in files.items() if own == file] for file in sources}
    parts = {file: functools.reduce(operator.or_, ((needs or {}).get(name, -1) for name in names)) for file, names in wanted.items()}
    own = VECTORS if len(text) > LONG else LOOPS
    jobs = [_for_a_program(file, wanted[file], parts[file]) if file else job(text, "", own) for file in sources]
    if not all(intact(one.target) for one in jobs):
        works.begin([*jobs, *(job("", file) for file in ALWAYS)])
        works.finish(jobs)
    owners = {file: _loaded_or_built_anew(one) for file, one in zip(sources, jobs)}
    _text.cache_clear()  # 200 kB that are seldom wanted again
    return lambda name: getattr(owners[files[name]], name)


def _loaded_or_built_anew(wanted: Job) -> ctypes.CDLL:
    """A library that cannot be loaded, built on a machine with a newer C library for one, is built here."""
    try:
        return loaded(wanted.target)
    except CompileError:
        works.finish([wanted])
        return loaded(wanted.target)


def by_hand() -> dict[str, list[str]]:
    """Of each file its functions."""
    found: dict[str, list[str]] = {}
    for name, file in _sources().items():
        found.setdefault(file, []).append(name)
    return found


@functools.cache
def runtime() -> ctypes.CDLL:
    """The pool that runs programs."""
    carried = None if compiles() else prebuilt.runtime()
    return typed(carried if carried is not None else loaded(built("", "thread_pool.cpp")))


@functools.cache
def guards() -> ctypes.PyDLL:
    """The machine code of guards, which is called with the interpreter's lock held."""
    carried = None if compiles() else prebuilt.path(prebuilt.RUNTIME)
    found: ctypes.PyDLL = ctypes.PyDLL(str(carried)) if carried is not None else opened(built("", "guards.cpp"), ctypes.PyDLL)
    return found


def typed(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library of the pool, which knows what its functions take."""
    library.gradlab_run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    library.gradlab_run.restype = ctypes.c_int64
    library.gradlab_step.argtypes = [ctypes.c_void_p]
    library.gradlab_step.restype = ctypes.c_int64
    library.gradlab_row.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.gradlab_row.restype = ctypes.c_int64
    library.gradlab_bases.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    library.gradlab_bases.restype = None
    return library
