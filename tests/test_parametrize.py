"""Parametrizations, weight norm and spectral norm in both forms, orthogonal weights, folded batch norms."""

import copy
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.fixture(autouse=True)
def seeded():
    gl.manual_seed(0)


def test_a_parametrized_weight():
    layer = nn.Linear(3, 3)
    weight = layer.weight
    optimizer = gl.optim.SGD(layer.parameters(), lr=0.1)
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert layer.parametrizations.weight.original is weight  # the optimizer's
    assert isinstance(layer, nn.Linear)
    assert type(layer).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    layer(gl.randn(2, 3)).sum().backward()
    assert gl.equal(weight.grad, weight.grad.triu())
    optimizer.step()
    assert gl.equal(layer.weight, layer.weight.mT)
    layer.weight = gl.ones(3, 3)
    assert gl.equal(weight, gl.ones(3, 3).triu())
    parametrize.register_parametrization(layer, "weight", Twice())
    assert layer.weight[0, 1] == 2
    with pytest.raises(RuntimeError, match="right_inverse"):
        layer.weight = gl.ones(3, 3)
    twin = copy.deepcopy(layer)
    twin.parametrizations.weight.original.data.zero_()
    assert (twin.weight == 0).all()
    assert layer.weight[0, 1] == 2
    with pytest.raises(RuntimeError, match="pickled"):
        pickle.dumps(layer)
    fresh = nn.Linear(3, 3)
    parametrize.register_parametrization(fresh, "weight", Symmetric())
    fresh.load_state_dict(layer.state_dict(), strict=False)
    assert gl.equal(fresh.weight * 2, layer.weight)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert layer.weight is weight
    assert weight[0, 1] == 2
    assert not parametrize.is_parametrized(layer)


def test_a_buffer_and_a_cache():
    layer = nn.BatchNorm1d(2)
    parametrize.register_parametrization(layer, "running_mean", Twice())
    assert "parametrizations.running_mean.original" in dict(layer.named_buffers())
    assert layer.running_mean is not layer.running_mean
    with parametrize.cached():
        assert layer.running_mean is layer.running_mean
    parametrize.remove_parametrizations(layer, "running_mean", leave_parametrized=False)
    assert "running_mean" in dict(layer.named_buffers())


@pytest.mark.parametrize(("module", "message"), [(nn.Flatten(0), "shape"), (nn.Identity(), None)])
def test_shape_and_dtype_stay(module, message):
    layer = nn.Linear(2, 2)
    if message is None:
        parametrize.register_parametrization(layer, "weight", module)
        return
    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(layer, "weight", module)
    with pytest.raises(ValueError, match="no parameter"):
        parametrize.register_parametrization(layer, "nothing", nn.Identity())
    with pytest.raises(ValueError, match="not parametrized"):
        parametrize.remove_parametrizations(layer, "bias")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_weight_norm(older, dim):
    layer = nn.Conv1d(3, 4, 2)
    weight = layer.weight.detach().numpy().copy()
    (nn.utils.weight_norm if older else parametrizations.weight_norm)(layer, dim=dim)
    x = gl.randn(2, 3, 5)
    y = layer(x)
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight, rtol=1e-5)
    y.sum().backward()
    g = layer.weight_g if older else layer.parametrizations.weight.original0
    v = layer.weight_v if older else layer.parametrizations.weight.original1
    axes = None if dim in (-1, None) else tuple(a for a in range(3) if a != dim % 3)
    np.testing.assert_allclose(g.detach().numpy(), np.sqrt((weight**2).sum(axes, keepdims=axes is not None)), rtol=1e-5)
    assert (v.grad * v).sum(axes or (0, 1, 2)).abs().max() < 1e-3  # a direction's gradient is orthogonal to it
    if older:
        nn.utils.remove_weight_norm(layer)
    else:
        parametrize.remove_parametrizations(layer, "weight")
    assert gl.allclose(layer(x), y, atol=1e-6)
    assert set(layer.state_dict()) == {"weight", "bias"}


def test_weights_of_the_older_weight_norm_load():
    old, new = nn.utils.weight_norm(nn.Linear(3, 2)), parametrizations.weight_norm(nn.Linear(3, 2))
    model = nn.Sequential(new)
    model.load_state_dict({f"0.{k}": v for k, v in old.state_dict().items()})
    assert gl.allclose(new.weight, old.weight)


@pytest.mark.parametrize("older", [False, True])
def test_spectral_norm(older):
    layer = nn.ConvTranspose1d(3, 4, 2)
    (nn.utils.spectral_norm if older else parametrizations.spectral_norm)(layer, n_power_iterations=30)
    x = gl.randn(2, 3, 5)
    layer(x).sum().backward()
    matrix = layer.weight.detach().movedim(1, 0).flatten(1)
    assert abs(gl.linalg.matrix_norm(matrix, 2).item() - 1) < 1e-4
    layer.eval()
    assert gl.equal(layer(x), layer(x))
    if older:
        assert set(layer.state_dict()) == {"bias", "weight_orig", "weight_u", "weight_v"}
        y = layer(x)
        twin = nn.utils.spectral_norm(nn.ConvTranspose1d(3, 4, 2)).eval()
        twin.load_state_dict(layer.state_dict())
        assert gl.allclose(twin(x), y)
        assert gl.allclose(nn.utils.remove_spectral_norm(layer)(x), y, atol=1e-6)
    assert parametrizations.spectral_norm(nn.LayerNorm(4)).weight.norm().item() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 6)])
def test_orthogonal(kind, shape):
    layer = nn.Linear(shape[1], shape[0])
    q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((max(shape), min(shape))))
    start = gl.tensor((q if shape[0] >= shape[1] else q.T).astype(np.float32))
    layer.weight.data = start
    parametrizations.orthogonal(layer, orthogonal_map=kind)
    assert gl.allclose(layer.weight, start, atol=1e-5)  # it is orthogonal already: training starts there
    optimizer = gl.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (layer(gl.ones(1, shape[1])) - 1).square().sum().backward()
        optimizer.step()
    w = layer.weight
    small = w @ w.mT if shape[0] <= shape[1] else w.mT @ w
    assert (small - gl.eye(min(shape))).abs().max() < 1e-4
    assert not gl.allclose(w, start, atol=1e-3)


def test_an_rnn_and_compiled_weights():
    rnn = parametrizations.weight_norm(nn.GRU(3, 4, batch_first=True), "weight_hh_l0")
    out, _ = rnn(gl.randn(2, 5, 3))
    out.sum().backward()
    assert rnn.parametrizations.weight_hh_l0.original0.grad.abs().sum() > 0
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    x = gl.randn(4, 3)
    assert gl.allclose(gl.jit.trace(layer, x)(x), layer(x), atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_folded_batch_norms(bias):
    for layer, norm, x, fuse, more in (
        (nn.Conv2d(2, 3, 3, bias=bias), nn.BatchNorm2d(3), gl.randn(2, 2, 5, 5), nn.utils.fuse_conv_bn_eval, ()),
        (nn.ConvTranspose1d(2, 3, 3, bias=bias), nn.BatchNorm1d(3, affine=False), gl.randn(2, 2, 5), nn.utils.fuse_conv_bn_eval, (True,)),
        (nn.Linear(2, 3, bias=bias), nn.BatchNorm1d(3), gl.randn(4, 2), nn.utils.fuse_linear_bn_eval, ()),
    ):
        for _ in range(3):
            norm(layer(x))
        with pytest.raises(RuntimeError, match="eval"):
            fuse(layer, norm, *more)
        layer.eval()
        norm.eval()
        assert gl.allclose(fuse(layer, norm, *more)(x), norm(layer(x)), atol=1e-5)


def test_skip_init_draws_nothing():
    state = gl.get_rng_state()
    assert nn.utils.skip_init(nn.Linear, 3, 4, bias=False).weight.shape == (4, 3)
    assert gl.equal(state, gl.get_rng_state())
    with pytest.raises(TypeError, match="subclass"):
        nn.utils.skip_init(gl.ones, 3)
