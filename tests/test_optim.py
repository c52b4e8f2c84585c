"""Optimizers: trajectories, groups, hooks, errors."""

from __future__ import annotations

import numpy as np
import pytest
from optimizers import CASES, each_case, each_optimizer, equal, gradients, run, start

import gradlab as gl
from gradlab import optim

from samples import optim as references, optim_variants as variants

# ---------------------------------------------------------------- values


def reference_run(name, options, p, steps):
    """One parameter's trajectory by the references of the samples, with the hyper-parameters laid out as the class lays them out."""
    made = getattr(optim, name)([gl.tensor(p, requires_grad=True)], **options)
    group = made.param_groups[0]
    h = [group[n] if isinstance(n, str) else group[n[0]][n[1]] for n in made.live]
    m, zero, t = group["maximize"], np.zeros_like(p), 0.0
    adam_flags = {"decoupled": group.get("decoupled_weight_decay"), "maximize": m}
    momentum, centered = group.get("momentum", 0) > 0, group.get("centered", False)
    if name == "SGD":
        run_one = references.sgd_momentum if momentum else lambda p, g, h, maximize: (references.sgd(p, g, h, maximize),)
        buffers, flags = ([None] if momentum else []), {"maximize": m} | ({"nesterov": group["nesterov"]} if momentum else {})
    elif name in ("Adam", "AdamW"):
        run_one = references.amsgrad if group["amsgrad"] else references.adam
        buffers, flags = [zero] * (3 if group["amsgrad"] else 2) + [t], adam_flags
    elif name == "RMSprop":
        run_one, buffers, flags = variants.rmsprop(centered, momentum), [zero] * (1 + centered + momentum) + [t], {"maximize": m}
    elif name == "Adagrad":
        run_one, buffers, flags = variants.adagrad, [zero + group["initial_accumulator_value"], t], {"maximize": m}
    elif name in ("Adadelta", "Adamax"):
        run_one, buffers, flags = getattr(variants, name.lower()), [zero, zero, t], {"maximize": m}
    elif name == "NAdam":
        run_one, buffers, flags = variants.nadam, [zero, zero, 1.0, t], adam_flags
    elif name == "RAdam":
        run_one, buffers, flags = variants.radam, [zero, zero, t], adam_flags
    elif name == "ASGD":
        run_one, buffers, flags = variants.asgd, [zero, group["lr"], 1.0, t], {"maximize": m}
    else:
        run_one, buffers, flags = variants.rprop, [zero, zero + group["lr"], t], {"maximize": m}
    seen = []
    for g in steps:
        p, *buffers = run_one(p, g, *buffers, h, **flags)
        seen.append(p)
    return seen


@each_case
def test_twenty_steps_follow_the_formula(name, number):
    options, params, steps = CASES[name][number], start(), gradients()
    wanted = [reference_run(name, options, p.detach().numpy().copy(), [s[i] for s in steps]) for i, p in enumerate(params)]
    got = run(getattr(optim, name)(params, **options), params, steps)
    counters = 1e-6 if name in ("NAdam", "ASGD") else 1e-11  # they keep a product or a step size in a float32 counter, as PyTorch does
    for i, per_step in enumerate(got):
        for j, value in enumerate(per_step):
            np.testing.assert_allclose(value, wanted[j][i], rtol=counters, atol=counters)


@each_case
def test_the_row_gives_the_same_bits_as_the_step_in_place(name, number):
    """Eager CPU steps write into their own inputs; the functional call (a trace, a GPU) must not differ."""
    options, steps = CASES[name][number], gradients(6, "float32")
    params = start("float32")
    fast = run(getattr(optim, name)(params, **options), params, steps)
    params = start("float32")
    with gl.autograd.detect_anomaly():  # a special mode: no fast path
        slow = run(getattr(optim, name)(params, **options), params, steps)
    equal(fast, slow)


@pytest.mark.parametrize("size", [0, 1, 16_384, 40_001])
def test_large_parameters_go_block_by_block(size):
    rng = np.random.default_rng(3)
    value, slope = rng.normal(size=(2, size))
    p = gl.tensor(value, requires_grad=True)
    opt = optim.AdamW([p], lr=0.1)
    for _ in range(3):
        p.grad = gl.tensor(slope)
        opt.step()
    h = [0.1, 0.9, 0.999, 1e-8, 0.01]
    state = (value, np.zeros(size), np.zeros(size), 0.0)
    for _ in range(3):
        state = references.adam(state[0], slope, *state[1:], h, decoupled=True, maximize=False)
    np.testing.assert_allclose(p.detach().numpy(), state[0], rtol=1e-10, atol=1e-12)


def test_strided_gradient_and_parameter():
    p = gl.tensor(np.arange(12.0).reshape(3, 4).T, requires_grad=True)
    p.grad = gl.tensor(np.arange(12.0).reshape(3, 4)).mT
    optim.SGD([p], lr=0.5).step()
    np.testing.assert_array_equal(p.detach().numpy(), np.arange(12.0).reshape(3, 4).T * 0.5)


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
def test_half_parameters(dtype):
    p = gl.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    opt = optim.Adam([p], lr=0.25)
    p.grad = gl.tensor([0.5, -0.5], dtype=dtype)
    opt.step()
    assert p.dtype == dtype and p.tolist() == [0.75, 2.25]
    assert opt.state[p]["exp_avg"].dtype == dtype and opt.state[p]["step"].dtype == gl.float32


def test_trains():
    x, y = gl.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]]), gl.tensor([[3.0], [2.0], [1.0]])
    w = gl.zeros(2, 1, requires_grad=True)
    opt = optim.Adam([w], lr=0.1)
    for _ in range(400):
        opt.zero_grad()
        ((x @ w - y) ** 2).mean().backward()
        opt.step()
    np.testing.assert_allclose(w.detach().numpy(), [[1.0], [1.0]], atol=1e-3)


# ---------------------------------------------------------------- which parameters


@each_optimizer
@pytest.mark.filterwarnings("ignore::gradlab.advice.NoGradientWarning")
def test_without_gradient_left_alone(name):
    params = start()
    before = params[1].detach().clone()
    opt = getattr(optim, name)(params, **({"weight_decay": 0.5} if name != "Rprop" else {}))
    run(opt, params, [(g, None) for g, _ in gradients(3)])
    np.testing.assert_array_equal(params[1].detach().numpy(), before.numpy())
    assert params[1] not in opt.state
    run(opt, params, gradients(1))
    if name != "SGD":
        assert opt.state[params[0]]["step"].item() == 4 and opt.state[params[1]]["step"].item() == 1


@each_optimizer
def test_groups(name):
    a, b = start()
    opt = getattr(optim, name)([{"params": a, "lr": 0.25}, {"params": [b]}], lr=0.5)
    assert [g["lr"] for g in opt.param_groups] == [0.25, 0.5]
    extra = gl.tensor([1.0], requires_grad=True)
    opt.add_param_group({"params": extra, "lr": 0.75})
    assert [len(g["params"]) for g in opt.param_groups] == [1, 1, 1]
    extra.grad = gl.tensor([1.0])
    opt.step()
    assert extra.item() != 1.0


def test_learning_rate_may_change():
    p = gl.tensor([1.0], requires_grad=True)
    opt = optim.SGD([p], lr=0.5)
    for lr, want in ((0.5, 0.5), (0.25, 0.25), (0.0, 0.25), (gl.tensor(0.125), 0.125)):
        opt.param_groups[0]["lr"] = lr
        p.grad = gl.tensor([1.0])
        opt.step()
        assert p.item() == want


def test_named_parameters():
    a, b = start()
    opt = optim.SGD([("a", a), ("b", b)])
    assert opt.param_groups[0]["param_names"] == ["a", "b"] and opt.param_groups[0]["params"][1] is b
    assert opt.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]


# ---------------------------------------------------------------- stepping


def test_zero_grad():
    p = gl.tensor([1.0], requires_grad=True)
    opt = optim.SGD([p], lr=0.1)
    p.grad = gl.tensor([2.0])
    kept = p.grad
    opt.zero_grad(set_to_none=False)
    assert p.grad is kept and kept.item() == 0
    opt.zero_grad()
    assert p.grad is None


def test_closure_records_and_its_loss_is_returned():
    p = gl.tensor([3.0], requires_grad=True)
    opt = optim.SGD([p], lr=0.5)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with gl.no_grad():
        assert opt.step(closure).item() == 9
    assert p.item() == 0


def test_hooks():
    p = gl.tensor([1.0], requires_grad=True)
    opt, seen = optim.SGD([p], lr=0.5), []
    before = opt.register_step_pre_hook(lambda o, args, kwargs: seen.append(("before", p.item(), o is opt)))
    opt.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", p.item(), o is opt)))
    p.grad = gl.tensor([1.0])
    opt.step()
    before.remove()
    opt.step()
    assert seen == [("before", 1.0, True), ("after", 0.5, True), ("after", 0.0, True)]


def test_own_optimizer():
    class Own(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @gl.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])

    p = gl.tensor([1.0], requires_grad=True)
    opt, seen = Own([p], 0.5), []
    opt.register_step_post_hook(lambda *_: seen.append(1))
    p.grad = gl.tensor([1.0])
    opt.step()
    assert p.item() == 0.5 and seen == [1]
    assert "lr: 0.5" in repr(opt)


def test_backward_notices_the_step():
    """A graph made before the step needs the old value: using it is an error, not a wrong gradient."""
    w, x = gl.tensor([[1.0]], requires_grad=True), gl.tensor([[2.0]], requires_grad=True)
    opt = optim.Adam([w])
    y = (x @ w).sum()
    y.backward(retain_graph=True)
    opt.step()
    with pytest.raises(RuntimeError, match=r"modified|changed|in place"):
        y.backward()


def test_state_is_not_recorded():
    p = gl.tensor([1.0], requires_grad=True)
    opt = optim.Adam([p])
    (p * 2).sum().backward()
    opt.step()
    assert p.is_leaf and p.requires_grad and not any(v.requires_grad for v in opt.state[p].values())


# ---------------------------------------------------------------- errors


@each_optimizer
def test_wrong_parameters(name):
    make, p = getattr(optim, name), gl.tensor([1.0], requires_grad=True)
    with pytest.raises(TypeError, match="iterable of Tensors"):
        make(p)
    with pytest.raises(ValueError, match="empty parameter list"):
        make([])
    with pytest.raises(TypeError, match="only optimize Tensors"):
        make([1.0])
    with pytest.raises(TypeError, match="set has no order"):
        make([{"params": {p}}])
    with pytest.raises(ValueError, match="non-leaf"):
        make([p * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        make([{"params": p}, {"params": p}])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        make([p, p])
    with pytest.raises(ValueError, match="Some param names are missing"):
        make([("a", p), gl.tensor([1.0])])
    with pytest.raises(ValueError, match="with/without names"):
        make([{"params": [p]}, {"params": [("a", gl.tensor([1.0]))]}])
    with pytest.raises(ValueError, match="1-element"):
        make([p], lr=gl.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match="lr"):
        make([p], lr=-1.0)
    with pytest.raises(ValueError, match="lr"):
        make([p], lr=float("nan"))
    with pytest.raises(NotImplementedError, match="differentiable"):
        make([p], differentiable=True)
    with pytest.raises(RuntimeError):
        p.grad = gl.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": -0.5}), ("SGD", {"weight_decay": -1}), ("SGD", {"nesterov": True}),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}), ("Adam", {"betas": (1.0, 0.0)}), ("Adam", {"betas": (0.9, -0.1)}),
        ("Adam", {"eps": -1}), ("Adam", {"betas": (0.9, gl.tensor(0.99))}), ("AdamW", {"weight_decay": -1}),
        ("RMSprop", {"momentum": -1.0}), ("RMSprop", {"alpha": -1.0}), ("Adagrad", {"lr_decay": -0.5}), ("Adadelta", {"rho": 1.1}),
        ("Adamax", {"betas": (0.0, 1.0)}), ("NAdam", {"momentum_decay": -0.2}), ("RAdam", {"weight_decay": -1}),
        ("ASGD", {"weight_decay": -0.5}), ("Rprop", {"etas": (1.0, 0.5)}),
    ],
)  # fmt: skip
def test_wrong_options(name, options):
    with pytest.raises(ValueError):
        getattr(optim, name)([gl.tensor([1.0], requires_grad=True)], **options)


def test_representation():
    text = repr(optim.SGD([gl.tensor([1.0], requires_grad=True)], lr=0.5))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n") and "    lr: 0.5\n" in text and text.endswith("\n)")
