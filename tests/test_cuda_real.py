"""The real driver against a stand-in for CuPy: which calls it makes, what it keeps, what it says where something is missing. And the
stand-in against CuPy itself, where that is installed; what CuPy and cuBLASLt themselves say stands in test_cuda_libraries.py."""

import ctypes
import inspect
import os
import sys
import threading
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from fake_cupy import CUDADriverError, CUDARuntimeError, FakeCupy

from gradlab.backends.cuda import real
from gradlab.backends.cuda.captures import RealGraph
from gradlab.backends.cuda.compiler import Compiler
from gradlab.backends.cuda.driver import CompileError, OutOfMemoryError
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import ALL, as_numpy

from repository import ROOT

F32 = np.dtype(np.float32)


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.fixture
def driver(cupy):
    return real.RealDriver()


def calls(cupy, *names):
    return [call for call in cupy.log if call[0] in names]


# ---------------------------------------------------------------- what is missing


def said(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(RuntimeError) as caught:
        real.RealDriver()
    return str(caught.value)


def test_no_cupy(monkeypatch):
    assert 'needs CuPy, which is not installed: pip install "gradlab-engine[cuda13]"' in said(monkeypatch, None)


def test_a_broken_cupy(monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('libfoo.so is missing')")
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match=r"importing cupy failed: libfoo.so is missing"):
        real.RealDriver()


def test_no_driver(monkeypatch):
    words = said(monkeypatch, FakeCupy(version=0))
    assert "needs an NVIDIA driver, and there is none: install it from https://www.nvidia.com/drivers" in words


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_a_cache_of_kernels_that_others_may_write_to(monkeypatch, tmp_path, cupy):
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "0")
    real.RealDriver()
    assert os.environ["CUPY_CACHE_IN_MEMORY"] == "0"
    tmp_path.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write to it .* runs on the GPU"):
        real.RealDriver()
    assert os.environ["CUPY_CACHE_IN_MEMORY"] == "1"


@pytest.mark.parametrize(("version", "extra"), [(12040, "cuda12"), (11080, "cuda12")])
def test_a_driver_too_old_for_cupy(monkeypatch, version, extra):
    words = said(monkeypatch, FakeCupy(version=version, devices=CUDARuntimeError(35, "cudaErrorInsufficientDriver")))
    assert f"the NVIDIA driver is too old: it supports CUDA {version // 1000}.{version % 1000 // 10}, this CuPy needs CUDA 13" in words
    assert f'pip install "gradlab-engine[{extra}]"' in words


def test_a_driver_too_old_for_gradlab(monkeypatch):
    assert "it supports CUDA 11.8, gradlab needs 12.0; update it" in said(monkeypatch, FakeCupy(version=11080, built=11000))


@pytest.mark.parametrize("devices", [0, CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")])
def test_no_gpu(monkeypatch, devices):
    assert "the NVIDIA driver finds no GPU" in said(monkeypatch, FakeCupy(devices=devices))


def test_the_extras_ask_for_a_cupy_that_keeps_our_kernels():
    """Before 14.2 CuPy does not look into its cache on disk for name expressions: each process would compile all kernels anew."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [line for lines in extras.values() for line in lines if line.startswith("cupy")]
    assert len(asked) == 4 and all(line.endswith(">=14.2") for line in asked)


# ---------------------------------------------------------------- memory and copies


def test_uploads_go_through_pinned_memory_that_is_kept(cupy, driver):
    cupy.finish(False)
    host = np.arange(12, dtype=np.float32).reshape(3, 4).T  # not contiguous
    made = driver.upload(host)
    assert made.shape == (4, 3)
    assert calls(cupy, "alloc_pinned_memory", "memcpyAsync", "record", "synchronize") == [
        ("alloc_pinned_memory", 48), ("memcpyAsync", 48, 1, 0), ("record", 0)]  # fmt: skip
    np.testing.assert_array_equal(driver.download(made), host)
    driver.upload(host)
    assert len(driver._staged) == 2  # neither copy is known to be done
    cupy.finish()
    driver.upload(host)
    assert not driver._staged
    assert driver.upload(np.zeros((0, 3), np.float32)).size == 0


def test_every_dtype_goes_there_and_back(driver):
    for dtype in ALL:
        host = np.arange(-2, 4).astype(as_numpy(dtype)).reshape(2, 3)
        for array in (host, host[::-1, 1:], host[0, 0].reshape(())):
            got = driver.download(driver.upload(array))
            assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_arrays_of_other_libraries_come_by_cupy(cupy, driver):
    x = driver.empty((4,), F32)
    assert driver.from_dlpack(x) is x and calls(cupy, "from_dlpack") == [("from_dlpack", x)]


def test_copies_use_the_current_stream(cupy, driver):
    stream = driver.new_stream(0)
    assert stream.arguments == (True, 0)
    driver.use_stream(stream)
    x, y = driver.empty((4,), F32), driver.empty((4,), F32)
    driver.fill_zero(x)
    driver.copy(y, x)
    driver.download(y)
    assert calls(cupy, "memsetAsync", "memcpyAsync", "synchronize") == [
        ("memsetAsync", 0, 16, stream.ptr), ("memcpyAsync", 16, 3, stream.ptr), ("memcpyAsync", 16, 2, stream.ptr),
        ("synchronize", stream.ptr)]  # fmt: skip
    driver.use_stream(driver.default_stream())
    assert driver.current_stream().ptr == 0


def test_out_of_memory_frees_the_cache_and_tries_once_more(cupy, driver):
    cupy.cached = cupy.limit - 100
    x = driver.empty((100,), F32)  # fits after the cached blocks are freed
    assert [call[0] for call in cupy.log] == ["free_all_blocks", "malloc"]
    words = "cannot give 4.00 MiB. It has 1.00 MiB in all, of which 1023.61 KiB are free; gradlab holds 400 bytes in tensors"
    with pytest.raises(OutOfMemoryError, match=words):
        driver.empty((1 << 20,), F32)
    assert driver.empty((1,), F32).nbytes == 4
    driver.limit_memory(0, 1000)
    with pytest.raises(OutOfMemoryError, match=r"It has 1000 bytes in all"):
        driver.empty((1000,), F32)
    del x


def test_memory_waits_for_a_recorded_stream(cupy, driver):
    """It goes back to the pool with an allocation after the stream is done, and not before."""
    stream = driver.new_stream(0)
    x, make = driver.empty((256,), F32), driver.maker((1,), F32)
    driver.record_stream(x, stream)
    cupy.finish(False)
    del x
    make()
    assert driver.memory(0).allocated == 1024
    cupy.finish()
    make()
    assert driver.memory(0).allocated == 0


def test_memory_use(cupy, driver):
    x = driver.empty((256,), F32)
    cupy.cached = 512
    assert driver.memory(0) == (1024, 1536, 1536, 1 << 20)
    driver.reset_peak(0)
    y = driver.empty((256,), F32)
    del y
    assert driver.memory(0)[:2] == (1024, 2048)
    arena = driver.new_arena()
    kept = arena.pool.malloc(100)
    assert driver.memory(0).allocated == 1124
    del x, kept, arena
    driver.free_cached()
    assert calls(cupy, "free_all_blocks") == [("free_all_blocks", 0), ("free_all_blocks", 1)]
    assert driver.memory(0).reserved == 0


# ---------------------------------------------------------------- launches


def test_launches_are_packed(cupy, driver):
    work = Work(driver, Compiler(driver))
    function = driver.compile("source", ["k"], "k")["k"]
    assert calls(cupy, "RawModule") == [("RawModule", ("-std=c++17",), ("k",))]
    x = driver.empty((4,), F32)
    seen = []

    def look(handle, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        table = (ctypes.c_void_p * 5).from_address(parameters)
        seen.append((handle, (gx, gy, gz), (bx, by, bz), shared, stream, extra, ctypes.c_uint64.from_address(table[0]).value,
                     ctypes.c_float.from_address(table[1]).value, ctypes.c_int64.from_address(table[2]).value,
                     ctypes.string_at(table[3], 12), ctypes.c_uint64.from_address(table[4]).value))  # fmt: skip
        assert all(place % 8 == 0 for place in table)

    driver._launch = look
    work.launch(function, 3, 64, x, np.float32(2.5), 7, b"twelve bytes", None, rows=2)
    assert seen == [(function.handle, (3, 2, 1), (64, 1, 1), 0, 0, 0, x.data.ptr, 2.5, 7, b"twelve bytes", 0)]


def test_large_dynamic_shared_memory_is_asked_for_once(cupy, driver):
    function = driver.compile("source", ["k"], "k")["k"]
    for shared in (1000, 60000, 50000, 70000):
        driver.launch(function, (1, 1, 1), (1, 1, 1), 0, shared)
    assert calls(cupy, "funcSetAttribute") == [("funcSetAttribute", function.handle, 8, n) for n in (60000, 70000)]
    assert [call[8] for call in calls(cupy, "launchKernel")] == [1000, 60000, 50000, 70000]


@pytest.mark.parametrize("prepared", [False, True])
def test_a_thread_whose_first_act_is_a_launch(cupy, driver, prepared):
    """The runtime makes a context current with its first call in a thread, the driver does not; memory of the pool needs no call."""
    function = driver.compile("source", ["k"], "k")["k"]
    place = (1, 1, 1), (1, 1, 1)
    made = driver.launcher(function, *place, 0)
    launch = made if prepared else lambda parameters: driver.launch(function, *place, parameters, 50000)
    cupy.strict, raised = True, []

    def work(devices):
        try:
            for device in devices:
                driver.set_device(device)
                for _ in range(3):
                    launch(0)
        except Exception as error:
            raised.append(error)

    for _ in range(2):
        before, contexts = len(calls(cupy, "launchKernel")), len(cupy.contexts)
        cupy.contexts.clear()
        thread = threading.Thread(target=work, args=([0, 1, 0],))
        thread.start()
        thread.join()
        assert not raised
        assert len(calls(cupy, "launchKernel")) - before == 9 + 2  # one refusal for each device of the thread
        assert len(cupy.contexts) == 2 >= contexts
    driver.set_device(0)


def test_a_launch_that_is_refused_for_another_reason(cupy, driver):
    function = driver.compile("source", ["k"], "k")["k"]

    def refuse(*_):
        raise CUDADriverError(719, "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")

    driver._launch = refuse
    for launch in (driver.launcher(function, (1, 1, 1), (1, 1, 1), 0), lambda p: driver.launch(function, (1, 1, 1), (1, 1, 1), p, 0)):
        with pytest.raises(CUDADriverError, match="unspecified launch failure"):
            launch(0)


def test_the_compiler_is_told_what_a_source_is_called(cupy, driver):
    """CuPy names it after its own temporary file."""
    for label in ("mine.cu", 'a "b"\n'):
        driver.compile("__global__ void k();", ["k"], label)
    assert cupy.sources == ['#line 1 "mine.cu"\n__global__ void k();', "__global__ void k();"]


def test_what_the_compiler_refuses(driver):
    said = r"mine\.cu does not compile:\nk\.cu\(3\): error: identifier \"nonsense\" is undefined"
    with pytest.raises(CompileError, match=said) as caught:
        driver.compile("nonsense", ["k"], "mine.cu")
    assert isinstance(caught.value, RuntimeError)


def test_after_a_fork(cupy, driver):
    """What a forked process does raises the same clear error, whatever it is."""
    function, x, stream = driver.compile("source", ["k"], "k")["k"], driver.empty((4,), F32), driver.new_stream(0)
    launch, make = driver.launcher(function, (1, 1, 1), (1, 1, 1), 0), driver.maker((4,), F32)

    def lost(*_):
        raise CUDARuntimeError(3, "cudaErrorInitializationError: initialization error")

    event, graph = driver.new_event(True), RealGraph(SimpleNamespace(launch=lost), None)
    cupy.pool.malloc, cupy.strict = lost, True
    driver.forked()
    assert (driver.device_count(), driver.device_of(x)) == (2, 0)
    for call in (
        lambda: driver.download(x), lambda: driver.upload(np.zeros(3)), lambda: driver.empty((4,), F32), make, driver.synchronize,
        lambda: driver.copy(x, x), lambda: driver.fill_zero(x), driver.current_device, lambda: driver.set_device(1), driver.current_stream,
        lambda: driver.compile("source", ["k"], "k"), lambda: driver.launch(function, (1, 1, 1), (1, 1, 1), 0, 0), lambda: launch(0),
        driver.free_cached, lambda: driver.memory(0), lambda: driver.new_stream(0), driver.new_arena, lambda: driver.new_event(False),
        driver.default_stream, lambda: driver.begin_capture(stream, None), lambda: driver.shared_words(1),
        lambda: driver.use_stream(stream), lambda: driver.stream_done(stream), lambda: driver.synchronize_stream(stream),
        lambda: driver.record_event(event, stream), lambda: driver.event_done(event), lambda: driver.synchronize_event(event),
        lambda: driver.wait_event(stream, event), lambda: driver.elapsed(event, event), lambda: driver.launch_graph(graph, stream),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"forked after its parent had used CUDA.*multiprocessing_context=\"spawn\""):
            call()


# ---------------------------------------------------------------- streams and events


def test_events(cupy, driver):
    event, stream = driver.new_event(False), driver.new_stream(-1)
    assert not event.timing
    driver.record_event(event, stream)
    driver.wait_event(driver.default_stream(), event)
    driver.synchronize_event(event)
    driver.synchronize_stream(stream)
    assert [c[0] for c in cupy.log] == ["record", "wait_event", "event.synchronize", "synchronize"]
    assert driver.event_done(event)
    assert driver.stream_done(stream)
    assert driver.elapsed(event, event) == 1.5


def test_what_failed_is_not_still_to_come(cupy, driver):
    """CuPy's `done` is False after an error, too: a loop that waits for it would not end."""
    event, stream = driver.new_event(False), driver.new_stream(0)
    driver.record_event(event, stream)
    for done in (True, False):
        cupy.finish(done)
        assert driver.event_done(event) is driver.stream_done(stream) is done
    cupy.fail(719)
    assert not event.done
    for ask in (lambda: driver.event_done(event), lambda: driver.stream_done(stream)):
        with pytest.raises(CUDARuntimeError) as caught:
            ask()
        assert caught.value.status == 719


# ---------------------------------------------------------------- devices


def test_devices(driver):
    assert (driver.device_count(), driver.current_device(), driver.device_name(1)) == (2, 0, "a GPU")
    assert driver.capability(0) == (9, 0)
    driver.set_device(1)
    assert driver.device_of(driver.empty((1,), F32)) == 1
    with pytest.raises(RuntimeError, match=r"cuda:2: the CUDA devices are numbered from 0 to 1"):
        driver.set_device(2)


def test_the_stand_in_has_cupys_names():
    cupy = pytest.importorskip("cupy")
    fake = FakeCupy()
    for name in ("ndarray", "get_default_memory_pool", "RawModule", "from_dlpack"):
        assert hasattr(cupy, name)
    for name, value in vars(fake.cuda).items():
        assert hasattr(cupy.cuda, name), name
        for inner in vars(value) if name in ("runtime", "driver", "memory", "compiler", "function") else ():
            assert hasattr(getattr(cupy.cuda, name), inner), f"{name}.{inner}"
    for inner in ("load", "get_function"):
        assert hasattr(cupy.cuda.function.Module, inner)
    for name in ("MemoryPool", "Stream", "Event", "Device"):
        for inner in vars(getattr(fake.cuda, name)):
            assert hasattr(getattr(cupy.cuda, name), inner) or inner.startswith("__"), f"{name}.{inner}"
    for name in ("runtime", "driver"):
        for inner, value in vars(getattr(fake.cuda, name)).items():
            if isinstance(value, int):
                assert getattr(getattr(cupy.cuda, name), inner) == value, inner
    for own, theirs in (
        (CUDARuntimeError, cupy.cuda.runtime.CUDARuntimeError), (CUDADriverError, cupy.cuda.driver.CUDADriverError),
        (fake.cuda.compiler.CompileException, cupy.cuda.compiler.CompileException),
        (fake.cuda.memory.OutOfMemoryError, cupy.cuda.memory.OutOfMemoryError),
    ):  # fmt: skip
        assert own.__mro__[1:] == theirs.__mro__[1:]
    for name in ("Stream", "Event"):
        for inner, method in vars(getattr(fake.cuda, name)).items():
            if inspect.isfunction(method) and inner not in ("__eq__", "__hash__"):
                found = inspect.signature(getattr(getattr(cupy.cuda, name), inner)).parameters
                assert list(inspect.signature(method).parameters) == list(found), f"{name}.{inner}"
    if cupy.cuda.runtime.driverGetVersion() == 0:  # queries return a status and do not raise
        assert cupy.cuda.runtime.streamQuery(0) == cupy.cuda.runtime.eventQuery(16) == 35  # cudaErrorInsufficientDriver
    for name, count in {"launchKernel": 11, "funcSetAttribute": 3}.items():
        assert getattr(cupy.cuda.driver, name).__doc__.count(",") == count - 1
    for name, count in {"memcpyAsync": 5, "memsetAsync": 4}.items():
        assert getattr(cupy.cuda.runtime, name).__doc__.count(",") == count - 1
