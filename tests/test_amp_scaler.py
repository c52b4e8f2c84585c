"""`gl.amp.GradScaler`, eagerly: steps, skipped steps, the scale, several optimizers, errors, saving. Compiled: test_amp_compile.py."""

import math
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

F = nn.functional


def scaled(**options):
    w = gl.ones(3, requires_grad=True)
    return w, gl.optim.SGD([w], lr=0.5), gl.amp.GradScaler("cpu", **{"init_scale": 8.0, **options})


def test_gradients_are_unscaled_before_the_step():
    w, optimizer, scaler = scaled()
    scaler.scale((w * w).sum()).backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full(3, 16.0))
    scaler.step(optimizer)
    np.testing.assert_array_equal(w.grad.numpy(), np.full(3, 2.0))
    np.testing.assert_array_equal(w.detach().numpy(), np.zeros(3))
    scaler.update()
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan])
def test_a_step_with_a_gradient_that_is_not_finite_is_skipped(wrong):
    w, optimizer, scaler = scaled(backoff_factor=0.25)
    scaler.scale(w.sum()).backward()
    w.grad[1] = wrong
    assert scaler.step(optimizer) is None
    np.testing.assert_array_equal(w.detach().numpy(), np.ones(3))
    scaler.update()
    assert scaler.get_scale() == 2.0


def test_the_largest_numbers_are_finite():
    w, optimizer, scaler = scaled(init_scale=1.0)
    scaler.scale(w.sum()).backward()
    w.grad.fill_(3e38)  # their sum is not
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1.0 and w[0].item() < -1e37


def test_the_scale_grows_after_so_many_steps_without():
    w, optimizer, scaler = scaled(growth_interval=3, growth_factor=4.0)
    found = []
    for i in range(8):
        optimizer.zero_grad()
        scaler.scale(w.sum()).backward()
        if i == 4:
            w.grad[0] = math.inf
        scaler.step(optimizer)
        scaler.update()
        found.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    assert found == [(8, 1), (8, 2), (32, 0), (32, 1), (16, 0), (16, 1), (16, 2), (64, 0)]


def test_the_scale_never_grows_to_infinity():
    w, optimizer, scaler = scaled(init_scale=2.0**126, growth_interval=1)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(w[:0].sum() + w.sum() * 2.0**-100).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**127


def test_unscale_once_to_clip():
    w, optimizer, scaler = scaled()
    scaler.scale((w * 3).sum()).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_([w], 1.0)
    assert norm.item() == pytest.approx(27**0.5)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(w.detach().numpy(), np.full(3, 1 - 0.5 / 3**0.5), rtol=1e-5)


def test_several_losses_and_optimizers():
    a, b = gl.ones(2, requires_grad=True), gl.ones(2, requires_grad=True)
    first, second = gl.optim.SGD([a], lr=1.0), gl.optim.SGD([b], lr=1.0)
    scaler = gl.amp.GradScaler("cpu", init_scale=4.0)
    one, (two, more) = scaler.scale([a.sum() + b.sum(), (a.sum(), [b.sum()])])
    assert isinstance(more, list)
    (one + two).backward()
    b.grad[0] = math.inf
    scaler.step(first)
    scaler.step(second)
    scaler.update()  # one of them was skipped
    assert scaler.get_scale() == 2.0
    np.testing.assert_array_equal(a.detach().numpy(), [-1, -1])
    np.testing.assert_array_equal(b.detach().numpy(), [1, 1])


def test_accumulated_gradients():
    w, optimizer, scaler = scaled()
    for _ in range(4):
        scaler.scale(w.sum() / 4).backward()
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_array_equal(w.detach().numpy(), np.full(3, 0.5))


def test_a_new_scale():
    w, optimizer, scaler = scaled()
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    scaler.update(gl.tensor([2.0]))
    assert scaler.get_scale() == 2.0
    with pytest.raises(AssertionError, match="float32"):
        scaler.update(gl.tensor([1, 2]))


def test_factors():
    scaler = gl.amp.GradScaler("cpu")
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (2.0, 0.5, 2000)
    for begun in (False, True):
        if begun:
            scaler.scale(gl.tensor(1.0))
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.1)
        scaler.set_growth_interval(7)
        assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3.0, 0.1, 7)
    with pytest.raises(AssertionError, match="growth factor"):
        gl.amp.GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(AssertionError, match="backoff factor"):
        gl.amp.GradScaler("cpu", backoff_factor=1.0)


def test_disabled():
    w, optimizer, scaler = scaled(enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss and not scaler.is_enabled() and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.load_state_dict({})
    np.testing.assert_array_equal(w.detach().numpy(), np.full(3, 0.5))


def test_without_a_gpu_a_scaler_for_one_is_disabled():
    if gl.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not gl.amp.GradScaler().is_enabled()


def test_errors():
    w, optimizer, scaler = scaled()
    with pytest.raises(AssertionError, match="before scale"):
        scaler.step(optimizer)
    scaler.scale(w.sum())
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(optimizer)
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        gl.amp.GradScaler("cpu").scale(w.sum())
        scaler.update()
    with pytest.raises(RuntimeError, match="Closure use"):
        scaler.step(optimizer, closure=lambda: 0.0)
    with pytest.raises(ValueError, match="iterable of Tensors"):
        scaler.scale(1.0)
    half = gl.ones(2, dtype=gl.float16, requires_grad=True)
    scaler.scale(half.sum()).backward()
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.unscale_(gl.optim.SGD([half], lr=0.1))


def test_state_can_be_saved():
    w, optimizer, scaler = scaled(growth_interval=5)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    assert state == {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 5, "_growth_tracker": 1}
    for begun in (False, True):
        other = gl.amp.GradScaler("cpu")
        if begun:
            other.scale(w.sum())
        other.load_state_dict(state)
        assert other.state_dict() == state
    assert pickle.loads(pickle.dumps(other)).state_dict() == state
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        scaler.load_state_dict({})


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
def test_training_under_autocast(dtype):
    """Small gradients that float16 would round to 0 train with a scaler."""
    gl.manual_seed(0)
    x, y = gl.randn(32, 6), gl.randn(32, 2) * 1e-4
    results = {}
    for kind in ("float32", "scaled", "not scaled"):
        gl.manual_seed(1)
        m = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = gl.optim.SGD(m.parameters(), lr=0.1)
        scaler = gl.amp.GradScaler("cpu", init_scale=2.0**10, enabled=kind == "scaled")
        for _ in range(20):
            optimizer.zero_grad()
            with gl.autocast("cpu", dtype=dtype, enabled=kind != "float32"):
                loss = F.mse_loss(m(x), y) * 1e-6
            scaler.scale(loss).backward()
            for p in m.parameters():
                p.grad *= 1e6
            scaler.step(optimizer)
            scaler.update()
        results[kind] = loss.item()
    assert results["scaled"] == pytest.approx(results["float32"], rel=0.1)
    if dtype == gl.float16:
        assert results["not scaled"] > results["scaled"]


@pytest.mark.torch
def test_scales_are_pytorchs():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    wrong = rng.random(60) < 0.2
    found = []
    for lib in (torch, gl):
        w = lib.ones(3, requires_grad=True)
        optimizer = lib.optim.Adam([w], lr=0.1)
        scaler = lib.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4, growth_factor=3.0, backoff_factor=0.25)
        values = []
        for bad in wrong:
            optimizer.zero_grad()
            scaler.scale((w * w).sum()).backward()
            if bad:
                w.grad[1] = math.nan
            scaler.step(optimizer)
            scaler.update()
            values.append((scaler.get_scale(), *w.detach().tolist()))
        found.append(values)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
