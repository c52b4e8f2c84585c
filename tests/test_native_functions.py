"""Functions at the top of PyTorch: those of `nn.functional` with a row's arguments, in-place methods as functions, windows, numerics."""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

X = gl.arange(12.0).reshape(3, 4) / 8 + 0.125


@pytest.mark.parametrize("name", sorted(gl._IN_PLACE))
def test_in_place_methods_as_functions(name):
    arguments = {
        "addmv_": (gl.ones(3, 3), gl.ones(3)), "as_strided_": ((2,), (2,)), "clamp_": (0.2, 0.5), "clip_": (0.2, 0.5), "clamp_max_": (0.5,),
        "clamp_min_": (0.5,), "fill_": (3,), "gcd_": (gl.tensor([4, 6]),), "lcm_": (gl.tensor([4, 6]),), "ldexp_": (gl.tensor(2),),
        "index_put_": ((gl.tensor([0]),), gl.tensor(1.0)), "resize_as_": (gl.ones(2),), "xlogy_": (gl.tensor(2.0),),
    }.get(name, ())  # fmt: skip
    start = gl.tensor([8, 9]) if name in ("gcd_", "lcm_") else gl.ones(3) if name == "addmv_" else gl.tensor([0.25, 0.5, 0.75, 1.0])
    start = start + 1 if name in ("acosh_", "arccosh_") else start
    x, y = start.clone(), start.clone()
    assert getattr(gl, name)(x, *arguments) is x
    assert gl.allclose(x, getattr(y, name)(*arguments), equal_nan=True)
    assert getattr(gl, name) is getattr(gl, name)
    assert name in dir(gl)
    with pytest.raises(TypeError, match="tensors"):
        getattr(gl, name)(3.0, *arguments)


def test_what_is_that_of_nn_functional():
    assert set(gl._NATIVE) <= set(dir(gl))
    for name in ("conv2d", "cosine_similarity", "pixel_shuffle", "rms_norm"):
        assert getattr(gl, name).__doc__ == getattr(F, name).__doc__


def test_with_the_arguments_of_a_row():
    image, weight = X.reshape(1, 3, 4), gl.ones(4)
    assert gl.equal(gl.layer_norm(X, (4,), weight), F.layer_norm(X, (4,), weight))
    assert gl.equal(gl.group_norm(image, 3), F.group_norm(image, 3))
    assert gl.equal(gl.batch_norm(image, None, None, None, None, True, 0.1, 1e-5, False), F.batch_norm(image, None, None, training=True))
    assert gl.equal(gl.instance_norm(image, None, None, None, None, True, 0.1, 1e-5, False), F.instance_norm(image))
    assert gl.equal(gl.embedding(X, gl.tensor([2, 0])), X[[2, 0]])
    assert gl.equal(gl.constant_pad_nd(X, (1, 2), 3), F.pad(X, (1, 2), value=3))
    values, places = gl.adaptive_max_pool1d(image, 2)
    assert gl.equal(places, F.adaptive_max_pool1d(image, 2, return_indices=True)[1])
    assert values.shape == (1, 3, 2)
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"):
        assert gl.equal(getattr(gl, name)(image, 0.5, False), image)
    gl.manual_seed(0)
    kept = gl.feature_dropout(gl.ones(4, 8, 5), 0.5, True)
    assert ((kept == 0) | (kept == 2)).all()
    assert gl.equal(kept, kept[:, :, :1].expand(4, 8, 5))
    grid = gl.zeros(1, 2, 2, 2)
    assert gl.equal(gl.grid_sampler(X[None, None], grid, 1, 1, True), F.grid_sample(X[None, None], grid, "nearest", "border", True))


def test_losses_take_their_reduction_as_a_number():
    p = F.log_softmax(X, 1)
    target = F.softmax(X * 2, 1)
    assert gl.equal(gl.kl_div(p, target), F.kl_div(p, target, reduction="none"))
    assert gl.equal(gl.kl_div(p, target, 2), F.kl_div(p, target, reduction="sum"))
    assert gl.equal(gl.margin_ranking_loss(X, p, gl.ones(3, 4), 0.5, 1), F.margin_ranking_loss(X, p, gl.ones(3, 4), 0.5))
    assert gl.equal(gl.triplet_margin_loss(X, X + 1, X - 1), F.triplet_margin_loss(X, X + 1, X - 1, reduction="none"))
    with pytest.raises(ValueError, match=r"0 .none., 1 .mean. or 2"):
        gl.kl_div(p, target, 3)
    with pytest.raises(TypeError, match="kl_div: reduction is an integer, not str: 'mean'"):
        gl.kl_div(p, target, "mean")


def test_windows():
    for name in ("hann", "hamming", "blackman", "bartlett", "kaiser"):
        window = getattr(gl, f"{name}_window")
        symmetric = window(9, False)
        assert gl.allclose(symmetric, symmetric.flip(0))
        assert gl.allclose(window(8), symmetric[:8])
        assert symmetric[4] == 1
        assert (window(0).shape, window(1).tolist()) == ((0,), [1.0])
        assert window(4, dtype=gl.float64).dtype is gl.float64
        with pytest.raises(RuntimeError, match="negative"):
            window(-1)
    assert gl.hann_window(4).tolist() == pytest.approx([0, 0.5, 1, 0.5])
    assert gl.allclose(gl.kaiser_window(9, False, 5.0), gl.tensor(np.kaiser(9, 5.0)).float(), atol=1e-6)


class TestNumerics:
    def test_frexp(self):
        x = gl.tensor([8.0, -0.75, 0.0, 1e-40, 3e38], requires_grad=True)
        mantissa, exponent = gl.frexp(x)
        assert gl.equal(mantissa.detach().double() * 2.0 ** exponent.double(), x.detach().double())
        assert exponent.dtype is gl.int32
        assert mantissa[:3].tolist() == [0.5, -0.75, 0.0]
        mantissa[0].backward()
        assert x.grad[0] == 2.0**-4
        with pytest.raises(RuntimeError, match="floating"):
            gl.frexp(gl.tensor([1]))

    def test_histogram(self):
        x = gl.tensor([1.0, 2.0, 1.0, 4.0])
        assert [t.tolist() for t in gl.histogram(x, 3)] == [[2.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
        assert gl.histogram(x, gl.tensor([0.0, 1.5, 5.0]), weight=x).hist.tolist() == [2.0, 6.0]
        assert gl.histogram(x, 2, range=(0.0, 2.0), density=True).hist.tolist() == pytest.approx([0, 1])

    @pytest.mark.parametrize("edge_order", [1, 2])
    def test_gradient(self, edge_order):
        values = np.random.default_rng(0).normal(size=(4, 5))
        x = gl.tensor(values)
        for found, expected in zip(gl.gradient(x, edge_order=edge_order), np.gradient(values, edge_order=edge_order), strict=True):
            assert np.allclose(found.numpy(), expected)
        places = np.array([0.0, 1.0, 3.0, 4.0, 8.0])
        (found,) = gl.gradient(x, spacing=(gl.tensor(places),), dim=1, edge_order=edge_order)
        assert np.allclose(found.numpy(), np.gradient(values, places, axis=1, edge_order=edge_order))
        assert gl.autograd.gradcheck(lambda x: gl.gradient(x, edge_order=edge_order), x.requires_grad_())

    def test_nonzero_static(self):
        x = gl.tensor([[0, 3], [4, 0]])
        assert gl.nonzero_static(x, size=1).tolist() == [[0, 1]]
        assert gl.nonzero_static(x, size=3, fill_value=9).tolist() == [[0, 1], [1, 0], [9, 9]]

    def test_pdist(self):
        x = gl.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]], requires_grad=True)
        assert gl.pdist(x).tolist() == pytest.approx([5, 1, math.sqrt(18)])
        assert F.pdist(x, 1).tolist() == [7.0, 1.0, 6.0]
        gl.pdist(x).sum().backward()
        assert x.grad is not None
