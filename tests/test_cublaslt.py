"""cuBLASLt and its stand-in: settings, what is made once, misuse, the real library's descriptors, and a machine without the library."""

from __future__ import annotations

import ctypes
import gc
import itertools
import weakref

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda import nvidia_libraries
from gradlab.backends.cuda.gemm import binding, library
from gradlab.backends.cuda.gemm.binding import BlasError, ComputeType, Desc, Epilogue, Matrix, Operation, Preference, Status
from gradlab.backends.cuda.gemm.plan import Blas, Handle
from gradlab.backends.cuda.gemm.settings import SETTINGS, set_candidates

from products import F32, PLAIN, close, normal, wide


@pytest.fixture
def blas(cuda):
    found = library.blas_of(cuda.driver)
    if found is None:
        pytest.skip("no cuBLASLt")
    return found


@pytest.fixture
def standin(cuda, blas):
    """The stand-in, with refusals taken back and plans forgotten afterwards."""
    if cuda.driver.name != "emulated":
        pytest.skip("only on the emulated GPU")
    yield blas.library
    blas.library.refused = lambda task: False
    cuda._plans.clear()
    cuda.known.clear()
    blas._prepared.clear()


# ---------------------------------------------------------------- settings


def test_precision(blas):
    a, b = normal(8, 16), normal(16, 8)
    x, y = gl.tensor(a, device="cuda"), gl.tensor(b, device="cuda")
    assert gl.get_float32_matmul_precision() == "highest"
    exact = (x @ y).cpu().numpy()
    try:
        for precision in ("high", "medium"):
            gl.set_float32_matmul_precision(precision)
            assert gl.get_float32_matmul_precision() == precision
            rounded = (x @ y).cpu().numpy()
            error = np.abs(rounded - wide(a) @ wide(b)).max()
            assert error < 2e-2
            if blas.driver.name == "emulated":
                assert error > 1e-4
            close(x.half() @ y.half(), wide(a.astype("f2")) @ wide(b.astype("f2")), "float16")
    finally:
        gl.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal((x @ y).cpu().numpy(), exact)
    with pytest.raises(ValueError, match="'highest', 'high', 'medium'"):
        gl.set_float32_matmul_precision("low")


def test_a_gpu_without_tensorfloat(blas, standin):
    standin.refused = lambda task: task.compute is ComputeType.F32_FAST_TF32
    a = normal(9, 16)
    x = gl.tensor(a, device="cuda")
    try:
        gl.set_float32_matmul_precision("high")
        close(x @ x.mT, a @ a.T, "float32")
    finally:
        gl.set_float32_matmul_precision("highest")


def test_timed_candidates(blas):
    a, b = normal(5, 16), normal(4, 16)
    x, y, z = gl.tensor(a, device="cuda"), gl.tensor(b, device="cuda"), gl.tensor(b[:, 0].copy(), device="cuda")
    try:
        set_candidates(4)
        for _ in range(2):
            close(x @ y.mT, a @ b.T, "float32")
            close(gl.nn.functional.linear(x, y, z), a @ b.T + b[:, 0], "float32")
    finally:
        set_candidates(1)
    assert SETTINGS.candidates == 1
    with pytest.raises(ValueError, match="at least 1"):
        set_candidates(0)


# ---------------------------------------------------------------- what is made once


def test_prepared_once(cuda, blas, standin):
    x, y = gl.tensor(normal(6, 7), device="cuda"), gl.tensor(normal(7, 6), device="cuda")
    x @ y
    objects, prepared = len(standin._objects), len(blas._prepared)
    for _ in range(3):
        x @ y
    assert (len(standin._objects), len(blas._prepared)) == (objects, prepared)


def test_dropped_with_the_plan(cuda, blas, standin):
    x = gl.tensor(normal(6, 7), device="cuda")
    x @ x.mT
    assert standin._objects
    cuda._plans.clear()
    cuda.known.clear()
    blas._prepared.clear()
    assert not standin._objects


def test_workspace_of_each_stream(cuda, blas):
    """Made at its first use, and the same from then on."""
    first = blas.workspace(blas.stream())
    memory = gl.cuda.memory_allocated()
    a = normal(2, 20000)
    x = gl.tensor(a, device="cuda")
    close(x @ x.mT, a @ a.T, "float32")
    assert blas.workspace(blas.stream()) == first
    del x
    gl.cuda.synchronize()
    assert gl.cuda.memory_allocated() <= memory + 65536
    stream = gl.cuda.Stream()
    with gl.cuda.stream(stream):
        second = blas.workspace(blas.stream())
        assert second != first and blas.workspace(blas.stream()) == second


def test_a_workspace_goes_with_its_stream(cuda, blas):
    """Its handle may be another stream's next."""
    for _ in range(3):
        with gl.cuda.stream(gl.cuda.Stream()):
            blas.workspace(blas.stream())
            key = (cuda.driver.current_device(), blas.stream())
            memory = weakref.ref(blas._workspaces[key])
            assert memory() is not None
        gc.collect()
        assert key not in blas._workspaces and memory() is None


def test_a_workspace_in_a_capture_is_the_graph_s(cuda, blas):
    """Not the stream's: that stream, or another with its handle, may work while the graph is replayed."""
    a = normal(2, 20000)
    x = gl.tensor(a, device="cuda")
    x @ x.mT
    stream, other, graph = gl.cuda.Stream(), gl.cuda.Stream(), gl.cuda.CUDAGraph()
    with gl.cuda.stream(stream):
        eager = blas.workspace(blas.stream())
    gc.collect()  # what earlier tests have left
    before = len(blas._workspaces)
    with gl.cuda.graph(graph, stream=stream):
        y = x @ x.mT
        captured = blas.workspace(blas.stream())
        assert captured == blas.workspace(blas.stream())
        other.wait_stream(gl.cuda.current_stream())
        with gl.cuda.stream(other):
            beside = blas.workspace(blas.stream())
        gl.cuda.current_stream().wait_stream(other)
    assert len({eager, captured, beside}) == 3 and len(blas._workspaces) == before
    with gl.cuda.stream(stream):
        assert blas.workspace(blas.stream()) == eager
    second = gl.cuda.CUDAGraph()
    with gl.cuda.graph(second, stream=stream):
        z = x @ x.mT
        assert blas.workspace(blas.stream()) not in (eager, captured, beside)
    with gl.cuda.stream(stream):  # what a shared work space would make a race of
        graph.replay()
    second.replay()
    gl.cuda.synchronize()
    close(y, a @ a.T, "float32")
    close(z, a @ a.T, "float32")


# ---------------------------------------------------------------- misuse, on the stand-in


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (PLAIN._replace(ld_a=4), "INVALID_VALUE.*leading dimension 4 is less than 5"),
        (PLAIN._replace(ld_d=3), "INVALID_VALUE.*leading dimension 3 is less than 5"),
        (PLAIN._replace(depth=0), "INVALID_VALUE.*an empty matrix"),
        (PLAIN._replace(batch=2, stride_a=20, stride_b=12, stride_d=14), "INVALID_VALUE.*matrices of D would overlap"),
        (PLAIN._replace(epilogue=Epilogue.RELU_AUX, ld_aux=64), "INVALID_VALUE.*a multiple of 128"),
        (PLAIN._replace(epilogue=Epilogue.GELU_AUX, ld_aux=4), "INVALID_VALUE.*a multiple of 8"),
        (PLAIN._replace(epilogue=Epilogue.DRELU), "INVALID_VALUE.*aux leading dimension 0"),
    ],
)
def test_wrong_problems(blas, standin, problem, message):
    with pytest.raises(BlasError, match=message):
        blas.prepare(problem, 256)


@pytest.mark.parametrize(
    "problem",
    [
        PLAIN._replace(compute=ComputeType.F64),
        PLAIN._replace(dtype=np.dtype("f2"), out=np.dtype("f8")),
        PLAIN._replace(dtype=np.dtype("f8"), out=np.dtype("f8"), compute=ComputeType.F64, epilogue=Epilogue.BIAS),
        PLAIN._replace(columns=2**31, ld_d=5),
    ],
)
def test_problems_without_an_algorithm(blas, standin, problem):
    assert blas.prepare(problem, 256) is None


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.SUCCESS])
def test_an_epilogue_that_is_refused_in_whatever_way(cuda, blas, standin, status, monkeypatch):
    """Falls back to a launch of its own, and is not asked for again; a plain product has nothing to fall back to."""
    asked = []

    def refused(task):
        asked.append(task.epilogue)
        return status

    own = Blas(cuda.driver, standin, 1024, lambda: 0)
    monkeypatch.setattr(standin, "refused", refused)
    for epilogue in (Epilogue.RELU, Epilogue.BIAS, Epilogue.GELU_BIAS):
        assert own.prepare(PLAIN._replace(epilogue=epilogue), 256) is None
        assert own.prepare(PLAIN._replace(epilogue=epilogue), 256) is None
    assert asked == [Epilogue.RELU, Epilogue.BIAS, Epilogue.GELU_BIAS]
    if status not in (Status.NOT_SUPPORTED, Status.ARCH_MISMATCH):
        with pytest.raises(BlasError, match=status.name):
            own.prepare(PLAIN, 256)


@pytest.fixture
def guarded(cuda, blas, standin):
    """The plain problem and its matrices in guarded memory: addresses of a, b, d."""
    module = pytest.importorskip("gradlab.backends.cuda.emulator.guarded_memory")
    memory = [module.GuardedMemory(4 * n) for n in (20, 12, 15, 5)]
    for piece in memory[:2]:
        piece.array((piece.size // 4,), F32)[...] = 1
    own = Blas(cuda.driver, type(standin)(module.allocation), 1024, lambda: 0)
    yield own, [piece.address for piece in memory], memory


def test_memory_is_checked(guarded):
    blas, (a, b, d, bias), memory = guarded
    blas.prepare(PLAIN, 256).run(a, b, d)
    np.testing.assert_array_equal(memory[2].array((15,), F32), 4)
    prepared = blas.prepare(PLAIN, 16)
    for addresses, message in (
        ((a + 16, b, d), "EXECUTION_FAILED.*A reaches 16 bytes beyond an array of 80 bytes"),
        ((a, b + 32, d), "B reaches 32 bytes beyond"),
        ((a, b, d + 16), "D reaches 16 bytes beyond"),
        ((a + 4, b, d), "INVALID_VALUE.*A at .* is not aligned to 16 bytes"),
        ((a, b, d + 8), "D at .* is not aligned to 16 bytes"),
        ((0, b, d), "A is a null pointer"),
    ):
        with pytest.raises(BlasError, match=message):
            prepared.run(*addresses)
    biased = blas.prepare(PLAIN._replace(epilogue=Epilogue.BIAS), 256)
    memory[3].array((5,), F32)[...] = 2
    biased.run(a, b, d, bias)
    np.testing.assert_array_equal(memory[2].array((15,), F32), 6)
    for address, message in ((bias + 16, "bias reaches 16 bytes beyond"), (bias + 4, "bias at .* is not aligned")):
        with pytest.raises(BlasError, match=message):
            biased.run(a, b, d, address)


def test_algorithms_belong_to_their_problem(guarded):
    blas, (a, b, d, _), _ = guarded
    one, other = blas.prepare(PLAIN, 256), blas.prepare(PLAIN._replace(transpose_a=True, ld_a=4), 256)
    one._choice = other._choice
    with pytest.raises(BlasError, match="chosen for another problem"):
        one.run(a, b, d)


def test_workspace_is_checked(guarded):
    blas, (a, b, d, _), _ = guarded
    prepared = blas.prepare(PLAIN, 256)
    result = blas.candidates(prepared._handles, prepared._fixed[0], PLAIN, 256, 2)
    assert [r.workspace for r in result] == [0]  # the second needs more than there is
    blas.workspace_size = 4096
    second = blas.candidates(prepared._handles, prepared._fixed[0], PLAIN, 256, 2)[1]
    prepared._use(second)
    prepared._choice = (prepared._choice[0], 0, second)
    with pytest.raises(BlasError, match="needs 2048 bytes of work space, there are 0"):
        prepared.run(a, b, d)


def test_descriptors_are_checked(standin):
    desc = Handle(standin, "MatmulDesc", binding.DESC_TYPES, ComputeType.F32, 0)
    layout = Handle(standin, "MatrixLayout", binding.MATRIX_TYPES, 0, 5, 3, 5)
    value, size = ctypes.c_int(1), ctypes.c_size_t()
    at = ctypes.addressof(value)
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, 999, at, 4) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, Desc.TRANSA, at, 8) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, Desc.TRANSA, None, 4) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(layout.value, Desc.TRANSA, at, 4) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, Desc.TRANSA, at, 4) == Status.SUCCESS
    value.value = 0
    assert standin.cublasLtMatmulDescGetAttribute(desc.value, Desc.TRANSA, at, 4, ctypes.addressof(size)) == Status.SUCCESS
    assert (value.value, size.value) == (Operation.T, 4)
    handle = layout.value
    del layout
    assert standin.cublasLtMatrixLayoutDestroy(handle) == Status.INVALID_VALUE  # destroyed before
    assert standin.cublasLtMatmul(*[None] * 14, 0, None) == Status.NOT_INITIALIZED


# ---------------------------------------------------------------- the real library's host side, where it is installed


@pytest.fixture(scope="module")
def real():
    try:
        return binding.load()
    except nvidia_libraries.LibraryMissing as error:
        pytest.skip(str(error))


def attributes(lib, kind, handle, types):
    """Each attribute's value by the ctypes type that the binding says it has; the library checks the size."""
    found = {}
    for name, ctype in types.items():
        value, written = ctype(), ctypes.c_size_t()
        status = getattr(lib, f"cublasLt{kind}GetAttribute")(
            handle.value, name, ctypes.addressof(value), ctypes.sizeof(value), ctypes.addressof(written)
        )
        assert status == 0, (kind, name)
        assert written.value == ctypes.sizeof(value)
        found[name] = value.value or 0
    return found


def test_descriptors_are_the_real_ones(real, standin):
    """The stand-in's descriptors have the real ones' attributes, sizes and defaults, and keep what is set."""
    for kind, types, made, changed in (
        ("MatmulDesc", binding.DESC_TYPES, (ComputeType.F32_FAST_TF32, 0), {
            Desc.TRANSA: 1, Desc.EPILOGUE: Epilogue.GELU_AUX_BIAS, Desc.BIAS_POINTER: 256, Desc.EPILOGUE_AUX_LD: 128,
        }),
        ("MatrixLayout", binding.MATRIX_TYPES, (binding.DataType.R_16BF, 5, 3, 7), {
            Matrix.BATCH_COUNT: 4, Matrix.STRIDED_BATCH_OFFSET: 21,
        }),
        ("MatmulPreference", binding.PREFERENCE_TYPES, (), {Preference.MAX_WORKSPACE_BYTES: 1 << 20, Preference.MIN_ALIGNMENT_A_BYTES: 16}),
    ):  # fmt: skip
        handles = [Handle(lib, kind, types, *made) for lib in (real, standin)]
        assert attributes(real, kind, handles[0], types) == attributes(standin, kind, handles[1], types)
        for handle in handles:
            for name, value in changed.items():
                handle.set(name, value)
        found = attributes(real, kind, handles[0], types)
        assert found == attributes(standin, kind, handles[1], types)
        assert changed.items() <= found.items()
        value = ctypes.c_double()
        for attribute, size in itertools.product((next(iter(types)), 999), (0, 2, 16)):
            answers = [
                getattr(lib, f"cublasLt{kind}SetAttribute")(handle.value, attribute, ctypes.addressof(value), size)
                for lib, handle in zip((real, standin), handles, strict=True)
            ]
            assert answers[0] == answers[1] == Status.INVALID_VALUE


def test_version(real, standin):
    assert int(binding.version(real).split(".")[0]) >= 12
    assert binding.version(standin) == "13.0.2"


# ---------------------------------------------------------------- where it is missing


class NoLibrary:
    """A driver without cuBLASLt."""

    name = "real"


def test_missing_library(monkeypatch, cuda):
    def missing(name):
        raise RuntimeError(f"Failure finding {name}.so\nmore")

    class Finder:
        load_nvidia_dynamic_lib = staticmethod(missing)

    monkeypatch.setattr(nvidia_libraries.importlib, "import_module", lambda name: Finder)
    with pytest.raises(nvidia_libraries.LibraryMissing, match=r"pip install nvidia-cublas .*Failure finding cublasLt\.so\)$"):
        binding.load()
    with pytest.warns(RuntimeWarning, match="products on the GPU are slow: cuBLASLt is not installed"):
        assert library.blas_of(NoLibrary()) is None

    def no_module(name):
        raise ImportError(name)

    monkeypatch.setattr(nvidia_libraries.importlib, "import_module", no_module)
    with pytest.raises(nvidia_libraries.LibraryMissing, match="pip install cuda-pathfinder"):
        binding.load()



def test_statuses_in_words():
    expected = "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (the library has no algorithm for it)"
    assert str(BlasError("cublasLtMatmul", 15, None)) == expected
    assert str(BlasError("x", 7, "why")) == "x: CUBLAS_STATUS_INVALID_VALUE (why)"
    assert "does not know" in str(BlasError("x", 99, None))
