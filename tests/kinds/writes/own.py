"""What PyTorch does not have, or lets pass: programs, memory that is exchanged. Cases as in `shared.py`."""

from __future__ import annotations

import gradlab as gl

from kinds.writes.shared import AS_IN_TORCH, SHAPE, a_scale, assigned_through_a_parametrization, data, kept_by, leaf, stepped


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
