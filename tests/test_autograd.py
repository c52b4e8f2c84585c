"""Leaves, the graph, backward and grad. In-place operations, modes, hooks and errors have files of their own."""

import gc
import threading
import weakref

import numpy as np
import pytest

import gradlab as gl
from gradlab import autograd


def leaf(values, dtype=gl.float64):
    return gl.tensor(values, dtype=dtype, requires_grad=True)


def equal(found, wanted):
    assert found is not None
    np.testing.assert_allclose(np.array(found.tolist()), np.array(wanted, float), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- leaves


def test_leaves():
    x, c = leaf([1.0]), gl.tensor([2.0], dtype=gl.float64)
    y = x * c
    assert x.is_leaf and x.requires_grad and x.grad_fn is None and x.grad is None
    assert c.is_leaf and not c.requires_grad
    assert not y.is_leaf and y.requires_grad and y.grad_fn.name() == "MulBackward0"
    assert (c * c).is_leaf and not (c * c).requires_grad
    assert c.requires_grad_() is c and c.requires_grad
    c.requires_grad = False
    assert not c.requires_grad


def test_a_leaf_that_stopped_requiring_grad_gets_none():
    x, w = leaf([2.0]), leaf([3.0])
    loss = (x * w).sum()
    w.requires_grad_(False)
    loss.backward()
    equal(x.grad, [3.0])
    assert w.grad is None


def test_detach_cuts_the_graph_and_shares_memory():
    x = leaf([2.0])
    y = x * x
    d = y.detach()
    assert not d.requires_grad and d.is_leaf and d.data_ptr() == y.data_ptr()
    (d * x).sum().backward()
    equal(x.grad, [4.0])


def test_detach_in_place():
    x = leaf([2.0])
    y = x * x
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    z = x * 3
    with pytest.raises(RuntimeError, match="use detach"):
        z[0:1].detach_()


def test_integer_results_carry_no_graph():
    x = leaf([1.5, 2.5])
    assert not x.to(gl.int64).requires_grad and not (x > 2).requires_grad and not x.argmax().requires_grad


# ---------------------------------------------------------------- .grad


def test_grad_adds_up_in_the_same_tensor():
    x = leaf([1.0, 2.0])
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first
    equal(first, [5.0, 5.0])
    x.grad = None
    (x * x).sum().backward()
    equal(x.grad, [2.0, 4.0])
    equal(first, [5.0, 5.0])


def test_a_leaf_used_several_times():
    x = leaf([1.0, 2.0])
    (x + x + x * x).sum().backward()
    equal(x.grad, [4.0, 6.0])


def test_leaves_of_one_sum_do_not_share_memory():
    a, b, c = leaf([1.0, 2.0]), leaf([3.0, 4.0]), leaf([5.0, 6.0])
    (a + b + c).sum().backward()
    a.grad.mul_(10.0)
    b.grad.add_(1.0)
    equal(a.grad, [10.0, 10.0])
    equal(b.grad, [2.0, 2.0])
    equal(c.grad, [1.0, 1.0])


def test_the_given_gradient_stays_the_users():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    given = gl.tensor([1.0, 2.0], dtype=gl.float64)
    (a + b).backward(given)
    a.grad.add_(5.0)
    a.backward(given)
    equal(given, [1.0, 2.0])
    equal(a.grad, [7.0, 9.0])
    equal(b.grad, [1.0, 2.0])
    given.mul_(100.0)
    equal(b.grad, [1.0, 2.0])


def test_a_kept_gradient_is_not_the_leafs():
    seen = []
    x = leaf([1.0, 2.0])
    y = x + 0.0
    y.retain_grad()
    x.register_hook(seen.append)
    y.sum().backward()
    x.grad.mul_(7.0)
    equal(y.grad, [1.0, 1.0])
    equal(seen[0], [1.0, 1.0])


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x.expand(2, 2, 3), lambda x: x.view(6), lambda x: x[:, 1], lambda x: x[::2], lambda x: x.T.reshape(3, 2)],
)
def test_gradients_through_views_are_contiguous_and_own_their_memory(view):
    x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = view(x)
    given = gl.ones(y.shape, dtype=gl.float64)
    y.backward(given)
    assert x.grad.is_contiguous() and x.grad.shape == x.shape
    before = x.grad.tolist()
    given.zero_()
    equal(x.grad, before)
    x.grad.add_(1.0)


def test_gradient_has_the_leafs_dtype():
    x, y = leaf([1.0], gl.float32), leaf([2.0], gl.float64)
    z = x * y
    assert z.dtype == gl.float64
    z.sum().backward()
    assert x.grad.dtype == gl.float32 and y.grad.dtype == gl.float64


def test_broadcast_gradients_are_summed():
    a, b, s = leaf([[1.0], [2.0]]), leaf([1.0, 2.0, 3.0]), leaf(2.0)
    (a * b * s).sum().backward()
    equal(a.grad, [[12.0], [12.0]])
    equal(b.grad, [6.0, 6.0, 6.0])
    equal(s.grad, 18.0)


# ---------------------------------------------------------------- backward


def test_backward_with_a_gradient_is_the_vector_jacobian_product():
    x = leaf([1.0, 2.0, 3.0])
    (x**2).backward(gradient=gl.tensor([1.0, 10.0, 100.0], dtype=gl.float64))
    equal(x.grad, [2.0, 40.0, 600.0])


def test_backward_casts_a_gradient_of_another_dtype():
    x = leaf([1.0, 2.0])
    (x * 3).backward(gl.tensor([1.0, 2.0], dtype=gl.float32))
    assert x.grad.dtype == gl.float64
    equal(x.grad, [3.0, 6.0])


def test_retain_graph_allows_a_second_pass():
    x = leaf([2.0, 3.0])
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    equal(x.grad, [8.0, 12.0])
    with pytest.raises(RuntimeError, match="second pass"):
        loss.backward()


def test_create_graph_gives_higher_derivatives():
    x = leaf([2.0])
    (x**4).sum().backward(create_graph=True)
    first = x.grad
    equal(first, [32.0])
    x.grad = None
    first.sum().backward()
    equal(x.grad, [48.0])
    (g1,) = autograd.grad((x**4).sum(), x, create_graph=True)
    (g2,) = autograd.grad(g1.sum(), x, create_graph=True)
    (g3,) = autograd.grad(g2.sum(), x)
    equal(g3, [48.0])
    assert g2.requires_grad and not g3.requires_grad


def test_backward_to_chosen_inputs():
    x, w = leaf([2.0]), leaf([3.0])
    y = x * w
    loss = (y * y + w).sum()
    loss.backward(inputs=[w], retain_graph=True)
    assert x.grad is None
    equal(w.grad, [2 * 6 * 2 + 1.0])
    loss.backward(inputs=y)
    equal(y.grad, [12.0])
    assert x.grad is None
    equal(w.grad, [25.0])


def test_backward_of_several_tensors():
    x = leaf([1.0, 2.0])
    autograd.backward([(x * 2).sum(), x * x], [None, gl.tensor([1.0, 3.0], dtype=gl.float64)])
    equal(x.grad, [4.0, 14.0])


def test_backward_of_a_leaf():
    x = leaf(3.0)
    x.backward()
    equal(x.grad, 1.0)


def test_a_failing_backward_changes_no_grad():
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = w * 1.0
    loss = (x * 2).sum() + (y * y).sum()
    with gl.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        loss.backward()
    assert x.grad is None and w.grad is None


def test_outputs_of_one_node_are_used_apart():
    x = leaf([3.0, 1.0, 2.0])
    found = x.max(dim=0)
    assert found.values.grad_fn is not None and not found.indices.requires_grad
    (found.values * 2).backward()
    equal(x.grad, [2.0, 0.0, 0.0])


# ---------------------------------------------------------------- grad


def test_grad_leaves_grad_alone():
    x, w = leaf([2.0]), leaf([3.0])
    loss = (x * x * w).sum()
    gx, gw = autograd.grad(loss, (x, w))
    equal(gx, [12.0])
    equal(gw, [4.0])
    assert x.grad is None and w.grad is None


def test_grad_for_computed_tensors_does_not_run_what_lies_behind():
    x = leaf([2.0])
    y = x * x
    z = y * y
    (gy,) = autograd.grad(z.sum(), y)
    equal(gy, [8.0])
    (gx,) = autograd.grad(y, x, grad_outputs=gy)  # y's own node was not used up
    equal(gx, [32.0])


def test_grad_for_an_output_itself_and_for_both_ends():
    x = leaf([2.0])
    y = x * 3
    gy, gx = autograd.grad(y, (y, x))
    equal(gy, [1.0])
    equal(gx, [3.0])


def test_grad_of_several_outputs():
    x = leaf([1.0, 2.0])
    given = gl.tensor([10.0, 20.0], dtype=gl.float64)
    (g,) = autograd.grad([x.sum(), x * x], x, grad_outputs=[None, given])
    equal(g, [21.0, 81.0])


def test_unused_inputs():
    x, y = leaf([1.0]), leaf([2.0, 3.0])
    loss = (x * 2).sum()
    with pytest.raises(RuntimeError, match="allow_unused=True"):
        autograd.grad(loss, (x, y), retain_graph=True)
    gx, gy = autograd.grad(loss, (x, y), retain_graph=True, allow_unused=True)
    assert gy is None
    equal(gx, [2.0])
    equal(autograd.grad(loss, (x, y), materialize_grads=True)[1], [0.0, 0.0])
    with pytest.raises(ValueError, match="materialize_grads"):
        autograd.grad(loss, x, allow_unused=False, materialize_grads=True)


def test_grad_penalty_mixes_orders():
    x, w = leaf([1.0, -2.0]), leaf([0.5, 3.0])
    (g,) = autograd.grad((x * x * w).sum(), x, create_graph=True)
    ((g * g).sum() + (w * x).sum()).backward()
    equal(w.grad, (8 * np.array([1.0, -2.0]) ** 2 * np.array([0.5, 3.0]) + np.array([1.0, -2.0])).tolist())
    equal(x.grad, (8 * np.array([1.0, -2.0]) * np.array([0.5, 3.0]) ** 2 + np.array([0.5, 3.0])).tolist())


# ---------------------------------------------------------------- the walk


def test_a_shared_node_waits_for_all_its_consumers():
    x = leaf(2.0)
    a = x * x
    b = a * 3.0
    c = a * b
    (a + b + c).backward()
    equal(x.grad, 4.0 + 12.0 + 96.0)


def test_sixty_diamonds_run_each_node_once():
    x = leaf(3.0)
    y, calls = x, []
    for _ in range(60):
        y = y * 0.5 + y * 0.5
        y.grad_fn.register_hook(lambda *_: calls.append(1))
    y.backward()
    equal(x.grad, 1.0)
    assert len(calls) == 60


def deep(count):
    x = leaf(1.0)
    y = x
    for _ in range(count):
        y = y + 1.0
    first = weakref.ref(y.grad_fn)
    y.backward()
    equal(x.grad, 1.0)
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None and first() is None


def test_a_hundred_thousand_operations_deep():
    deep(100_000)


def test_a_hundred_thousand_operations_deep_with_a_small_stack():
    failures = []

    def run():
        try:
            deep(100_000)
        except BaseException as error:
            failures.append(error)

    old = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert not failures


def test_deep_graphs_are_dropped_without_a_backward():
    x = leaf([1.0])
    y = x
    for _ in range(100_000):
        y = y * x
    del y
    gc.collect()


def test_kept_values_are_freed_during_the_walk():
    """When the walk reaches the first operation, what later operations kept is gone: memory goes down as backward goes on."""
    x = leaf(np.ones(8).tolist())
    y, kept, alive = x, [], []
    for _ in range(6):
        y = y.exp() * 0.1
        kept.append(weakref.ref(y.grad_fn.next_functions[0].node.saved[-1]))
        y.grad_fn.register_hook(lambda *_: alive.append(sum(r() is not None for r in kept)))
    loss = y.sum()
    del y
    loss.backward()
    assert alive == [6, 5, 4, 3, 2, 1]
    assert all(r() is None for r in kept)
