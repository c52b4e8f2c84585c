"""Numbers at which the plain formula loses its digits, overflows or divides by 0: norms, products, variances, sure predictions."""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd.record import bind
from gradlab.ops import ROWS
from gradlab.spec import DimensionError

F = gl.nn.functional
TYPES = [gl.float32, gl.float64]
UNIT = {gl.float32: 2.0**-23, gl.float64: 2.0**-52}
TINY, HUGE = {gl.float32: 1e-30, gl.float64: 1e-250}, {gl.float32: 1e30, gl.float64: 1e250}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_norms(dtype):
    tiny, huge = TINY[dtype], HUGE[dtype]
    rows = [
        ([0, 0, 0], 0), ([tiny, -tiny, tiny], math.sqrt(3) * tiny), ([huge, huge, 0], math.sqrt(2) * huge), ([math.inf, 1, 0], math.inf),
        ([-math.inf, huge, 0], math.inf), ([math.nan, 1, 0], math.nan), ([3, 4, 0], 5), ([math.inf, math.nan, 0], math.nan),
    ]  # fmt: skip
    values, want = zip(*rows, strict=True)
    x = gl.tensor(values, dtype=dtype)
    for found in (gl.linalg.vector_norm(x, dim=1), gl.linalg.vector_norm(x.t(), dim=0), x.norm(dim=1), x.norm(dim=1, keepdim=True)[:, 0],
                  gl.stack([row.norm() for row in x])):  # fmt: skip
        np.testing.assert_allclose(found.double().numpy(), want, rtol=4 * UNIT[dtype])
    x = gl.tensor(values[:3], dtype=dtype, requires_grad=True)
    x.norm(dim=1).sum().backward()
    slopes = np.array([[0, 0, 0], [1 / math.sqrt(3), -1 / math.sqrt(3), 1 / math.sqrt(3)], [math.sqrt(0.5), math.sqrt(0.5), 0]])
    np.testing.assert_allclose(x.grad.double().numpy(), slopes, rtol=8 * UNIT[dtype])


def test_long_products_and_sums_keep_the_digits_of_float32():
    values = 1 + np.random.default_rng(0).uniform(-1e-2, 1e-2, (5000, 3)).astype(np.float32)
    for array in (values, values.T.copy().T):
        x, wide = gl.from_numpy(array), array.astype(np.float64)
        for found, want in (
            (x.prod(0), wide.prod(0)), (x.t().prod(1), wide.prod(0)), (x[:, 1].prod(), wide[:, 1].prod()), (x.sum(0), wide.sum(0)),
            (x.t().sum(1), wide.sum(0)), (x.mean(0), wide.mean(0)), (x.cumsum(0), wide.cumsum(0)), (x.cumprod(0), wide.cumprod(0)),
            (x.t().cumsum(1).t(), wide.cumsum(0)),
        ):  # fmt: skip
            np.testing.assert_allclose(found.numpy().astype(float), want, rtol=1.5 * UNIT[gl.float32])


def test_variances_are_never_below_0():
    for n, squares, rest in ((1, 1.0, 2.0), (4, 0.0, 1e-3), (2, math.inf, 1.0), (2, math.inf, math.inf), (3, 3.0, 3.0)):
        found = bind(ROWS["about_mean"])(gl.tensor([squares]), gl.tensor([rest]), n=n, divisor=1).item()
        assert found == (math.inf if math.isinf(squares) else max(squares - rest * rest / n, 0))
    for value in (0.1, 1e4 / 3, 1e-20):
        for x in (gl.full((7,), value), gl.full((5, 7), value), gl.full((5, 7), value).t()):
            assert (x.var(-1) >= 0).all() and (x.var() >= 0) and x.var(0).max() <= (4e-7 * value) ** 2


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sure_predictions(dtype):
    """Of 1 - p, where p is nearly 1, all digits: they are those of the other classes."""
    for far in (12.0, 20.0, 30.0):
        others = 2 * math.exp(-far)
        for targets in (1, 50):
            x = gl.tensor([[far, 0.0, 0.0]] * targets, dtype=dtype, requires_grad=True)
            target = gl.zeros(targets, dtype=gl.int64)
            loss = F.cross_entropy(x, target, reduction="none")
            loss.sum().backward()
            want = [-others / (1 + others), math.exp(-far) / (1 + others), math.exp(-far) / (1 + others)]
            np.testing.assert_allclose(loss.detach().double().numpy(), [math.log1p(others)] * targets, rtol=40 * UNIT[dtype])
            np.testing.assert_allclose(x.grad.double().numpy(), [want] * targets, rtol=40 * UNIT[dtype])


@pytest.mark.parametrize("count", [3, 40])  # few are looked through by Python
def test_a_gradient_of_0_hides_what_is_not_finite(count):
    x = gl.zeros(count, 3)
    x[0] = -math.inf
    x.requires_grad_()
    weights = gl.ones(count)
    weights[0] = 0
    F.cross_entropy(x, gl.ones(count, dtype=gl.int64), reduction="none").backward(weights)
    assert x.grad[0].tolist() == [0, 0, 0] and gl.isfinite(x.grad).all() and (x.grad[1:, 1] < 0).all()


@pytest.mark.parametrize("ignored", [-100, 2, 7])
def test_ignored_classes_count_for_nothing(ignored):
    x = gl.rand(6, 5).requires_grad_()
    target = gl.tensor([0, ignored, 4, ignored, 1, 3])
    kept = [0, 2, 4, 5]
    for reduction in ("mean", "sum", "none"):
        x.grad = None
        found = F.cross_entropy(x, target, ignore_index=ignored, reduction=reduction)
        found.sum().backward()
        y = x.detach()[kept].requires_grad_()
        want = F.cross_entropy(y, target[kept], reduction=reduction)
        want.sum().backward()
        assert np.allclose(found.detach().numpy() if found.ndim == 0 else found.detach()[kept].numpy(), want.detach().numpy())
        assert np.allclose(x.grad[kept].numpy(), y.grad.numpy()) and not x.grad[[1, 3]].any()
        with pytest.raises(IndexError, match="class 6"):
            F.cross_entropy(x, gl.tensor([0, 6, 4, 0, 1, 3]), ignore_index=ignored, reduction=reduction)


def test_what_repeats_nothing_may_be_written():
    x = gl.zeros(2, 3)
    for y in (x.expand(2, 3), x.expand(1, 2, 3), x.expand(1, 1, 2, -1), x.expand_as(x), gl.broadcast_to(x, (1, 2, 3))):
        y.add_(1)
    assert x.tolist() == [[5, 5, 5]] * 2
    for shape in ((2, 2, 3), (3, 1, 2, 3)):
        with pytest.raises(RuntimeError, match=r"expand|read-only|one memory location"):
            x.expand(shape).add_(1)


def test_an_index_is_below_the_size():
    x = gl.rand(3, 2)
    for index in ((3,), (-4,), (0, 2), (None, 3), ((0, 2, 1), -3)):
        with pytest.raises(DimensionError, match="out of range"):
            bind(ROWS["slice"])(x, index=index)
    assert bind(ROWS["slice"])(x, index=(2, -2)).item() == x[2, 0].item() == x[-1, -2].item()


def test_the_slope_of_sinc_near_its_top():
    """(cos u - sin u / u) / x loses all digits near 0: its power series has them."""
    x = np.concatenate([np.geomspace(1e-300, 0.3, 200), -np.geomspace(1e-12, 0.3, 50)])
    u, term, want = math.pi * x, math.pi * (math.pi * x) / 3, np.zeros_like(x)
    for k in range(1, 20):
        want -= term
        term = term * -(u * u) / ((2 * k + 2) * (2 * k + 3)) * (k + 1) / k
    for dtype, bound in ((gl.float64, 4e-14), (gl.float32, 2e-5)):
        given = gl.tensor(x[np.abs(x) > 1e-30], dtype=dtype, requires_grad=True)
        gl.sinc(given).sum().backward()
        np.testing.assert_allclose(given.grad.numpy(), want[np.abs(x) > 1e-30], rtol=bound)
