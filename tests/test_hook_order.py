"""The order in which hooks run, and what removing one during a run does: scenarios run here and in PyTorch, which have to agree.

Two differences are known. Gradients of leaves are stored after the walk here, so that a failing backward changes none; PyTorch stores each
as soon as it is complete: leaves' hooks are compared among each other. And `grad(z, [x, y])` gives for y, which lies on the way to x, what
y's hooks made of the gradient, as it does for [y] alone; PyTorch gives what they were given.
"""

import importlib

import pytest

import gradlab as gl
from gradlab import nn  # noqa: F401 - a room that is loaded when it is asked for


def tensors(lib, log):
    """Tensor hooks in registration order, one that changes the gradient, before the hooks of the node behind; leaves last."""
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: log.append(("y1", g.tolist())))
    y.grad_fn.register_prehook(lambda g: log.append(("pre", g[0].tolist())))
    y.grad_fn.register_hook(lambda gi, go: log.append(("post", gi[0].tolist(), go[0].tolist())))
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: log.append(("y2", g.tolist())))
    y.grad_fn.register_prehook(lambda g: (g[0] * 5,))
    y.grad_fn.register_prehook(lambda g: log.append(("pre2", g[0].tolist())))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 7, *gi[1:]))
    x.register_hook(lambda g: log.append(("x1", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda t: log.append(("acc1", t.grad.tolist())))
    x.register_hook(lambda g: g + 1)
    x.register_post_accumulate_grad_hook(lambda t: log.append(("acc2", t.grad.tolist())))
    y.retain_grad()
    (y * lib.ones(2)).sum().backward()
    log.append(("kept", y.grad.tolist(), x.grad.tolist()))


def captured(lib, log):
    """autograd.grad: hooks of the tensors asked for run, nothing is accumulated."""
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    x.register_hook(lambda g: log.append(("x", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
    y.register_hook(lambda g: log.append(("y", g.tolist())))
    y.grad_fn.register_prehook(lambda g: log.append("pre"))
    z = (y * 3).sum()
    log.append([g.tolist() for g in lib.autograd.grad(z, [x, y], retain_graph=True)])
    y.register_hook(lambda g: g * 2)
    log.append([g.tolist() for g in lib.autograd.grad(z, [y])])


def removed(lib, log):
    """A hook that removes itself, and one that removes another, while they run."""
    x = lib.ones(2, requires_grad=True)
    handles = {}

    def once(g):
        log.append("once")
        handles["once"].remove()

    def other(g):
        log.append("other")
        handles["last"].remove()

    handles["once"] = x.register_hook(once)
    handles["last"] = x.register_hook(lambda g: log.append("last"))
    for _ in range(2):
        (x * 2).sum().backward()
    handles["other"] = x.register_hook(other)
    for _ in range(2):
        (x * 2).sum().backward()
    handles["other"].remove()
    handles["other"].remove()
    (x * 2).sum().backward()


def reused(lib, log):
    """A tensor that is used twice has its hooks called once, with the sum."""
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: log.append(g.tolist()))
    x.register_post_accumulate_grad_hook(lambda t: log.append(("acc", t.grad.tolist())))
    (y * 3 + y * 4).sum().backward()


def in_place(lib, log):
    """Hooks registered before an in-place operation belong to the value from before; those after it to the new one."""
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: log.append(("before", g.tolist())))
    y.mul_(5)
    y.register_hook(lambda g: log.append(("after", g.tolist())))
    (y * 3).sum().backward()


def modules(lib, log):
    """Forward pre-hooks, forward hooks, full backward pre-hooks and hooks of nested modules."""
    inner, last = lib.nn.Linear(2, 2, bias=False), lib.nn.ReLU()
    net = lib.nn.Sequential(inner, last)
    for name, module in (("net", net), ("inner", inner), ("last", last)):
        module.register_forward_hook(lambda m, a, out, name=name: log.append(("forward", name)))
        module.register_forward_pre_hook(lambda m, a, name=name: log.append(("pre", name)))
        module.register_forward_pre_hook(lambda m, a, name=name: log.append(("first", name)), prepend=True)
        module.register_full_backward_hook(lambda m, gi, go, name=name: log.append(("back", name, gi[0] is None)))
        module.register_full_backward_pre_hook(lambda m, go, name=name: log.append(("backpre", name)))
        module.register_forward_hook(lambda m, a, kw, out, name=name: log.append(("kw", name)), with_kwargs=True)
    leaves = []
    inner.weight.register_hook(lambda g: leaves.append("weight"))
    inner.weight.register_post_accumulate_grad_hook(lambda t: leaves.append("weight is stored"))
    x = lib.ones(1, 2, requires_grad=True)
    x.register_hook(lambda g: leaves.append("x"))
    net(x).sum().backward()
    log.append(leaves)


def everywhere(lib, log):
    """Global module hooks run before a module's own."""
    module = importlib.import_module(f"{lib.__name__}.nn.modules.module")
    handles = [
        module.register_module_forward_pre_hook(lambda m, a: log.append("global pre")),
        module.register_module_forward_hook(lambda m, a, out: log.append("global forward")),
        module.register_module_full_backward_pre_hook(lambda m, go: log.append("global backpre")),
        module.register_module_full_backward_hook(lambda m, gi, go: log.append("global back")),
    ]
    try:
        layer = lib.nn.ReLU()
        layer.register_forward_pre_hook(lambda m, a: log.append("pre"))
        layer.register_forward_hook(lambda m, a, out: log.append("forward"))
        layer.register_full_backward_pre_hook(lambda m, go: log.append("backpre"))
        layer.register_full_backward_hook(lambda m, gi, go: log.append("back"))
        layer(lib.ones(2, requires_grad=True)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    layer(lib.ones(2, requires_grad=True)).sum().backward()


def changing(lib, log):
    """What module hooks return takes the place of inputs, outputs and gradients, each seen by the next hook."""
    layer = lib.nn.Identity()
    layer.register_forward_pre_hook(lambda m, a: (a[0] * 2,))
    layer.register_forward_pre_hook(lambda m, a: log.append(a[0].tolist()))
    layer.register_forward_hook(lambda m, a, out: out * 3)
    layer.register_forward_hook(lambda m, a, out: log.append(out.tolist()))
    layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 5,))
    layer.register_full_backward_pre_hook(lambda m, go: log.append(go[0].tolist()))
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 7,))
    layer.register_full_backward_hook(lambda m, gi, go: log.append((gi[0].tolist(), go[0].tolist())))
    x = lib.ones(2, requires_grad=True)
    layer(x).sum().backward()
    log.append(x.grad.tolist())


def several(lib, log):
    """register_multi_grad_hook in both modes."""
    x, y = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
    a, b = x * 2, y * 3
    multi = lib.autograd.graph.register_multi_grad_hook
    multi((a, b), lambda gs: log.append(("all", [None if g is None else g.tolist() for g in gs])))
    multi((a, b), lambda g: log.append(("any", g.tolist())), mode="any")
    (a * 4 + b * 5).sum().backward()
    (x * 2 * 7).sum().backward()


SCENARIOS = [tensors, captured, removed, reused, in_place, modules, everywhere, changing, several]


def run(lib, scenario):
    log = []
    scenario(lib, log)
    return log


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_the_order_is_the_same_every_time(scenario):
    first = run(gl, scenario)
    assert first and run(gl, scenario) == first


@pytest.mark.torch
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_hooks_run_as_in_pytorch(scenario):
    torch = pytest.importorskip("torch")
    assert run(gl, scenario) == run(torch, scenario)


@pytest.mark.parametrize("prehooks_first", [False, True])
def test_a_leafs_own_hooks_run_before_those_of_its_accumulator(prehooks_first):
    x = gl.ones(2, requires_grad=True)
    end, log, added = (x * 1).grad_fn.next_functions[0][0], [], []
    steps = [lambda: x.register_hook(lambda g: log.append("tensor") or g * 2),
             lambda: end.register_prehook(lambda gs: log.append("node") or (gs[0] + 1,))]  # fmt: skip
    end.register_hook(lambda _, given: added.append(given[0].tolist()))
    for step in reversed(steps) if prehooks_first else steps:
        step()
    x.sum().backward()
    assert log == ["tensor", "node"] and x.grad.tolist() == [3, 3] and added == [[3, 3]]  # what was added, not what arrived
    log.clear()
    (found,) = gl.autograd.grad(x.sum(), x)  # adds nothing
    assert log == ["tensor"] and found.tolist() == [2, 2] and len(added) == 1


def test_hooks_after_a_gradient_was_added():
    x, log = gl.ones(2, requires_grad=True), []
    end = (x * 1).grad_fn.next_functions[0][0]
    end.register_hook(lambda *_: log.append("node"))
    x.register_post_accumulate_grad_hook(lambda leaf: log.append("tensor"))
    x.sum().backward()
    assert log == ["tensor", "node"]
    x.register_post_accumulate_grad_hook(lambda leaf: leaf.grad)
    with pytest.raises(RuntimeError, match="returns None"):
        x.sum().backward()


@pytest.mark.parametrize("f", [lambda x: x + 1, lambda x: -x, lambda x: x.clone(), lambda x: x.sum(), lambda x: x.reshape(4, 1) - 2,
                               lambda x: x[1:].mT, lambda x: gl.stack([x, x])])  # fmt: skip
def test_a_graph_that_keeps_nothing_is_not_freed(f):
    x = gl.ones(2, 2, requires_grad=True)
    y = f(x)
    y.sum().backward()
    once = x.grad.clone()
    y.sum().backward()
    assert gl.equal(x.grad, 2 * once)


def test_edges_that_are_used_go_with_materialize_grads():
    x, y = gl.ones(2, requires_grad=True).clone(), gl.ones(2, requires_grad=True).clone()
    edge, other = map(gl.autograd.graph.get_gradient_edge, (x, y))
    found = gl.autograd.grad(x.sum(), (edge, y), materialize_grads=True)
    assert [g.tolist() for g in found] == [[1, 1], [0, 0]]
    with pytest.raises(RuntimeError, match="unused GradientEdge"):
        gl.autograd.grad(x.sum(), (x, other), materialize_grads=True)
