"""Who × direction × device × dtype: memory that is shared with other libraries, and what refuses."""

import numpy as np
import pytest

import gradlab as gl

DTYPES = [
    gl.float64, gl.float32, gl.float16, gl.bfloat16, gl.int64, gl.int32, gl.int16, gl.int8, gl.uint8, gl.bool, gl.complex64, gl.complex128,
]  # fmt: skip
NARROWED = {gl.float64: gl.float32, gl.int64: gl.int32, gl.complex128: gl.complex64}  # by JAX, unless it is told otherwise


class StandIn:
    """An array of a library of CUDA's, as CuPy's: it takes tensors by DLPack or `__cuda_array_interface__`, and gives them by DLPack."""

    def __init__(self, source, stream=1):
        self.source, self.stream, self.asked = source, stream, []
        self.interface = source.__cuda_array_interface__ if source.dtype != gl.bfloat16 else None

    def __dlpack_device__(self):
        return self.source.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(options)
        return self.source.__dlpack__(**options)


def tensor(dtype, device="cpu"):
    return gl.tensor([0, 1, 1]).to(dtype=dtype, device=device)


def numbers(x):
    return x.to(dtype=gl.complex128 if x.dtype.is_complex else gl.float64).cpu().tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", ["asarray", "from_dlpack", "array_interface"])
def test_to_numpy(dtype, way):
    x = tensor(dtype)
    if dtype == gl.bfloat16 and way != "asarray":
        return  # which NumPy's own protocols have no name for
    array = {"asarray": np.asarray, "from_dlpack": np.from_dlpack, "array_interface": lambda t: np.asarray(Interface(t))}[way](x)
    assert array.dtype == dtype.dtype and np.shares_memory(array, x.numpy())
    array[0] = 1
    assert numbers(x)[0] == 1


class Interface:
    def __init__(self, source):
        self.__array_interface__ = source.__array_interface__


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_numpy(dtype):
    array = np.array([0, 1, 1]).astype(dtype.dtype)
    ways = [gl.from_numpy, gl.as_tensor, gl.asarray, *([] if dtype == gl.bfloat16 else [gl.from_dlpack, gl.array_api.from_dlpack])]
    for way in ways:
        x = way(array)
        assert x.dtype == dtype and np.shares_memory(x.numpy(), array)
    assert not np.shares_memory(gl.tensor(array).numpy(), array)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.torch
def test_with_pytorch(dtype):
    torch = pytest.importorskip("torch")
    x = tensor(dtype)
    there = torch.from_dlpack(x)
    assert there.dtype == getattr(torch, dtype.name) and there.data_ptr() == x.data_ptr()
    for back in (gl.from_dlpack(there), gl.as_tensor(there), gl.from_dlpack(torch.utils.dlpack.to_dlpack(there))):
        assert back.dtype == dtype and back.data_ptr() == x.data_ptr()
    assert torch.from_dlpack(gl.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
    copied = gl.from_dlpack(there, copy=True)
    assert copied.data_ptr() != x.data_ptr() and numbers(copied) == numbers(x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_with_jax(dtype):
    jax = pytest.importorskip("jax")
    x = tensor(dtype)
    expected = dtype if jax.config.jax_enable_x64 else NARROWED.get(dtype, dtype)
    there = jax.numpy.asarray(x)
    assert there.dtype == expected.dtype and np.asarray(there).astype(complex).tolist() == numbers(x)
    back = gl.from_dlpack(there)
    assert back.dtype == expected and numbers(back) == numbers(x)
    assert numbers(gl.as_tensor(there).add_(1) if dtype != gl.bool else gl.as_tensor(there)) is not None  # a copy, which may be written
    assert np.asarray(there).astype(complex).tolist() == numbers(x)
    with pytest.raises(RuntimeError, match=r"\.detach\(\)"):
        jax.numpy.asarray(gl.ones(2, requires_grad=True))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.is_complex], ids=str)
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_with_a_library_of_cuda(cuda, dtype, device):
    if cuda.driver.device_count() <= int(device[-1]):
        pytest.skip("one device")
    x = tensor(dtype, device)
    other = StandIn(x)
    assert x.__dlpack_device__() == (2, int(device[-1]))
    back = gl.from_dlpack(other)
    assert back.dtype == dtype and back.device == x.device and back.data_ptr() == x.data_ptr()
    back[0] = 1
    assert numbers(x) == [1, 1, 1]
    for way in (gl.as_tensor, gl.asarray):
        assert way(StandIn(x)).data_ptr() == x.data_ptr()
    assert gl.tensor(StandIn(x)).data_ptr() != x.data_ptr()
    if other.interface is not None:
        found = other.interface
        assert (found["version"], found["shape"], found["typestr"], found["strides"]) == (3, (3,), dtype.dtype.str, None)
        assert found["data"] == (x.data_ptr(), False) and found["stream"] not in (0, None)


def test_the_host_is_told_where_a_tensor_lies(cuda):
    x = gl.ones(3, device="cuda")
    for ask in (np.asarray, lambda t: t.numpy(), lambda t: np.array(t)):
        with pytest.raises(TypeError, match=r"cuda:0; call \.cpu\(\)"):
            ask(x)
    assert np.from_dlpack(x, device="cpu").tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="only as a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    assert not hasattr(gl.ones(1), "__cuda_array_interface__") and not hasattr(x, "__array_interface__")


def test_requests_of_the_protocol():
    x = gl.ones(3)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0))) and "dltensor_versioned" not in repr(x.__dlpack__())
    copied = np.from_dlpack(x, copy=True)
    copied[0] = 5
    assert x[0] == 1
    fixed = gl.from_numpy(np.broadcast_to(np.float32(1), (3,)))
    with pytest.raises(BufferError, match="read-only"):
        fixed.__dlpack__()
    assert not np.from_dlpack(fixed).flags.writeable
    for wrong in ({"stream": 1}, {"dl_device": (9, 0)}):
        with pytest.raises(BufferError):
            x.__dlpack__(**wrong)
    capsule = x.__dlpack__()
    gl.from_dlpack(capsule)
    with pytest.raises(BufferError, match="taken before"):
        gl.from_dlpack(capsule)
    with pytest.raises(TypeError, match=r"gl\.asarray"):
        gl.from_dlpack([1.0])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, dtype=np.float64, copy=False)
