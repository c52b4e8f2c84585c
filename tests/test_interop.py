"""NumPy's functions on tensors, DLPack, buffers, and names of types."""

import array

import numpy as np
import pytest

import gradlab as gl


def test_operators_of_numpy_are_the_tensors():
    x = gl.tensor([1.0, 2.0], requires_grad=True)
    for value in (np.float32(2) * x, np.full(2, 2.0, np.float32) * x, x * np.float32(2), np.multiply(2.0, x)):
        assert isinstance(value, gl.Tensor)
        assert value.grad_fn.name() == "MulBackward0"
    assert (np.float32(3) - x).tolist() == [2.0, 1.0]
    assert (np.array([1.0, 5.0], np.float32) < x).tolist() == [False, False]
    assert (np.eye(2, dtype=np.float32) @ x).tolist() == [1.0, 2.0]
    assert (np.array([2.0, 2.0]) ** gl.tensor([1.0, 3.0])).dtype == gl.float64


def test_functions_of_numpy_give_tensors():
    root = np.sqrt(gl.tensor([4.0, 9.0]))
    assert isinstance(root, gl.Tensor)
    assert root.tolist() == [2.0, 3.0]
    assert np.add.reduce(gl.tensor([1, 2, 3])).item() == 6
    whole, rest = np.divmod(gl.tensor([5.0]), 3.0)
    assert (whole.item(), rest.item()) == (1.0, 2.0)
    out = np.zeros(2, np.float32)
    assert np.exp(gl.zeros(2), out=out) is out
    assert out.tolist() == [1.0, 1.0]
    assert np.sqrt(gl.ones(2, requires_grad=True)).grad_fn.name() == "SqrtBackward0"
    with pytest.raises(RuntimeError, match="requires grad"):
        np.spacing(gl.ones(2, requires_grad=True))


def test_dlpack_of_a_gpu(cuda, monkeypatch):
    """By the driver: CuPy's from_dlpack on a real one. gradlab's own tensors are taken as they are."""

    class Other:
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **options):
            raise AssertionError("NumPy was asked")

    x = gl.zeros(3, device="cuda")
    gl.from_dlpack(x).add_(1)
    assert x.tolist() == [1.0, 1.0, 1.0]
    if cuda.driver.name == "emulated":
        with pytest.raises(BufferError, match="a Other lies on a real GPU"):
            gl.from_dlpack(Other())
    monkeypatch.setattr(cuda.driver, "from_dlpack", lambda source: x._array)
    shared = gl.from_dlpack(Other())
    shared.add_(1)
    assert shared.device == x.device and x.tolist() == [2.0, 2.0, 2.0]
    copied = gl.from_dlpack(Other(), copy=True)
    copied.add_(1)
    assert x.tolist() == [2.0, 2.0, 2.0] and gl.from_dlpack(Other(), device="cpu").device.type == "cpu"


def test_dlpack_shares_memory():
    x = gl.zeros(3)
    gl.from_dlpack(x).add_(1)
    np.from_dlpack(x)[0] = 5
    assert x.tolist() == [5.0, 1.0, 1.0]
    assert x.__dlpack_device__() == (1, 0)
    source = np.zeros(2)
    gl.from_dlpack(source)[0] = 3
    assert source[0] == 3
    copied = gl.from_dlpack(x, copy=True)
    copied[0] = 0
    assert x[0] == 5
    assert gl.utils.dlpack.from_dlpack(x).tolist() == x.tolist()
    assert "dltensor" in repr(gl.utils.dlpack.to_dlpack(x))
    with pytest.raises(BufferError, match="no memory"):
        gl.jit.trace(lambda x: (x.detach().__dlpack__(), x)[1], gl.ones(1))
    with pytest.raises(BufferError, match="detach"):
        gl.ones(1, requires_grad=True).__dlpack__()


def test_frombuffer():
    memory = bytearray(np.array([1.0, 2.0, 3.0], np.float32).tobytes())
    x = gl.frombuffer(memory, dtype=gl.float32, count=2, offset=4)
    assert x.tolist() == [2.0, 3.0]
    x[0] = 7
    assert np.frombuffer(memory, np.float32)[1] == 7
    assert gl.frombuffer(array.array("i", [1, 2]), dtype=gl.int32).tolist() == [1, 2]
    assert gl.frombuffer(b"ab", dtype=gl.uint8).add_(1).tolist() == [98, 99]
    with pytest.raises(ValueError, match="size"):
        gl.frombuffer(bytearray(3), dtype=gl.float32)


def test_type_says_and_takes_names():
    assert gl.ones(1).type() == "torch.FloatTensor"
    assert gl.ones(1, dtype=gl.int64).type() == "torch.LongTensor"
    assert gl.ones(1).type("torch.DoubleTensor").dtype == gl.float64
    assert gl.ones(1).type("gradlab.BoolTensor").dtype == gl.bool
    assert gl.ones(1).type(gl.int8).dtype == gl.int8


def test_integers_must_fit():
    for value, dtype in ((300, gl.uint8), ([1, 128], gl.int8), (-129, gl.int8), (-256, gl.uint8), ([[2**31]], gl.int32)):
        with pytest.raises(RuntimeError, match="does not fit"):
            gl.tensor(value, dtype=dtype)
    assert gl.tensor([-1, 255], dtype=gl.uint8).tolist() == [255, 255]  # as PyTorch: a negative number wraps around
    assert gl.tensor(np.array([300]), dtype=gl.uint8).tolist() == [44]
    assert gl.tensor([300], dtype=gl.bool).tolist() == [True]
