"""Complex numbers: promotion, printing, parts as views, gradients of order 1 and 2, linear algebra, training, files, transforms."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd import gradcheck, gradgradcheck

from kinds.catalogue.giving import words


def numbers(*shape, seed=0, dtype=np.complex128):
    rng = np.random.default_rng([seed, *shape])
    return gl.tensor((rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype))


def leaf(*shape, seed=0):
    return numbers(*shape, seed=seed).requires_grad_()


def near(a, b, tolerance=1e-10):
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_types_meet_as_in_pytorch():
    f32, f64, i64, c64, c128 = gl.float32, gl.float64, gl.int64, gl.complex64, gl.complex128
    for a, b, found in ((f32, c64, c64), (f64, c64, c128), (i64, c64, c64), (c64, c128, c128), (gl.bool, c128, c128)):
        assert gl.promote_types(a, b) is gl.promote_types(b, a) is found
    assert (gl.ones(2) * 1j).dtype is c64 and (gl.ones(2, dtype=f64) * 1j).dtype is c128 and (gl.arange(2) + 1j).dtype is c64
    assert (gl.ones(2) * gl.tensor(1j, dtype=c128)).dtype is c64 and (gl.ones(2, dtype=f64) * gl.tensor(1j)).dtype is c128
    assert gl.tensor([1j, 2]).dtype is c64 and gl.tensor(np.array([1j])).dtype is c128 and gl.full((1,), 1j).dtype is c64
    gl.set_default_dtype(f64)
    try:
        assert gl.tensor([1j]).dtype is c128 and gl.result_type(gl.tensor([1]), 1j) is c128
    finally:
        gl.set_default_dtype(f32)
    assert not gl.can_cast(c64, f64) and gl.can_cast(f64, c64) and gl.finfo(c64).bits == 32
    assert c128.is_complex and not c128.is_floating_point and gl.promote_types(gl.float16, c64) is c64


def test_what_is_printed():
    assert repr(gl.tensor([1 + 2j, 3 - 3.5j])) == "tensor([1.+2.0000j, 3.-3.5000j])"
    assert repr(gl.tensor(1 - 2j)) == "tensor(1.-2.j)"
    assert repr(gl.zeros(1, dtype=gl.complex128)) == "tensor([0.+0.j], dtype=gradlab.complex128)"


def test_parts_are_views_that_may_be_written():
    z = numbers(2, 3)
    z.real[0] = 7
    z.imag = gl.zeros(2, 3, dtype=gl.float64)
    assert z.numpy()[0].tolist() == [7, 7, 7] and not z.imag.any()
    pairs = gl.view_as_real(z)
    pairs[1, 0, 1] = 5
    assert z[1, 0].item().imag == 5 and gl.view_as_complex(pairs).data_ptr() == z.data_ptr()
    turned = gl.view_as_complex(gl.view_as_real(z.t()))  # any strides
    assert turned.data_ptr() == z.data_ptr() and gl.equal(turned, z.t())
    for wrong in (gl.zeros(3), gl.zeros(2, 2).t(), gl.zeros(2, dtype=gl.float16), gl.zeros(2, dtype=gl.int64)):
        with pytest.raises((RuntimeError, ValueError)):
            gl.view_as_complex(wrong)
    with pytest.raises(RuntimeError, match="non-complex"):
        gl.ones(1).imag
    x = leaf(3)
    y = x * 1
    y.imag.mul_(2)
    y.abs().sum().backward()
    v = x.detach().real + 2j * x.detach().imag
    near(x.grad, (v / v.abs()).real + 2j * (v / v.abs()).imag)


def test_real_results_and_losses():
    z = leaf(3)
    with pytest.raises(RuntimeError, match="real scalar outputs"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="same dtype"):
        z.sum().backward(gl.tensor(1.0, dtype=gl.float64))
    x = gl.tensor([1.0, 2.0], dtype=gl.float64, requires_grad=True)
    ((x * (1 + 2j)).exp() * x).abs().sum().backward()
    assert x.grad.dtype is gl.float64
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        assert z.detach().float().dtype is gl.float32
    with pytest.raises(RuntimeError, match="complex"):
        gl.zeros(2).add_(1j)
    with pytest.raises(RuntimeError, match="complex"):
        gl.add(z.detach(), 1, out=gl.zeros(3))
    with pytest.raises(RuntimeError, match="not a real number"):
        gl.zeros(2)[0] = 1j
    assert float(gl.tensor(2 + 0j)) == 2.0 and complex(gl.tensor(1 + 2j)) == 1 + 2j and bool(gl.tensor(1j))
    with pytest.raises(RuntimeError, match="real number"):
        float(gl.tensor(1j))


ELEMENTWISE = {
    name: getattr(gl, name)
    for name in words("""
        abs angle sgn conj exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sigmoid sin cos tan asin acos atan sinh cosh
        tanh asinh acosh atanh sinc neg
    """)
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_gradients_of_elementwise_functions(name):
    z = leaf(3)
    assert gradcheck(ELEMENTWISE[name], z) and gradgradcheck(ELEMENTWISE[name], z)


FUNCTIONS = {
    "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "pow": lambda a, b: a**b, "power": lambda a, b: a**2.5 + b ** (1 + 2j) + 2j**a,
    "of a negative number": lambda a, b: (-1.5) ** b + (-2) ** a,
    "matmul": lambda a, b: a @ b.mH, "mixed": lambda a, b: a.real * b + a.imag.exp(), "polar": lambda a, b: gl.polar(a.abs(), b.real),
    "complex": lambda a, b: gl.complex(a.real, b.imag), "pairs": lambda a, b: gl.view_as_complex(gl.view_as_real(a) * 2) * b,
    "where": lambda a, b: gl.where(a.real > 0, a, b), "cat": lambda a, b: gl.cat([a, b.conj()]), "index": lambda a, b: a[[0, 0]] * b[1],
    "prod": lambda a, b: a.prod() + b.cumprod(1).sum(), "std": lambda a, b: a.std() + b.var(1).sum(), "norm": lambda a, b: (a - b).norm(),
    "logs": lambda a, b: gl.logaddexp(a, b) + a.logcumsumexp(1), "einsum": lambda a, b: gl.einsum("ij,ik->jk", a, b),
    "vdot": lambda a, b: gl.vdot(a[0], b[0]) * gl.linalg.vecdot(a, b), "lerp": lambda a, b: gl.lerp(a, b, 0.3 + 1j),
    "silu": lambda a, b: gl.nn.functional.silu(a) * b, "scatter": lambda a, b: a.scatter_add(1, gl.tensor([[0, 2], [1, 1]]), b),
    "linear": lambda a, b: gl.nn.functional.linear(a, b, b[:, 0]),
    "scattered": lambda a, b: a.index_reduce(1, gl.tensor([0, 0, 2]), b, "prod") + b.index_reduce(1, gl.tensor([0, 2, 0]), a, "mean"),
    "rms norm": lambda a, b: gl.nn.functional.rms_norm(a, (3,), b[0]), "margin": lambda a, b: gl.nn.functional.soft_margin_loss(a, b),
    "masked": lambda a, b: gl.masked.std(a, 1, mask=gl.tensor([True, False, True])) + gl.masked.logsumexp(b, 1),
    "conv": lambda a, b: gl.nn.functional.conv1d(a.unsqueeze(0), b[:, :, None].expand(2, 3, 2)[:, :2]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    given = leaf(2, 3), leaf(2, 3, seed=1)
    assert gradcheck(FUNCTIONS[name], given) and gradgradcheck(FUNCTIONS[name], given)
    assert gradcheck(FUNCTIONS[name], given, fast_mode=True)


A = gl.linalg


def hermitian(function):
    return lambda a: function(a @ a.mH + gl.eye(3))


MATRICES = {
    "inv": (A.inv, 3, 3), "det": (A.det, 3, 3), "slogdet": (lambda a: tuple(A.slogdet(a)), 3, 3), "logdet": (gl.logdet, 3, 3),
    "solve": (lambda a: A.solve(a, a @ a), 3, 3), "triangular": (lambda a: A.solve_triangular(a, a.mH, upper=True), 3, 3),
    "pinv tall": (A.pinv, 4, 3), "pinv wide": (A.pinv, 3, 4), "exp": (A.matrix_exp, 3, 3), "power": (lambda a: A.matrix_power(a, -2), 3, 3),
    "cholesky": (hermitian(A.cholesky), 3, 3), "qr": (lambda a: tuple(A.qr(a)), 4, 3), "qr wide": (lambda a: tuple(A.qr(a)), 3, 4),
    "eigh": (hermitian(lambda h: tuple(A.eigh(h))), 3, 3), "eig": (lambda a: tuple(A.eig(a)), 3, 3),
    "lstsq": (lambda a: A.lstsq(a, a)[0], 4, 3),
    "svd": (lambda a: tuple(A.svd(a, False)), 4, 3), "svd wide": (lambda a: tuple(A.svd(a, False)), 3, 4),
    "lu": (lambda a: A.lu(a)[1:], 3, 3), "geqrf": (lambda a: tuple(gl.geqrf(a)), 3, 2),
    "svd left": (lambda a: A.svd(a, False)[0], 4, 3), "nuclear": (lambda a: A.matrix_norm(a, "nuc"), 4, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_gradients_of_linear_algebra(name):
    function, m, n = MATRICES[name]
    assert gradcheck(function, leaf(m, n)) and gradgradcheck(function, leaf(m, n))


def test_factors_multiply_to_what_they_are_of():
    a, wide = numbers(2, 3, 3), numbers(3, 5)
    near(A.inv(a) @ a, gl.eye(3, dtype=a.dtype).expand(2, 3, 3))
    for x in (a, wide, wide.mT):
        u, s, vh = A.svd(x, False)
        near(u * s.unsqueeze(-2) @ vh, x)
        u, s, vh = A.svd(x)
        near(u.mH @ u, gl.eye(u.shape[-1], dtype=x.dtype).expand(u.shape))
        near(vh @ vh.mH, gl.eye(vh.shape[-1], dtype=x.dtype).expand(vh.shape))
        q, r = A.qr(x)
        near(q @ r, x)
        p, low, up = A.lu(x)
        near(p @ low @ up, x)
        near(x @ A.pinv(x) @ x, x)
    h = a @ a.mH
    values, vectors = A.eigh(h)
    assert values.dtype is gl.float64
    near(vectors * values.unsqueeze(-2) @ vectors.mH, h)
    near(A.cholesky(h) @ A.cholesky(h).mH, h)
    near(A.cholesky(h, upper=True), A.cholesky(h).mH)
    values, vectors = A.eig(a)
    near(a @ vectors, vectors * values.unsqueeze(-2))
    values, vectors = A.eig(a.real)
    assert values.dtype is gl.complex128 and A.eigvals(a.real.float()).dtype is gl.complex64
    near((a.real + 0j) @ vectors, vectors * values.unsqueeze(-2))
    near(A.lu_solve(*A.lu_factor(a), h, adjoint=True), A.solve(a.mH, h))
    near(A.lu_solve(*A.lu_factor(a), h, left=False), h @ A.inv(a))
    assert A.eig(gl.zeros(0, 0)).eigenvalues.shape == (0,)


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS"]
)
def test_optimizers_see_pairs(name):
    """As PyTorch's: real and imaginary part of a parameter are two numbers."""
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    z = leaf(3)
    x = gl.view_as_real(z.detach()).clone().requires_grad_()
    target = numbers(3, seed=2)
    first, second = (getattr(gl.optim, name)([p], lr=0.05, **options) for p in (z, x))
    for optimizer, parameter in ((first, z), (second, x)):

        def loss(optimizer=optimizer, parameter=parameter):
            optimizer.zero_grad()
            value = gl.view_as_complex(parameter) if parameter is x else parameter
            found = ((value - target).abs() ** 2).sum()
            found.backward()
            return found

        for _ in range(4):
            optimizer.step(loss)
    near(gl.view_as_real(z.detach()), x.detach())
    if name == "Adam":
        assert first.state[z]["exp_avg"].dtype is gl.complex128
        copied = gl.optim.Adam([leaf(3)])
        copied.load_state_dict(first.state_dict())


def test_modules():
    model = gl.nn.Sequential(gl.nn.Linear(3, 4, dtype=gl.complex64), gl.nn.Tanh(), gl.nn.Linear(4, 1, dtype=gl.complex64))
    optimizer = gl.optim.Adam(model.parameters(), lr=0.05)
    x = numbers(32, 3, dtype=np.complex64)
    y = (x * gl.tensor([1 + 1j, -1j, 0.5])).sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x) - y).abs().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert model.double()[0].weight.dtype is gl.complex64 and model.to(gl.complex128)[0].weight.dtype is gl.complex128
    weight = gl.nn.Conv2d(2, 3, 3, dtype=gl.complex64)
    assert weight(numbers(1, 2, 5, 5, dtype=np.complex64)).shape == (1, 3, 3, 3)


def test_transforms():
    z, w = numbers(4, 3), numbers(3, 2, seed=1)

    def function(x):
        return (x @ w).exp().conj() * gl.view_as_real(x).sum() + x.imag.sum() + x.angle().sum() * 1j

    near(gl.vmap(function)(z), gl.stack([function(x) for x in z]))
    tangent = numbers(3, seed=5)
    _, found = gl.func.jvp(function, (z[0],), (tangent,))
    near(found, (function(z[0] + 1e-6 * tangent) - function(z[0] - 1e-6 * tangent)) / 2e-6, 1e-5)
    near(gl.func.grad(lambda x: (x.abs() ** 2).sum())(z), 2 * z)
    near(gl.func.jacrev(lambda x: x * x)(z[0]), (2 * z[0].conj()).diag())
    near(gl.func.jacfwd(lambda x: x * x)(z[0]), (2 * z[0]).diag())


def test_random_numbers():
    gl.manual_seed(0)
    z = gl.randn(20000, dtype=gl.complex64)
    assert abs(z.std().item() - 1) < 0.02 and abs(z.real.std().item() - 0.5**0.5) < 0.02
    u = gl.rand(1000, dtype=gl.complex128)
    assert ((u.real >= 0) & (u.real < 1) & (u.imag >= 0) & (u.imag < 1)).all()
    assert gl.empty(2, dtype=gl.cfloat).normal_().is_complex() and gl.randn_like(z).dtype is gl.complex64
    with pytest.raises(RuntimeError, match="complex"):
        gl.zeros(2, dtype=gl.cfloat).exponential_()


def test_they_leave_and_come_back():
    for dtype in (np.complex64, np.complex128):
        z = numbers(2, 3, dtype=dtype)
        for options in ({}, {"format": "torch"}):
            gl.save({"z": z, "parts": [z.real, z.imag], "number": 1 + 2j}, file := io.BytesIO(), **options)
            file.seek(0)
            found = gl.load(file)
            near(found["z"], z)
            near(found["parts"][1], z.imag)
            assert found["number"] == 1 + 2j
        near(gl.from_dlpack(z), z)
        near(gl.from_numpy(z.numpy()), z)
        near(pickle.loads(pickle.dumps(z)), z)
        near(copy.deepcopy(z), z)
        np.testing.assert_array_equal(np.from_dlpack(z), z.numpy())
    assert gl.tensor([1j]).type() == "torch.ComplexFloatTensor" and gl.tensor([[1j]]).tolist() == [[1j]]


def rotated(x, w):
    """Rotary positions, and a product: what compiled programs are asked for."""
    z = gl.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    z = z * gl.polar(gl.ones(z.shape[-1]), gl.arange(z.shape[-1]).float())
    return gl.view_as_real((z @ w).exp() * (1 + 2j)).flatten(-2)


def test_compiled_traced_and_defined_first():
    x = gl.tensor(np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32) / 4)
    w = numbers(4, 3, dtype=np.complex64)
    near(gl.compile(rotated)(x, w), rotated(x, w), 1e-5)

    def step(x, w):
        w = w.detach().requires_grad_()
        rotated(x, w).square().sum().backward()
        return w.grad

    near(gl.compile(step)(x, w), step(x, w), 1e-4)
    program = gl.jit.trace(rotated, (x, w))
    gl.jit.save(program, file := io.BytesIO())
    file.seek(0)
    near(gl.jit.load(file)(x, w), rotated(x, w), 1e-5)
    graph = gl.Graph()
    with graph.as_default():
        given = gl.placeholder(gl.complex64, (4, 3))
        asked = (given * 2j).abs()
    with gl.Session(graph) as session:
        np.testing.assert_allclose(session.run(asked, {given: w.numpy()}), np.abs(w.numpy() * 2j), rtol=1e-5)


def test_halves_are_refused_with_the_reason():
    for make in (lambda: gl.complex32, lambda: gl.ones(1).chalf, lambda: gl.chalf):
        with pytest.raises(AttributeError, match="half precision"):
            make()
    with pytest.raises(RuntimeError, match="half precision"):
        gl.complex(gl.ones(1).half(), gl.ones(1).half())


def chain(z, w):
    first = ((z * w + 2j).exp() * z.conj() / (w.abs() + 1)).sin() * (1 + 2j) ** 2 - (z * 1j).sqrt()
    return first, gl.where(z.imag > 0, z, w).angle(), z**2.5


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_compiled_loops(dtype):
    """Elementwise rows of complex numbers are parts of loops in machine code, where there is a compiler."""
    z, w = numbers(40, 30, dtype=dtype), numbers(40, 30, seed=1, dtype=dtype)
    for found, wanted in zip(gl.compile(chain)(z, w), chain(z, w), strict=True):
        near(found, wanted, 2e-4 if dtype == np.complex64 else 1e-10)
