"""A Tensor as a Python object: NumPy on either side, truth, numbers, containers, copies, text."""

import copy
import math
import pickle

import numpy as np
import pytest

import gradlab as gl


def leaf(values, dtype=gl.float32):
    return gl.tensor(values, dtype=dtype, requires_grad=True)


# ---------------------------------------------------------------- beside NumPy


@pytest.mark.parametrize("scalar", [np.float32(2), np.float64(2), np.int64(2), np.int8(2), np.bool_(True)])
def test_numpy_scalars_are_numbers(scalar):
    value = scalar.item()
    x = leaf([1.0, 3.0])
    for found, wanted in (
        (scalar * x, [value, 3 * value]),
        (x * scalar, [value, 3 * value]),
        (scalar + x, [value + 1, value + 3]),
        (scalar - x, [value - 1, value - 3]),
        (x - scalar, [1 - value, 3 - value]),
        (scalar / x, [value, np.float32(value / 3)]),
        (x / scalar, [1 / value, 3 / value]),
        (scalar**x, [value, value**3]),
        (x**scalar, [1.0, 3.0**value]),
    ):
        assert isinstance(found, gl.Tensor) and found.dtype == gl.float32 and found.requires_grad
        np.testing.assert_allclose(found.tolist(), wanted, rtol=1e-6)
    assert (scalar < x).tolist() == [value < 1, value < 3] and (scalar == x).tolist() == [value == 1, value == 3]


def test_numpy_arrays_on_either_side():
    x = leaf([1.0, 2.0])
    a = np.array([3.0, 4.0], dtype=np.float32)
    for y in (a * x, x * a):
        assert isinstance(y, gl.Tensor) and y.requires_grad
        x.grad = None
        y.sum().backward()
        assert x.grad.tolist() == [3.0, 4.0]
    y = a[::-1] - x
    assert y.tolist() == [3.0, 1.0]
    a *= 0
    assert y.tolist() == [3.0, 1.0]


def test_to_numpy_and_back():
    x = gl.tensor([[1.0, 2.0]])
    n = x.numpy()
    n[0, 0] = 7.0
    assert x.tolist() == [[7.0, 2.0]]
    assert np.asarray(x) is not None and np.asarray(x).dtype == np.float32
    assert np.array(x, dtype=np.float64).tolist() == [[7.0, 2.0]]
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        leaf([1.0]).numpy()
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        np.asarray(leaf([1.0]))


# ---------------------------------------------------------------- truth and numbers


def test_truth():
    assert gl.tensor(1.0) and gl.tensor([2]) and gl.tensor([[True]])
    assert not gl.tensor(0) and not gl.tensor([0.0]) and not leaf(0.0)
    for many in (gl.ones(2), gl.ones(0)):
        with pytest.raises(RuntimeError, match=r"ambiguous.*any\(\)"):
            bool(many)


def test_numbers():
    assert float(leaf(2.5)) == 2.5 and int(gl.tensor([3.9])) == 3 and math.sqrt(gl.tensor(4.0)) == 2.0
    assert type(gl.tensor(3).item()) is int and type(gl.tensor(3.0).item()) is float and type(gl.tensor(True).item()) is bool
    assert [10, 20, 30][gl.tensor(1)] == 20 and list(range(gl.tensor([3]))) == [0, 1, 2]
    for call in (float, int):
        with pytest.raises(RuntimeError, match="2 elements"):
            call(gl.ones(2))
    for wrong in (gl.tensor(1.0), gl.tensor([1, 2])):
        with pytest.raises(TypeError, match="integer tensor with one element"):
            [1, 2, 3][wrong]


# ---------------------------------------------------------------- as a container


def test_length_and_iteration():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    rows = list(x)
    assert len(x) == 2 and [r.tolist() for r in rows] == [[1.0, 2.0], [3.0, 4.0]]
    (rows[1] * rows[0]).sum().backward()
    assert x.grad.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    _, b = x
    assert b.tolist() == [3.0, 4.0] and [r.tolist() for r in reversed(x)] == [[3.0, 4.0], [1.0, 2.0]]
    for call in (len, list, iter):
        with pytest.raises(TypeError, match="0-d"):
            call(gl.tensor(1.0))


def test_membership():
    x = gl.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert 3.0 in x and 5 not in x and gl.tensor(2.0) in x and np.float64(1) in x
    with pytest.raises(RuntimeError, match="str"):
        "a" in x


def test_identity_hash_and_comparison_with_other_things():
    x, y = gl.tensor([1.0, 2.0]), gl.tensor([1.0, 2.0])
    table = {x: "x", y: "y"}
    assert table[x] == "x" and table[y] == "y" and len({x, y, x}) == 2 and hash(x) == hash(x)
    assert (x == y).tolist() == [True, True] and (x != y).tolist() == [False, False]
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert (x == "a") is False and (x == [1.0, 2.0]) is False
    assert any(t is y for t in [x, y])


def test_sizes():
    x = gl.zeros(2, 3, 4)
    assert x.shape == (2, 3, 4) == x.size() and x.size(-1) == 4 and x.dim() == x.ndim == 3 and x.numel() == x.nelement() == 24
    assert x.stride() == (12, 4, 1) and x.transpose(0, 2).stride() == (1, 4, 12) and x.stride(-1) == 1
    assert x[1].storage_offset() == 12 and x[1].data_ptr() == x.data_ptr() + 48
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous() and x.transpose(0, 1).contiguous().is_contiguous()
    assert x.nbytes == 96 and x.itemsize == x.element_size() == 4 and x.device.type == "cpu" and not x.is_complex()
    with pytest.raises(IndexError):
        x.size(3)


# ---------------------------------------------------------------- copies and files


def test_deepcopy():
    x = leaf([1.0, 2.0])
    x.note = ["mine"]
    (x * 2).sum().backward()
    twin = copy.deepcopy(x)
    twin.grad.mul_(0)
    twin.note.append("more")
    with gl.no_grad():
        twin.mul_(0)
    assert x.tolist() == [1.0, 2.0] and x.grad.tolist() == [2.0, 2.0] and x.note == ["mine"] and twin.requires_grad
    model = {"w": x, "same": x}
    both = copy.deepcopy(model)
    assert both["w"] is both["same"] is not x
    with pytest.raises(RuntimeError, match=r"detach\(\).clone\(\)"):
        copy.deepcopy(x * 2)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", [gl.float32, gl.float64, gl.float16, gl.bfloat16, gl.int64, gl.bool])
def test_pickle(dtype, protocol):
    x = gl.tensor([[1, 0], [1, 1]], dtype=dtype)
    back = pickle.loads(pickle.dumps(x.t(), protocol))
    assert back.dtype == dtype and back.tolist() == x.t().tolist() and not back.requires_grad
    if dtype in (gl.float32, gl.bfloat16):
        w = pickle.loads(pickle.dumps(x.detach().requires_grad_(), protocol))
        assert w.requires_grad and w.is_leaf
        w.sum().backward()
    computed = pickle.loads(pickle.dumps(leaf([1.0]) * 2, protocol))  # as in PyTorch, without its graph
    assert computed.requires_grad and computed.is_leaf


@pytest.mark.parametrize("default", [gl.float32, gl.float64, gl.float16])
def test_python_types_are_those_of_numpy(default):
    x, gl_default = gl.tensor([1, 2]), gl.get_default_dtype()
    gl.set_default_dtype(default)
    try:
        for kind, dtype in ((float, gl.float64), (complex, gl.complex128), (int, gl.int64), (bool, gl.bool)):
            made = [
                gl.zeros(2, dtype=kind), gl.tensor([1, 0], dtype=kind), gl.asarray([1], dtype=kind), gl.full((2,), 1, dtype=kind),
                x.to(kind),
                gl.ones_like(x, dtype=kind), x.new_zeros(2, dtype=kind), gl.eye(2, dtype=kind), x.type(kind),
            ]  # fmt: skip
            assert {t.dtype for t in made} == {dtype}
        assert x.sum(dtype=float).dtype == gl.nn.Linear(2, 2, dtype=float).weight.dtype == gl.arange(3, dtype=float).dtype == gl.float64
        assert x.view(float).dtype == gl.float64 and gl.tensor([1.0]).dtype == default
    finally:
        gl.set_default_dtype(gl_default)


def test_formatting():
    assert f"{gl.tensor(3.14159):.2f}" == "3.14" and f"{gl.tensor(7):3d}" == "  7" and f"{gl.tensor(2.5)}" == "2.5"
    assert f"{leaf(0.5):.1e}" == "5.0e-01" and f"{gl.tensor([2.0]).item():.1f}" == "2.0"
    assert f"{gl.tensor([1.0])}".startswith("tensor(")
    with pytest.raises(TypeError, match=r"\.2f.*\(2,\)"):
        f"{gl.ones(2):.2f}"


def test_constructor():
    assert gl.Tensor([1, 2]).dtype == gl.float32 and gl.Tensor().shape == (0,)
    assert isinstance(gl.ones(1), gl.Tensor)
