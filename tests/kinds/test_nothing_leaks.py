"""NaN and infinities stay where they are: rows that no result and no gradient comes from, places that are padding, ignored or masked; and
functions that have a limit at infinity take it."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

GOOD = np.array([[1.5, -0.25, 0.75, -2.0], [0.5, 2.0, -1.0, 1.0], [0.5, 3.0, -1.0, 0.25]])
SPOILT = {
    "NaN": [np.nan] * 4, "one NaN": [np.nan, 0.5, 1.0, 2.0], "all -inf": [-np.inf] * 4, "one inf": [0.0, np.inf, 1.0, 2.0],
    "both": [np.inf, -np.inf, 0.0, np.nan], "sure": [60.0, 0.0, -1.0, 2.0],
}  # fmt: skip
WEIGHTS = gl.tensor([[0.5, -1.0, 2.0, 0.25], [-0.75, 1.0, 0.5, -2.0]], dtype=gl.float64)

ROWS = {
    "softmax": lambda x: F.softmax(x, 1), "log_softmax": lambda x: F.log_softmax(x, 1), "logsumexp": lambda x: x.logsumexp(1, keepdim=True),
    "logcumsumexp": lambda x: x.logcumsumexp(1), "cumprod": lambda x: x.cumprod(1), "cumsum": lambda x: x.cumsum(1),
    "prod": lambda x: x.prod(1, keepdim=True),
    "amax": lambda x: x.amax(1, keepdim=True), "amin": lambda x: x.amin(1, keepdim=True),
    "max": lambda x: x.max(1, keepdim=True).values,
    "median": lambda x: x.median(1, keepdim=True).values, "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2, 1).values, "layer_norm": lambda x: F.layer_norm(x, (4,)), "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "normalize": F.normalize, "norm": lambda x: gl.linalg.vector_norm(x, 2, 1, keepdim=True), "var": lambda x: x.var(1, keepdim=True),
    "std": lambda x: x.std(1, keepdim=True), "gelu": F.gelu, "silu": F.silu, "mish": F.mish, "elu": F.elu, "glu": F.glu,
    "cross_entropy": lambda x: F.cross_entropy(x, gl.tensor([1, 0, 3]), reduction="none")[:, None],
    "smooth": lambda x: F.cross_entropy(x, gl.tensor([1, 0, 3]), reduction="none", label_smoothing=0.25)[:, None],
    "max_pool1d": lambda x: F.max_pool1d(x[:, None], 2, 1)[:, 0], "avg_pool1d": lambda x: F.avg_pool1d(x[:, None], 2, 1)[:, 0],
    "cdist": lambda x: gl.cdist(x, gl.tensor(GOOD[:2] + 0.5)), "cosine": lambda x: F.cosine_similarity(x, gl.tensor(GOOD + 1), 1)[:, None],
}  # fmt: skip


def slopes(function, numbers, rows):
    x = gl.tensor(numbers, requires_grad=True)
    found = function(x)[rows]
    factor = WEIGHTS.repeat(len(rows), 1)[: len(rows), : found.shape[1]]
    (found * factor).sum().backward()
    return found.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("name", ROWS)
def test_a_row_does_not_reach_another(name, spoilt):
    numbers = GOOD.copy()
    numbers[1] = SPOILT[spoilt]
    want, slope = slopes(ROWS[name], GOOD, [0, 2])
    found, other = slopes(ROWS[name], numbers, [0, 2])
    np.testing.assert_array_equal(found, want)
    np.testing.assert_allclose(other[[0, 2]], slope[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cross_entropy"])
def test_where_no_gradient_comes_none_goes(name, spoilt):
    """A row of nothing but -inf (all of it masked) has no probabilities; its gradient is 0 where nobody asks for one."""
    if spoilt not in ("all -inf", "sure"):
        pytest.skip("NaN of the numbers themselves stays")
    numbers = GOOD.copy()
    numbers[1] = SPOILT[spoilt]
    for shape, dim in (((3, 4), 1), ((3, 4), 0), ((3, 4, 1), 1)):
        if name == "cross_entropy" and dim == 0:
            continue
        x = gl.tensor(numbers.T.copy() if dim == 0 else numbers.reshape(shape), requires_grad=True)
        if name == "cross_entropy":
            target = gl.tensor([1, 0, 3])
            found = F.cross_entropy(x, target if len(shape) == 2 else target[:, None], reduction="none").reshape(3)[[0, 2]]
        else:
            found = getattr(F, name)(x, dim)
            found = found[:, [0, 2]] if dim == 0 else found[[0, 2]]
        found.sum().backward()
        grad = x.grad.numpy()[:, 1] if dim == 0 else x.grad.numpy()[1]
        np.testing.assert_array_equal(grad, np.zeros_like(grad))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_is_ignored(reduction, spoilt):
    numbers = GOOD.copy()
    numbers[1] = SPOILT[spoilt]
    target = gl.tensor([1, -100, 3])
    weight = gl.tensor([0.5, 1.0, 2.0, 0.25], dtype=gl.float64)
    for loss in (
        lambda x: F.cross_entropy(x, target, reduction=reduction), lambda x: F.nll_loss(x, target, reduction=reduction),
        lambda x: F.cross_entropy(x, target, weight, reduction=reduction), lambda x: F.nll_loss(x, target, weight, reduction=reduction),
        lambda x: F.cross_entropy(x, target, reduction=reduction, label_smoothing=0.25),
        lambda x: F.cross_entropy(x[..., None], target[:, None], reduction=reduction),
    ):  # fmt: skip
        results = []
        for given in (GOOD, numbers):
            x = gl.tensor(given, requires_grad=True)
            found = loss(x)
            found.sum().backward()
            results.append((found.detach().numpy(), x.grad.numpy()))
        np.testing.assert_array_equal(results[0][0], results[1][0])
        np.testing.assert_array_equal(results[0][1], results[1][1])
        assert not results[1][1][1].any()


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_row_of_padding(mode, spoilt):
    numbers = GOOD.copy()
    numbers[1] = SPOILT[spoilt]
    for indices, offsets in ((gl.tensor([[0, 1], [2, 1]]), None), (gl.tensor([0, 1, 2, 1, 1]), gl.tensor([0, 2, 4]))):
        results = []
        for given in (GOOD, numbers):
            table = gl.tensor(given, requires_grad=True)
            found = F.embedding_bag(indices, table, offsets, mode=mode, padding_idx=1)
            (found * found).sum().backward()
            results.append((found.detach().numpy(), table.grad.numpy()))
        for a, b in zip(*results, strict=True):
            np.testing.assert_array_equal(a, b)


LIMITS = {  # at -inf and inf: the value, and the slope
    "gelu": (F.gelu, (0, np.inf), (0, 1)), "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (0, np.inf), (0, 1)),
    "silu": (F.silu, (0, np.inf), (0, 1)), "mish": (F.mish, (0, np.inf), (0, 1)), "hardswish": (F.hardswish, (0, np.inf), (0, 1)),
    "softplus": (F.softplus, (0, np.inf), (0, 1)), "logsigmoid": (F.logsigmoid, (-np.inf, 0), (1, 0)), "elu": (F.elu, (-1, np.inf), (0, 1)),
    "sigmoid": (gl.sigmoid, (0, 1), (0, 0)), "tanh": (gl.tanh, (-1, 1), (0, 0)), "relu": (gl.relu, (0, np.inf), (0, 1)),
    "atan": (gl.atan, (-np.pi / 2, np.pi / 2), (0, 0)), "erf": (gl.erf, (-1, 1), (0, 0)), "relu6": (F.relu6, (0, 6), (0, 0)),
    "hardtanh": (F.hardtanh, (-1, 1), (0, 0)), "leaky_relu": (F.leaky_relu, (-np.inf, np.inf), (0.01, 1)),
    "hardsigmoid": (F.hardsigmoid, (0, 1), (0, 0)), "exp": (gl.exp, (0, np.inf), (0, np.inf)), "ndtr": (gl.special.ndtr, (0, 1), (0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64])
@pytest.mark.parametrize("name", LIMITS)
def test_limits_at_infinity(name, dtype):
    """Whatever stands beside them, few numbers and many (which come from another kernel)."""
    function, values, slope = LIMITS[name]
    for around in ([], [0.5], [-2000.0, 2000.0], [0.25] * 5000):
        for place in (0, 1):
            x = gl.tensor([*around, (-np.inf, np.inf)[place]], dtype=dtype, requires_grad=True)
            found = function(x)
            found.sum().backward()
            np.testing.assert_allclose(found.detach().numpy()[-1], values[place], rtol=1e-6, atol=0)
            np.testing.assert_allclose(x.grad.numpy()[-1], slope[place], rtol=1e-6, atol=0)


MASKED = {
    "where": lambda m, x, y: gl.where(m, x, y), "masked_fill": lambda m, x, y: x.masked_fill(~m, 0.5),
    "where of a number": lambda m, x, y: gl.where(m, x, 0.0), "clamp": lambda m, x, y: x.clamp(-0.5, 0.5), "relu": lambda m, x, y: x.relu(),
    "hardtanh": lambda m, x, y: F.hardtanh(x), "maximum": lambda m, x, y: gl.maximum(x, y), "fmax": lambda m, x, y: gl.fmax(x, y),
    "threshold": lambda m, x, y: F.threshold(x, 0.25, -1.0), "hardshrink": lambda m, x, y: F.hardshrink(x),
    "nan_to_num": lambda m, x, y: x.nan_to_num(0.5, 1.0, 2.0), "relu6": lambda m, x, y: F.relu6(x), "abs": lambda m, x, y: x.abs(),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64])
@pytest.mark.parametrize("name", MASKED)
def test_many_elements_are_as_few(name, dtype):
    """From a thousand elements on masks are applied as bits; a NaN, in a gradient, too, that is masked is gone all the same."""
    rng, function = np.random.default_rng(2), MASKED[name]
    n = 3000
    x, y = rng.normal(size=(2, n))
    x[rng.random(n) < 0.2] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0])
    x[::7], x[3::7] = np.nan, np.inf
    mask, back = rng.random(n) < 0.5, rng.normal(size=n)
    back[::5], back[1::5] = np.nan, np.inf

    def run(part):
        given = [gl.tensor(v[part], dtype=dtype, requires_grad=True) for v in (x, y)]
        found = function(gl.tensor(mask[part]), *given)
        found.backward(gl.tensor(back[part], dtype=dtype))
        return [found.detach().numpy(), *(t.grad.numpy() if t.grad is not None else np.zeros(0) for t in given)]

    whole, parts = run(slice(None)), [run(slice(i, i + 100)) for i in range(0, n, 100)]
    for found, few in zip(whole, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.concatenate(few))
