"""In-place operations: the right gradient, or a refusal; never a wrong number in silence.

Gradients are compared with central differences of the same program in float64.
"""

import numpy as np
import pytest

import gradlab as gl


def leaf(values):
    return gl.tensor(values, dtype=gl.float64, requires_grad=True)


def const(values):
    return gl.tensor(values, dtype=gl.float64)


def equal(found, wanted):
    assert found is not None
    np.testing.assert_allclose(np.array(found.tolist()), np.array(wanted, float), rtol=1e-12, atol=1e-12)


START = [[0.7, 0.9, 1.1], [0.6, 0.8, 1.3]]


def differences(program):
    start, step = np.array(START), 1e-6
    found = np.zeros_like(start)
    for i in np.ndindex(*start.shape):
        values = []
        for sign in (1, -1):
            moved = start.copy()
            moved[i] += sign * step
            values.append(program(const(moved.tolist())).item())
        found[i] = (values[0] - values[1]) / (2 * step)
    return found


def weighted(t):
    """A number in which every element counts differently."""
    return (t * gl.arange(1, t.numel() + 1, dtype=gl.float64).view(t.shape)).sum()


# ---------------------------------------------------------------- gradients


def chain_of_writes(x):
    y = x * 2
    y.mul_(3).add_(x).sub_(0.5).div_(x + 1)
    return weighted(y)


def formulas_that_read_what_was_overwritten(x):
    y = x * 1.0
    y.pow_(3)
    z = y * 0.3
    z.exp_()
    z.mul_(x)
    z.tanh_()
    return weighted(y) + weighted(z)


def write_with_itself_as_the_other(x):
    y = x + 1.0
    y.add_(y)
    return weighted(y)


def through_a_view(x):
    y = x * 2
    y[0].mul_(x[1])
    return weighted(y)


def through_a_view_of_a_view(x):
    y = x * 2
    y.t()[1:][0].mul_(3.0)
    return weighted(y)


def through_a_transpose(x):
    y = x * 2
    v = y.t()
    v.mul_(x.t())
    return weighted(y) + weighted(v)


def through_a_reshape(x):
    y = x * 2
    flat = y.view(-1)
    flat[::2].add_(x.view(-1)[1::2])
    return weighted(y) + weighted(flat)


def base_written_after_the_view(x):
    y = x * 2
    v = y[1]
    y.mul_(x)
    return weighted(v) + weighted(y)


def one_view_written_another_read(x):
    y = x * 2
    a, b = y[:, :2], y[:, 1:]
    a.mul_(x[:, 1:])
    return weighted(b) + weighted(a.exp())


def base_and_view_in_turns(x):
    y = x * 2
    v = y[0]
    v.mul_(2)
    y.add_(x)
    v.exp_()
    y.t().mul_(0.5)
    return weighted(y) + weighted(v)


def a_view_read_before_and_after(x):
    y = x * 2
    before = (y[0] + 0.0) * x[1]
    y[0].zero_()
    return weighted(before) + weighted(y) + weighted(y[0])


def a_constant_gets_into_the_graph(x):
    c = gl.zeros(2, 3, dtype=gl.float64)
    v = c[1]
    c.add_(x)
    v.mul_(x[0])
    return weighted(c) + weighted(v)


def rows_filled_one_by_one(x):
    out = gl.zeros(3, 2, dtype=gl.float64)
    for i in range(3):
        out[i] = x[:, i] * (i + 1)
    return weighted(out)


def copies_fills_and_masks(x):
    y = x * 2
    y.copy_(x * x)
    y[1].fill_(3.0)
    y[:, 0] = x[0, 0] * x[1, 1]
    y.masked_fill_(const([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) > 0.5, 0.25)
    return weighted(y)


def clone_before_the_write(x):
    y = x.exp()
    z = y.clone()
    z.mul_(2).sigmoid_()
    return weighted(y * y) + weighted(z)


PROGRAMS = [
    chain_of_writes, formulas_that_read_what_was_overwritten, write_with_itself_as_the_other, through_a_view, through_a_view_of_a_view,
    through_a_transpose, through_a_reshape, base_written_after_the_view, one_view_written_another_read, base_and_view_in_turns,
    a_view_read_before_and_after, a_constant_gets_into_the_graph, rows_filled_one_by_one, copies_fills_and_masks, clone_before_the_write,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradient(program):
    x = leaf(START)
    program(x).backward()
    np.testing.assert_allclose(np.array(x.grad.tolist()), differences(program), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_second_derivative(program):
    x, v = leaf(START), np.array([[0.3, -0.7, 0.2], [0.9, 0.1, -0.4]])
    (g,) = gl.autograd.grad(program(x), x, create_graph=True)
    if not g.requires_grad:
        return  # the program is linear
    (found,) = gl.autograd.grad((g * const(v.tolist())).sum(), x, materialize_grads=True)

    def first(z):
        z = z.requires_grad_()
        return (gl.autograd.grad(program(z), z)[0] * const(v.tolist())).sum()

    np.testing.assert_allclose(np.array(found.tolist()), differences(first), rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- memory and identity


def test_in_place_keeps_object_and_memory():
    x = leaf(START)
    y = x * 2
    address, same = y.data_ptr(), y
    y += x
    assert y is same and y.data_ptr() == address and y.grad_fn.name() == "AddBackward0"
    v = y[0]
    v *= 2
    equal(y[0], [4.2, 5.4, 6.6])
    assert v.data_ptr() == address and v._base is y


def test_views_report_the_new_graph():
    y = gl.zeros(2, 3, dtype=gl.float64)
    v = y[0]
    assert not v.requires_grad
    y.add_(leaf(START))
    assert v.requires_grad and not v.is_leaf and v.grad_fn.name() == "SliceBackward0"


def test_a_tensor_written_with_constants_stays_in_its_graph():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.zero_()
    assert y.requires_grad
    y.sum().backward()
    equal(x.grad, [0.0, 0.0])


def test_versions_are_shared_by_views_and_detached_twins():
    y = gl.zeros(4)
    v, d = y[:2], y.detach()
    assert (y._version, v._version, d._version) == (0, 0, 0)
    v.add_(1)
    d.add_(1)
    assert (y._version, v._version, d._version) == (2, 2, 2)
    y.data.add_(1)
    assert y._version == 2
    equal(y, [3.0, 3.0, 2.0, 2.0])


def test_update_of_a_leaf_under_no_grad():
    w = leaf([1.0, 2.0])
    with gl.no_grad():
        w -= 0.5
        w[0] = 7.0
        w.mul_(2)
    assert w.is_leaf and w.requires_grad
    equal(w, [14.0, 3.0])
    (w * w).sum().backward()
    equal(w.grad, [28.0, 6.0])


def test_integers_and_truth_values_in_place():
    i = gl.tensor([1, 2, 3])
    i += 2
    i[0] = 9
    assert i.tolist() == [9, 4, 5] and i.dtype == gl.int64
    b = gl.tensor([True, False])
    b[1] = True
    assert b.tolist() == [True, True]


def test_float_results_are_cast_to_the_tensors_own_type():
    h = gl.tensor([1.0, 2.0], dtype=gl.float32)
    h.add_(gl.tensor([0.5, 0.5], dtype=gl.float64))
    assert h.dtype == gl.float32
    x = leaf([1.0, 2.0])
    h.mul_(x)
    h.sum().backward()
    equal(x.grad, [1.5, 2.5])


# ---------------------------------------------------------------- what backward notices


def noticed(make, write, says="modified by an in-place operation"):
    x = leaf(START)
    y = x * 1.0
    loss = make(y).sum()
    with gl.no_grad():
        write(y)
    with pytest.raises(RuntimeError, match=says) as caught:
        loss.backward()
    return str(caught.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.add_(1), lambda y: y[0].zero_(), lambda y: y.t()[1].mul_(2), lambda y: y.view(-1).fill_(0),
        lambda y: y.detach().add_(1),
        lambda y: y.__setitem__((0, 0), 3.0), lambda y: y.copy_(y * 2), lambda y: y.detach()[0].exp_(),
    ],
)  # fmt: skip
def test_a_kept_input_that_was_written_is_noticed(write):
    message = noticed(lambda y: y * y, write)
    assert "MulBackward0" in message and "(2, 3)" in message and "recorded at" in message and "modified at" in message


@pytest.mark.parametrize("write", [lambda y: y.add_(1), lambda y: y.view(-1)[2:].zero_(), lambda y: y.detach().add_(1)])
def test_a_kept_output_that_was_written_is_noticed(write):
    x = leaf(START)
    y = x.exp()
    loss = y.sum()
    write(y)
    with pytest.raises(RuntimeError, match=r"ExpBackward0: the output of shape \(2, 3\)"):
        loss.backward()


def test_the_message_names_both_lines():
    x = leaf([1.0])
    y = x * 1.0
    z = y * y  # recorded here
    y.add_(1.0)  # modified here
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    message = str(caught.value)
    assert "z = y * y  # recorded here" in message and "y.add_(1.0)  # modified here" in message and "clone()" in message
    assert message.count(__file__) == 2


def test_a_write_that_does_not_matter_is_no_error():
    x = leaf([1.0, 2.0])
    y = x * 2
    z = y + 1  # keeps nothing of y
    y.mul_(5)
    z.sum().backward()
    equal(x.grad, [2.0, 2.0])


def test_data_is_the_way_around_the_check():
    x = leaf([2.0])
    y = x * x
    x.data.mul_(10)
    y.sum().backward()
    equal(x.grad, [40.0])


def test_data_can_be_replaced():
    x = leaf([2.0, 3.0])
    x.data = gl.tensor([4.0, 5.0], dtype=gl.float64)
    assert x.is_leaf and x.requires_grad
    equal(x, [4.0, 5.0])
    with pytest.raises(TypeError, match="tensor"):
        x.data = 3.0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("write", [lambda w: w.add_(1), lambda w: w.zero_(), lambda w: w.__setitem__(0, 1.0), lambda w: w.copy_(w * 2)])
def test_leaves_are_not_written_while_recording(write):
    w = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"leaf tensor that requires grad.*no_grad"):
        write(w)
    with pytest.raises(RuntimeError, match="a view of a leaf tensor that requires grad"):
        write(w[:2])
    equal(w, [1.0, 2.0])


def test_expanded_tensors_are_not_written():
    y = (leaf([1.0, 2.0]) * 2).expand(3, 2)
    with pytest.raises(RuntimeError, match=r"expanded.*clone\(\)"):
        y.add_(1)
    y.clone().add_(1)


def test_views_made_without_recording_are_not_written_with_it():
    x = leaf(START)
    y = x * 2
    with gl.no_grad():
        v = y[0]
    for write in (lambda: v.mul_(2), lambda: v[1:].mul_(2), lambda: v.mul_(x[0])):
        with pytest.raises(RuntimeError, match=r"view that was made under no_grad\(\)"):
            write()
    with gl.no_grad():
        v.mul_(2)
    plain = gl.zeros(2, 3, dtype=gl.float64)
    with gl.no_grad():
        u = plain[0]
    u.add_(1)
    with pytest.raises(RuntimeError, match="no_grad"):
        u.mul_(x[0])
    equal(plain[0], [1.0, 1.0, 1.0])


def test_shapes_and_types_that_do_not_fit():
    y = gl.zeros(2)
    with pytest.raises(RuntimeError, match=r"add_: the result has shape \(3, 2\).*out-of-place"):
        y.add_(gl.ones(3, 2))
    with pytest.raises(RuntimeError, match="float32 cannot be stored in a tensor of type int64"):
        gl.tensor([1, 2]).add_(0.5)
    with pytest.raises(RuntimeError, match="bool"):
        gl.tensor([True, False]).add_(2)
    equal(y, [0.0, 0.0])


def test_retain_grad_follows_the_newest_value():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * 5).sum().backward()
    equal(y.grad, [5.0, 5.0])
    equal(x.grad, [30.0, 30.0])
