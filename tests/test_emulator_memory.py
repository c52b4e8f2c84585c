"""Memory of the emulated GPU: counts, limits, caches; and what gl.cuda says of memory, devices and determinism."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from emulated import bench

import gradlab as gl
from gradlab.backends.cuda import loading
from gradlab.backends.cuda.driver import OutOfMemoryError
from gradlab.backends.cuda.emulator import bounds, guarded_memory
from gradlab.backends.cuda.loading import load

F32 = np.dtype(np.float32)


def test_freed_blocks_are_kept_and_counted():
    b = bench()
    x = b.driver.empty((1000,), F32)
    assert b.driver.memory(0) == (4000, 4000, 4000, 1 << 20)
    address = b.driver.pointer(x)
    del x
    assert b.driver.memory(0) == (0, 4000, 4000, 1 << 20)
    x = b.driver.empty((500, 2), F32)
    assert b.driver.pointer(x) == address
    assert b.driver.memory(0).reserved == 4000
    view = x[3:]
    del x
    assert b.driver.memory(0).allocated == 4000  # the view holds it
    del view
    b.driver.free_cached()
    assert b.driver.memory(0) == (0, 4000, 0, 1 << 20)
    b.driver.reset_peak(0)
    assert b.driver.memory(0).peak == 0


def test_a_full_device_frees_what_is_cached():
    b = bench(memory=10000)
    x = b.driver.empty((2000,), F32)
    b.driver.fill_zero(x)
    del x
    y = b.driver.empty((2100,), F32)
    assert b.driver.memory(0) == (8400, 8400, 8400, 10000)
    words = r"cuda:0 cannot give 3.91 KiB. It has 9.77 KiB in all, of which 1.56 KiB are free; gradlab holds 8.20 KiB in tensors"
    with pytest.raises(OutOfMemoryError, match=words):
        b.driver.empty((1000,), F32)
    del y
    assert b.driver.empty((1000,), F32).size == 1000


def test_a_limit():
    with gl.device("cuda"):
        before = gl.cuda.mem_get_info()[1]
        gl.cuda.empty_cache()
        try:
            gl.cuda.set_per_process_memory_fraction((gl.cuda.memory_reserved() + 5000) / before)
            x = gl.zeros(1000)
            with pytest.raises(gl.cuda.OutOfMemoryError, match=r"CUDA out of memory: cuda:0 cannot give 4.00 KiB"):
                gl.zeros(1024)
            assert (x + 0).sum().item() == 0 if gl.cuda.mem_get_info()[0] > 4000 else x.sum().item() == 0  # it goes on
        finally:
            load().driver.limit_memory(0, before)
    assert gl.zeros(1024, device="cuda").sum().item() == 0
    with pytest.raises(ValueError, match=r"2 is not from 0 to 1"):
        gl.cuda.set_per_process_memory_fraction(2)
    with pytest.raises(TypeError, match=r"not str"):
        gl.cuda.set_per_process_memory_fraction("1")


def test_a_table_for_people():
    x = gl.zeros(1 << 18, device="cuda")
    words = gl.cuda.memory_summary()
    for line in ("cuda:0 ", "allocated by tensors", "most allocated", "held by the pool", "in the device"):
        assert line in words
    assert "in the device" not in gl.cuda.memory_summary(abbreviated=True)
    assert gl.cuda.memory_allocated() >= x.nbytes
    assert gl.cuda.max_memory_allocated() >= gl.cuda.memory_allocated()
    assert gl.cuda.memory_reserved() >= gl.cuda.memory_allocated()


# ---------------------------------------------------------------- the choice of a device


def run(script, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRADLAB_")} | variables
    environment["GRADLAB_CACHE"] = os.environ.get("GRADLAB_CACHE", "")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    return done.stdout + done.stderr


def test_how_many_emulated_devices():
    count = "import gradlab as gl; print(gl.cuda.device_count())"
    assert run(count, GRADLAB_CUDA="emulated:3").strip() == "3"
    assert run(count, GRADLAB_CUDA="emulated").strip() == "2"
    assert run(count, GRADLAB_CUDA="Emulated:1").strip() == "1"
    wrong = "import gradlab as gl; gl.zeros(1, device='cuda')"
    assert "GRADLAB_CUDA is 'emulated:0'; it may be emulated, emulated:N" in run(wrong, GRADLAB_CUDA="emulated:0")
    assert "GRADLAB_EMULATED_STREAMS is 'soon'" in run(wrong, GRADLAB_CUDA="emulated", GRADLAB_EMULATED_STREAMS="soon")
    assert "cannot give 4.00 KiB. It has 1000 bytes" in run(
        "import gradlab as gl; gl.zeros(1024, device='cuda')", GRADLAB_CUDA="emulated", GRADLAB_EMULATED_MEMORY="1000"
    )


def test_the_choice(monkeypatch):
    for value, devices in {"": None, "real": None, "emulated": 2, "EMULATED:4": 4}.items():
        monkeypatch.setenv("GRADLAB_CUDA", value)
        assert loading._chosen() == devices
        assert loading.emulated() == (devices is not None)


# ---------------------------------------------------------------- gl.cuda, several devices


def two_devices():
    if gl.cuda.device_count() < 2:
        pytest.skip("one device")


def test_every_argument_of_a_mixture_is_named():
    two_devices()
    x = [gl.ones(2, device=f"cuda:{i % 2}") for i in range(3)]
    with pytest.raises(RuntimeError, match=r"cat: inputs on different devices: .*on cuda:0, .*on cuda:1, .*on cuda:0"):
        gl.cat(x)
    with pytest.raises(RuntimeError, match=r"where: inputs on different devices: condition on cuda:0, .*on cuda:1"):
        gl.where(x[0] > 0, x[1], x[1])
    layer = gl.nn.Linear(2, 2, device="cuda:1") if gl.cuda.device_count() > 1 else None
    with pytest.raises(RuntimeError, match=r"linear: inputs on different devices: x on cuda:0, w on cuda:1, b on cuda:1"):
        layer(x[0])


def test_streams_belong_to_devices():
    two_devices()
    stream = gl.cuda.Stream(device=1)
    assert stream.device == gl.device("cuda:1")
    assert gl.cuda.current_stream() == gl.cuda.default_stream()
    assert gl.cuda.current_stream(1) == gl.cuda.default_stream("cuda:1") != gl.cuda.default_stream(0)
    with gl.cuda.stream(stream):
        assert gl.cuda.current_device() == 1
        assert gl.cuda.current_stream() == stream
        x = gl.ones(3, device="cuda") * 2
    assert gl.cuda.current_device() == 0
    assert gl.cuda.current_stream(1) == gl.cuda.default_stream(1)
    gl.cuda.default_stream(1).wait_stream(stream)
    assert x.device == gl.device("cuda:1")
    assert x.tolist() == [2, 2, 2]
    event = stream.record_event()
    with pytest.raises(RuntimeError, match=r"the event belongs to cuda:1, the stream to cuda:0"):
        event.record()
    event.wait(gl.cuda.default_stream(0))  # streams may wait for events of other devices
    gl.cuda.set_stream(stream)
    try:
        assert gl.cuda.current_device() == 1
    finally:
        gl.cuda.set_stream(gl.cuda.default_stream(1))
        gl.cuda.set_device(0)


# ---------------------------------------------------------------- determinism


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_faster_algorithms_where_the_user_allows_them(dtype):
    draw = np.random.default_rng(0)
    at, w, g = draw.integers(0, 10, 200), draw.normal(size=(10, 6)).astype(dtype), draw.normal(size=(200, 6)).astype(dtype)
    lines = draw.integers(0, 10, (100, 6))

    def results(device):
        index, weight, upstream = gl.tensor(at, device=device), gl.tensor(w, device=device, requires_grad=True), gl.tensor(g, device=device)
        (gl.nn.functional.embedding(index, weight, padding_idx=3) * upstream).sum().backward()
        x = gl.tensor(w, device=device, requires_grad=True)
        (x[index] * upstream).sum().backward()
        spread = x.detach().scatter_add(0, gl.tensor(lines, device=device), upstream[:100])
        one = x.detach().index_put((index,), gl.tensor(np.ones(1, dtype), device=device), accumulate=True)
        return [t.cpu().numpy() for t in (weight.grad, x.grad, spread, one)]

    def atomics():
        return {key for key in load().work._kernels if key[1] == "atomic_add" and key[2][0] == np.dtype(dtype)}

    want, exact = results("cpu"), results("cuda")
    assert gl.are_deterministic_algorithms_enabled()
    assert not atomics()
    gl.use_deterministic_algorithms(False)
    try:
        free = results("cuda")
    finally:
        gl.use_deterministic_algorithms(True)
    assert atomics()
    for a, b, c in zip(want, exact, free, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(c, a, rtol=1e-5, atol=1e-5)
    for a, b in zip(results("cuda"), exact, strict=True):
        np.testing.assert_array_equal(a, b)
    assert {"embedding_backward", "scatter_add"} <= set(gl.cuda.nondeterministic_algorithms())


def test_the_setting():
    gl.use_deterministic_algorithms(True, warn_only=True)
    assert gl.is_deterministic_algorithms_warn_only_enabled()
    gl.use_deterministic_algorithms(True)
    assert not gl.is_deterministic_algorithms_warn_only_enabled()
    with pytest.raises(TypeError, match=r"True or False, not int"):
        gl.use_deterministic_algorithms(1)


pytestmark = pytest.mark.usefixtures("cuda")


def test_an_address_belongs_to_the_array_in_whose_zone_it_lies():
    if not bounds.mapped():
        pytest.skip("zones of one size: the nearest array is the one")
    live, start = guarded_memory._Live(), 1 << 20
    live.add(SimpleNamespace(address=start, size=1000))
    live.add(SimpleNamespace(address=start - 2048, size=7))
    assert live.beside(start - 1000) == live.beside(start - 1024) == (start, 1000)
    assert live.beside(start - 2041 + 255) == (start - 2048, 7)
    assert live.beside(start - 1025) == (start - 2048, 7)  # in no zone: the nearest
