"""Models of half types train: with their gradients clipped, with statistics of large values, compiled as in eager mode."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F

from kinds.halves import HALVES, Roundings

SCALE = 64.0  # of the loss: the gradients' norm is then far above the root of float16's largest number
UNITS = {  # of a vector for each of 8 samples; the functions of several rows that stand in a model or a loss
    "normalize": lambda x: F.normalize(x), "group_norm": lambda x: F.group_norm(x, 4), "var": lambda x: x / x.var(1, keepdim=True),
    "std": lambda x: x / (x.std(1, keepdim=True) + 1), "renorm": lambda x: x.renorm(2, 0, 1.0), "softsign": F.softsign,
    "log_softmax": lambda x: x.log_softmax(1), "softmax": lambda x: x.softmax(1), "glu": lambda x: F.glu(x).repeat(1, 2),
    "logsumexp": lambda x: x - x.logsumexp(1, keepdim=True), "cosine": lambda x: x * F.cosine_similarity(x, x.roll(1, 0)).unsqueeze(1),
    "cdist": lambda x: gl.cdist(x, x).repeat(1, 2), "cov": lambda x: x.t().cov()[:8], "amax": lambda x: x / x.amax(1, keepdim=True),
    "response": lambda x: F.local_response_norm(x.unsqueeze(2), 3).squeeze(2), "gelu": F.gelu, "tanhshrink": F.tanhshrink,
}  # fmt: skip
LOSSES = {
    "mse": F.mse_loss, "l1": F.l1_loss, "huber": F.huber_loss, "smooth_l1": F.smooth_l1_loss,
    "kl": lambda x, y: F.kl_div(x, y.abs(), reduction="sum"), "gaussian": lambda x, y: F.gaussian_nll_loss(x, y, 2.0),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y.argmax(1)), "of shares": lambda x, y: F.cross_entropy(x, y.clamp(0.0, 1.0)),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y.clamp(0.0, 1.0)),
    "cosine": lambda x, y: F.cosine_embedding_loss(x, y, gl.ones(8, dtype=x.dtype)),
    "poisson": lambda x, y: F.poisson_nll_loss(x.clamp(max=3.0), y),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, y.roll(1, 0)), "soft margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
}  # fmt: skip


def data(dtype):
    rng = np.random.default_rng(0)
    return tuple(gl.tensor(rng.standard_normal((8, 16)), dtype=dtype) for _ in range(2))


def network(dtype):
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.GroupNorm(4, 16)).to(dtype)


def losses(dtype, compiled, steps=12):
    x, y = data(dtype)
    net = network(dtype)
    optimizer = gl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        (loss * SCALE * 16).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), norm

    run = gl.compile(step) if compiled else step
    found = [run(x, y) for _ in range(steps)]
    return [float(loss) for loss, _ in found], [float(norm) for _, norm in found]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", HALVES, ids=repr)
def test_a_half_model_with_clipped_gradients_trains(dtype, compiled):
    found, norms = losses(dtype, compiled)
    wide, _ = losses(gl.float32, False)
    assert max(norms) > 256  # whose square float16 does not hold
    np.testing.assert_allclose(found, wide, rtol=0.1)
    assert found[-1] < 0.6 * found[0]


@pytest.mark.parametrize("name", UNITS)
def test_units_compiled_are_those_of_eager(name):
    unit, dtype = UNITS[name], HALVES[len(name) % 2]

    def both(x):
        y = unit(x * 8)
        return y, gl.autograd.grad((y * x.detach()).sum(), x)[0]

    x = data(dtype)[0].requires_grad_()
    compiled = gl.compile(both)
    for _ in range(3):
        found = compiled(x)
    for f, e in zip(found, both(x), strict=True):
        assert f.dtype == e.dtype == dtype and bool(f.isfinite().all())
        np.testing.assert_allclose(f.detach().float().numpy(), e.detach().float().numpy(), rtol=2 * gl.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", HALVES, ids=repr)
def test_losses_in_half_are_those_of_float32_rounded(dtype, name):
    found = []
    for wide in (False, True):
        x, y = (t.float() if wide else t for t in data(dtype))
        x.requires_grad_()
        loss = LOSSES[name](x, y)
        found.append((loss, *gl.autograd.grad(loss, x)))
    for half, single in zip(*found, strict=True):
        assert half.dtype == dtype
        np.testing.assert_array_equal(half.detach().float().numpy(), single.detach().to(dtype).float().numpy())


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_steps_of_recurrent_layers_round_their_state_alone(kind):
    gl.manual_seed(0)
    net = kind(4, 6).half()
    x = gl.randn(5, 3, 4).half()
    with Roundings() as rounded:
        found = net(x)[0]
    assert not {"matmul", "tanh", "lstm_cell", "gru_cell"} & set(rounded.names)
    compiled = gl.compile(lambda x: net(x)[0])
    for _ in range(3):
        again = compiled(x)
    np.testing.assert_allclose(again.detach().float().numpy(), found.detach().float().numpy(), atol=1e-3)


def test_running_statistics_of_large_values():
    x = gl.tensor([[200.0, -300.0], [-200.0, 300.0], [100.0, 0.0]], dtype=gl.float16)
    norm = nn.BatchNorm1d(2).half()
    for _ in range(3):
        norm(x)
    assert norm.running_var.isfinite().all() and norm.running_var.dtype == gl.float16
    wide = nn.BatchNorm1d(2)
    for _ in range(3):
        wide(x.float())
    np.testing.assert_allclose(norm.running_var.float().numpy(), wide.running_var.numpy(), rtol=2e-3)
    np.testing.assert_allclose(norm.eval()(x).float().detach().numpy(), wide.eval()(x.float()).detach().numpy(), rtol=2e-3)
