"""What a program does with CuPy, on any GPU: arrays, kernels, streams, events, graphs, pools, threads, errors,
Fourier transforms (test_emulated_cuda.py)."""

import threading

import cupy
import numpy as np

SCALE = """
extern "C" __global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
"""
SET = "template <typename T> __global__ void set(T* x, T value) { x[threadIdx.x] = value; }"
LARGE = """
extern "C" __global__ void large(float* x) {
  extern __shared__ float s[];
  s[16000 + threadIdx.x] = 3;
  x[threadIdx.x] = s[16000 + threadIdx.x];
}
"""

scale = cupy.RawKernel(SCALE, "scale")
x = cupy.arange(5, dtype=np.float32)
scale((1,), (32,), (x, np.float32(2), np.int32(5)))
assert x.get().tolist() == [0, 2, 4, 6, 8]
assert (x + 1).get().tolist() == [1, 3, 5, 7, 9]
assert (float(x.sum()), int(x.argmax()), float(x.mean())) == (20, 4, 4)
assert cupy.where(x > 3, x, 0).get().tolist() == [0, 0, 4, 6, 8]
assert x[cupy.asarray([4, 0])].get().tolist() == [8, 0]
assert cupy.concatenate([x, x]).reshape(2, 5).T.copy().get().tolist() == [[v, v] for v in (0, 2, 4, 6, 8)]

module = cupy.RawModule(code=SET, options=("-std=c++17",), name_expressions=["set<float>", "set<double>"])
module.get_function("set<double>")((1,), (5,), (y := cupy.empty(5), np.float64(7)))
assert y.get().tolist() == [7] * 5

large = cupy.RawKernel(LARGE, "large")
try:
    large((1,), (5,), (x,), shared_mem=65000)
except cupy.cuda.driver.CUDADriverError as error:
    assert "INVALID_VALUE" in str(error)
else:
    raise AssertionError("65000 bytes of shared memory were not asked for")
large.max_dynamic_shared_size_bytes = 65000
large((1,), (5,), (x,), shared_mem=65000)
assert x.get().tolist() == [3] * 5

stream, begun, ended = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(), cupy.cuda.Event()
cupy.cuda.Device().synchronize()
with stream:
    begun.record()
    scale((1,), (32,), (x, np.float32(2), np.int32(5)))
    ended.record()
ended.synchronize()
assert ended.done
assert cupy.cuda.get_elapsed_time(begun, ended) >= 0
called = []
stream.launch_host_func(called.append, 5)
stream.synchronize()
assert called == [5]

with stream:
    stream.begin_capture()
    scale((1,), (32,), (x, np.float32(10), np.int32(5)))
    assert stream.is_capturing()
    graph = stream.end_capture()
assert x.get().tolist() == [6] * 5
graph.launch(stream)
stream.synchronize()
assert x.get().tolist() == [60] * 5

pool = cupy.get_default_memory_pool()
before = pool.used_bytes()
z = cupy.zeros(1000)
assert pool.used_bytes() - before == 8192
del z
assert pool.used_bytes() == before
for ask, raised in (
    (lambda: cupy.zeros(1 << 50, np.uint8), cupy.cuda.memory.OutOfMemoryError),
    (lambda: cupy.RawKernel('extern "C" __global__ void f() { nonsense(); }', "f")((1,), (1,), ()), cupy.cuda.compiler.CompileException),
    (lambda: cupy.cuda.Device(9).use(), cupy.cuda.runtime.CUDARuntimeError),
    (lambda: cupy.cuda.malloc_managed(4), NotImplementedError),
):
    try:
        ask()
    except raised:
        pass
    else:
        raise AssertionError(raised)

with cupy.cuda.Device(1):
    assert cupy.ones(3).device.id == 1


def work() -> None:
    scale((1,), (32,), (x, np.float32(0.5), np.int32(5)))


thread = threading.Thread(target=work)
thread.start()
thread.join()
assert x.get().tolist() == [30] * 5
real = np.random.default_rng(0).normal(size=(6, 10, 12)).astype(np.float32)
turned = (real + 1j * real[::-1]).astype(np.complex64)
for name, array, options in (
    *(("fft", turned, {"axis": axis}) for axis in range(3)), *(("rfft", real, {"axis": axis}) for axis in range(3)),
    ("ifftn", turned, {"axes": (0, 1)}), ("fftn", np.asfortranarray(turned), {}), ("rfftn", real, {}),
    ("fft2", turned.astype(np.complex128), {}), ("irfftn", np.fft.rfftn(real).astype(np.complex64), {}),
    ("irfft", np.fft.rfft(real.astype(np.float64), axis=1), {"axis": 1}),
):  # fmt: skip
    want = getattr(np.fft, name)(array, **options)
    np.testing.assert_allclose(getattr(cupy.fft, name)(cupy.asarray(array), **options).get(), want, atol=1e-5 * abs(want).max())
print("all is well")
