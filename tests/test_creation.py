"""Making tensors: values, dtypes, sharing of memory, arguments."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.dlpack import to_dlpack


def test_spaced():
    for start, end, steps in ((0, 1, 5), (3, -2.5, 7), (1, 1, 3), (2, 5, 1), (0, 1, 0)):
        np.testing.assert_allclose(gl.linspace(start, end, steps).numpy(), np.linspace(start, end, steps), rtol=1e-6)
        np.testing.assert_allclose(gl.logspace(start, end, steps, base=2).numpy(), np.logspace(start, end, steps, base=2), rtol=1e-6)
    x = gl.linspace(-1, 1, 10001)
    assert (x[0].item(), x[-1].item()) == (-1, 1)
    assert (x + x.flip(0)).abs().max().item() == 0
    assert gl.linspace(0, 3, 4, dtype=gl.int64).tolist() == [0, 1, 2, 3]
    assert gl.linspace(gl.tensor(0.0), gl.tensor(1.0), 2).tolist() == [0, 1]


def test_ranges():
    assert gl.arange(5).dtype == gl.int64
    assert gl.arange(1, 2, 0.25).tolist() == [1, 1.25, 1.5, 1.75]
    assert gl.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert gl.arange(0.0, 3.5, dtype=gl.int64).tolist() == [0, 1, 2]
    assert gl.arange(3, dtype=gl.float16).dtype == gl.float16


def test_filled():
    like = gl.ones(2, 3, dtype=gl.float64)
    for name, value in (("zeros", 0), ("ones", 1)):
        assert getattr(gl, name)(2, 3).tolist() == getattr(gl, name)((2, 3)).tolist() == [[value] * 3] * 2
        made = getattr(gl, f"{name}_like")(like)
        assert (made.dtype, made.shape) == (gl.float64, (2, 3))
        assert getattr(gl, f"{name}_like")(like, dtype=gl.int32).dtype == gl.int32
    assert gl.full((2,), 3).dtype == gl.int64
    assert gl.full((2,), 3.0).dtype == gl.float32
    assert gl.full((2,), True).dtype == gl.bool
    assert gl.full_like(like, 7).tolist() == [[7.0] * 3] * 2
    assert gl.empty(0, 3).shape == (0, 3)
    assert gl.scalar_tensor(3).dtype == gl.float32
    assert gl.scalar_tensor(3, dtype=gl.int64).shape == ()
    assert gl.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert gl.zeros(2, requires_grad=True).requires_grad


def test_strides_and_sharing():
    x = gl.empty_strided((2, 3), (1, 2))
    assert (x.shape, x.stride()) == ((2, 3), (1, 2))
    array = np.arange(3.0)
    for shared in (gl.from_numpy(array), gl.as_tensor(array), gl.asarray(array), gl.from_dlpack(array)):
        shared[0] = 7
        assert array[0] == 7
        array[0] = 0
    copied = gl.asarray(array, copy=True)
    copied[0] = 7
    assert array[0] == 0


WRONG = {
    "negative size": (lambda: gl.zeros(-1), RuntimeError),
    "arange step": (lambda: gl.arange(0, 5, 0), RuntimeError),
    "arange direction": (lambda: gl.arange(0, 5, -1), RuntimeError),
    "arange infinite": (lambda: gl.arange(float("inf")), RuntimeError),
    "arange text": (lambda: gl.arange("3"), TypeError),
    "linspace steps": (lambda: gl.linspace(0, 1, -1), RuntimeError),
    "linspace float steps": (lambda: gl.linspace(0, 1, 2.0), TypeError),
    "empty_strided": (lambda: gl.empty_strided((2, 3), (1,)), RuntimeError),
    "ragged": (lambda: gl.tensor([[1], [1, 2]]), ValueError),
    "text": (lambda: gl.tensor("a"), TypeError),
    "from_numpy": (lambda: gl.from_numpy([1]), TypeError),
    "integers that require grad": (lambda: gl.zeros(2, dtype=gl.int64, requires_grad=True), RuntimeError),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, error = WRONG[case]
    with pytest.raises(error):
        call()


def test_sequences_go_into_an_out_of_as_many_elements():
    for name, arguments in (("arange", (6,)), ("linspace", (0, 5, 6)), ("logspace", (0, 5, 6)), ("range", (0, 5))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # range is deprecated
            expected, whole = getattr(gl, name)(*arguments).float(), gl.zeros(3, 4)
            for out in (gl.zeros(2, 3), whole[:, 1:3]):
                assert getattr(gl, name)(*arguments, out=out) is out and gl.equal(out.reshape(-1), expected)
            assert not whole[:, ::3].any() and getattr(gl, name)(*arguments, out=gl.zeros(4)).shape == (6,)


def test_asarray_and_graphs():
    """A tensor stays in its graph unless it is told to leave."""
    leaf = gl.ones(2, requires_grad=True)
    for x in (leaf, leaf * 2):
        assert gl.asarray(x).requires_grad and gl.asarray(x, copy=True).requires_grad and gl.asarray(x, requires_grad=True).requires_grad
        assert not gl.asarray(x, requires_grad=False).requires_grad and not gl.asarray(x, requires_grad=False, copy=True).requires_grad
    assert gl.asarray(leaf, copy=True).data_ptr() != leaf.data_ptr() and gl.asarray([1.0], requires_grad=True).requires_grad


@pytest.mark.parametrize("dtype", [gl.float32, gl.bfloat16, gl.int64])
def test_capsules_are_memory_to_write_to(dtype):
    x = gl.ones(3, dtype=dtype)
    for take in (gl.from_dlpack, gl.asarray):
        taken = take(to_dlpack(x))
        taken[0] = 5
        assert x[0] == 5 and taken.data_ptr() == x.data_ptr()
        x[0] = 1


def test_strides_of_no_elements():
    assert gl.zeros(0, 3).stride() == (3, 1) and gl.zeros(2, 0, 3).stride() == (3, 3, 1) and gl.block_diag().shape == (1, 0)
