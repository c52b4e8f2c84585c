"""Hooks on tensors and nodes, and the graph as the user sees it: names, edges, metadata, printing it."""

import copy
import gc
import weakref

import numpy as np
import pytest

import gradlab as gl
from gradlab import autograd


def leaf(values):
    return gl.tensor(values, dtype=gl.float64, requires_grad=True)


def equal(found, wanted):
    assert found is not None
    np.testing.assert_allclose(np.array(found.tolist()), np.array(wanted, float), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- hooks on tensors


def test_hooks_see_and_change_the_gradient():
    x = leaf([1.0, 2.0])
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g + 1)
    (y * 2).sum().backward()
    assert seen == [[2.0, 2.0], [20.0, 20.0]]
    equal(x.grad, [61.0, 61.0])


def test_a_leafs_hook_runs_once_with_the_whole_gradient():
    x = leaf([2.0])
    calls = []
    x.register_hook(lambda g: calls.append(g.tolist()))
    (x * x + x).sum().backward()
    assert calls == [[5.0]]
    autograd.grad((x * 7).sum(), x)
    assert calls == [[5.0], [7.0]]


def test_hooks_are_removed():
    x = leaf([1.0])
    calls = []
    with x.register_hook(lambda g: calls.append("with")):
        (x * 1).sum().backward()
    handle = x.register_hook(lambda g: calls.append("kept"))
    other = x.register_hook(lambda g: calls.append("other"))
    handle.remove()
    handle.remove()
    (x * 1).sum().backward()
    assert calls == ["with", "other"]
    other.remove()


def test_hooks_of_computed_tensors_belong_to_the_value():
    x = leaf([1.0])
    y = x * 2
    calls = []
    y.register_hook(lambda g: calls.append(g.tolist()))
    z = y * 3
    z.sum().backward(retain_graph=True)
    (y * 5).sum().backward()
    assert calls == [[3.0], [5.0]]


def test_hooks_run_without_recording_unless_the_backward_is_recorded():
    x = leaf([3.0])
    states = []

    def hook(g):
        states.append(gl.is_grad_enabled())
        return g * x

    x.register_hook(hook)
    (x * x).sum().backward()
    assert not x.grad.requires_grad
    x.grad = None
    (x * x).sum().backward(create_graph=True)
    assert states == [False, True] and x.grad.requires_grad
    equal(x.grad, [18.0])


def test_post_accumulate_hooks_see_the_sum_and_may_step():
    w = leaf([1.0, 2.0])
    seen = []

    def step(p):
        seen.append(p.grad.tolist())
        assert p is w and not gl.is_grad_enabled()
        p.sub_(p.grad * 0.5)
        p.grad = None

    w.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        (w * 2).sum().backward()
    assert seen == [[2.0, 2.0], [2.0, 2.0]] and w.grad is None
    equal(w, [-1.0, 0.0])


def test_retain_grad_keeps_what_hooks_made():
    x = leaf([1.0])
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 100)
    assert y.retains_grad and y.grad is None
    (y * 3).sum().backward(retain_graph=True)
    equal(y.grad, [300.0])
    y.sum().backward()
    equal(y.grad, [400.0])
    x.retain_grad()  # a leaf keeps it anyway
    assert x.is_leaf


def test_what_hooks_may_not_do():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="does not require grad"):
        gl.ones(2).register_hook(print)
    with pytest.raises(RuntimeError, match="does not require grad"):
        gl.ones(2).retain_grad()
    with pytest.raises(RuntimeError, match="only for leaves"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(TypeError, match="function"):
        x.register_hook(3)
    for returned, error in ((gl.ones(3), RuntimeError), (1.0, TypeError)):
        with x.register_hook(lambda g, returned=returned: returned), pytest.raises(error, match="tensor hook"):
            (x * 2).sum().backward()


def test_an_error_in_a_hook_comes_through_with_the_operation_named():
    x = leaf([1.0])
    y = x * 2

    def hook(g):
        raise KeyError("mine")

    y.register_hook(hook)
    with pytest.raises(KeyError, match="mine") as caught:
        y.sum().backward()
    assert "MulBackward0" in caught.value.__notes__[0] and "y = x * 2" in caught.value.__notes__[0]
    assert gl.is_grad_enabled()


def test_a_hook_may_run_another_backward():
    x, w = leaf([2.0]), leaf([5.0])

    def hook(g):
        with gl.enable_grad():
            (w * w).sum().backward()

    x.register_hook(hook)
    (x * 3).sum().backward()
    equal(x.grad, [3.0])
    equal(w.grad, [10.0])


# ---------------------------------------------------------------- hooks on nodes


def test_node_hooks():
    x, w = leaf([2.0]), leaf([5.0])
    y = x * w
    calls = []
    y.grad_fn.register_prehook(lambda gs: calls.append(("pre", [g.tolist() for g in gs])))
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    y.grad_fn.register_hook(lambda inputs, outputs: calls.append((len(inputs), outputs[0].tolist())))
    handle = y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1, None))
    y.sum().backward(retain_graph=True)
    assert calls == [("pre", [[1.0]]), (2, [2.0])]
    equal(x.grad, [11.0])
    assert w.grad is None
    handle.remove()
    y.sum().backward()
    equal(w.grad, [4.0])


def test_node_hooks_return_as_many_as_they_got():
    x = leaf([2.0])
    y = x * x
    y.grad_fn.register_hook(lambda inputs, outputs: inputs[:1])
    with pytest.raises(RuntimeError, match="MulBackward0: returned 1 gradients in place of 2"):
        y.sum().backward()


def test_prehook_of_a_leafs_accumulator():
    x = leaf([2.0])
    end = (x * 2).grad_fn.next_functions[0].node
    end.register_prehook(lambda gs: (gs[0] * 10,))
    del end
    (x * 2).sum().backward()
    equal(x.grad, [20.0])


# ---------------------------------------------------------------- the graph as the user sees it


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda x: x + 1, "AddBackward0"), (lambda x: x - 1, "SubBackward0"), (lambda x: x * x, "MulBackward0"),
        (lambda x: x / 2, "DivBackward0"), (lambda x: x**2, "PowBackward0"), (lambda x: x.exp(), "ExpBackward0"),
        (lambda x: x.tanh(), "TanhBackward0"), (lambda x: -x, "NegBackward0"),
        (lambda x: x.sum(), "SumBackward0"), (lambda x: x.mean(), "MeanBackward0"), (lambda x: x.t(), "TBackward0"),
        (lambda x: x.view(-1), "ViewBackward0"), (lambda x: x @ x, "MatmulBackward0"), (lambda x: x.relu(), "ReluBackward0"),
    ],
)  # fmt: skip
def test_names(make, name):
    node = make(leaf([[1.0, 2.0], [3.0, 4.0]])).grad_fn
    assert node.name() == name == type(node).__name__
    assert repr(node).startswith(f"<{name} object at 0x") and isinstance(node, autograd.Node)


def test_edges():
    x, c = leaf([1.0]), gl.tensor([2.0], dtype=gl.float64)
    y = x * c
    z = y + x
    (first, second) = z.grad_fn.next_functions
    assert isinstance(first, autograd.Edge) and first == (y.grad_fn, 0) and first.node is y.grad_fn and first.index == 0
    end = second.node
    assert isinstance(end, autograd.AccumulateGrad) and end.variable is x and end.name() == "AccumulateGrad"
    assert end.next_functions == () and repr(end).startswith("<AccumulateGrad object at 0x")
    assert y.grad_fn.next_functions == ((end, 0), (None, 0))
    assert (x * 2).grad_fn.next_functions == ((end, 0), (None, 0))
    found = leaf([3.0, 1.0]).max(dim=0)
    assert (found.values * 2).grad_fn.next_functions[0] == (found.values.grad_fn, found.values.output_nr)


def test_a_walk_that_prints_the_tree():
    x, w = leaf([[1.0, 2.0]]), leaf([[3.0], [4.0]])
    loss = ((x @ w + 1.0) ** 2).sum()
    lines = []

    def walk(node, depth):
        if node is None:
            return
        lines.append("  " * depth + node.name())
        for following, _ in node.next_functions:
            walk(following, depth + 1)

    walk(loss.grad_fn, 0)
    assert lines == [
        "SumBackward0", "  PowBackward0", "    AddBackward0", "      MatmulBackward0", "        AccumulateGrad", "        AccumulateGrad",
    ]  # fmt: skip


def test_a_node_called_by_hand():
    x, w = leaf([2.0]), leaf([5.0])
    y = x * w
    one = gl.ones(1, dtype=gl.float64)
    gx, gw = y.grad_fn(one)
    equal(gx, [5.0])
    equal(gw, [2.0])
    equal((x * 3).grad_fn(one)[0], [3.0])
    with pytest.raises(TypeError, match="gradient"):
        y.grad_fn(one, one)
    with pytest.raises(TypeError, match="tensor"):
        y.grad_fn(1.0)
    end = y.grad_fn.next_functions[0].node
    end(gx)
    end(gx)
    equal(x.grad, [10.0])
    equal(gx, [5.0])
    with pytest.raises(RuntimeError, match="shape"):
        end(gl.ones(2))


def test_metadata_lives_with_its_node():
    x = leaf([1.0])
    y = x * 2
    y.grad_fn.metadata["note"] = "mine"
    assert y.grad_fn.metadata == {"note": "mine"} and (x * 2).grad_fn.metadata == {}


def test_forward_positions():
    x = leaf([1.0])
    y = x * 2  # the line
    place = y.grad_fn.forward_position
    assert place.file == __file__ and place.text == "y = x * 2  # the line" and place.function == "test_forward_positions"
    assert f'File "{__file__}", line {place.line}' in str(place)


# ---------------------------------------------------------------- lifetime


GRAPHS = {
    "plain": lambda x: (x * x).exp().sum(),
    "views": lambda x: (x.t()[0].view(-1) * x[0]).sum(),
    "several outputs": lambda x: x.max(dim=0).values.sum(),
}


def in_place(x):
    y = x * 2
    v = y[0]
    v.mul_(x[1])
    y.exp_()
    return (y * v.sum()).sum()


def with_hooks(x):
    y = x * 2
    y.register_hook(lambda g: y.detach() * 0 + g)
    y.grad_fn.register_hook(lambda gi, go: None)
    return y.sum()


def retaining(x):
    y = x.exp()
    y.retain_grad()
    return (y * y).sum()


GRAPHS |= {"in place": in_place, "retain_grad": retaining}


@pytest.mark.parametrize("after", ["forward", "backward", "retain", "create", "error"])
@pytest.mark.parametrize("name", GRAPHS)
def test_dropping_the_loss_frees_its_graph_without_the_collector(name, after):
    x = leaf([[0.5, 0.25], [0.125, 0.75]])
    gc.collect()
    gc.disable()
    try:
        loss = GRAPHS[name](x)
        nodes, stack = [], [loss.grad_fn]
        while stack:
            node = stack.pop()
            if isinstance(node, autograd.Node):
                nodes.append(weakref.ref(node))
                stack += [edge.node for edge in node.next_functions]
        node = g = None
        if after == "backward":
            loss.backward()
        elif after == "retain":
            loss.backward(retain_graph=True)
        elif after == "create":
            (g,) = autograd.grad(loss, x, create_graph=True)
            nodes.append(weakref.ref(g))
        elif after == "error":
            loss.backward()
            with pytest.raises(RuntimeError):
                loss.backward()
        assert all(r() is not None for r in nodes)
        del loss, g
        assert [r() for r in nodes if r() is not None] == []
    finally:
        gc.enable()


def test_hooks_that_refer_to_their_tensor_are_the_users_cycle_and_collectable():
    x = leaf([1.0])
    loss = with_hooks(x)
    node = weakref.ref(loss.grad_fn)
    del loss
    gc.collect()
    assert node() is None


def test_leaves_are_freed_with_their_last_user():
    x = leaf([1.0])
    (x * 2).sum().backward()
    end = (x * 2).grad_fn.next_functions[0].node
    gone = weakref.ref(x)
    gc.disable()
    try:
        del x, end
        assert gone() is None
    finally:
        gc.enable()


def test_copies_of_leaves():
    x = leaf([1.0, 2.0])
    (x * 2).sum().backward()
    twin = copy.deepcopy(x)
    twin.grad.add_(1)
    assert twin.requires_grad and twin.is_leaf
    equal(x.grad, [2.0, 2.0])
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]
    with pytest.raises(RuntimeError, match="only leaves"):
        copy.deepcopy(x * 2)
