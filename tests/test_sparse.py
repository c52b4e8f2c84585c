"""Sparse tensors against the dense ones that they stand for: values, gradients of orders one and two, on both devices."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.autograd import gradcheck, gradgradcheck
from gradlab.backends.native import compiler, sparse as native

ROW, COL = [3, 0, 2, 0, 2], [1, 4, 0, 1, 4]
LAYOUTS = {
    "coo": lambda x: x,
    "coalesced": lambda x: x.coalesce(),
    "csr": lambda x: x.coalesce().to_sparse_csr(),
    "csc": lambda x: x.coalesce().to_sparse_csc(),
}


def random(*shape, device="cpu", seed=0):
    return gl.tensor(np.random.default_rng(seed).uniform(0.2, 0.8, shape), device=device)


def made(values, layout="coo", repeated=False):
    row, col = (ROW, COL) if not repeated else (ROW[:-1] + ROW[:1], COL[:-1] + COL[:1])
    return LAYOUTS[layout](gl.sparse_coo_tensor([row, col], values, (4, 5), device=values.device))


# name: (function of the sparse matrix and a dense one, shape of the dense one); the same function is applied to the dense matrix
FUNCTIONS = {
    "matmul": (lambda a, d: a @ d, (5, 3)), "mm": (lambda a, d: gl.mm(a, d), (5, 3)), "mv": (lambda a, d: gl.mv(a, d), (5,)),
    "times_vector": (lambda a, d: a @ d, (5,)), "vector_times": (lambda a, d: d @ a, (4,)),
    "dense_times": (lambda a, d: d @ a, (2, 4)), "batch": (lambda a, d: a @ d, (2, 5, 3)), "dense_batch": (lambda a, d: d @ a, (2, 3, 4)),
    "addmm": (lambda a, d: gl.addmm(d[:4], a, d, beta=2, alpha=3), (5, 3)),
    "linear": (lambda a, d: gl.nn.functional.linear(a, d, d[:, 0]), (2, 5)),
    "linear_weight": (lambda a, d: gl.nn.functional.linear(d, a), (2, 5)),
    "product": (lambda a, d: a @ (a.t() * 0.5) @ d, (4, 2)),
    "transposed": (lambda a, d: a.t() @ d, (4, 2)), "t_attribute": (lambda a, d: a.T @ d, (4, 2)),
    "transpose": (lambda a, d: a.transpose(0, 1) @ d, (4, 2)),
    "plus_dense": (lambda a, d: a + d, (4, 5)), "dense_plus": (lambda a, d: d + a, (4, 5)), "dense_minus": (lambda a, d: d - a, (4, 5)),
    "wider": (lambda a, d: a + d, (3, 4, 5)),
    "plus": (lambda a, d: (a + a.abs()) @ d, (5, 2)), "minus": (lambda a, d: (3 * a - a) @ d, (5, 2)),
    "alpha": (lambda a, d: gl.add(a, a, alpha=2) @ d, (5, 2)),
    "scaled": (lambda a, d: (2 * a / 3) @ d, (5, 2)), "by_tensor": (lambda a, d: (a * d.sum() / d.mean()) @ d, (5, 2)),
    "times_dense": (lambda a, d: (a * d).sum(), (4, 5)), "dense_times_it": (lambda a, d: (d * a).sum(), (4, 5)),
    "by_row": (lambda a, d: (a * d).sum(), (5,)), "by_column": (lambda a, d: (a * (1 / d)).sum(), (4, 1)),
    "squared": (lambda a, d: (a * a).sum() * d.sum(), (2,)), "power": (lambda a, d: (a**2 + a.pow(3)) @ d, (5, 2)),
    "negative": (lambda a, d: -a @ d, (5, 2)), "clamp": (lambda a, d: a.clamp(-1, 0.5) @ d, (5, 2)),
    "sum": (lambda a, d: a.sum() * d.sum(), (2,)), "norm": (lambda a, d: a.norm() * d.sum(), (2,)),
    "to": (lambda a, d: a.to(gl.float64).double() @ d, (5, 2)), "clone": (lambda a, d: a.clone() @ d, (5, 2)),
    **{
        name: (lambda a, d, name=name: getattr(gl, name)(a) @ d + getattr(a, name)() @ d, (5, 2))
        for name in ("abs", "sqrt", "sin", "tanh", "square", "relu", "expm1", "log1p", "tan", "asin", "atan", "sinh", "asinh", "atanh",
                     "erf", "erfinv", "floor", "ceil", "trunc", "round", "sign", "neg", "positive", "deg2rad")
    },
}  # fmt: skip
COO_ONLY = {
    "row": (lambda a, d: a[2] @ d, (5, 2)),
    "element": (lambda a, d: a[2, 4] * d.sum(), (2,)), "column": (lambda a, d: a[:, 1] @ d, (4, 2)),
    "slices": (lambda a, d: a[1:3, :-1] @ d, (4, 2)), "index_select": (lambda a, d: a.index_select(0, I([2, 0, 2])) @ d, (5, 2)),
    "chosen_columns": (lambda a, d: gl.Tensor.index_select(a, 1, I([4, 1])) @ d if not a.is_sparse else a.index_select(1, I([4, 1])) @ d,
                       (2, 2)),
    "list": (lambda a, d: a[[0, 3]] @ d, (5, 2)), "negative_index": (lambda a, d: a[-2] @ d, (5, 2)),
    "narrow": (lambda a, d: a.narrow(0, 2, 2) @ d, (5, 2)), "new_axis": (lambda a, d: a[None].sum(0) @ d, (5, 2)),
    "sum_0": (lambda a, d: a.sum(0) @ d, (5, 2)), "sum_1": (lambda a, d: a.sum(1, keepdim=True).t() @ d, (4, 2)),
    "cat": (lambda a, d: gl.cat([a, 2 * a]) @ d, (5, 2)), "cat_1": (lambda a, d: gl.cat([a, a], 1) @ d, (10, 2)),
    "stack": (lambda a, d: gl.stack([a, a]).sum(0) @ d, (5, 2)),
}  # fmt: skip


def I(values):  # noqa: E743 - an index
    return gl.tensor(values)


def dense_of(x):
    return x.to_dense() if x.layout is not gl.strided else x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*FUNCTIONS, *COO_ONLY])
def test_is_what_the_dense_one_gives(name, layout):
    if name in COO_ONLY and layout in ("csr", "csc"):
        pytest.skip("parts of a compressed layout are refused")
    function, shape = {**FUNCTIONS, **COO_ONLY}[name]
    values, d = random(5), random(*shape, seed=1)
    repeated = layout == "coo" and name not in ("element",)
    sparse = made(values, layout, repeated).requires_grad_()
    dense = sparse.detach().to_dense().requires_grad_()
    one, two = d.clone().requires_grad_(), d.clone().requires_grad_()
    found, expected = dense_of(function(sparse, one)), function(dense, two)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    weight = random(*expected.shape, seed=2) if expected.shape else gl.tensor(1.5, dtype=gl.float64)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    if two.grad is not None:
        np.testing.assert_allclose(one.grad.numpy(), two.grad.numpy(), rtol=1e-12, atol=1e-12)
    grad = sparse.grad
    assert grad.layout is sparse.layout and grad.shape == (4, 5)
    there = (sparse.detach().to_dense() != 0).numpy()
    np.testing.assert_allclose(grad.to_dense().numpy(), np.where(there, dense.grad.numpy(), 0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["matmul", "dense_times", "product", "times_dense", "by_column", "squared", "plus_dense", "sum_0", "row"])
@pytest.mark.parametrize("repeated", [False, True])
def test_gradients_of_both_orders(name, repeated):
    function, shape = {**FUNCTIONS, **COO_ONLY}[name]
    inputs = random(5).requires_grad_(), random(*shape, seed=1).requires_grad_()
    call = lambda values, d: dense_of(function(made(values, "coo", repeated), d))
    assert gradcheck(call, inputs) and gradgradcheck(call, inputs)


@pytest.mark.parametrize("function", [gl.sparse.softmax, gl.sparse.log_softmax])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_is_of_the_entries(function, dim):
    values = random(5).requires_grad_()
    found = function(made(values), dim)
    dense = made(values.detach()).to_dense().masked_fill(made(values.detach()).to_dense() == 0, -float("inf"))
    expected = getattr(gl, function.__name__)(dense, dim).sparse_mask(found.detach())
    np.testing.assert_allclose(found.detach().values().numpy(), expected.values().numpy(), rtol=1e-12)
    assert gradcheck(lambda v: function(made(v), dim).values(), (values,))


def test_parts_and_layouts_of_three_dimensions():
    x = (random(3, 4, 5) - 0.5).relu()
    sparse = x.to_sparse()
    for change in (
        lambda a: a[1], lambda a: a[:, 2], lambda a: a[1, 2], lambda a: a[..., 1:3], lambda a: a.transpose(0, 2), lambda a: a.sum((0, 2)),
        lambda a: a.sum(1, keepdim=True), lambda a: a[gl.tensor([2, 0])], lambda a: a[0, 1, 2], lambda a: a.unsqueeze(1), lambda a: 2 * a,
    ):  # fmt: skip
        assert dense_of(change(sparse)).equal(change(x)), change
    softmax = gl.sparse.softmax(sparse, 1)
    np.testing.assert_allclose(gl.sparse.sum(softmax, 1).values().numpy(), 1)
    hybrid = x.to_sparse(1)
    assert (hybrid.sparse_dim(), hybrid.dense_dim(), hybrid.to_dense().equal(x)) == (1, 2, True)
    assert (hybrid * 2 + hybrid).to_dense().allclose(3 * x) and hybrid.transpose(1, 2).to_dense().equal(x.transpose(1, 2))
    assert hybrid[1].equal(x[1]) and hybrid.sum(0).equal(x.sum(0)) and hybrid.sum(2).to_dense().allclose(x.sum(2))


def test_what_it_says_of_itself():
    a = gl.sparse_coo_tensor([[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.0], (2, 3))
    assert isinstance(a, gl.Tensor) and gl.is_tensor(a) and a.is_sparse and not a.is_coalesced() and a.layout is gl.sparse_coo
    assert (a.shape, a.ndim, a.numel(), a.dtype, a.nnz(), a._nnz(), a.sparse_dim(), a.dense_dim()) == ((2, 3), 2, 6, gl.float32, 4, 4, 2, 0)
    assert repr(a) == (
        "tensor(indices=tensor([[0, 1, 1, 0],\n                       [2, 0, 2, 2]]),\n       values=tensor([3., 4., 5., 1.]),\n"
        "       size=(2, 3), nnz=4, layout=gradlab.sparse_coo)"
    )
    b = a.coalesce()
    assert b.indices().tolist() == [[0, 1, 1], [2, 0, 2]] and b.values().tolist() == [4, 4, 5] and b.coalesce() is b
    assert repr(b.double().to_sparse_csr().requires_grad_()) == (
        "tensor(crow_indices=tensor([0, 1, 3]),\n       col_indices=tensor([2, 0, 2]),\n       values=tensor([4., 4., 5.]), "
        "size=(2, 3), nnz=3, dtype=gradlab.float64,\n       layout=gradlab.sparse_csr, requires_grad=True)"
    )
    with pytest.raises(RuntimeError, match="coalesce"):
        a.values()
    c = b.to_sparse_csr()
    assert (c.layout, c.is_sparse, c.is_sparse_csr) == (gl.sparse_csr, False, True) and c.crow_indices().tolist() == [0, 1, 3]
    assert c.t().layout is gl.sparse_csc and c.t().ccol_indices().tolist() == [0, 1, 3] and c.t().row_indices().tolist() == [2, 0, 2]
    assert gl.zeros_like(b).nnz() == 0 and gl.zeros_like(b).shape == (2, 3) and b.clone().zero_().nnz() == 0
    for way in (copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))):
        assert way(b).to_dense().equal(b.to_dense()) and way(b).is_coalesced()
    assert gl.ones(2, 3).layout is gl.strided and pickle.loads(pickle.dumps(gl.sparse_coo)) is gl.sparse_coo


def test_ways_to_make_one():
    expected = [[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]]
    row, col, v = [0, 1, 1], [1, 0, 2], [2.0, 3.0, 4.0]
    for x in (
        gl.sparse_coo_tensor([row, col], v), gl.sparse_coo_tensor(np.array([row, col]), np.array(v, np.float32), (2, 3)),
        gl.sparse_csr_tensor([0, 1, 3], col, v), gl.sparse_csc_tensor([0, 1, 2, 3], [1, 0, 1], [3.0, 2.0, 4.0]),
        gl.sparse_compressed_tensor([0, 1, 3], col, v, (2, 3), layout=gl.sparse_csr), gl.tensor(expected).to_sparse(),
        gl.sparse.FloatTensor(gl.tensor([row, col]), gl.tensor(v), (2, 3)), gl.tensor(expected).to_sparse_csr().to_sparse_csc(),
        gl.sparse_coo_tensor(gl.tensor([row, col], dtype=gl.int32), gl.tensor(v), size=(2, 3), check_invariants=True),
        gl.tensor(expected).to_sparse_csc().to_sparse_coo(), gl.tensor(expected).to_sparse(layout=gl.sparse_csr).t().t(),
    ):  # fmt: skip
        assert x.to_dense().tolist() == expected and x.dtype == gl.float32
    assert gl.sparse_coo_tensor((2, 3)).nnz() == gl.sparse_coo_tensor(size=(2, 3)).nnz() == 0
    assert gl.sparse.LongTensor(2, 3).dtype == gl.int64
    assert isinstance(gl.sparse_coo_tensor((2, 3)), gl.sparse.FloatTensor) and not isinstance(gl.ones(2), gl.sparse.FloatTensor)
    assert gl.sparse_coo_tensor([[0]], [1.0], (2,), requires_grad=True).is_leaf
    for wrong in (
        lambda: gl.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)), lambda: gl.sparse_coo_tensor([[-1]], [1.0]),
        lambda: gl.sparse_coo_tensor([[0, 1]], [1.0]), lambda: gl.sparse_coo_tensor([[0.5]], [1.0]),
        lambda: gl.sparse_coo_tensor([0], [1.0]),
        lambda: gl.sparse_coo_tensor([[0]], [1.0], (2, 2)), lambda: gl.sparse_csr_tensor([0, 2], [0], [1.0]),
        lambda: gl.sparse_csr_tensor([0, 2, 1], [0], [1.0]), lambda: gl.sparse_csr_tensor([0, 1], [3], [1.0], (1, 3)),
        lambda: gl.sparse_csr_tensor([0, 1], [0], [1.0], (2, 3)),
        lambda: gl.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], check_invariants=True),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, TypeError, ValueError), match="sparse_c"):
            wrong()
    with gl.sparse.check_sparse_tensor_invariants(), pytest.raises(RuntimeError, match="in order"):
        gl.sparse_coo_tensor([[1, 0]], [1.0, 2.0], is_coalesced=True)
    assert not gl.sparse.check_sparse_tensor_invariants.is_enabled()


def test_gradients_reach_the_values_that_were_given():
    values, d = random(5).requires_grad_(), random(5, 3, seed=1)
    a = made(values)
    assert a.requires_grad and not a.is_leaf and a.grad is None
    (a @ d).sum().backward()
    assert a.grad is None and values.grad.allclose(d[gl.tensor(COL)].sum(1))
    leaf = made(values.detach()).requires_grad_()
    (found,) = gl.autograd.grad((leaf @ d).sum(), leaf)
    assert found.is_sparse and leaf.grad is None and found.to_dense()[ROW, COL].allclose(d[gl.tensor(COL)].sum(1))
    seen = []
    leaf.register_hook(lambda g: seen.append(g.is_sparse) or 2 * g)
    (leaf @ d).sum().backward()
    assert seen == [True] and leaf.grad.to_dense().allclose(2 * found.to_dense())
    b = made(random(5).requires_grad_())
    b.retain_grad()
    (2 * b).sum().backward()
    assert (b.grad.to_dense() == 2 * (b.detach().to_dense() != 0)).all()


def test_functions_of_ones_own_take_and_keep_them():
    class Product(gl.autograd.Function):
        @staticmethod
        def forward(ctx, a, d):
            ctx.save_for_backward(a, d)
            return a @ d

        @staticmethod
        def backward(ctx, g):
            a, d = ctx.saved_tensors
            return g @ d.t(), a.t() @ g

    values, d = random(5).requires_grad_(), random(5, 3, seed=1).requires_grad_()
    Product.apply(made(values), d).square().sum().backward()
    found = values.grad, d.grad
    values.grad = d.grad = None
    (made(values) @ d).square().sum().backward()
    assert found[0].allclose(values.grad) and found[1].allclose(d.grad)
    leaf = made(values.detach()).requires_grad_()
    Product.apply(leaf, d).square().sum().backward()
    assert leaf.grad.is_sparse


def test_on_the_gpu(cuda):
    values, d = random(5, device="cuda").float().requires_grad_(), random(5, 3, device="cuda", seed=1).float().requires_grad_()
    a = made(values, "coo", repeated=True)
    assert a.device.type == "cuda" and a.is_cuda and a.cpu().device.type == "cpu" and a.cpu().cuda().is_cuda
    found = []
    for x, y in ((values, d), (values.detach().cpu().requires_grad_(), d.detach().cpu().requires_grad_())):
        m = made(x, "coo", repeated=True)
        out = gl.sparse.softmax(m, 1) @ y + (m.coalesce().to_sparse_csr() @ y) + m.to_dense() @ y + (m * m) @ y
        out.square().sum().backward()
        found.append([t.cpu().numpy() for t in (out.detach(), x.grad, y.grad)])
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-5)
    assert isinstance(a.detach(), gl.cuda.sparse.FloatTensor)


def test_a_pattern_written_in_place_is_seen():
    a = gl.sparse_coo_tensor(gl.tensor([[0, 1], [0, 1]]), gl.tensor([1.0, 2.0]), (3, 3))
    d = gl.arange(3.0).reshape(3, 1)
    assert (a @ d).flatten().tolist() == [0, 2, 0]
    a._indices()[0].fill_(2)
    assert (a @ d).flatten().tolist() == [0, 0, 2]


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16, gl.int64, gl.int32, gl.int8])
def test_other_dtypes(dtype):
    a = gl.tensor([[0, 2, 0], [3, 0, 1]], dtype=dtype).to_sparse()
    d = gl.tensor([[1, 2], [3, 4], [5, 6]], dtype=dtype)
    assert (a @ d).tolist() == [[6, 8], [8, 12]] and (a @ d).dtype == dtype and (a + a).to_dense().tolist() == [[0, 4, 0], [6, 0, 2]]
    with pytest.raises(RuntimeError, match="one dtype"):
        a @ d.double()


@pytest.mark.parametrize("way", ["numpy", "compiled", "scipy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_products_by_every_way(way, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    rows, columns, number = 400, 300, 9000
    at, values = np.stack([rng.integers(0, rows, number), rng.integers(0, columns, number)]), rng.normal(size=number).astype(dtype)
    at[0][at[0] == 7] = 8  # an empty row
    asked = []
    if way == "numpy":
        monkeypatch.setattr(ops.sparse, "compiled", None)
    elif way == "compiled":
        if not compiler.available():
            pytest.skip("no C++ compiler")
        compiler.libraries(["gradlab_spmm_float"])
        real = native.product
        monkeypatch.setattr(native, "product", lambda *a: asked.append(real(*a)) or asked[-1])
    else:
        pytest.importorskip("scipy.sparse")
        monkeypatch.setattr(native, "product", lambda *a: asked.append(a[0]))
    for width in (1, 5, 33):
        d = rng.normal(size=(columns, width)).astype(dtype)
        for turned in (False, True):
            a = gl.sparse_coo_tensor(at, values, (rows, columns), requires_grad=True)
            dense = gl.tensor(d if not turned else d.T.copy()).requires_grad_()
            found = a @ (dense.t() if turned else dense)
            weight = rng.normal(size=found.shape).astype(dtype)
            (found * gl.tensor(weight)).sum().backward()
            whole = np.zeros((rows, columns))
            np.add.at(whole, tuple(at), values)
            tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-12}
            np.testing.assert_allclose(found.detach().numpy(), whole @ d, **tolerance)
            np.testing.assert_allclose(dense.grad.numpy(), whole.T @ weight if not turned else (whole.T @ weight).T, **tolerance)
            np.testing.assert_allclose(a.grad.to_dense().numpy(), np.where(whole != 0, weight @ d.T, 0), **tolerance)
    assert way == "numpy" or (asked and (way == "scipy" or all(asked)))


def test_a_gradient_is_changed_in_place():
    a = made(random(5), repeated=True).requires_grad_()
    for change, expected in ((lambda g: g.zero_(), 0), (lambda g: g.mul_(3), 3), (lambda g: gl.nn.utils.clip_grad_value_([a], 0.5), 0.5)):
        a.grad = None
        gl.sparse.sum(a).backward()
        change(a.grad)
        assert a.grad.to_dense()[0, 4].item() == expected
    a.grad.zero_()
    gl.sparse.sum(a).backward()
    assert a.grad.to_dense()[0, 4].item() == 1


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_an_optimizer_of_a_sparse_leaf(name):
    a = made(random(5)).requires_grad_()
    dense = a.detach().to_dense().requires_grad_()
    for leaf, total in ((a, lambda: gl.sparse.sum(a * a)), (dense, lambda: (dense * dense).sum())):
        optimizer = getattr(gl.optim, name)([leaf], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            total().backward()
            optimizer.step()
    assert a.detach().to_dense().allclose(dense)


def test_autocast_lowers_products():
    a, d = made(random(5)).float(), random(5, 3).float()
    with gl.autocast("cpu", gl.bfloat16):
        assert (a @ d).dtype == gl.sparse.mm(a, d).dtype == gl.bfloat16 and (a + a).dtype == gl.float32


@pytest.mark.parametrize("mine, other", list(itertools.product([gl.uint8, gl.int8, gl.int64, gl.float32, gl.float64], repeat=2)))
def test_types_beside_dense_tensors(mine, other):
    """Those of two dense ones."""
    dense, sparse = gl.ones(2, dtype=mine), gl.ones(2, dtype=other).to_sparse()
    for call in (operator.add, operator.sub, operator.mul):
        assert call(dense, sparse).dtype == call(sparse, dense).dtype == call(dense, sparse.to_dense()).dtype
