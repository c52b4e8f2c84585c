"""Normalisation functions beyond their rows: running statistics, groups, evaluation, errors."""

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from slopes import check_slopes

RNG = np.random.default_rng(0)
IMAGES, WEIGHT, BIAS = RNG.normal(size=(3, 4, 2, 5)) * 2 + 1, RNG.normal(size=4), RNG.normal(size=4)
CHANNEL = (1, 4, 1, 1)


def standard(x, dims, eps=1e-5):
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)


def affine(y):
    return y * WEIGHT.reshape(CHANNEL) + BIAS.reshape(CHANNEL)


def tensors(*arrays):
    return [gl.tensor(a) for a in arrays]


def test_batch_norm_in_training_moves_the_running_statistics():
    x, weight, bias = tensors(IMAGES, WEIGHT, BIAS)
    mean, var = gl.zeros(4, dtype=gl.float64), gl.ones(4, dtype=gl.float64)
    y = F.batch_norm(x, mean, var, weight, bias, training=True, momentum=0.25)
    np.testing.assert_allclose(y.numpy(), affine(standard(IMAGES, (0, 2, 3))))
    np.testing.assert_allclose(mean.numpy(), 0.25 * IMAGES.mean((0, 2, 3)))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * IMAGES.var((0, 2, 3), ddof=1))
    check_slopes(lambda *a: F.batch_norm(a[0], None, None, a[1], a[2], training=True), IMAGES, WEIGHT, BIAS)


def test_running_statistics_do_not_join_the_graph():
    x = gl.tensor(IMAGES, requires_grad=True)
    mean = gl.zeros(4, dtype=gl.float64)
    F.batch_norm(x, mean, gl.ones(4, dtype=gl.float64), training=True).sum().backward()
    assert not mean.requires_grad


def test_batch_norm_in_evaluation():
    mean, var = RNG.normal(size=4), RNG.uniform(0.5, 2, 4)
    x, m, v, weight, bias = tensors(IMAGES, mean, var, WEIGHT, BIAS)
    y = F.batch_norm(x, m, v, weight, bias, eps=1e-3)
    np.testing.assert_allclose(y.numpy(), affine((IMAGES - mean.reshape(CHANNEL)) / np.sqrt(var.reshape(CHANNEL) + 1e-3)))
    np.testing.assert_array_equal(m.numpy(), mean)
    check_slopes(lambda *a: F.batch_norm(a[0], m, v, a[1], a[2]), IMAGES, WEIGHT, BIAS)


def test_batch_norm_of_constant_channels_is_finite():
    x = gl.ones(4, 3, requires_grad=True)
    y = F.batch_norm(x, None, None, training=True)
    y.sum().backward()
    assert y.abs().max().item() == 0
    assert np.isfinite(x.grad.numpy()).all()


def test_batch_norm_keeps_its_accuracy_far_from_zero():
    x = (RNG.normal(size=(20000, 2)) + 1000).astype(np.float32)
    y = F.batch_norm(gl.tensor(x), None, None, training=True).numpy()
    np.testing.assert_allclose(y, standard(x.astype(float), 0), atol=5e-4)


def test_instance_norm():
    x, weight, bias = tensors(IMAGES, WEIGHT, BIAS)
    mean, var = gl.zeros(4, dtype=gl.float64), gl.ones(4, dtype=gl.float64)
    y = F.instance_norm(x, mean, var, weight, bias, momentum=0.5)
    np.testing.assert_allclose(y.numpy(), affine(standard(IMAGES, (2, 3))))
    np.testing.assert_allclose(mean.numpy(), 0.5 * IMAGES.mean((0, 2, 3)))
    np.testing.assert_allclose(var.numpy(), 0.5 + 0.5 * IMAGES.var((2, 3), ddof=1).mean(0))
    check_slopes(F.instance_norm, IMAGES)
    np.testing.assert_allclose(
        F.instance_norm(x, mean, var, use_input_stats=False).numpy(), F.batch_norm(x, mean, var).numpy()
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(groups):
    want = affine(standard(IMAGES.reshape(3, groups, -1), 2).reshape(IMAGES.shape))
    np.testing.assert_allclose(F.group_norm(*tensors(IMAGES)[:1], groups, *tensors(WEIGHT, BIAS)).numpy(), want)
    check_slopes(lambda *a: F.group_norm(a[0], groups, a[1], a[2]), IMAGES, WEIGHT, BIAS)


def test_layer_and_rms_norm():
    scale = RNG.normal(size=(2, 5))
    x, w = tensors(IMAGES, scale)
    np.testing.assert_allclose(F.layer_norm(x, (2, 5), w, w).numpy(), standard(IMAGES, (2, 3)) * scale + scale)
    rms = IMAGES / np.sqrt((IMAGES**2).mean((2, 3), keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(F.rms_norm(x, [2, 5], w, 1e-3).numpy(), rms)
    zeros = gl.zeros(2, 3, requires_grad=True)
    F.rms_norm(zeros, (3,)).sum().backward()
    assert np.isfinite(zeros.grad.numpy()).all()
    one = F.layer_norm(gl.ones(2, 3, dtype=gl.float16), (3,))
    assert one.dtype is gl.float16


def test_local_response_norm():
    squares = np.pad(IMAGES**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    want = IMAGES / (2 + 0.3 * total / 3) ** 0.7
    np.testing.assert_allclose(F.local_response_norm(gl.tensor(IMAGES), 3, 0.3, 0.7, 2.0).numpy(), want)
    check_slopes(lambda a: F.local_response_norm(a, 4), IMAGES)
    np.testing.assert_allclose(F.local_response_norm(gl.tensor([[[6], [2]]]), 1, 1.0, 0.5, 0.0).numpy(), np.ones((1, 2, 1)))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [(lambda x: F.batch_norm(x[:1, :, 0, 0], None, None, training=True), ValueError, "more than 1 value"),
     (lambda x: F.batch_norm(x, None, None), RuntimeError, "running_mean"),
     (lambda x: F.batch_norm(x, gl.zeros(3), gl.ones(3)), RuntimeError, "running_mean has shape"),
     (lambda x: F.instance_norm(x[..., :1, :1]), ValueError, "more than 1 value"),
     (lambda x: F.group_norm(x, 3), RuntimeError, "do not divide"),
     (lambda x: F.group_norm(x, 2, gl.ones(3)), RuntimeError, "weight has shape"),
     (lambda x: F.layer_norm(x, (4, 5)), RuntimeError, "normalized_shape"),
     (lambda x: F.layer_norm(x, (5,), gl.ones(4)), RuntimeError, "weight has shape"),
     (lambda x: F.rms_norm(x, ()), RuntimeError, "normalized_shape"),
     (lambda x: F.local_response_norm(x[0, 0], 2), ValueError, "3 or more")],
)  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call(gl.ones(2, 4, 3, 5))
