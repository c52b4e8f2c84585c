"""Every option of every optimizer, switched in mid-run: a buffer that was not there is zeros, and is kept; eager and compiled alike."""

from __future__ import annotations

import copy
import functools
import inspect

import numpy as np
import pytest

import gradlab as gl

FLAGS = {"foreach": (None, True), "maximize": (False, True)}
GRAPHS = {"capturable": (False, True)}
FUSED = {"fused": (None, True)}
ADAM = {
    "lr": (0.05, 0.2), "betas": ((0.9, 0.99), (0.5, 0.8)), "eps": (1e-8, 0.1), "weight_decay": (0.0, 0.3), **FLAGS, **GRAPHS,
}  # fmt: skip
AMSGRAD = {"amsgrad": (False, True)}
DECOUPLED = {"decoupled_weight_decay": (False, True)}
# Of each optimizer: the options, what they are at first and what they are switched to.
OPTIONS = {
    "SGD": {
        "lr": (0.05, 0.2), "momentum": (0.0, 0.5), "dampening": (0.0, 0.3), "weight_decay": (0.0, 0.3), "nesterov": (False, True),
        **FLAGS, **FUSED,
    },
    "Adam": {**ADAM, **AMSGRAD, **DECOUPLED, **FUSED},
    "AdamW": {**ADAM, **AMSGRAD, **FUSED},
    "Adamax": ADAM,
    "NAdam": {**ADAM, **DECOUPLED, "momentum_decay": (4e-3, 0.5)},
    "RAdam": {**ADAM, **DECOUPLED},
    "RMSprop": {
        "lr": (0.05, 0.2), "alpha": (0.99, 0.5), "eps": (1e-8, 0.1), "weight_decay": (0.0, 0.3), "momentum": (0.0, 0.5),
        "centered": (False, True), **FLAGS, **GRAPHS,
    },
    "Adagrad": {
        "lr": (0.05, 0.2), "lr_decay": (0.0, 0.5), "weight_decay": (0.0, 0.3), "initial_accumulator_value": (0.0, 0.5), "eps": (1e-10, 0.1),
        **FLAGS, **FUSED,
    },
    "Adadelta": {"lr": (1.0, 3.0), "rho": (0.9, 0.5), "eps": (1e-6, 0.1), "weight_decay": (0.0, 0.3), **FLAGS, **GRAPHS},
    "ASGD": {
        "lr": (0.05, 0.2), "lambd": (1e-4, 0.5), "alpha": (0.75, 0.1), "t0": (1e6, 1.0), "weight_decay": (0.0, 0.3), **FLAGS, **GRAPHS,
    },
    "Rprop": {"lr": (0.05, 0.2), "etas": ((0.5, 1.2), (0.3, 2.0)), "step_sizes": ((1e-6, 50), (0.01, 0.05)), **FLAGS, **GRAPHS},
    "Lion": {"lr": (0.05, 0.2), "betas": ((0.9, 0.99), (0.5, 0.8)), "weight_decay": (0.0, 0.3), **FLAGS, **GRAPHS},
    "Adafactor": {
        "lr": (0.05, 0.2), "beta2_decay": (-0.8, -0.3), "eps": ((None, 1e-3), (0.1, 0.5)), "d": (1.0, 1.5), "weight_decay": (0.0, 0.3),
        **FLAGS,
    },
    "Muon": {
        "lr": (0.05, 0.2), "weight_decay": (0.0, 0.3), "momentum": (0.0, 0.5), "nesterov": (False, True),
        "ns_coefficients": ((3.4445, -4.775, 2.0315), (3.0, -3.2, 1.2)), "eps": (1e-7, 0.1), "ns_steps": (5, 2),
        "adjust_lr_fn": (None, "match_rms_adamw"),
    },
    "LBFGS": {
        "lr": (1.0, 0.5), "max_iter": (2, 4), "max_eval": (9, 3), "tolerance_grad": (1e-7, 0.1), "tolerance_change": (1e-9, 0.1),
        "history_size": (3, 1), "line_search_fn": (None, "strong_wolfe"),
    },
}  # fmt: skip
# Buffers that an option needs. SGD's begins with the gradient.
BUFFERS = {"amsgrad": "max_exp_avg_sq", "momentum": "momentum_buffer", "centered": "grad_avg"}
REFUSED = {"differentiable"}  # by the constructor and by a step
BESIDE = {("SGD", "nesterov"): {"momentum": 0.5}, ("SGD", "dampening"): {"momentum": 0.5}}  # without which an option says nothing
EACH = [(name, option) for name, options in OPTIONS.items() for option in options]
NEEDING = [(name, option) for name, option in EACH if option in BUFFERS]
# What PyTorch does not have or run on the CPU, or does otherwise: max_eval is exceeded by one, a shorter history stays long.
NOT_IN_TORCH = {("LBFGS", "max_eval"), ("LBFGS", "history_size")}
IN_TORCH = [(n, o) for n, o in EACH if n != "Lion" and o not in ("fused", "capturable") and (n, o) not in NOT_IN_TORCH]
TRACED = [name for name in OPTIONS if name != "LBFGS"]  # which evaluates its closure as often as values say
each = pytest.mark.parametrize(("name", "option"), EACH)
both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
BEFORE, AFTER, AGAIN = 3, 3, 2


def test_every_option_of_every_optimizer_is_here():
    public = {n for n, c in vars(gl.optim).items() if isinstance(c, type) and issubclass(c, gl.optim.Optimizer)} - {"Optimizer"}
    assert public == OPTIONS.keys() | {"SparseAdam"}  # which takes no dense gradients: test_sparse_embedding.py
    for name, options in OPTIONS.items():
        known = set(inspect.signature(getattr(gl.optim, name)).parameters) - {"params"} - REFUSED
        assert known == options.keys(), name


def start(name, option, value, library=gl):
    """Two parameters in groups of their own (LBFGS has but one), and the optimizer."""
    shapes = [(3, 2), (2, 3)] if name == "Muon" else [(3, 2), (4,)]
    params = [library.tensor(np.random.default_rng(i).normal(size=s), requires_grad=True) for i, s in enumerate(shapes)]
    given = {**{o: v[0] for o, v in OPTIONS[name].items()}, **BESIDE.get((name, option), {}), option: value}
    groups = [{"params": params}] if name == "LBFGS" else [{"params": [p]} for p in params]
    return params, getattr(library.optim, name)(groups, **given)


def loss_of(params):
    return sum(((p * p * 0.5 + p.sin()) * (i + 1)).sum() for i, p in enumerate(params))


def stepping(name, params, opt, compiled=False):
    def step():
        opt.zero_grad()
        loss = loss_of(params)
        loss.backward()
        if name != "LBFGS":
            opt.step()
        return loss

    run = gl.compile(step) if compiled else step
    return (lambda: opt.step(step)) if name == "LBFGS" else run


def seen(params):
    return [p.detach().numpy().copy() for p in params]


def trajectory(name, option, values, compiled=False, library=gl, plant=False):
    """What the parameters are after each step: with the first value, then, of the last group, the second, then the first again."""
    params, opt = start(name, option, values[0], library)
    step, found = stepping(name, params, opt, compiled), []

    def planted():
        zeros = library.zeros_like(params[-1].detach())
        if plant and option in BUFFERS and name not in ("SGD", "Muon"):
            opt.state[params[-1]].setdefault(BUFFERS[option], zeros)

    for value, steps in zip((*values, values[0], values[1]), (BEFORE, AFTER, AGAIN, AGAIN), strict=True):
        opt.param_groups[-1][option] = value
        for _ in range(steps):
            if found:
                planted()
            step()
            found.append(seen(params))
    return found, opt


def assert_equal(name, got, want, rtol):
    rtol, atol = (0.05, 0.05) if name == "Muon" else (rtol, rtol * 0.01)  # whose iteration is in bfloat16
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=f"step {k}")


@each
def test_a_missing_buffer_is_zeros_and_kept(name, option):
    """The reference run has had the buffer, as zeros, from the start; every value is finite."""
    values = OPTIONS[name][option]
    (got, opt), (want, _) = trajectory(name, option, values), trajectory(name, option, values, plant=True)
    for a, b in zip(got, want, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
            assert np.isfinite(x).all()
    if option in BUFFERS:
        assert BUFFERS[option] in opt.state[opt.param_groups[-1]["params"][0]]


@pytest.mark.parametrize(("name", "option"), [pair for pair in EACH if pair[0] in TRACED])
def test_a_compiled_step_sees_the_switch(name, option):
    values = OPTIONS[name][option]
    got, want = trajectory(name, option, values, compiled=True)[0], trajectory(name, option, values)[0]
    assert_equal(name, got, want, 1e-9)


@pytest.mark.parametrize(("name", "option"), IN_TORCH)
def test_switches_as_in_torch(name, option):
    torch = pytest.importorskip("torch")
    values = OPTIONS[name][option]
    got, want = trajectory(name, option, values)[0], trajectory(name, option, values, library=torch, plant=True)[0]
    assert_equal(name, got, want, 1e-6)


@pytest.mark.parametrize("name", TRACED)
@both
def test_a_learning_rate_becomes_a_tensor_and_a_number_again(name, compiled):
    first, second = OPTIONS[name]["lr"]
    got = trajectory(name, "lr", (first, gl.tensor(second, dtype=gl.float64)), compiled)[0]
    assert_equal(name, got, trajectory(name, "lr", (first, second))[0], 1e-6)


@pytest.mark.parametrize(("name", "option"), NEEDING)
@both
def test_a_loaded_state_without_the_buffer(name, option, compiled):
    """A state dict of a run without the option, loaded where it is on: the buffer is zeros as if it had been turned on there."""
    off, on = OPTIONS[name][option]
    params, opt = start(name, option, off)
    step = stepping(name, params, opt)
    for _ in range(3):
        step()
    others, other = start(name, option, on)
    continued = stepping(name, others, other, compiled)
    if compiled:
        continued(), continued()
    with gl.no_grad():
        for p, q in zip(params, others, strict=True):
            q.copy_(p)
    other.load_state_dict(opt.state_dict())
    for group in (*opt.param_groups, *other.param_groups):
        group[option] = on
    got, want = [], []
    for _ in range(4):
        step(), continued()
        want.append(seen(params)), got.append(seen(others))
    assert_equal(name, got, want, 1e-9)


@pytest.mark.parametrize("name", [n for n in OPTIONS if "differentiable" in inspect.signature(getattr(gl.optim, n)).parameters])
def test_a_step_refuses_to_be_differentiable(name):
    params, opt = start(name, "lr", 0.1)
    stepping(name, params, opt)()
    opt.param_groups[0]["differentiable"] = True
    with pytest.raises(NotImplementedError, match="not recorded"):
        stepping(name, params, opt)()


@pytest.mark.parametrize("name", [n for n in TRACED if n != "Lion"])
def test_a_state_dict_of_pytorch(name):
    """Tensors of PyTorch, counters that are numbers, and groups that lack options continue as the original run does."""
    torch = pytest.importorskip("torch")
    lr = OPTIONS[name]["lr"][0]
    theirs, other = start(name, "lr", lr, torch)
    params, opt = start(name, "lr", lr)
    continued = stepping(name, theirs, other)
    for _ in range(3):
        continued()
    saved = copy.deepcopy(other.state_dict())
    for group in saved["param_groups"]:
        group.pop("maximize", None)
    for entries in saved["state"].values():
        if "step" in entries:
            entries["step"] = float(entries["step"])
    opt.load_state_dict(saved)
    with gl.no_grad():
        for p, q in zip(params, theirs, strict=True):
            p.copy_(gl.tensor(q.detach().numpy()))
    step, got, want = stepping(name, params, opt), [], []
    for _ in range(3):
        step(), continued()
        got.append(seen(params)), want.append(seen(theirs))
    assert_equal(name, got, want, 1e-6)


@pytest.mark.parametrize(("name", "option"), [pair for pair in EACH if pair[0] in TRACED])
def test_a_session_reads_the_switch_or_refuses(name, option):
    """A step of a graph was written down with its options: numbers are read at each run, another kind of step raises."""
    off, on = OPTIONS[name][option]
    found = []
    for session in (True, False):
        params, opt = start(name, option, off)
        step = stepping(name, params, opt)
        if session:
            graph = gl.Graph()
            with graph.as_default():
                train, made = opt.minimize(loss_of(params)), gl.global_variables_initializer()
            run = gl.Session(graph).run
            run(made)
            step = functools.partial(run, train)
        step(), step()
        opt.param_groups[-1][option] = on
        try:
            step(), step()
        except RuntimeError as error:
            assert session and f"{option} of {name} was {off!r}" in str(error)
            opt.param_groups[-1][option] = off
            step()  # as it was
            return
        found.append([seen(params)])
    assert_equal(name, *found, 1e-9)


# ---------------------------------------------------------------- what else changes in mid-run


def reload(opt, params):
    opt.load_state_dict(copy.deepcopy(opt.state_dict()))


def change_data(opt, params):
    params[0].data = params[0].data * 2


CHANGES = {
    "a rate that is a tensor": lambda opt, params: opt.param_groups[0].update(lr=gl.tensor(0.01, dtype=gl.float64)),
    "a rate of 0": lambda opt, params: opt.param_groups[0].update(lr=0.0), "reload": reload,
    "no state": lambda opt, params: opt.state.clear(),
    "no state of one": lambda opt, params: opt.state.pop(params[0], None), "other memory": change_data,
    "frozen": lambda opt, params: params[0].requires_grad_(False),
    "a group without any": lambda opt, params: opt.param_groups[0]["params"].pop(),
    "another parameter": lambda opt, params: opt.add_param_group({"params": [params[0].detach().clone().requires_grad_()]}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", TRACED)
def test_what_else_changes(name, change):
    """A compiled step follows as an eager one does."""
    found = []
    for compiled in (False, True):
        params, opt = start(name, "lr", OPTIONS[name]["lr"][0])
        step = stepping(name, params, opt, compiled)
        for k in range(BEFORE + AFTER):
            if k == BEFORE:
                CHANGES[change](opt, params)
            step()
        found.append(seen(params))
    for eager, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, eager, rtol=1e-9, atol=1e-12)


@both
@pytest.mark.parametrize("name", TRACED)
def test_another_dtype(name, compiled):
    """Buffers follow their parameter: it goes on as if its state had been loaded in the new dtype."""
    found = []
    for reloading in (False, True):
        layer = gl.nn.Linear(3, 2)
        with gl.no_grad():
            for i, p in enumerate(layer.parameters()):
                p.copy_(gl.linspace(-1, 1, p.numel()).reshape(p.shape) + i)
        opt = getattr(gl.optim, name)([layer.weight] if name == "Muon" else layer.parameters(), lr=0.05)
        step = stepping(name, list(layer.parameters()), opt, compiled)
        for _ in range(BEFORE):
            step()
        layer.double()
        if reloading:
            reload(opt, ())
        for _ in range(AFTER):
            step()
        found.append(seen(layer.parameters()))
        kept = [v for s in opt.state.values() for k, v in s.items() if isinstance(v, gl.Tensor) and v.ndim]
        assert all(v.dtype == gl.float64 for v in kept)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
