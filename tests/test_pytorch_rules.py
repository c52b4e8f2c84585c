"""Rules that PyTorch's own test databases ask for and that belong to no one family: keywords, truth values, edges of indexing."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F


def test_truth_values_and_integers_in_rounding_functions():
    b, i = gl.tensor([True, False]), gl.tensor([1, -3])
    assert gl.square(b).tolist() == [1, 0]
    assert gl.square(b).dtype == gl.int64
    assert gl.sign(b).dtype == gl.bool
    assert gl.round(i).tolist() == [1, -3]
    with pytest.raises(RuntimeError, match="floating point"):
        gl.round(i, decimals=-1)


def test_rounding_to_decimals():
    x = gl.tensor([1.23456, -1234.5], dtype=gl.float64)
    np.testing.assert_allclose(gl.round(x, decimals=2).numpy(), [1.23, -1234.5])
    np.testing.assert_allclose(gl.round(x, decimals=-2).numpy(), [0, -1200])


def test_negative_integer_powers_are_cut():
    a = gl.tensor([0, 1, -1, 2, -2, 3])
    assert gl.pow(a, gl.tensor(-1)).tolist() == [0, 1, -1, 0, 0, 0]
    assert gl.pow(a, gl.tensor([-2])).tolist() == [0, 1, 1, 0, 0, 0]
    assert (2 ** gl.tensor([-1, 3])).tolist() == [0, 8]


@pytest.mark.parametrize("name", ["maximum", "minimum", "logical_and", "logical_or", "logical_xor"])
def test_numbers_where_tensors_are_wanted(name):
    with pytest.raises(TypeError, match=name):
        getattr(gl, name)(gl.ones(2), 2)
    with pytest.raises(TypeError):
        getattr(gl, name)(2, gl.ones(2))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_start_with_a_tensor(name):
    assert getattr(gl, name)(gl.ones(2), 1).dtype == gl.bool
    with pytest.raises(TypeError, match=name):
        getattr(gl, name)(1, gl.ones(2))


def test_operators_still_take_numbers_on_either_side():
    x = gl.tensor([1.0, 3.0])
    assert (2 < x).tolist() == [False, True]
    assert (x >= 3).tolist() == [False, True]
    assert (1 == x).tolist() == [True, False]


def test_max_and_min_of_numbers_are_refused():
    for function in (gl.max, gl.min):
        with pytest.raises(TypeError, match="tensor"):
            function(2, gl.ones(2))


def test_keywords_of_shapes():
    x = gl.tensor(np.arange(6.0).reshape(2, 3))
    assert gl.flip(x, dims=(0, 1)).tolist() == [[5, 4, 3], [2, 1, 0]]
    assert gl.permute(x, dims=(1, 0)).shape == (3, 2)
    assert gl.reshape(x, shape=(3, 2)).shape == (3, 2)
    assert gl.squeeze(gl.ones(1, 1), ()).shape == (1, 1)
    with pytest.raises((RuntimeError, ValueError)):
        gl.flip(x, (0, 0))


def test_variance_without_a_correction_is_the_default():
    x = gl.tensor([1.0, 2.0, 4.0])
    assert gl.var(x, correction=None).item() == gl.var(x).item()


def test_narrow_starts_at_an_integer():
    x = gl.ones(4)
    assert gl.narrow(x, 0, gl.tensor(1), 2).shape == (2,)
    with pytest.raises(RuntimeError, match="start"):
        gl.narrow(x, 0, gl.tensor(True), 2)


def test_gather_of_nothing_takes_any_index_type():
    x = gl.ones(5, requires_grad=True)
    found = gl.gather(x, 0, gl.zeros(2, 0, dtype=gl.uint8))
    assert found.shape == (2, 0)
    found.sum().backward()
    assert x.grad.tolist() == [0] * 5


def test_take_along_dim_counts_from_the_end():
    x = gl.tensor([[1.0, 2.0, 3.0]])
    assert gl.take_along_dim(x, gl.tensor([[-1, 0]]), 1).tolist() == [[3, 1]]
    assert gl.take_along_dim(x, gl.tensor([-2])).tolist() == [2]


def test_a_value_filled_twice_gets_its_gradient_once():
    for index, size in (([0, 0, 2], 2), ([-1, 2], 1)):
        value = gl.tensor(7.0, requires_grad=True)
        out = gl.index_fill(gl.zeros(3, 2), 0, gl.tensor(index), value)
        out.sum().backward()
        assert value.grad.item() == 2 * size
        assert out.detach().sum().item() == 7 * 2 * size


def test_unique_along_an_empty_dimension():
    assert gl.unique(gl.zeros(3, 0, 2), dim=1).shape == (3, 0, 2)


def test_complex_values_are_refused_by_real_tensors():
    with pytest.raises(RuntimeError, match="not a real number"):
        gl.ones(2).masked_fill(gl.tensor([True, False]), 1j)
    with pytest.raises(RuntimeError, match="not a real number"):
        gl.ones(2).new_full((2,), 1j)


def test_losses_and_norms_refuse_what_pytorch_refuses():
    x = gl.ones(2, 3)
    with pytest.raises(RuntimeError, match="dtype"):
        F.nll_loss(x, gl.tensor([0, 1]), weight=gl.ones(3, dtype=gl.float16))
    with pytest.raises(RuntimeError, match="ignore_index"):
        F.cross_entropy(x, gl.ones(2, 3), ignore_index=1)
    for training, eps in ((True, 0.0), (True, -1.0), (False, -1.0)):
        with pytest.raises(ValueError, match="eps"):
            F.batch_norm(x, gl.zeros(3), gl.ones(3), training=training, eps=eps)
