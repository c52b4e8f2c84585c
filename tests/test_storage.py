"""Storages: the memory that tensors are parts of. And what works on a tensor's numbers by hand."""

import sys

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64, gl.float16, gl.bfloat16, gl.int64, gl.uint8, gl.bool])
def test_size_and_place(dtype):
    x = gl.ones(3, 4, dtype=dtype)
    part = x[1:, ::2].t()
    for storage in (part.storage(), x.storage(), x.detach().storage()):
        assert (storage.size(), len(storage), storage.nbytes()) == (12, 12, x.nbytes)
        assert storage.data_ptr() == storage._cdata == x.data_ptr() == storage.untyped().data_ptr()
        assert (storage.dtype, storage.element_size(), storage.type()) == (dtype, x.itemsize, x.type().replace("Tensor", "Storage"))
    untyped = part.untyped_storage()
    assert (untyped.size(), untyped.nbytes(), untyped.element_size(), untyped.untyped()) == (x.nbytes, x.nbytes, 1, untyped)
    assert not untyped.is_cuda
    assert (untyped.device, untyped.get_device(), untyped.cpu()) == (x.device, -1, untyped)
    assert part.data_ptr() == untyped.data_ptr() + part.storage_offset() * x.itemsize
    assert x.clone().storage().data_ptr() != x.storage().data_ptr()
    assert gl.is_storage(untyped)
    assert not gl.is_storage(x)
    assert gl.ones(1, dtype=dtype).storage_type() is gl.TypedStorage


def test_elements_are_read_and_written():
    x = gl.arange(6).reshape(2, 3)
    storage = x[1].storage()
    assert storage.tolist() == list(storage) == [0, 1, 2, 3, 4, 5]
    assert (storage[4], storage[1:3].tolist()) == (4, [1, 2])
    storage[4] = 9
    assert x.tolist() == [[0, 1, 2], [3, 9, 5]]
    other = storage.clone()
    storage.fill_(0)
    assert x.sum() == 0
    storage.copy_(other)
    assert x[1, 1] == 9
    assert repr(storage).splitlines()[:2] == [" 0", " 1"]
    assert repr(storage).splitlines()[6:] == ["[TypedStorage(dtype=gradlab.int64, device=cpu) of size 6]"]
    assert repr(gl.arange(5000).storage()).splitlines()[2:5] == [" 2", " ...", " 4997"]


def test_a_write_to_it_is_noticed_by_backward():
    x = gl.ones(2, requires_grad=True)
    y = x * 1
    z = y * y
    y.storage()[0] = 5
    with pytest.raises(RuntimeError, match=r"overwritten|modified|in.place"):
        z.sum().backward()


def test_memory_of_numpys_is_no_more_than_the_array():
    array = np.arange(6.0)
    assert gl.from_numpy(array).storage().nbytes() == 48
    assert gl.from_numpy(array[::2]).storage().tolist() == [0.0, 2.0, 4.0]


def test_a_tensor_is_set_to_a_part_of_a_storage():
    x, y = gl.arange(6.0), gl.zeros(1)
    y.set_(x.storage(), 1, (2, 2), (2, 1))
    assert y.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    y[0, 0] = 7
    assert x[1] == 7
    assert gl.zeros(1).set_(x.untyped_storage()).shape == (6,)
    assert gl.zeros(1).set_(x, 2, (3,)).tolist() == [2.0, 3.0, 4.0]
    with pytest.raises(RuntimeError, match="reach"):
        gl.zeros(1).set_(x.storage(), 5, (2,))
    assert gl.zeros(2, dtype=gl.uint8).set_(gl.UntypedStorage(3)).tolist() == [0, 0, 0]


def test_by_hand():
    x, y = gl.tensor([[1.0, 2.0], [3.0, 4.0]]), gl.tensor([10.0, 20.0])
    assert x.clone().apply_(lambda v: v * v).tolist() == [[1.0, 4.0], [9.0, 16.0]]
    assert x.clone().map_(y, lambda a, b: a + b).tolist() == (x + y).tolist()
    assert x.t().clone().map2_(y, y, lambda a, b, c: a + b * c).tolist() == (x.t() + y * y).tolist()
    with pytest.raises(RuntimeError, match="not recorded"):
        gl.ones(1, requires_grad=True).clone().apply_(abs)


def test_what_kinds_of_tensors_there_are_not():
    x = gl.ones(2)
    for name in ["mkldnn", "xpu", "mps", "ipu", "xla", "mtia", "maia", "vulkan", "hpu", "meta", "nested", "quantized", "sparse"]:
        assert getattr(x, f"is_{name}") is False
    assert x.name is None
    assert x.pin_memory() is x
    assert not x.is_pinned()
    with pytest.raises(RuntimeError, match="non-complex"):
        _ = x.imag


def test_a_storage_of_a_file(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(8)))
    found = gl.UntypedStorage.from_file(path, False, 6)
    assert found.tolist() == [0, 1, 2, 3, 4, 5] and sys.getsizeof(found) - sys.getsizeof(found[:0]) == 6
    assert gl.asarray(found[2:4], dtype=gl.uint8).tolist() == [2, 3]
    shared = gl.UntypedStorage.from_file(path, True, 10)
    shared[9] = 7
    assert path.read_bytes() == bytes([*range(8), 0, 7]) and found[0] == 0
    with pytest.raises(ValueError, match="10 bytes, not 12"):
        gl.UntypedStorage.from_file(path, False, 12)


def test_the_bits_of_nothing():
    assert gl.zeros(0, dtype=gl.uint8).view(gl.float32).shape == (0,) and gl.zeros(0, 8).view(gl.int16).shape == (0, 16)
