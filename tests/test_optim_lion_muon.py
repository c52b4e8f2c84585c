"""Lion, Muon and averages of weights: against their formulas, and Muon and the averages against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from optimizers import give, gradients, run, start

import gradlab as gl
from gradlab import nn
from gradlab.backends.cuda import fallback
from gradlab.optim import swa_utils
from gradlab.optim.muon import COEFFICIENTS, orthogonal

# ---------------------------------------------------------------- Lion


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"lr": 0.01, "weight_decay": 0.5}, {"betas": (0.5, 0.0), "maximize": True}])
def test_lion_is_its_formula(options, dtype):
    lr, (b1, b2) = options.get("lr", 1e-4), options.get("betas", (0.9, 0.99))
    params, steps = start(dtype), gradients(dtype=dtype)
    expected = [p.detach().numpy().copy() for p in params]
    means = [np.zeros_like(p) for p in expected]
    found = run(gl.optim.Lion(params, **options), params, steps)
    for i, arrays in enumerate(steps):
        for j, g in enumerate(arrays):
            g = -g if options.get("maximize") else g
            expected[j] = expected[j] * (1 - lr * options.get("weight_decay", 0)) - lr * np.sign(b1 * means[j] + (1 - b1) * g)
            means[j] = b2 * means[j] + (1 - b2) * g
            np.testing.assert_allclose(found[i][j], expected[j], rtol=1e-5)


def test_lion_on_the_gpu(cuda):
    seen = []
    for device in ("cpu", "cuda"):
        params = [p.detach().to(device).requires_grad_() for p in start("float32")]
        opt = gl.optim.Lion(params, lr=0.01, weight_decay=0.1)
        for arrays in gradients(5, "float32"):
            for p, g in zip(params, arrays, strict=True):
                p.grad = gl.tensor(g, device=device)
            opt.step()
        seen.append([p.detach().cpu().numpy() for p in params])
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_lion_compiled():
    params = [start("float32") for _ in range(2)]
    opts = [gl.optim.Lion(p, lr=0.01) for p in params]

    def step(ps, opt):
        loss = sum((p * p).sum() for p in ps)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    compiled = gl.compile(lambda: step(params[1], opts[1]))
    for _ in range(4):
        np.testing.assert_allclose(compiled().item(), step(params[0], opts[0]).item(), rtol=1e-6)


def test_state_goes_on():
    for make in (lambda p: gl.optim.Lion(p, lr=0.01), lambda p: gl.optim.Muon(p[:1], lr=0.01)):
        a, b = start(), start()
        steps = gradients(6)
        first = make(a)
        whole = run(first, a, steps)
        second = make(b)
        run(second, b, steps[:3])
        c = [p.detach().clone().requires_grad_() for p in b]
        third = make(c)
        third.load_state_dict(second.state_dict())
        rest = run(third, c, steps[3:])
        np.testing.assert_array_equal(rest[-1][0], whole[-1][0])


@pytest.mark.parametrize("bad", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"weight_decay": -0.1}])
def test_lion_refuses(bad):
    with pytest.raises(ValueError, match="Invalid"):
        gl.optim.Lion(start(), **bad)


# ---------------------------------------------------------------- Muon

MUON = [
    {}, {"lr": 0.1}, {"nesterov": False, "momentum": 0.5}, {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0},
    {"adjust_lr_fn": "original", "ns_steps": 3},
]  # fmt: skip


@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3), (1, 1)])
def test_orthogonal(shape):
    values = np.linalg.svd(orthogonal(gl.randn(*shape), COEFFICIENTS, 5, 1e-7).float().numpy())[1]
    assert (values > 0.3).all()
    assert (values < 1.4).all()


def test_muon_takes_matrices_only():
    with pytest.raises(ValueError, match="2D"):
        gl.optim.Muon(start())
    for bad in ({"lr": -1.0}, {"momentum": -1.0}, {"weight_decay": -1.0}, {"adjust_lr_fn": "other"}):
        with pytest.raises(ValueError, match=r"Invalid|not supported"):
            gl.optim.Muon(start()[:1], **bad)
    with pytest.raises(ValueError, match="less than 100"):
        p = start()[:1]
        give(p, gradients(1)[0][:1])
        gl.optim.Muon(p, ns_steps=100).step()


def matrices(device="cpu"):
    """Two matrices of one shape, which are made orthogonal together, and one of another."""
    rng = np.random.default_rng(5)
    return [gl.tensor(rng.normal(size=shape), dtype=gl.float32, device=device).requires_grad_() for shape in ((8, 4), (8, 4), (4, 8))]


def muon_step(params, opt):
    loss = sum((p * p * p).sum() for p in params)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()


@pytest.mark.parametrize("options", [{}, {"nesterov": False}], ids=str)
def test_muon_of_several_is_muon_of_each(options):
    together, apart = matrices(), matrices()
    opt, opts = gl.optim.Muon(together, lr=0.1, **options), [gl.optim.Muon([p], lr=0.1, **options) for p in apart]
    for _ in range(4):
        muon_step(together, opt)
        for p, own in zip(apart, opts, strict=True):
            muon_step([p], own)
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=2e-3)  # products of bfloat16 in another order


def test_muon_on_the_gpu(cuda):
    seen = []
    for device in ("cpu", "cuda"):
        params = matrices(device)
        opt = gl.optim.Muon(params, lr=0.1)
        muon_step(params, opt)
        fallback.counts.clear()
        for _ in range(2):
            muon_step(params, opt)
        assert not fallback.counts, "a step goes through the host"
        seen.append([p.detach().cpu().numpy() for p in params])
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-3)


def test_muon_compiled():
    params = [matrices() for _ in range(2)]
    opts = [gl.optim.Muon(p, lr=0.1) for p in params]
    compiled = gl.compile(lambda: muon_step(params[1], opts[1]))
    for i in range(5):
        if i == 3:  # one program for a whole schedule
            for opt in opts:
                opt.param_groups[0]["lr"] = 0.01
        np.testing.assert_allclose(compiled().item(), muon_step(params[0], opts[0]).item(), rtol=2e-2)


@pytest.mark.torch
@pytest.mark.parametrize("options", MUON, ids=str)
def test_muon_as_torch(options):
    torch = pytest.importorskip("torch")
    p = start("float32")[:1]
    q = [torch.tensor(p[0].detach().numpy().copy(), requires_grad=True)]
    ours, theirs = gl.optim.Muon(p, **options), torch.optim.Muon(q, **options)
    lr = options.get("lr", 1e-3)
    for i, (g, _) in enumerate(gradients(20, "float32")):
        give(p, [g])
        q[0].grad = torch.tensor(g)
        ours.step()
        theirs.step()
        # Numbers and sums with a product are rounded to bfloat16 once, as there; a sum at a tie may still round to the other side.
        np.testing.assert_allclose(p[0].detach().numpy(), q[0].detach().numpy(), rtol=0, atol=lr * (0.05 if i else 1e-5))
    keys = set(theirs.param_groups[0]) - set(ours.param_groups[0])
    assert not keys


# ---------------------------------------------------------------- averages


def twins(torch=None):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    if torch is None:
        return net
    t = torch.nn
    other = t.Sequential(t.Linear(3, 4), t.BatchNorm1d(4), t.Linear(4, 2))
    other.load_state_dict({k: torch.tensor(v.numpy()) for k, v in net.state_dict().items()})
    return net, other


def changed(engine, net, seed):
    rng = np.random.default_rng(seed)
    with engine.no_grad():
        for p in net.parameters():
            p.copy_(engine.tensor(rng.normal(size=tuple(p.shape)).astype("float32")))
        net.train()(engine.tensor(rng.normal(size=(5, 3)).astype("float32")))


def test_the_average_is_equal():
    net = twins()
    average = swa_utils.AveragedModel(net)
    seen = []
    for seed in range(4):
        changed(gl, net, seed)
        seen.append([p.detach().numpy().copy() for p in net.parameters()])
        average.update_parameters(net)
    for found, *each in zip(average.parameters(), *seen, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), np.mean(each, axis=0), rtol=1e-5, atol=1e-6)
    assert average.n_averaged.item() == 4
    assert average(gl.ones(2, 3)).shape == (2, 2)
    assert list(average.state_dict())[:2] == ["n_averaged", "module.0.weight"]


def test_update_bn_keeps_momentum_and_mode():
    net = twins().eval()
    swa_utils.update_bn([gl.randn(8, 3), (gl.randn(8, 3), None)], net)
    assert not net.training
    assert net[1].momentum == 0.1
    assert net[1].num_batches_tracked.item() == 2


def test_averages_refuse():
    for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="decay"):
            make(1.5)
    with pytest.raises(AssertionError, match="Only one"):
        swa_utils.AveragedModel(twins(), avg_fn=swa_utils.get_swa_avg_fn(), multi_avg_fn=swa_utils.get_swa_multi_avg_fn())
    opt = gl.optim.SGD(start(), lr=1.0)
    for bad in ({"anneal_strategy": "sine"}, {"anneal_epochs": -1}):
        with pytest.raises(ValueError, match="anneal"):
            swa_utils.SWALR(opt, 0.1, **bad)


@pytest.mark.torch
@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("kind", ["", "avg_fn ema", "multi_avg_fn ema", "avg_fn swa", "multi_avg_fn swa"])
def test_averages_as_torch(kind, buffers):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.optim.swa_utils")
    nets = twins(torch)
    averages = []
    for engine, room, net in ((gl, swa_utils, nets[0]), (torch, theirs, nets[1])):
        name, _, what = kind.partition(" ")
        if buffers and kind == "multi_avg_fn swa":
            pytest.skip("PyTorch has no such average of integers")
        options = {name: getattr(room, f"get_{what}_{name}")(*([0.9] if what == "ema" else []))} if name else {}
        average = room.AveragedModel(net, use_buffers=buffers, **options)
        for seed in range(5):
            changed(engine, net, seed)
            average.update_parameters(net)
        if not buffers:
            room.update_bn([engine.tensor(np.random.default_rng(9).normal(size=(6, 3)).astype("float32"))] * 2, average)
        averages.append(average.state_dict())
    assert list(averages[0]) == list(averages[1])
    for key, value in averages[1].items():
        np.testing.assert_allclose(averages[0][key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.torch
@pytest.mark.parametrize("options", [{}, {"anneal_epochs": 4, "anneal_strategy": "linear"}, {"anneal_epochs": 0}], ids=str)
def test_swalr_as_torch(options):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.optim.swa_utils")
    rates = []
    for engine, room in ((gl, swa_utils), (torch, theirs)):
        p = [engine.ones(1, requires_grad=True) for _ in range(2)]
        opt = engine.optim.SGD([{"params": p[:1]}, {"params": p[1:], "lr": 0.3}], lr=1.0)
        decay = engine.optim.lr_scheduler.ExponentialLR(opt, 0.8)
        scheduler, seen = None, []
        for epoch in range(14):
            opt.step()
            if epoch < 3:
                decay.step()
            else:
                scheduler = scheduler or room.SWALR(opt, [0.05, 0.5], **options)
                scheduler.step()
            seen.append([g["lr"] for g in opt.param_groups])
        rates.append(seen)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-10)
