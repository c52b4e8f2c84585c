"""Whatever the library itself writes is a write: a graph that kept what was there before raises, and never computes with the new values.

Each case gives a tensor and what writes it. The graph keeps the tensor itself, a detached twin or a view, made before the write.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import gradlab as gl

SHAPE = (4, 3)


def data(m, *shape, seed=0):
    return m.tensor(np.random.default_rng(seed).normal(size=shape or SHAPE).astype("float32"))


def leaf(m, *shape, seed=0):
    return data(m, *shape, seed=seed).requires_grad_()


def with_gradient(m):
    p = leaf(m)
    (p * 2).sum().backward()
    return p


# ---------------------------------------------------------------- gradients


def accumulated(m):
    p = with_gradient(m)
    return p.grad, lambda: (p * 3).sum().backward()


def accumulated_to_inputs(m):
    p = with_gradient(m)
    return p.grad, lambda: (p * 3).sum().backward(inputs=[p])


def accumulated_twice_used(m):
    p = with_gradient(m)
    return p.grad, lambda: (p * p + p.exp()).sum().backward()


def zeroed_by_an_optimizer(m):
    p = with_gradient(m)
    return p.grad, lambda: m.optim.SGD([p], lr=0.1).zero_grad(set_to_none=False)


def zeroed_by_a_module(m):
    layer = m.nn.Linear(3, 4)
    layer(data(m, 2, 3)).sum().backward()
    return layer.weight.grad, lambda: layer.zero_grad(set_to_none=False)


def clipped_by_norm(m):
    p = with_gradient(m)
    return p.grad, lambda: m.nn.utils.clip_grad_norm_([p], 0.1)


def clipped_by_a_given_norm(m):
    p = with_gradient(m)
    return p.grad, lambda: m.nn.utils.clip_grads_with_norm_([p], 0.1, m.tensor(3.0))


def clipped_by_value(m):
    p = with_gradient(m)
    return p.grad, lambda: m.nn.utils.clip_grad_value_([p], 0.1)


def unscaled(m):
    p, scaler = leaf(m), m.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(p.sum()).backward()
    return p.grad, lambda: scaler.unscale_(m.optim.SGD([p], lr=0.1))


# ---------------------------------------------------------------- modules


def normed(kind, *shape, **options):
    def make(m, of="running_mean"):
        norm = getattr(m.nn, kind)(3, **options)
        return getattr(norm, of), lambda: norm(data(m, *shape))

    return make


def by_the_function(m):
    mean, var = m.zeros(3), m.ones(3)
    return var, lambda: m.nn.functional.batch_norm(data(m), mean, var, training=True)


def average_of_all_batches(m):
    norm = m.nn.BatchNorm1d(3, momentum=None)
    return norm.running_var, lambda: norm(data(m))


def reset(m):
    norm = m.nn.BatchNorm1d(3)
    norm(data(m))
    return norm.running_mean, norm.reset_running_stats


def loaded(m):
    one, other = m.nn.Linear(3, 4), m.nn.Linear(3, 4)
    return one.weight, lambda: one.load_state_dict(other.state_dict())


def loaded_buffer(m):
    one, other = m.nn.BatchNorm1d(3), m.nn.BatchNorm1d(3)
    other(data(m))
    return one.running_var, lambda: one.load_state_dict(other.state_dict())


def reset_parameters(m):
    layer = m.nn.Linear(3, 4)
    return layer.weight, layer.reset_parameters


def shortened(kind):
    def make(m):
        table = getattr(m.nn, kind)(4, 3, max_norm=0.01)
        return table.weight, lambda: table(m.tensor([[0, 1]]))

    return make


def spectral(m):
    layer = m.nn.utils.parametrizations.spectral_norm(m.nn.Linear(3, 4))
    return layer.parametrizations.weight[0]._u, lambda: layer(data(m))


def spectral_older(m):
    layer = m.nn.utils.spectral_norm(m.nn.Linear(3, 4))
    return layer.weight_u, lambda: layer(data(m))


def assigned_through_a_parametrization(m):
    layer = m.nn.utils.parametrizations.weight_norm(m.nn.Linear(3, 4))

    def act():
        layer.weight = data(m, 4, 3, seed=5)

    return layer.parametrizations.weight.original1, act


def averaged(m, of=lambda average: average.module.weight, **options):
    model = m.nn.Linear(3, 4)
    average = m.optim.swa_utils.AveragedModel(model, **options)
    average.update_parameters(model)
    m.nn.init.normal_(model.weight)
    return average.module.weight, lambda: average.update_parameters(model)


def averaged_exponentially(m):
    return averaged(m, multi_avg_fn=m.optim.swa_utils.get_ema_multi_avg_fn(0.5))


def averaged_by_a_function(m):
    return averaged(m, avg_fn=m.optim.swa_utils.get_ema_avg_fn(0.5))


def average_of_buffers(m):
    model = m.nn.BatchNorm1d(3)
    average = m.optim.swa_utils.AveragedModel(model)
    model(data(m))
    return average.module.running_mean, lambda: average.update_parameters(model)


def statistics_anew(m):
    model = m.nn.Sequential(m.nn.BatchNorm1d(3))
    return model[0].running_mean, lambda: m.optim.swa_utils.update_bn([data(m)], model)


def in_place(kind, **options):
    def make(m):
        x = data(m)
        return x, lambda: getattr(m.nn.functional, kind)(x, inplace=True, **options)

    return make


def of_a_parameter(m):
    x = data(m)
    p = m.nn.Parameter(x)
    return x, lambda: m.nn.init.normal_(p)


def of_a_buffer(m):
    x = data(m, 3).abs()
    norm = m.nn.BatchNorm1d(3)
    norm.running_var = x
    return x, lambda: norm.load_state_dict(m.nn.BatchNorm1d(3).state_dict())


def out(m):
    x = m.zeros(*SHAPE)
    return x, lambda: m.add(data(m), 1.0, out=x)


def dirty(m):
    class Doubled(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = data(m)
    return x, lambda: Doubled.apply(x)


# ---------------------------------------------------------------- optimizers


def stepped(name):
    def make(m):
        p = leaf(m)
        p.grad = data(m, seed=1)
        opt = getattr(m.optim, name)([p], lr=0.1)

        def closure():
            p.grad = None
            loss = (p * p).sum()
            loss.backward()
            return loss

        return p, lambda: opt.step(closure)

    return make


def kept_by(name, buffer, **options):
    def make(m):
        p = leaf(m)
        p.grad = data(m, seed=1)
        opt = getattr(m.optim, name)([p], lr=0.1, **options)
        opt.step()
        p.grad = data(m, seed=2)
        return opt.state[p][buffer], opt.step

    return make


def a_rate(m):
    p = leaf(m)
    rate = m.tensor(0.5)
    opt = m.optim.SGD([p], lr=rate)
    schedule = m.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    p.grad = data(m)
    opt.step()
    return rate, schedule.step


def a_scale(m):
    p, scaler = leaf(m), m.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    opt = m.optim.SGD([p], lr=0.1)
    scaler.scale(p.sum()).backward()
    scaler.step(opt)
    return next(t for t in (*vars(scaler).values(), *getattr(scaler, "_tensors", {}).values()) if isinstance(t, m.Tensor)), scaler.update


# ---------------------------------------------------------------- memory and values


def plainly(write):
    def make(m):
        x = data(m)

        def act():
            with m.no_grad():
                write(m, x)

        return x, act

    return make


INIT = {
    "constant_": (2.0,), "dirac_": None, "eye_": (), "kaiming_normal_": (), "kaiming_uniform_": (), "normal_": (), "ones_": (), "orthogonal_": (),
    "sparse_": (0.5,), "trunc_normal_": (), "uniform_": (), "xavier_normal_": (), "xavier_uniform_": (), "zeros_": (),
}  # fmt: skip


def initialised(name):
    def make(m):
        x = leaf(m, 4, 3, 3) if name == "dirac_" else leaf(m)
        return x, lambda: getattr(m.nn.init, name)(x, *(INIT[name] or ()))

    return make


AS_IN_TORCH = {
    f.__name__: f
    for f in (
        accumulated, accumulated_to_inputs, accumulated_twice_used, zeroed_by_an_optimizer, zeroed_by_a_module, clipped_by_norm,
        clipped_by_a_given_norm, clipped_by_value, unscaled, by_the_function, average_of_all_batches, reset, loaded, loaded_buffer,
        reset_parameters, spectral, spectral_older, averaged, averaged_exponentially, averaged_by_a_function,
        average_of_buffers, statistics_anew, of_a_parameter, of_a_buffer, out, dirty, a_rate,
    )
} | {
    "BatchNorm1d": normed("BatchNorm1d", 4, 3), "BatchNorm2d": normed("BatchNorm2d", 4, 3, 2, 2),
    "BatchNorm3d": normed("BatchNorm3d", 4, 3, 2, 2, 2),
    "InstanceNorm1d": normed("InstanceNorm1d", 4, 3, 5, track_running_stats=True),
    "InstanceNorm2d": normed("InstanceNorm2d", 4, 3, 2, 2, track_running_stats=True),
    "InstanceNorm3d": normed("InstanceNorm3d", 4, 3, 2, 2, 2, track_running_stats=True),
    "Embedding": shortened("Embedding"), "EmbeddingBag": shortened("EmbeddingBag"),
    "relu": in_place("relu"), "dropout": in_place("dropout"), "hardtanh": in_place("hardtanh", min_val=-0.1, max_val=0.1),
    "copy_": plainly(lambda m, x: x.copy_(data(m, seed=3))), "fill_": plainly(lambda m, x: x.fill_(7)),
    "normal_": plainly(lambda m, x: x.normal_()), "setitem": plainly(lambda m, x: x.__setitem__(0, 7.0)),
    "iadd": plainly(lambda m, x: x.__iadd__(1)), "a view": plainly(lambda m, x: x[1:].mul_(3)),
    "detached": plainly(lambda m, x: x.detach().mul_(3)), "index_put_": plainly(lambda m, x: x.index_put_((m.tensor([0]),), m.tensor(7.0))),
    **{name: initialised(name) for name in INIT},
    **{f"{name}.step": stepped(name) for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta",
                                                 "ASGD", "Rprop", "Adafactor", "Muon", "LBFGS")},
    "SGD's buffer": kept_by("SGD", "momentum_buffer", momentum=0.9), "Adam's mean": kept_by("Adam", "exp_avg"),
    "Adam's maximum": kept_by("Adam", "max_exp_avg_sq", amsgrad=True), "Adam's count": kept_by("Adam", "step"),
    "RMSprop's mean": kept_by("RMSprop", "grad_avg", centered=True), "Muon's buffer": kept_by("Muon", "momentum_buffer"),
    "Adafactor's rows": kept_by("Adafactor", "row_var"), "Rprop's sizes": kept_by("Rprop", "step_size"),
}  # fmt: skip


# ---------------------------------------------------------------- what PyTorch has not, or lets pass


def given_data(m):
    x = leaf(m)

    def act():
        x.data = data(m, seed=4)

    return x, act


def given_memory(m):
    x = data(m)
    return x, lambda: x.set_(data(m, seed=4))


def emptied(m):
    x = data(m)
    return x, lambda: x.set_()


def of_a_vector(m):
    x = leaf(m)
    return x, lambda: m.nn.utils.vector_to_parameters(m.zeros(12), [x])


def converted(convert):
    def make(m):
        layer = m.nn.Linear(3, 4)
        return layer.weight, lambda: convert(layer)

    return make


def pruned_for_good(m):
    layer = m.nn.utils.prune.l1_unstructured(m.nn.Linear(3, 4), "weight", 0.5)
    return layer.weight_orig, lambda: m.nn.utils.prune.remove(layer, "weight")


def without_its_parametrization(m):
    layer = m.nn.utils.parametrizations.orthogonal(m.nn.Linear(3, 3))
    return layer.parametrizations.weight.original, lambda: m.nn.utils.parametrize.remove_parametrizations(layer, "weight")


def compiled(make, calls):
    """The write within a compiled function that ran before: traced by the second call, the short way from the third or fourth on."""

    def of(m):
        x, act = make(m)
        run = gl.compile(act)
        for _ in range(calls):
            run()
        return x, run

    return of


def step_of(m, of, **options):
    """A training step, and of its optimizer's tensors one that it writes."""
    layer = gl.nn.Sequential(gl.nn.Linear(3, 3), gl.nn.BatchNorm1d(3))
    opt = gl.optim.Adam(layer.parameters(), lr=0.1, **options)
    x = data(m)

    def act():
        opt.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        opt.step()

    act()
    return of(layer, opt), act


def traced_by_jit(m):
    norm = gl.nn.BatchNorm1d(3)
    program = gl.jit.trace(norm, (data(m),))
    return norm.running_mean, lambda: program(data(m, seed=7))


def scripted(m):
    norm = gl.nn.BatchNorm1d(3)
    program = gl.jit.script(norm)
    return norm.running_mean, lambda: program(data(m, seed=7))


def traced_program(m):
    norm = gl.nn.BatchNorm1d(3)
    program = gl.graph.trace(norm, data(m))
    return norm.running_mean, lambda: program(data(m, seed=7))


def session_assigns(m):
    shared = data(m)
    with gl.Graph().as_default() as graph:
        update = gl.assign(shared, shared * 2 + 1)
    session = gl.Session(graph)
    return shared, lambda: session.run(update)


def through_cond(m):
    x = data(m)

    def act():
        return gl.cond(gl.tensor(True), lambda y: x.add_(y), lambda y: x.sub_(y), (gl.ones(*SHAPE),))

    return x, act


def through_a_loop(m):
    x = data(m)
    return x, lambda: gl.while_loop(lambda i: i < 2, lambda i: (x.add_(1), i + 1)[1:], (gl.tensor(0),))


OURS = {
    f.__name__: f
    for f in (
        given_data, given_memory, emptied, of_a_vector, pruned_for_good, without_its_parametrization, assigned_through_a_parametrization,
        a_scale, traced_by_jit, scripted, traced_program, session_assigns, through_cond, through_a_loop,
    )
} | {
    "to float64": converted(lambda layer: layer.to(gl.float64)), "half": converted(lambda layer: layer.half()),
    "Lion.step": stepped("Lion"), "Lion's mean": kept_by("Lion", "exp_avg"),
    **{
        f"compiled {name}, {calls} calls before": compiled(make, calls)
        for calls in (1, 2, 5)
        for name, make in {
            "fill_": AS_IN_TORCH["normal_"], "batch norm": AS_IN_TORCH["BatchNorm1d"],
            "step: a parameter": lambda m: step_of(m, lambda layer, opt: layer[0].weight),
            "step: statistics": lambda m: step_of(m, lambda layer, opt: layer[1].running_mean),
            "step: a buffer": lambda m: step_of(m, lambda layer, opt: opt.state[layer[0].weight]["exp_avg"]),
            "step: a maximum": lambda m: step_of(m, lambda layer, opt: opt.state[layer[1].bias]["max_exp_avg_sq"], amsgrad=True),
            "step: a count": lambda m: step_of(m, lambda layer, opt: opt.state[layer[1].bias]["step"]),
        }.items()
    },
}  # fmt: skip
FORMS = {"itself": lambda x: x, "a twin": lambda x: x.detach(), "a view": lambda x: x.reshape(-1)[:]}


def graph_of(m, kept):
    """A graph whose backward needs the values of `kept`."""
    w = m.ones_like(kept.detach()).requires_grad_()
    return w, (kept.detach() * w if kept.grad_fn is not None else kept * w).sum()


def attempt(m, make, form):
    m.manual_seed(0)
    x, act = make(m)
    version, before = x._version, x.detach().clone()
    w, y = graph_of(m, FORMS[form](x))
    act()
    assert x.shape != before.shape or x.dtype != before.dtype or not m.equal(x.detach(), before), "the case writes nothing"
    return x._version > version, w, y, before


def fails(y):
    try:
        y.backward()
    except RuntimeError as error:
        return "modified by an in" in str(error)
    return False


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*AS_IN_TORCH, *OURS])
def test_a_graph_that_kept_it_raises(name, form):
    moves = form != "itself" and name in MOVED
    noted, w, y, before = attempt(gl, (AS_IN_TORCH | OURS)[name], form)
    assert noted
    if moves:  # the tensor got other memory: what has the old goes on with it
        y.backward()
        np.testing.assert_array_equal(w.grad.numpy().reshape(-1), before.numpy().reshape(-1))
    else:
        assert fails(y)


MOVED = {
    "given_data", "given_memory", "emptied", "of_a_vector", "pruned_for_good", "without_its_parametrization", "to float64", "half",
}  # fmt: skip


LETS_PASS = {"unscaled", "by_the_function", "average_of_all_batches", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"}  # PyTorch, on the CPU


@pytest.mark.parametrize("name", sorted(AS_IN_TORCH.keys() - LETS_PASS))
def test_as_in_torch(name):
    torch = pytest.importorskip("torch")
    noted, _, y, _ = attempt(torch, AS_IN_TORCH[name], "itself")
    assert noted and fails(y)


def test_every_initialiser_and_optimizer_is_here():
    assert {n for n in dir(gl.nn.init) if n.endswith("_") and not n.startswith("_")} == INIT.keys()
    optimizers = {n for n, c in vars(gl.optim).items() if inspect.isclass(c) and issubclass(c, gl.optim.Optimizer)} - {"Optimizer"}
    assert {f"{n}.step" for n in optimizers} <= {*AS_IN_TORCH, *OURS}


def test_a_kept_gradient_of_the_issue():
    """(w · w.grad)' is w.grad as it was: [2, 2], not what the next backward makes of it."""
    w = gl.ones(2, requires_grad=True)
    (w * 2).sum().backward()
    y = (w * w.grad).sum()
    (w * 3).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        y.backward()
    assert w.grad.tolist() == [5, 5]


def test_an_error_names_the_line_that_wrote():
    w = gl.ones(2, requires_grad=True)
    opt = gl.optim.SGD([w], lr=0.1)

    def step():
        opt.zero_grad()
        (w * w).sum().backward()
        opt.step()  # here

    run = gl.compile(step)
    for _ in range(4):
        run()
    y = (w * w).sum()
    run()
    with pytest.raises(RuntimeError, match=r"opt\.step\(\)  # here"):
        y.backward()
