"""Compiles scalar expressions, as rows write them for the GPU, into C++ loops over NumPy arrays.

The tests hold an expression to its NumPy function without a GPU: the text and `kernels/scalar_math.h` are what the CUDA backend
compiles too. All expressions of a test file are compiled together, in a few translation units, because starting a compiler costs
more than a loop; the library is kept in the system's temporary directory under a hash of all that went into it.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from repository import ROOT

HEADER = ROOT / "kernels" / "scalar_math.h"

# What the header asks for; the machine's own instructions, because vector loops are what is to be tested.
FLAGS = ["-std=c++17", "-O3", "-fwrapv", "-fno-math-errno", "-fno-trapping-math"]
if platform.machine() in {"x86_64", "AMD64"}:
    FLAGS.append("-march=native")

C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "float32": "float",
    "float64": "double",
}
HALF = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
FLOATING = ("float16", "bfloat16", "float32", "float64")

LOOPS_PER_UNIT = 150


class Entry(NamedTuple):
    """One expression to test.

    name        of the entry, a C identifier.
    inputs      names that the expression uses, in the order of the arguments.
    expression  C++ over these names, `T` and the functions of scalar_math.h.
    dtypes      names of the dtypes that `T` takes; half types compute in float32.
    reference   the NumPy function of the same arguments.
    ulps        how far a floating point result may be from the reference, in units of the last place.
    types       dtypes of inputs that are not `T` (a condition is bool).
    output      the result's dtype where it is not `T`.
    """

    name: str
    inputs: tuple[str, ...]
    expression: str
    dtypes: tuple[str, ...]
    reference: Callable[..., np.ndarray]
    ulps: float = 0.0
    types: Mapping[str, str] = {}
    output: str | None = None


def named_dtype(name: str) -> np.dtype:
    """NumPy's dtype of that name, bfloat16 among them."""
    return HALF.get(name) or np.dtype(name)


def computed(name: str) -> str:
    """The dtype that a loop computes in and reads and writes: float32 for half types."""
    return "float32" if name in HALF else name


def compiler() -> str:
    """The C++ compiler; skips the calling test, or the whole file during collection, where there is none."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    found = next(filter(None, map(shutil.which, wanted)), None)
    if found is None:
        pytest.skip(f"no C++ compiler ({', '.join(wanted)})", allow_module_level=True)
    return found


def is_gcc() -> bool:
    """Whether `compiler()` is GNU's; on a Mac g++ is a name of clang."""
    macros = run([compiler(), "-dM", "-E", "-x", "c++", os.devnull]).stdout
    return "__GNUC__" in macros and "__clang__" not in macros


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler; an error carries what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done


def parameter_list(entry: Entry, dtype: str) -> str:
    """The C parameters of an entry's function: the inputs' arrays and the output's."""
    arrays = [f"const {C_TYPES[computed(entry.types.get(name, dtype))]}* {name}_array" for name in entry.inputs]
    return ", ".join([*arrays, f"{C_TYPES[computed(entry.output or dtype)]}* output_array"])


def body(entry: Entry, dtype: str) -> str:
    """The statements for element `i`."""
    loads = [f"[[maybe_unused]] const {C_TYPES[computed(entry.types.get(name, dtype))]} {name} = {name}_array[i];" for name in entry.inputs]
    return f"using T [[maybe_unused]] = {C_TYPES[computed(dtype)]}; {' '.join(loads)} output_array[i] = {entry.expression};"


def loop_source(entry: Entry, dtype: str) -> str:
    """A C++ function that runs the expression over arrays. It belongs inside `namespace gradlab`."""
    return (
        f'extern "C" void {entry.name}_{dtype}(long long n, {parameter_list(entry, dtype)}) '
        f"{{ for (long long i = 0; i < n; ++i) {{ {body(entry, dtype)} }} }}"
    )


def unit_source(functions: Iterable[str]) -> str:
    """A translation unit of such functions."""
    return f'#include "{HEADER.as_posix()}"\nnamespace gradlab {{\n' + "\n".join(functions) + "\n}\n"


def cache_directory() -> Path:
    """A directory of this user in the temporary directory."""
    owner = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    directory = Path(tempfile.gettempdir()) / f"gradlab-expressions-{owner}"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def build(units: list[str]) -> Path:
    """Compile and link translation units into a shared library, or find the one made before."""
    command = [compiler(), *FLAGS]
    version = run([command[0], "--version"]).stdout
    parts = [*units, *(p.read_text(encoding="utf-8") for p in sorted(HEADER.parent.glob("*.h"))), version, platform.node(), *command]
    library = cache_directory() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        sources = [Path(scratch, f"unit{i}.cpp") for i in range(len(units))]
        for path, text in zip(sources, units):
            path.write_text(text, encoding="utf-8")
        compile_one = [[*command, "-fPIC", "-c", str(path), "-o", f"{path}.o"] for path in sources]
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(run, compile_one))
        linked = Path(scratch, library.name)
        run([*command, "-shared", "-o", str(linked), *(f"{path}.o" for path in sources)])
        linked.replace(library)  # at once, for test processes that run side by side
    return library


def compile_expressions(entries: Iterable[Entry]) -> dict[tuple[str, str], Callable[..., np.ndarray]]:
    """Compile all entries for all their dtypes.

    The result maps (entry's name, dtype's name) to a function of arrays, which are broadcast and cast to the dtypes of the entry;
    half types are widened to float32 on the way in and the result is rounded on the way out, as the CPU backend does.
    """
    wanted = [(entry, dtype) for entry in entries for dtype in entry.dtypes]
    loops = {(entry.name, computed(dtype)): loop_source(entry, computed(dtype)) for entry, dtype in wanted}
    sources = list(loops.values())
    units = [unit_source(sources[i : i + LOOPS_PER_UNIT]) for i in range(0, len(sources), LOOPS_PER_UNIT)]
    if not units:
        return {}
    library = ctypes.CDLL(str(build(units)))
    return {(entry.name, dtype): bind(library, entry, dtype) for entry, dtype in wanted}


def bind(library: ctypes.CDLL, entry: Entry, dtype: str) -> Callable[..., np.ndarray]:
    """The compiled loop as a function of arrays."""
    function = library[f"{entry.name}_{computed(dtype)}"]
    function.argtypes = [ctypes.c_longlong] + [ctypes.c_void_p] * (len(entry.inputs) + 1)
    function.restype = None
    reads = [np.dtype(computed(entry.types.get(name, dtype))) for name in entry.inputs]
    result = named_dtype(entry.output or dtype)
    writes = np.dtype(computed(entry.output or dtype))

    def call(*arrays: np.ndarray) -> np.ndarray:
        if len(arrays) != len(reads):
            raise TypeError(f"{entry.name} takes {len(reads)} arrays, not {len(arrays)}")
        cast = [np.asarray(array).astype(read) for array, read in zip(arrays, reads)]
        inputs = [np.ascontiguousarray(array) for array in np.broadcast_arrays(*cast)]
        out = np.empty(inputs[0].shape, writes)
        function(out.size, *(array.ctypes.data for array in inputs), out.ctypes.data)
        with np.errstate(over="ignore"):
            return out.astype(result, copy=False)

    return call


def errors_in_ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How far `got` is from `want`, in units of the last place of got's dtype at `want`.

    `want` may have a wider dtype. NaN is far from anything but NaN; infinity counts as the number after the largest one. Where
    got's dtype is no floating point type, the error is 0 or infinite.
    """
    if got.dtype.kind in "biu":
        return np.where(got == want, 0.0, np.inf)
    kind = ml_dtypes.finfo(got.dtype)
    with np.errstate(all="ignore"):
        a, b = (v if v.dtype == np.longdouble else v.astype(np.float64).astype(np.longdouble) for v in (got, want))
        beyond = np.ldexp(np.longdouble(1), kind.maxexp)
        a, b = np.clip(a, -beyond, beyond), np.clip(b, -beyond, beyond)
        exponent = np.maximum(np.frexp(b)[1] - 1, kind.minexp)
        error = np.abs(a - b) / np.ldexp(np.longdouble(1), exponent - kind.nmant)
    error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, error)
    return np.where(np.isnan(error), np.inf, error).astype(np.float64)
