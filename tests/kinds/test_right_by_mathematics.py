"""Results that are right where textbook formulas cancel, overflow or divide 0 by 0, and PyTorch with them: eager, compiled, on the GPU.

References are computed in float64, with Python's erfc, or as limits.
"""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler

F, nn = gl.nn.functional, gl.nn
INF = math.inf
WAYS = ["eager", "numpy", "native", "cuda"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    monkeypatch.setattr(compiler, "available", lambda known=compiler.available: request.param != "numpy" and known())
    return request.param


def run(function, *arrays, way="eager", dtype=np.float32):
    """function's result, and the gradients of its sum, as float64 arrays."""

    def both(*xs):
        y = function(*xs)
        return y, gl.autograd.grad(y.sum(), xs)

    compiled = both if way in ("eager", "cuda") else gl.compile(both)
    for _ in range(1 if way in ("eager", "cuda") else 3):
        xs = [gl.tensor(np.asarray(a, dtype), device="cuda" if way == "cuda" else "cpu").requires_grad_() for a in arrays]
        y, gradients = compiled(*xs)
    return tuple(t.detach().cpu().double().numpy() for t in (y, *gradients))


# ---------------------------------------------------------------- activations: tails, and limits at infinity

FINITE = np.array([-30, -13, -10, -8, -6, -5.5, -5, -4, -2, -1, -0.1, 0, 0.1, 1, 3, 5, 8, 20, 1e4, 1e30])
PHI = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)
DENSITY = np.vectorize(lambda x: math.exp(-min(x * x, 1480) / 2) / math.sqrt(2 * math.pi))
SIGMOID = np.vectorize(lambda x: math.exp(min(x, 0)) / (1 + math.exp(-abs(x))) if x > -700 else 0.0)


def tanh_gate(x):
    v = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    s = SIGMOID(v)
    dv = np.where(abs(x) < 100, 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2), 0)
    return x * s, s + np.clip(x, -100, 100) * s * SIGMOID(-v) * dv


def mish(x):
    e = np.exp(np.minimum(x, 40))
    w = e * (e + 2)
    return x * w / (w + 2), w / (w + 2) + np.minimum(x, 40) * 4 * e * (1 + e) / (w + 2) ** 2


GATES = {
    "gelu": (F.gelu, lambda x: (x * PHI(x), PHI(x) + np.clip(x, -50, 50) * DENSITY(x))),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), tanh_gate),
    "silu": (F.silu, lambda x: (x * SIGMOID(x), SIGMOID(x) * (1 + np.clip(x, -50, 50) * SIGMOID(-x)))),
    "mish": (F.mish, mish),
    "softsign": (F.softsign, lambda x: (x / (1 + abs(x)), None)),
    "softplus": (F.softplus, lambda x: (np.logaddexp(0, x), SIGMOID(x))),
    "logsigmoid": (F.logsigmoid, lambda x: (-np.logaddexp(0, -x), SIGMOID(-x))),
    "ndtr": (gl.special.ndtr, lambda x: (PHI(x), DENSITY(x))),
    "normal cdf": (lambda x: gl.distributions.Normal(x.new_zeros(()), x.new_ones(())).cdf(x), lambda x: (PHI(x), DENSITY(x))),
}
# (value, gradient) at -∞ and at ∞
LIMITS = {
    **dict.fromkeys(("gelu", "gelu by tanh", "silu", "mish"), ((0, 0), (INF, 1))), "softsign": ((-1, 0), (1, 0)),
    "hardswish": ((0, 0), (INF, 1)), "softplus": ((0, 0), (INF, 1)), "logsigmoid": ((-INF, 1), (0, 0)), "elu": ((-1, 0), (INF, 1)),
    "sigmoid": ((0, 0), (1, 0)), "tanh": ((-1, 0), (1, 0)), "hardsigmoid": ((0, 0), (1, 0)), "tanhshrink": ((-INF, 1), (INF, 1)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GATES)
def test_tails_keep_their_digits(name, way, dtype):
    if dtype == np.float64 and way in ("numpy", "cuda"):
        return  # the same expressions
    function, reference = GATES[name]
    x = FINITE.astype(dtype)
    y, slope = run(function, x, way=way, dtype=dtype)
    wanted, wanted_slope = reference(x.astype(np.float64))
    tolerance = 3e-5 if dtype == np.float32 else 1e-11
    least = 1e-36 if dtype == np.float32 else 1e-306  # a GPU has no subnormal floats, nor a product with one
    np.testing.assert_allclose(y, wanted, rtol=tolerance, atol=least)
    if wanted_slope is not None:
        np.testing.assert_allclose(slope, wanted_slope, rtol=5 * tolerance, atol=1e-7 if name == "mish" else least)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_at_infinity(name, way):
    function = GATES[name][0] if name in GATES else getattr(F, name)
    y, slope = run(function, [-INF, INF], way=way)
    low, high = LIMITS[name]
    np.testing.assert_array_equal(y, [low[0], high[0]])
    np.testing.assert_array_equal(slope, [low[1], high[1]])


# ---------------------------------------------------------------- softmax: masked rows, and probabilities that round to 1

MASKED = np.array([[0.5, -INF, 1.0, 0.25], [-INF] * 4, [2.0, 1.0, -INF, 3.0]])
LOGITS = np.array([[20.0, 0.0, 1.0], [-30.0, 40.0, 41.0], [3.0, 60.0, -2.0], [0.1, 0.2, 0.3], [5.0, 5.0, -20.0]])


def attended(x):
    """The rows of attention with x as its mask that are not all masked."""
    q, k = gl.ones((3, 2), device=x.device), gl.arange(8.0, device=x.device).reshape(4, 2)
    return F.scaled_dot_product_attention(q, k, k, attn_mask=x)


OVER_ROWS = {
    "softmax": lambda x: x.softmax(-1), "softmax of columns": lambda x: x.t().softmax(0).t(), "softmin": lambda x: F.softmin(-x, -1),
    "log_softmax": lambda x: x.log_softmax(-1).masked_fill(x.isneginf(), 0),
    "log_softmax of columns": lambda x: x.t().log_softmax(0).t().masked_fill(x.isneginf(), 0),
    "logsumexp": lambda x: x.logsumexp(-1), "logsumexp of columns": lambda x: x.t().logsumexp(0),
    "logcumsumexp": lambda x: x.logcumsumexp(-1), "attention": attended,
    "cross_entropy": lambda x: F.cross_entropy(x, gl.tensor([0, 0, 3], device=x.device), reduction="none"),
    "ignored": lambda x: F.cross_entropy(x, gl.tensor([0, -100, 3], device=x.device), reduction="none"),
}  # fmt: skip


@pytest.mark.parametrize("name", OVER_ROWS)
def test_a_masked_row_outside_of_the_loss_has_no_gradient(name, way):
    def function(x):
        return OVER_ROWS[name](x)[::2]

    _, gradient = run(function, MASKED, way=way)
    assert (gradient[1] == 0).all() and np.isfinite(gradient).all()
    if name not in ("ignored", "attention", "cross_entropy"):
        _, alone = run(OVER_ROWS[name], MASKED[:1])
        np.testing.assert_allclose(gradient[0], alone[0], rtol=1e-5, atol=1e-6)


def softmax_reference(x, weight):
    """Of Σ weight·softmax(x): its gradient, by sums of differences that do not cancel."""
    p = np.exp(x - x.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    gaps = weight[..., :, None] - weight[..., None, :]
    return p * (gaps * p[..., None, :]).sum(-1), p


WEIGHT = np.array([1.0, 2.0, -1.5])


@pytest.mark.parametrize("columns", [False, True])
def test_the_gradient_of_softmax_where_a_probability_rounds_to_1(columns, way):
    weight = gl.tensor(WEIGHT, dtype=gl.float32, device="cuda" if way == "cuda" else "cpu")
    turn = (lambda t: t.t()) if columns else (lambda t: t)
    _, gradient = run(lambda x: turn(turn(x).softmax(0 if columns else -1)) * weight, LOGITS, way=way)
    wanted, p = softmax_reference(LOGITS, WEIGHT)
    np.testing.assert_allclose(gradient, wanted, rtol=3e-6, atol=1e-36)
    y, gradient = run(lambda x: turn(turn(x).log_softmax(0 if columns else -1)) * weight, LOGITS, way=way)
    rest = p.sum(-1, keepdims=True) - p
    np.testing.assert_allclose(gradient, WEIGHT * rest - p * (WEIGHT.sum() - WEIGHT), rtol=1e-5, atol=1e-7)
    others = np.array([[np.delete(row, i).sum() for i in range(3)] for row in p])
    np.testing.assert_allclose(y, np.log1p(-others, where=others < 0.5, out=np.log(p)) * WEIGHT, rtol=3e-6, atol=1e-36)


@pytest.mark.parametrize(("keys", "causal"), [(6, False), (6, True), (150, False), (1, False)])
def test_the_gradient_of_attention_where_a_weight_rounds_to_1(keys, causal, way):
    draws = np.random.default_rng(0)
    shapes = {(1, 2, 70, 4): 6, (1, 2, keys, 4): 6, (1, 2, keys, 3): 1, (70, keys): 1}
    q, k, v, mask = (np.float32(draws.standard_normal(shape) * scale).astype(float) for shape, scale in shapes.items())
    g = np.array([1.0, -2.0, 0.5])

    def function(q, k, v, *mask):
        return F.scaled_dot_product_attention(q, k, v, *mask, is_causal=causal) * gl.tensor(g, dtype=v.dtype, device=v.device)

    given = (q, k, v) if causal else (q, k, v, mask)
    _, *found = run(function, *given, way=way)
    scores = q @ k.swapaxes(-1, -2) / 2 + (np.where(np.tri(70, keys), 0, -INF) if causal else mask)
    slopes, p = softmax_reference(scores, (v @ g)[..., None, :])
    wanted = slopes @ k / 2, slopes.swapaxes(-1, -2) @ q / 2, p.sum(-2)[..., None] * g, slopes.sum((0, 1))
    for one, other in zip(found, wanted[: len(given)], strict=True):
        np.testing.assert_allclose(one, other, rtol=0.05, atol=1e-30)  # of many sums a few nearly cancel
        assert np.mean(abs(one - other) <= 1e-3 * abs(other) + 1e-30) > 0.99


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy_of_what_is_certain(reduction, way):
    target = LOGITS.argmax(-1)
    classes = gl.tensor(target, device="cuda" if way == "cuda" else "cpu")
    y, gradient = run(lambda x: F.cross_entropy(x, classes, reduction=reduction), LOGITS, way=way)
    p = softmax_reference(LOGITS, WEIGHT)[1]
    others = p.copy()
    others[np.arange(5), target] = 0
    p[np.arange(5), target] = -others.sum(-1)
    losses = -np.log1p(-others.sum(-1))
    np.testing.assert_allclose(y, losses if reduction == "none" else getattr(losses, reduction)(), rtol=3e-6, atol=1e-36)
    np.testing.assert_allclose(gradient, p / (5 if reduction == "mean" else 1), rtol=3e-6, atol=1e-36)


# ---------------------------------------------------------------- norms and normalisations of what is too large or small to square

ROWS = np.array([[3.0, -4.0, 1.0, 2.0], [1.0, 2.0, 5.0, -3.0], [0.5, 0.25, -1.0, 2.0]])


def standardised(x, axis, centred=True):
    centre = x - x.mean(axis, keepdims=True) if centred else x
    return centre / np.sqrt((centre * centre).mean(axis, keepdims=True))


def unit(x):
    return x / np.sqrt((x * x).sum(1, keepdims=True))


NORMALISATIONS = {
    "layer": (lambda x: F.layer_norm(x, (4,)), lambda x: standardised(x, 1)),
    "rms": (lambda x: F.rms_norm(x, (4,)), lambda x: standardised(x, 1, False)),
    "batch": (lambda x: F.batch_norm(x, None, None, training=True), lambda x: standardised(x, 0)),
    "batch of places": (lambda x: F.batch_norm(x.t()[None], None, None, training=True)[0].t(), lambda x: standardised(x, 0)),
    "group": (lambda x: F.group_norm(x, 1), lambda x: standardised(x, 1)),
    "instance": (lambda x: F.instance_norm(x[None])[0], lambda x: standardised(x, 1)),
    "normalize": (F.normalize, unit),
    "cosine": (lambda x: F.cosine_similarity(x, x.flip(0)), lambda x: (unit(x) * unit(x[::-1])).sum(1)),
}  # fmt: skip
NORMS = {
    **{f"p={p}": (lambda x, p=p: gl.linalg.vector_norm(x, p, dim=1), lambda x, p=p: (abs(x) ** p).sum(1) ** (1 / p))
       for p in (0.5, 1, 1.5, 2, 3, 4, 6, 7)},
    "all": (lambda x: x.norm(), lambda x: np.sqrt((x * x).sum())), "fro": (gl.linalg.matrix_norm, lambda x: np.sqrt((x * x).sum())),
    "dist": (lambda x: gl.dist(x, -x), lambda x: 2 * np.sqrt((x * x).sum())),
    "pairwise": (lambda x: F.pairwise_distance(x, -x, eps=0.0), lambda x: 2 * np.sqrt((x * x).sum(1))),
    "cdist": (lambda x: gl.cdist(x, -x[:1])[:, 0], lambda x: np.sqrt(((x + x[:1]) ** 2).sum(1))),
    "hypot": (lambda x: gl.hypot(x[0], x[1]), lambda x: np.hypot(x[0], x[1])),
    "std": (lambda x: x.std(1), lambda x: x.std(1, ddof=1)), "std_mean": (lambda x: gl.std_mean(x, 1)[0], lambda x: x.std(1, ddof=1)),
}  # fmt: skip


@pytest.mark.parametrize("scale", [1e30, 1e37])
@pytest.mark.parametrize("name", NORMALISATIONS)
def test_normalisations_of_what_squares_overflow(name, scale, way):
    function, reference = NORMALISATIONS[name]
    y, gradient = run(function, ROWS * scale, way=way)
    np.testing.assert_allclose(y, reference(ROWS), rtol=2e-5, atol=2e-6)
    assert np.isfinite(gradient).all() and abs(gradient).max() < 1e-4


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1.0])
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_what_squares_overflow_or_vanish(name, scale, way):
    function, reference = NORMS[name]
    y, gradient = run(function, ROWS * scale, way=way)
    x = (ROWS * scale).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(y, reference(x), rtol=1e-5)
    _, usual = run(function, ROWS)
    np.testing.assert_allclose(gradient, usual, rtol=1e-4, atol=1e-5)


def through_images(x):
    """A norm between two convolutions, whose images a compiled program has with their channels last."""
    w = gl.linspace(-1, 1, 32 * 16 * 9, dtype=x.dtype, device=x.device).sin().reshape(32, 16, 3, 3)
    y = F.conv2d(x.reshape(3, 1, 2, 2).expand(3, 16, 2, 2), w, padding=1)
    y = F.conv2d(F.batch_norm(y, None, None, training=True), w.reshape(16, 32, 3, 3), padding=1)
    return F.batch_norm(y * x.detach().abs().max(), None, None, training=True).square()


# Beside themselves in float64.
ALSO = {
    "local response": lambda x: F.local_response_norm(x[None], 3), "renorm": lambda x: gl.renorm(x, 3, 0, 1.0), "corrcoef": gl.corrcoef,
    "cosine loss": lambda x: F.cosine_embedding_loss(x, x.flip(0), x.new_ones(3), reduction="none"),
    "spectral": lambda x: gl.linalg.norm(x, 2),
    "by product": lambda x: gl.cdist(x, -x[1:], compute_mode="use_mm_for_euclid_dist"), "nuclear": lambda x: gl.linalg.norm(x, "nuc"),
    "of several": lambda x: x.reshape(3, 2, 2).norm(dim=(0, 2)), "std of all": lambda x: x.std(), "std of columns": lambda x: x.std(0),
    "unlike rows": lambda x: (x * x.new_tensor([[1.0], [1e-8], [1e8]])).norm(dim=1), "images": through_images,
    "std of unlike rows": lambda x: (x * x.new_tensor([[1.0], [1e-8], [1e8]])).std(1), "weight norm": lambda x: weighted(x),
}  # fmt: skip


def weighted(x):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3, bias=False, device=x.device, dtype=x.dtype))
    parts = {"parametrizations.weight.original0": x.new_ones(3, 1), "parametrizations.weight.original1": x}
    return gl.func.functional_call(layer, parts, (gl.eye(4, dtype=x.dtype, device=x.device),))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("name", ALSO)
def test_what_is_made_of_norms(name, scale, way):
    if scale < 1 and name in ("cosine loss", "images"):
        scale = 1e-3  # an eps is added
    y, gradient = run(ALSO[name], (ROWS * scale).astype(np.float32), way=way)
    wanted, slope = run(ALSO[name], (ROWS * scale).astype(np.float32), dtype=np.float64)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-6 * abs(wanted).max())
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-4 * abs(slope).max() + 1e-36)


@pytest.mark.parametrize("size", [1e20, 1e-25])
@pytest.mark.parametrize("kind", [2.0, 3.0])
def test_clipping_of_gradients_whose_squares_overflow_or_vanish(kind, size):
    p = gl.zeros(3, requires_grad=True)
    p.grad = gl.tensor([size, -size, size])
    norm = nn.utils.clip_grad_norm_([p], 1.0, kind)
    np.testing.assert_allclose(norm.item(), size * 3 ** (1 / kind), rtol=1e-5)
    np.testing.assert_allclose(p.grad.numpy(), np.array([1, -1, 1]) * (3 ** (-1 / kind) if size > 1 else size), rtol=1e-5)


# ---------------------------------------------------------------- what else is right here


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("make", [nn.BatchNorm1d, lambda n, **o: nn.InstanceNorm1d(n, track_running_stats=True, **o)])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_norm_under_a_checkpoint_counts_once(make, momentum, compiled, reentrant):
    if momentum is None and make is not nn.BatchNorm1d:
        momentum = 0.3
    x = np.random.default_rng(0).normal(2, 3, (4, 3, 5)).astype("float32")
    plain, kept = (make(3, momentum=momentum) for _ in range(2))

    def step(norm, checkpointed, x):
        y = gl.utils.checkpoint.checkpoint(norm, x, use_reentrant=reentrant) if checkpointed else norm(x)
        (y * y * y).sum().backward()

    for norm, checkpointed in ((plain, False), (kept, True)):
        run_step = gl.compile(step) if compiled else step
        for i in range(3):
            run_step(norm, checkpointed, gl.tensor(x + i).requires_grad_())
    for name, value in plain.state_dict().items():
        np.testing.assert_allclose(kept.state_dict()[name].numpy(), value.numpy(), rtol=1e-6, err_msg=name)


D = gl.distributions


@pytest.mark.parametrize("make, values, wanted", [
    (lambda: D.Bernoulli(gl.tensor([0.0, 0.0, 1.0, 1.0])), [0.0, 1.0, 0.0, 1.0], [0, -INF, -INF, 0]),
    (lambda: D.Categorical(gl.tensor([[0.0, 1.0, 1.0]])), [0, 1], [-INF, -math.log(2)]),
    (lambda: D.OneHotCategorical(gl.tensor([0.0, 1.0])), [[1.0, 0.0], [0.0, 1.0]], [-INF, 0]),
    (lambda: D.Multinomial(2, gl.tensor([0.0, 1.0])), [[0.0, 2.0], [1.0, 1.0]], [0, -INF]),
    (lambda: D.Geometric(gl.tensor(1.0)), [0.0, 1.0], [0, -INF]),
    (lambda: D.Bernoulli(logits=gl.tensor([-INF, -INF, INF, INF])), [0.0, 1.0, 0.0, 1.0], [0, -INF, -INF, 0]),
    (lambda: D.Binomial(5, gl.tensor([0.0, 0.0, 1.0, 1.0])), [0.0, 1.0, 4.0, 5.0], [0, -INF, -INF, 0]),
    (lambda: D.Binomial(5, logits=gl.tensor([-INF, INF, INF])), [0.0, 4.0, 5.0], [0, -INF, 0]),
    (lambda: D.Binomial(1, gl.tensor(1e-30)), [1.0], [math.log(1e-30)]),
    (lambda: D.NegativeBinomial(3.0, gl.tensor([0.0, 0.0, 1e-30])), [0.0, 1.0, 1.0], [0, -INF, math.log(3e-30)]),
    (lambda: D.Geometric(logits=gl.tensor([-200.0, 90.0, INF])), [1.0, 2.0, 0.0], [-200, -180, 0]),
])  # fmt: skip
def test_what_cannot_be_has_no_probability(make, values, wanted):
    np.testing.assert_allclose(make().log_prob(gl.tensor(values)).numpy(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("p, q", [(1e-30, 1e-30), (1e-30, 1e-8), (1e-8, 1e-30), (0.5, 1e-9), (0.25, 0.75), (1 - 2**-24, 0.5)])
@pytest.mark.parametrize("by_logits", [False, True])
def test_rare_successes(p, q, by_logits):
    def geometric(p):
        return D.Geometric(logits=gl.tensor(math.log(p) - math.log1p(-p))) if by_logits else D.Geometric(gl.tensor(p))

    p, q = (float(np.float32(x)) for x in (p, q))
    ratio = (1 - p) / p
    entropy = -math.log(p) - ratio * math.log1p(-p)
    np.testing.assert_allclose(geometric(p).entropy().item(), entropy, rtol=2e-5)
    wanted = math.log(p) - math.log(q) + ratio * (math.log1p(-p) - math.log1p(-q))
    np.testing.assert_allclose(D.kl_divergence(geometric(p), geometric(q)).item(), wanted, rtol=2e-5, atol=3e-5)
    np.testing.assert_allclose(D.Binomial(3, gl.tensor([0.0, 1.0])).entropy().numpy(), 0, atol=1e-7)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("place", ["sample", "samples", "collate", "unbatched"])
def test_stop_iteration_out_of_a_dataset_is_an_error(place, workers):
    loader = gl.utils.data.DataLoader(
        Stopping(place), None if place == "unbatched" else 2, num_workers=workers, collate_fn=Collate(place),
    )
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


class Stopping(gl.utils.data.Dataset):
    def __init__(self, place):
        if place == "samples":
            self.__getitems__ = lambda indices: next(iter(()))
        self.place = place

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return next(iter(())) if index == 3 and self.place in ("sample", "unbatched") else index


class Collate:
    def __init__(self, place):
        self.place = place

    def __call__(self, samples):
        return next(iter(())) if self.place == "collate" else samples


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1.0])
def test_the_gradient_of_atan2(scale, way):
    _, a, b = run(gl.atan2, np.array([3.0, 4.0]) * scale, np.array([4.0, -3.0]) * scale, way=way)
    np.testing.assert_allclose(a * scale, [0.16, -0.12], rtol=1e-5)
    np.testing.assert_allclose(b * scale, [-0.12, -0.16], rtol=1e-5)
