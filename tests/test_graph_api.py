"""`autograd.graph`, and the options of `autograd.grad` and `backward` that need it."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.autograd import graph
from gradlab.nn.modules import module as modules


def leaf(values, dtype=gl.float64):
    return gl.tensor(values, dtype=dtype, requires_grad=True)


def equal(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted)


# ---------------------------------------------------------------- saved_tensors_hooks


def network(x, w):
    """Rows of every shape of call: one and two inputs, products, reductions, views, joint and variadic formulas."""
    y = gl.nn.functional.layer_norm((x @ w).tanh() * x, (4,))
    y = gl.cat([y.exp() * 0.1, y.softmax(-1)], 1).reshape(-1, 4)
    return (gl.where(y > 0, y, y * 0.5).var(0) + y.amax(0) + gl.stack([y[0], y[1]]).prod(0)).sum()


def test_hooks_see_what_is_kept_and_backward_what_they_return():
    x, w = leaf(np.linspace(-1, 1, 12).reshape(3, 4)), leaf(np.eye(4) + 0.1)
    wanted = gl.autograd.grad(network(x, w), (x, w))
    packed, unpacked = [], []

    def pack(t):
        assert not gl.is_grad_enabled() and not t.requires_grad
        packed.append(t.shape)
        return t.numpy().copy()

    def unpack(array):
        unpacked.append(array.shape)
        return gl.from_numpy(array)

    with graph.saved_tensors_hooks(pack, unpack):
        y = network(x, w)
    assert (4, 4) in packed and not unpacked
    for a, b in zip(gl.autograd.grad(y, (x, w), retain_graph=True), wanted):
        equal(a, b.numpy())
    assert len(unpacked) == len(packed)
    y.backward()
    equal(x.grad, wanted[0].numpy())
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_higher_derivatives_go_through_the_hooks():
    def second(hooked):
        x, w = leaf(np.linspace(-1, 1, 12).reshape(3, 4)), leaf(np.eye(4) + 0.1)
        if hooked:
            with graph.saved_tensors_hooks(lambda t: t.numpy().copy(), gl.from_numpy):
                y = network(x, w)
        else:
            y = network(x, w)
        (g,) = gl.autograd.grad(y, x, create_graph=True)
        return gl.autograd.grad((g * g).sum(), (x, w))

    for a, b in zip(second(True), second(False)):
        equal(a, b.numpy())


def test_the_innermost_hooks_count():
    seen = []
    x = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        y = x.exp()
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t):
            y = y.sin()
        y = y.cos()
    y.exp().sum().backward()
    assert seen == ["outer", "inner", "outer"]


def test_an_exception_ends_the_hooks():
    with pytest.raises(KeyError), graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
        raise KeyError
    leaf(1.0).exp().backward()


def test_what_hooks_may_not_do():
    x = leaf([1.0])
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="unpack hook returns a tensor, not int"):
        y.sum().backward()
    with graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t), pytest.raises(RuntimeError, match="in place"):
        x.exp()
    with pytest.raises(TypeError, match="function"):
        graph.saved_tensors_hooks(None, lambda t: t)


def test_disabled_hooks():
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
        with pytest.raises(RuntimeError, match="not here"):
            gl.utils.checkpoint.checkpoint(lambda x: x.exp(), leaf(1.0))
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        leaf(1.0).exp().backward()


def test_save_on_cpu():
    x, w = leaf(np.linspace(-1, 1, 12).reshape(3, 4)), leaf(np.eye(4))
    wanted = gl.autograd.grad(network(x, w), (x, w))
    with graph.save_on_cpu():
        found = gl.autograd.grad(network(x, w), (x, w))
    for a, b in zip(found, wanted):
        equal(a, b.numpy())


def test_mutation_of_saved_tensors_can_be_allowed():
    x = leaf([1.0, 2.0])
    with graph.allow_mutation_on_saved_tensors():
        z = x * 1
        y = z.sin()
        z.mul_(0)
    y.sum().backward()
    equal(x.grad, np.cos([1.0, 2.0]))


def test_increment_version():
    x = leaf([1.0])
    z = x * 1
    y = z.sin()
    graph.increment_version(z)
    with pytest.raises(RuntimeError, match="modified"):
        y.sum().backward()


# ---------------------------------------------------------------- hooks on several gradients


def test_multi_grad_hook():
    a, b, c, d = (leaf([float(i)]) for i in range(1, 5))
    e = a * b
    seen = []
    handle = graph.register_multi_grad_hook((a, b, e, d), lambda grads: seen.append([g if g is None else g.item() for g in grads]))
    (e * c).sum().backward(retain_graph=True)
    assert seen == [[6.0, 3.0, 3.0, None]]
    (e * c).sum().backward()
    assert len(seen) == 2
    seen.clear()
    gl.autograd.grad((a * 2 + d).sum(), (a,))
    assert seen == [[2.0, None, None, None]]
    handle.remove()
    (a * 2).sum().backward()
    assert len(seen) == 1


def test_multi_grad_hook_at_the_first():
    a, b = leaf([1.0]), leaf([2.0])
    seen = []
    graph.register_multi_grad_hook((a, b), lambda g: seen.append(g.item()), mode="any")
    (a * b).sum().backward()
    assert len(seen) == 1
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((a,), print, mode="some")


def test_multi_grad_hook_with_an_output_that_nobody_used():
    x = leaf([1.0, 2.0])
    first, second = gl.sort(x * 1, descending=True).values.unbind(0)
    seen = []
    graph.register_multi_grad_hook((first, second, x), seen.append)
    first.sum().backward()
    assert len(seen) == 1 and seen[0][1] is None and seen[0][2] is not None


def test_hooks_on_an_accumulator():
    x = leaf([1.0])
    node = graph.get_gradient_edge(x).node
    seen = []
    handle = node.register_hook(lambda grad_inputs, grad_outputs: seen.append((grad_inputs, grad_outputs[0].item(), x.grad.item())))
    (x * 3).sum().backward()
    (x * 3).sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    assert seen == [((), 3.0, 3.0), ((), 3.0, 6.0)]


def test_a_handle_removes_its_own_hook_only():
    x = leaf([1.0])
    first = x.register_hook(lambda g: g * 2)
    first.remove()
    x.register_hook(lambda g: g * 5)
    first.remove()
    (x * 1).sum().backward()
    equal(x.grad, [5.0])


# ---------------------------------------------------------------- GradientEdge


def test_gradient_edges():
    x = leaf([1.0, 2.0])
    y = x * 3
    edge_x, edge_y = graph.get_gradient_edge(x), graph.get_gradient_edge(y)
    assert edge_y.node is y.grad_fn and edge_y.output_nr == 0 and edge_x.node.variable is x
    z = (y * y).sum()
    del y
    g_x, g_y = gl.autograd.grad(z, (edge_x, edge_y), retain_graph=True)
    equal(g_x, [18.0, 36.0])
    equal(g_y, [6.0, 12.0])
    equal(gl.autograd.grad(edge_y, x, grad_outputs=gl.tensor([1.0, 2.0], dtype=gl.float64), retain_graph=True)[0], [3.0, 6.0])
    z.backward(inputs=[edge_x])
    equal(x.grad, [18.0, 36.0])


def test_wrong_use_of_gradient_edges():
    x = leaf([1.0])
    y = x * 2
    edge = graph.get_gradient_edge(y)
    with pytest.raises(RuntimeError, match="does not require grad"):
        graph.get_gradient_edge(gl.ones(1))
    with pytest.raises(RuntimeError, match="needs its gradient given"):
        gl.autograd.grad(edge, x)
    with pytest.raises(RuntimeError, match="materialize_grads"):
        gl.autograd.grad((x * 3).sum(), edge, materialize_grads=True)
    with pytest.raises(RuntimeError, match=r"no \.grad elsewhere"):
        gl.autograd.backward(y.sum(), inputs=[edge])


# ---------------------------------------------------------------- is_grads_batched


def test_batched_gradients():
    x, w = leaf(np.linspace(-1, 1, 12).reshape(3, 4)), leaf(np.eye(4) + 0.1)
    unused = leaf([1.0])
    y = (x @ w).tanh()
    v = np.random.default_rng(0).normal(size=(5, 3, 4))
    found = gl.autograd.grad(y, (x, w, unused), gl.tensor(v), is_grads_batched=True, materialize_grads=True, create_graph=True)
    assert found[2].shape == (5, 1)
    for k in range(5):
        one = gl.autograd.grad(y, (x, w), gl.tensor(v[k]), retain_graph=True)
        equal(found[0][k], one[0].numpy())
        equal(found[1][k], one[1].numpy())
    (h,) = gl.autograd.grad((found[0] ** 2).sum(), w)
    wanted = 0
    for k in range(5):
        (g,) = gl.autograd.grad((x @ w).tanh(), x, gl.tensor(v[k]), create_graph=True)
        wanted = wanted + gl.autograd.grad((g**2).sum(), w)[0].numpy()
    equal(h, wanted)


def test_a_jacobian_by_batched_gradients():
    x = leaf([1.0, 2.0, 3.0])
    (j,) = gl.autograd.grad(x**2, x, gl.eye(3, dtype=gl.float64), is_grads_batched=True)
    equal(j, np.diag([2.0, 4.0, 6.0]))
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y = x**2
        gl.autograd.grad(y, x, gl.eye(3, dtype=gl.float64), is_grads_batched=True)
        gl.autograd.grad(y, x, gl.eye(3, dtype=gl.float64), is_grads_batched=True)
    with pytest.raises(ValueError, match="first dimension"):
        gl.autograd.grad(x.sum(), x, is_grads_batched=True)


def test_a_batch_is_one_walk():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2
    calls = []
    y.register_hook(lambda g: calls.append(g.shape))
    (j,) = gl.autograd.grad(y**2, x, gl.eye(3, dtype=gl.float64), is_grads_batched=True)
    equal(j, np.diag([8.0, 16.0, 24.0]))
    assert calls == [(3,)]  # the hook sees one sample's shape, once, as under vmap
    assert not j.requires_grad


def test_batched_gradients_inside_transforms():
    x = leaf([1.0, 2.0, 3.0])
    one = gl.eye(3, dtype=gl.float64)
    found = gl.vmap(lambda z: gl.autograd.grad(z.requires_grad_() ** 2 * x, z, one, is_grads_batched=True)[0])(gl.ones(2, 3).double())
    equal(found, np.stack([np.diag([2.0, 4.0, 6.0])] * 2))
    (g,) = gl.autograd.grad(found.sum(), x)
    equal(g, [4.0, 4.0, 4.0])
    assert gl.autograd.grad(x**2, x, one[:0], is_grads_batched=True)[0].shape == (0, 3)


# ---------------------------------------------------------------- hooks of all modules


def test_hooks_of_all_modules_run_before_a_modules_own():
    gl.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    order = []

    def note(name):
        return lambda module, *_: order.append((name, type(module).__name__))

    handles = [
        modules.register_module_forward_pre_hook(note("all pre")),
        modules.register_module_forward_hook(note("all forward")),
        modules.register_module_full_backward_pre_hook(note("all backward pre")),
        modules.register_module_full_backward_hook(note("all backward")),
        net[1].register_forward_pre_hook(note("pre")),
        net[1].register_forward_hook(note("forward")),
        net[1].register_full_backward_pre_hook(note("backward pre")),
        net[1].register_full_backward_hook(note("backward")),
    ]
    net(gl.ones(2, 3).requires_grad_()).sum().backward()
    tanh = [name for name, module in order if module == "Tanh"]
    assert tanh == ["all pre", "pre", "all forward", "forward", "all backward pre", "backward pre", "all backward", "backward"]
    assert [m for name, m in order if name == "all pre"] == ["Sequential", "Linear", "Tanh"]
    assert [m for name, m in order if name == "all backward"] == ["Tanh", "Linear", "Sequential"]
    for handle in handles:
        handle.remove()
    order.clear()
    net(gl.ones(2, 3)).sum().backward()
    assert not order


def test_hooks_of_all_modules_change_values():
    with modules.register_module_forward_hook(lambda module, args, output: output + 1):
        assert nn.ReLU()(gl.zeros(1)).item() == 1.0
    assert nn.ReLU()(gl.zeros(1)).item() == 0.0
    with pytest.raises(TypeError, match="function"):
        modules.register_module_forward_hook(3)


def test_always_called_hooks_of_all_modules():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("in forward")

    seen = []
    with (
        modules.register_module_forward_hook(lambda m, args, kwargs, out: seen.append(out), with_kwargs=True, always_call=True),
        pytest.raises(KeyError),
    ):
        Fails()(gl.ones(1))
    assert seen == [None]
