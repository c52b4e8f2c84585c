"""Legal calls with strange inputs: singular matrices, zeros among factors, indices of nothing, types side by side, pictures of bytes.

What PyTorch gives for them, found by comparing every function on such inputs with it.
"""

import numpy as np
import pytest

import gradlab as gl

F, INF, NAN = gl.nn.functional, float("inf"), float("nan")
SINGULAR, REGULAR = [[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("zeros", [(), (0,), (1,), (0, 1), (3,), (1, 3), (0, 1, 2)])
def test_second_derivatives_of_products_with_zeros(zeros, include_self):
    """All of them against differences: a zero factor has a slope, also where the product is 0."""
    x, s = np.array([0.5, -2.0, 3.0]), np.array([2.0, 1.5, -1.0, 4.0])
    s[[z for z in zeros if z < 4]] = 0
    x[[z for z in zeros if z < 1]] = 0
    index = gl.tensor([0, 0, 1, 0])
    leaves = [gl.tensor(a, requires_grad=True) for a in (x, s)]
    for product in (
        lambda x, s: x.scatter_reduce(0, index, s, "prod", include_self=include_self),
        lambda x, s: x.index_reduce(0, index, s, "prod", include_self=include_self),
    ):
        assert gl.autograd.gradcheck(product, leaves)
        assert gl.autograd.gradgradcheck(product, leaves)


def test_singular_matrices():
    x = gl.tensor([SINGULAR, REGULAR], dtype=gl.float64, requires_grad=True)
    for p in (1, -1, INF, -INF, "fro", "nuc"):
        condition = gl.linalg.cond(x, p)
        assert condition[0] == INF
        assert condition[1].item() == pytest.approx(np.linalg.cond(np.array(REGULAR), p))
    for function in (gl.logdet, lambda x: gl.linalg.slogdet(x)[1]):
        g = gl.autograd.grad(function(x.abs()).sum(), x)[0]
        assert not g[0].isfinite().any()  # the singular one's, and not an error for all
    (g,) = gl.autograd.grad(gl.linalg.slogdet(x)[1].sum(), x)
    assert gl.allclose(g[1], gl.linalg.inv(x[1]).mT)
    assert gl.lu(x.detach()[0])[0].isfinite().all()
    (g,) = gl.autograd.grad(gl.det(y := gl.tensor([[[NAN, 0.0], [0.0, 1.0]], REGULAR], requires_grad=True)).sum(), y)
    assert g[0].isnan().all() and gl.allclose(g[1], gl.tensor([[4.0, -3.0], [-2.0, 1.0]]))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 1)])
def test_an_index_of_nothing_moves_nothing(shape):
    nothing, x = gl.empty(shape, dtype=gl.int64), gl.arange(12.0).reshape(3, 4)
    for y in (
        x.scatter(0, nothing, x), x.scatter(1, nothing, 2.0), x.scatter_add(0, nothing, x), x.scatter_reduce(0, nothing, x, "prod"),
        x.scatter_reduce(1, nothing, x, "mean", include_self=False), x.clone().scatter_(0, nothing, x),
    ):  # fmt: skip
        assert gl.equal(x, y)
    assert x.gather(0, nothing).shape == shape
    assert gl.tensor(3.0).scatter_add(0, nothing, gl.tensor(2.0)) == 3


def test_pivots_belong_to_their_matrix():
    lu, pivots = gl.linalg.lu_factor(gl.tensor([[0.0, 2.0, 1.0], [4.0, 0.0, 1.0], [1.0, 1.0, 1.0]]))
    for wrong in (pivots.long(), pivots[:1], pivots[None], pivots * 0, pivots + 5):
        with pytest.raises(RuntimeError, match="pivots"):
            gl.linalg.lu_solve(lu, wrong, gl.ones(3, 1))
        with pytest.raises(RuntimeError, match="pivots"):
            gl.lu_unpack(lu, wrong)
    q, tau = gl.geqrf(gl.ones(4, 3))
    with pytest.raises(RuntimeError, match="ormqr: a factor for each"):
        gl.ormqr(q, tau[:1], gl.ones(4, 2))


def test_types_side_by_side():
    x, whole = gl.tensor([[1.0, 2.0]]), gl.tensor([[3, 4]])
    expected = F.cosine_similarity(x, whole.float())
    assert F.cosine_similarity(x, whole).equal(expected) and F.cosine_similarity(whole, x).equal(expected)
    assert F.cosine_similarity(x.half(), whole).dtype == gl.float16
    with pytest.raises(RuntimeError, match="cosine_similarity: needs floating point"):
        F.cosine_similarity(whole, whole)
    assert F.rms_norm(x, (2,), gl.ones(2, dtype=gl.float64)).dtype == gl.float32
    assert gl.matrix_exp(gl.zeros(2, 2, dtype=gl.bfloat16)).dtype == gl.bfloat16
    bytes_ = gl.tensor([[1, 0], [2, 3]], dtype=gl.uint8)
    for function in (gl.all, gl.any):
        for options in ({}, {"dim": 1}, {"dim": ()}, {"dim": (0, 1), "keepdim": True}):
            found, plain = function(bytes_, **options), function(bytes_.int(), **options)
            assert found.dtype == gl.uint8 and plain.dtype == gl.bool and found.bool().equal(plain)


def test_copies_where_no_view_is():
    x = gl.arange(12.0).reshape(3, 4)
    for y in (x.t(), x[:, ::2], x[:1].expand(3, 4)):
        assert gl.view_copy(y, (-1,)).equal(y.reshape(-1)) and gl.view_copy(y, (-1,)).is_contiguous()


def test_distances_of_points_without_coordinates():
    a = gl.ones(3, 0, requires_grad=True)
    gl.cdist(a, gl.ones(2, 0)).sum().backward()
    assert a.grad.shape == (3, 0)


@pytest.mark.parametrize(("mode", "expected"), [("bilinear", [10, 41, 88, 181, 243]), ("bicubic", [3, 29, 88, 188, 255])])
def test_pictures_of_bytes(mode, expected):
    """Rounded to bytes, and what goes beyond them stays within. Numbers from PyTorch 2.13."""
    y = F.interpolate(gl.tensor([[[[10, 88, 243]]]], dtype=gl.uint8), size=(1, 5), mode=mode)
    assert y.dtype == gl.uint8
    assert y.flatten().tolist() == expected


def test_dimensions_are_given_once():
    x = gl.ones(2, 3)
    for call in (lambda: gl.flip(x, (0,), dims=1), lambda: x.tile(2, dims=(2,)), lambda: gl.permute(x, (0, 1), dims=(1, 0))):
        with pytest.raises(TypeError, match="multiple values for argument 'dims'"):
            call()


def test_integers_to_negative_powers():
    """0 and ±1, whatever the exponent; the smallest integer has no counterpart that is positive."""
    for dtype in (gl.int64, gl.int32, gl.int16, gl.int8):
        least = gl.iinfo(dtype).min
        a, b = gl.tensor([0, 1, -1, -1, 2, least], dtype=dtype), gl.tensor([least, least, least, least + 1, least, -1], dtype=dtype)
        assert (a**b).tolist() == [0, 1, 1, -1, 0, 0]


def test_least_squares_into_tensors():
    a, b = gl.tensor([[1.0], [1.0]]), gl.tensor([[1.0], [3.0]])
    outs = gl.empty(0), gl.empty(0), gl.empty(0, dtype=gl.int64), gl.empty(0)
    gl.linalg.lstsq(a, b, driver="gelsd", out=outs)
    assert outs[0].item() == pytest.approx(2) and outs[1].item() == pytest.approx(2) and outs[2].item() == 1


def test_what_bad_calls_found():
    """`kinds/bad`, parts 0 to 6 of 20."""
    data = gl.utils.data.TensorDataset(gl.ones(6, 2))
    for sampler in ("a", [0.5, "a"], b"a", (1 << 63,), (10**30, 1), (1 << 62, 4)):
        with pytest.raises((TypeError, ValueError, IndexError), match="DataLoader: "):
            list(gl.utils.data.DataLoader(data, sampler=sampler))
    with pytest.raises(ValueError, match="no number has more than"):
        gl.set_printoptions(precision=1 << 40)
    assert repr(gl.tensor(0.5)) == "tensor(0.5000)"
    with pytest.raises(TypeError, match="Tensor: requires_grad is True or False"):
        gl.Tensor([1.0], requires_grad=np.ones(2))
    with pytest.raises(NotImplementedError, match="storage"):
        gl.eye(2).to_sparse().storage()
    p = gl.ones(2, requires_grad=True)
    p.grad = gl.ones(2)
    with pytest.raises(ValueError, match=r"1 \+ lambd·lr·step is negative"):
        gl.optim.ASGD([p], lr=0.1, lambd=-1e30).step()
    assert p.tolist() == [1, 1]  # refused before anything was written
