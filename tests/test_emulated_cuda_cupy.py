"""How the emulated CUDA comes below CuPy: libraries and tables of Python's functions; and CuPy itself over it, where that is installed, in
processes of their own."""

import ctypes
import importlib.util
import os
import subprocess
import sys

import pytest

from gradlab.testing.emulated_cuda.entry_points import CLibrary, CythonTable, Signature, by_name, signature

from repository import ROOT

HAS_CUPY = importlib.util.find_spec("cupy") is not None


# ---------------------------------------------------------------- libraries and tables


def test_a_library_of_pythons_functions():
    class Functions:
        def twice(self, value):
            return 2 * value

        def twice_and_more(self, a, b, c, d, e, f, g, h):
            return a + 2 * h

        def twice_nothing(self):
            raise ValueError

    library = CLibrary("libgradlab_test.so.1", by_name(Functions(), "twice"), lambda error: 77)
    found = ctypes.CDLL("libgradlab_test.so.1", mode=os.RTLD_NOLOAD)  # by its name, as CuPy looks for it
    assert found.twice(21) == 42
    assert found.twice_and_more(1, 0, 0, 0, 0, 0, 0, 3) == 7
    assert found.twice_nothing() == 77
    library.close()
    assert found.twice(21) == 0


def test_signatures_that_cython_writes():
    found = signature("intptr_t (size_t, unsigned int, int __pyx_skip_dispatch)")
    assert found == Signature("intptr_t", ("size_t", "unsigned int"), ("int",))
    assert signature("PyObject *(void)") == Signature("void*", (), ())
    optional = signature("PyObject *(intptr_t, int __pyx_skip_dispatch, struct __pyx_opt_args_x *__pyx_optional_args)")
    assert optional.optional
    assert signature("cudaExtent (size_t, size_t, size_t)") is None
    assert signature("int") is None


def test_a_table_of_functions_that_raise():
    def divide(a, b):
        return a // b

    functions = {
        "divide": ("intptr_t (intptr_t, int, int __pyx_skip_dispatch)", divide),
        "half": ("float (int, int __pyx_skip_dispatch)", lambda value: value / 2),
        "words": ("PyObject *(PyObject *, int __pyx_skip_dispatch)", lambda thing: [thing]),
        "nothing": ("PyObject *(void)", lambda: None),
        "more": ("int (int, int __pyx_skip_dispatch, struct __pyx_opt_args_more *__pyx_optional_args)", lambda a, b=5: a + b),
    }
    table = CythonTable("libgradlab_test_table.so", functions)

    def made(name, returns, *arguments):
        return ctypes.PYFUNCTYPE(returns, *arguments)(table.address(f"gradlab_{name}"))

    assert made("divide", ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_int)(-(1 << 40), 2, 0) == -(1 << 39)
    with pytest.raises(ZeroDivisionError):
        made("divide", ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_int)(1, 0, 0)
    assert made("half", ctypes.c_float, ctypes.c_int, ctypes.c_int)(5, 0) == 2.5
    thing = object()
    before = sys.getrefcount(thing)
    for _ in range(10):
        assert made("words", ctypes.py_object, ctypes.py_object, ctypes.c_int)(thing, 0) == [thing]
    assert sys.getrefcount(thing) == before
    assert made("nothing", ctypes.py_object)() is None
    more = made("more", ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    optional = (ctypes.c_int * 2)(1, 7)
    assert (more(1, 0, None), more(1, 0, ctypes.addressof(optional))) == (6, 8)
    table.close()
    assert made("nothing", ctypes.py_object)() is None


# ---------------------------------------------------------------- CuPy itself


def run(*arguments, **variables):
    """A program over the emulated CUDA."""
    return subprocess.run(
        [sys.executable, "-m", "gradlab.testing.emulated_cuda", *arguments],
        capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, **variables},
    )  # fmt: skip


@pytest.mark.skipif(HAS_CUPY, reason="cupy is there")
def test_without_cupy():
    done = run("x.py")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert 'pip install "gradlab-engine[cuda13]"' in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not HAS_CUPY, reason="no cupy")
def test_cupys_own_programs(tmp_path):
    """Its arrays, its kernels compiled and from its cache, its streams, events, graphs, pools, its errors."""
    for _ in range(2):
        done = run("tests/cupy_programs/arrays.py", CUPY_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["all", "is", "well"]
        assert list(tmp_path.glob("*.cubin"))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_CUPY, reason="no cupy")
@pytest.mark.parametrize("file", ["compile_cuda", "compile_cuda_memory", "cuda_gemm", "cuda_optim", "cuda_pool", "cuda_rows"])
def test_the_real_driver_over_cupy(file, tmp_path):
    """Tests that say the same of any GPU, on `real.py` as it is over CuPy as it is."""
    done = run("-m", "pytest", "-q", "-n", "0", "-m", "gpu and not slow", f"tests/test_{file}.py", CUPY_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
