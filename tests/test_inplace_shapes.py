"""In-place methods that change a tensor's own shape or memory, and those that write to chosen places; `.data`; inference tensors."""

import numpy as np
import pytest

import gradlab as gl

TURNS = [
    ((2, 3), lambda t: t.t_(), lambda t: t.t()),
    ((2, 3), lambda t: t.transpose_(0, -1), lambda t: t.transpose(0, 1)),
    ((2, 3, 1), lambda t: t.swapaxes_(0, 1), lambda t: t.transpose(0, 1)),
    ((2, 3, 1), lambda t: t.swapdims_(0, 2), lambda t: t.transpose(0, 2)),
    ((2, 1, 3, 1), lambda t: t.squeeze_(), lambda t: t.squeeze()),
    ((2, 1, 3, 1), lambda t: t.squeeze_(1), lambda t: t.squeeze(1)),
    ((2, 3), lambda t: t.unsqueeze_(-1), lambda t: t.unsqueeze(-1)),
]


def numbers(shape):
    return np.arange(1.0, np.prod(shape) + 1).reshape(shape)


@pytest.mark.parametrize(("shape", "turn", "plain"), TURNS)
def test_a_tensor_gets_another_shape_in_the_same_memory(shape, turn, plain):
    x = gl.tensor(numbers(shape))
    wanted, address, version = plain(x).numpy(), x.data_ptr(), x._version
    assert turn(x) is x and x.data_ptr() == address and x._version == version + 1 and x._base is None
    np.testing.assert_array_equal(x.numpy(), wanted)


@pytest.mark.parametrize(("shape", "turn", "plain"), TURNS)
@pytest.mark.parametrize("viewed", [False, True])
def test_gradients_go_through(shape, turn, plain, viewed):
    found = []
    for change in (turn, plain):
        w = gl.tensor(numbers(shape), requires_grad=True)
        x = w * 2
        if viewed:
            x.view(-1)  # now x is a base
        y = change(x)
        weights = gl.tensor(numbers(y.shape))
        y = y * 1 if change is plain else y
        (y.mul_(3) * weights).sum().backward()
        found.append(w.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_views_keep_their_shapes_and_see_writes_both_ways():
    for recorded in (False, True):
        w = gl.ones(2, 3, requires_grad=recorded)
        x = w * 2
        v = x[0]
        x.t_()
        v.mul_(3)
        assert x.tolist() == [[6.0, 2.0]] * 3 and v.tolist() == [6.0] * 3
        x.add_(1)
        assert v.tolist() == [7.0] * 3 and x.shape == (3, 2)
        x.unsqueeze_(0)
        x[0, 1].zero_()
        assert v.tolist() == [7.0, 0.0, 7.0]
        if recorded:
            (x.sum() + v.sum()).backward()
            assert w.grad.tolist() == [[12.0, 0.0, 12.0], [2.0, 0.0, 2.0]]


def test_a_view_turns_alone():
    w = gl.ones(2, 3, requires_grad=True)
    x = w * 2
    v = x[0]
    v.unsqueeze_(1).mul_(3)
    assert v.shape == (3, 1) and v._base is x and x.tolist() == [[6.0] * 3, [2.0] * 3]
    (x * x).sum().backward()
    assert w.grad.tolist() == [[72.0] * 3, [8.0] * 3]


def test_refusals_of_a_new_shape():
    w = gl.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        w.t_()
    with gl.no_grad():
        v = w.view(3, 2)
        w.t_()
    assert w.shape == (3, 2) and w.is_leaf and w.requires_grad and v.shape == (3, 2)
    x = w * 2
    y = (x * x).sum()
    x.t_()
    with pytest.raises(RuntimeError, match="in-place operation"):
        y.backward()
    with pytest.raises(RuntimeError, match="at most two"):
        gl.ones(1, 2, 3).t_()
    with pytest.raises(IndexError):
        gl.ones(2).unsqueeze_(3)
    compiled = gl.compile(lambda x: x.t_() * 1)
    with pytest.raises(RuntimeError, match="outside a trace"):
        for _ in range(3):  # the first call runs as it is
            compiled(gl.ones(2, 3))


def test_shapes_change_inside_transforms():
    def f(x):
        y = x * 2
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_(0)
        return y.add_(1)

    x = gl.tensor(numbers((2, 2, 3)))
    wanted = x.numpy().transpose(0, 2, 1) * 2 + 1
    np.testing.assert_array_equal(gl.vmap(f)(x).numpy(), wanted)
    compiled = gl.compile(f)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x[0]).numpy(), wanted[0])


def test_resize():
    x = gl.arange(6.0)
    address = x.data_ptr()
    assert x.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]] and x.data_ptr() == address
    assert gl.arange(2.0).resize_((2, 2)).tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert gl.arange(2.0).resize_as_(gl.ones(1)).tolist() == [0.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        gl.ones(2, requires_grad=True).resize_(3)
    x = gl.arange(4.0)
    part = x[1:].resize_(2)
    x.mul_(2)
    assert part.tolist() == [2.0, 4.0] and gl.arange(6.0).view(2, 3).t().resize_(4).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert gl.ones(5).resize_(1, 2, 2, 2, memory_format=gl.channels_last).stride() == (8, 1, 4, 2)
    with pytest.raises(RuntimeError, match="view"):
        gl.ones(4)[:2].resize_(3)
    y = gl.ones(2)
    y.view(2, 1)
    with pytest.raises(RuntimeError, match="cannot grow"):
        y.resize_(5)


def test_set():
    x, y = gl.ones(2), gl.zeros(3)
    assert x.set_(y) is x and x.data_ptr() == y.data_ptr()
    version = y._version
    x.add_(1)
    assert y.tolist() == [1.0] * 3 and y._version == version + 1
    assert gl.ones(2).set_().shape == (0,)
    with pytest.raises(RuntimeError, match="cannot share"):
        x.set_(gl.arange(3))
    with pytest.raises(RuntimeError, match="leaf"):
        gl.ones(2, requires_grad=True).set_(y)
    assert x.set_(y, 1, (2,), (1,)).data_ptr() == y.data_ptr() + 4


# ---------------------------------------------------------------- chosen places


def test_put():
    x = gl.zeros(2, 3)
    assert x.put_(gl.tensor([0, -1]), gl.tensor([1.0, 2.0])) is x and x.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    twice = gl.put(x, gl.tensor([[0, 0]]), gl.tensor([[1.0], [2.0]]), accumulate=True)
    assert twice.tolist() == [[4.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    assert gl.zeros(2, 3).t().put_(gl.tensor([1]), gl.tensor([1.0])).tolist()[0] == [0.0, 1.0]
    assert gl.tensor(2.0).put_(gl.tensor([0]), gl.tensor([1.0])).item() == 1.0
    x, s = (gl.tensor(numbers(n), requires_grad=True) for n in ((2, 2), (2,)))
    for accumulate in (False, True):
        assert gl.autograd.gradcheck(lambda x, s, a=accumulate: x.put(gl.tensor([3, 1]), s, a) ** 2, (x, s))
    for index, source, kind in (([9], [1.0], IndexError), ([0, 1], [1.0], IndexError), ([0], [1], RuntimeError)):
        with pytest.raises(kind):
            gl.zeros(2, 3).put_(gl.tensor(index), gl.tensor(source))


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize(("reduce", "combine"), [("prod", np.prod), ("mean", np.mean), ("amax", np.max), ("amin", np.min)])
def test_index_reduce(reduce, combine, include_self):
    rng = np.random.default_rng(0)
    x, source, at = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), [0, 2, 0, 2]
    wanted = x.copy()
    for place in (0, 2):
        rows = [source[i] for i in range(4) if at[i] == place]
        wanted[place] = combine([x[place], *rows] if include_self else rows, axis=0)
    a, b = gl.tensor(x, requires_grad=True), gl.tensor(source, requires_grad=True)
    found = gl.index_reduce(a, 0, gl.tensor(at), b, reduce, include_self=include_self)
    np.testing.assert_allclose(found.detach().numpy(), wanted)
    own = gl.tensor(x.T.copy())
    assert own.index_reduce_(1, gl.tensor(at), b.detach().t(), reduce, include_self=include_self) is own
    np.testing.assert_allclose(own.numpy(), wanted.T)
    assert gl.autograd.gradcheck(lambda a, b: a.index_reduce(0, gl.tensor(at), b, reduce, include_self=include_self), (a, b))


def test_index_reduce_refusals():
    x, at = gl.ones(3, 2), gl.tensor([0, 0])
    for source, reduce in ((gl.ones(3, 2), "prod"), (gl.ones(2, 2).long(), "prod"), (gl.ones(2, 2), "sum")):
        with pytest.raises(RuntimeError):
            x.index_reduce(0, at, source, reduce)
    assert gl.tensor([5]).index_reduce(0, gl.tensor([0]), gl.tensor([2]), "mean").tolist() == [3]


def test_fill_diagonal():
    assert gl.zeros(7, 3).fill_diagonal_(1, wrap=True).nonzero().tolist() == [[0, 0], [1, 1], [2, 2], [4, 0], [5, 1], [6, 2]]
    assert gl.zeros(7, 3).fill_diagonal_(1).sum().item() == 3 and gl.zeros(3, 7).fill_diagonal_(1, wrap=True).sum().item() == 3
    assert gl.zeros(2, 2, 2).fill_diagonal_(5).nonzero().tolist() == [[0, 0, 0], [1, 1, 1]]
    w = gl.ones(2, 2, requires_grad=True)
    (w * 2).fill_diagonal_(7).sum().backward()
    assert w.grad.tolist() == [[0.0, 2.0], [2.0, 0.0]]
    for shape in ((2,), (2, 2, 3)):
        with pytest.raises(RuntimeError):
            gl.zeros(*shape).fill_diagonal_(1)


# ---------------------------------------------------------------- data


def test_data_can_be_another_dtype_or_shape_but_not_anything():
    x = gl.ones(2, requires_grad=True)
    x.data = gl.ones(3, dtype=gl.float64)
    assert x.shape == (3,) and x.dtype == gl.float64 and x.is_leaf and x.requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        x.data = gl.arange(3)
    with pytest.raises(TypeError, match="tensor"):
        x.data = 3


def test_a_view_with_other_data_is_on_its_own():
    x = gl.ones(4)
    v = x[:2]
    v.data = gl.zeros(2)
    v.add_(1)
    x.mul_(5)
    assert x.tolist() == [5.0] * 4 and v.tolist() == [1.0] * 2


def test_turning_again_and_again_keeps_nothing():
    """A tensor that nobody has views of does not remember its former shapes; one with views goes on reaching them."""
    x = gl.ones(2, 3)
    for _ in range(51):
        x.t_().unsqueeze_(0).squeeze_(0).transpose_(0, 1).t_()
    assert x._meta.base is None and not x._meta.chain and x.shape == (3, 2)
    views = [x[0], x.detach()[1]]
    x.t_().mul_(2)
    assert x.shape == (2, 3) and [v.tolist() for v in views] == [[2.0, 2.0]] * 2
    a = gl.ones(2, 3, requires_grad=True)
    y = a * 1
    y.t_().t_().t_().mul_(a.t())
    y.sum().backward()
    assert y.shape == (3, 2) and a.grad.tolist() == [[2.0] * 3] * 2


# ---------------------------------------------------------------- inference tensors

MADE = {
    "ones": lambda: gl.ones(2), "tensor": lambda: gl.tensor(1.0), "randn": lambda: gl.randn(2), "arange": lambda: gl.arange(3),
    "from_numpy": lambda: gl.from_numpy(np.ones(2)), "eye": lambda: gl.eye(2), "full": lambda: gl.full((2,), 1.0),
    "linspace": lambda: gl.linspace(0, 1, 3), "zeros_like": lambda: gl.zeros_like(gl.ones(2)), "Tensor": lambda: gl.Tensor([1.0]),
    "new_zeros": lambda: gl.ones(2).new_zeros(2), "new_tensor": lambda: gl.ones(2).new_tensor([1.0]), "randperm": lambda: gl.randperm(3),
    "tril_indices": lambda: gl.tril_indices(2, 2), "Parameter": lambda: gl.nn.Parameter(gl.ones(2)),
    "as_tensor": lambda: gl.as_tensor([1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_in_inference_mode_is_an_inference_tensor(name):
    with gl.inference_mode():
        made = MADE[name]()
        assert made.is_inference() and made.detach().is_inference() and made.reshape(-1).is_inference()
        made.zero_()
    assert not MADE[name]().is_inference()
    with pytest.raises(RuntimeError, match="inference"):
        made.detach().zero_()


def test_views_of_ordinary_tensors_stay_ordinary():
    x = gl.ones(4)
    with gl.inference_mode():
        v, w = x[:2], x.detach()
        assert not v.is_inference() and not w.is_inference() and (x + 1).is_inference()
        assert gl.ones(2).requires_grad_().requires_grad
    v.add_(1)
    assert x.tolist() == [2.0, 2.0, 1.0, 1.0]
