"""The real driver's captures against the stand-in for CuPy: what a capture refuses, how it fails, and what becomes of graphs at the end."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from fake_cupy import FakeCupy

from gradlab.backends.cuda import real
from gradlab.backends.cuda.driver import OutOfMemoryError

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


def test_a_spoiled_capture_goes_on_until_its_end(cupy, driver):
    """CuPy raises when it is asked then; who asks in a `finally` would lose the error that spoiled it."""
    stream = driver.new_stream(0)
    driver.use_stream(stream)
    driver.begin_capture(stream, driver.new_arena())
    cupy._captured.append("spoiled")
    assert driver.capturing()
    assert driver.capture() is not None
    with pytest.raises(RuntimeError, match=r"the capture has failed: cudaErrorStreamCaptureInvalidated"):
        driver.end_capture(stream)
    assert not driver.capturing()


def test_a_capture(cupy, driver):
    stream, arena = driver.new_stream(0), driver.new_arena()
    driver.use_stream(stream)
    driver.begin_capture(stream, arena)
    assert driver.capturing()
    x = driver.empty((4,), F32)
    driver.fill_zero(x)
    assert calls(cupy, "malloc", "begin_capture") == [("begin_capture", None), ("malloc", 16, "arena")]
    others = []
    thread = threading.Thread(target=lambda: others.append(driver.download(x)))  # another thread may copy
    thread.start()
    thread.join()
    assert len(others) == 1
    for what, call in {
        "a copy from the host": lambda: driver.upload(np.zeros(1)), "a copy to the host": lambda: driver.download(x),
        "synchronize": driver.synchronize, "empty_cache": driver.free_cached, "query": lambda: driver.stream_done(stream),
        "loading a kernel": lambda: driver.compile("", [], "k"), "allocating the host": lambda: driver.shared_words(1),
    }.items():  # fmt: skip
        with pytest.raises(RuntimeError, match=rf"inside a CUDA graph's capture: {what}.*before the capture, or after replaying"):
            call()
    with pytest.raises(RuntimeError, match=r"a capture is going on already"):
        driver.begin_capture(driver.new_stream(0), None)
    with pytest.raises(OutOfMemoryError):  # and freeing what is cached would break the capture
        driver.empty((1 << 20,), F32)
    assert not calls(cupy, "free_all_blocks")
    graph = driver.instantiate(driver.end_capture(stream))
    assert not driver.capturing()
    driver.empty((4,), F32)
    assert calls(cupy, "malloc")[-1] == ("malloc", 16, "pool")
    driver.launch_graph(graph, stream)
    assert cupy.log[-1] == ("launch", stream.ptr)


def test_captures_that_fail(cupy, driver):
    with pytest.raises(RuntimeError, match=r"cannot begin in a default stream"):
        driver.begin_capture(driver.default_stream(), None)
    stream = driver.new_stream(0)
    driver.use_stream(stream)
    driver.begin_capture(stream, None)
    with pytest.raises(RuntimeError, match=r"16 bytes are allocated, and the capture has no arena"):
        driver.empty((4,), F32)
    cupy._captured.append("spoiled")
    with pytest.raises(RuntimeError, match=r"the capture has failed: cudaErrorStreamCaptureInvalidated"):
        driver.end_capture(stream)
    driver.empty((4,), F32)
    with pytest.raises(RuntimeError, match=r"no capture began"):
        driver.end_capture(stream)


ENDING = """
import atexit, sys
sys.path.insert(0, "tests")
from fake_cupy import FakeCupy
cupy = sys.modules["cupy"] = FakeCupy()
atexit.register(lambda: print(cupy.log))  # as CuPy's own handlers, before ours: it runs after them
import gradlab as gl
from gradlab.backends.cuda.loading import load
graphs = [gl.cuda.CUDAGraph() for _ in range(2)]
driver = load().driver
for graph in graphs:
    stream = driver.new_stream(0)
    driver.use_stream(stream)
    driver.begin_capture(stream, driver.new_arena())
    graph._graph = driver.instantiate(driver.end_capture(stream))
cupy.log.clear()
"""


def test_graphs_that_live_at_the_end(cupy, driver):
    """They are destroyed while the runtime is there, and not when the interpreter drops what is left."""
    found = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, cwd=ROOT, env={**os.environ, "GRADLAB_CUDA": "real"},
        check=False,
    )
    assert (found.stdout, found.stderr) == ("[('graphDestroy',), ('graphDestroy',)]\n", "")
    stream = driver.new_stream(0)
    driver.use_stream(stream)
    driver.begin_capture(stream, None)
    graph = driver.end_capture(stream)
    driver._at_exit()
    assert cupy.log[-1] == ("graphDestroy",)
    with pytest.raises(RuntimeError, match="the program ends"):
        driver.launch_graph(graph, stream)
