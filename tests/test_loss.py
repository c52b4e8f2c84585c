"""Losses beyond their rows: values, slopes, ignored and weighted targets, saturated logits, reductions, errors."""

import math
import warnings

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F

from slopes import check_slopes

RNG = np.random.default_rng(1)
A, B = RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5)) + 0.01
P, Q = RNG.uniform(0.05, 0.95, (4, 5)), RNG.uniform(0.05, 0.95, (4, 5))
SIGNS = np.where(RNG.random((4, 5)) < 0.5, -1.0, 1.0)
POSITIVE = RNG.uniform(0.5, 3, (4, 5))
D = np.abs(A - B)


def softplus(x):
    return np.logaddexp(0, x)


# name: (function, arguments, the loss of each element)
ELEMENTWISE = {
    "mse": (F.mse_loss, (A, B), (A - B) ** 2),
    "l1": (F.l1_loss, (A, B), D),
    "smooth_l1": (lambda *a, **k: F.smooth_l1_loss(*a, beta=0.7, **k), (A, B), np.where(D < 0.7, D * D / 1.4, D - 0.35)),
    "huber": (lambda *a, **k: F.huber_loss(*a, delta=0.7, **k), (A, B), np.where(D < 0.7, D * D / 2, 0.7 * (D - 0.35))),
    "bce": (F.binary_cross_entropy, (P, Q), -(Q * np.log(P) + (1 - Q) * np.log(1 - P))),
    "bce_logits": (F.binary_cross_entropy_with_logits, (A, Q), softplus(A) - A * Q),
    "kl": (F.kl_div, (A, Q), Q * (np.log(Q) - A)),
    "kl_log": (lambda *a, **k: F.kl_div(*a, log_target=True, **k), (A, B), np.exp(B) * (B - A)),
    "poisson": (F.poisson_nll_loss, (A, POSITIVE), np.exp(A) - POSITIVE * A),
    "gaussian": (F.gaussian_nll_loss, (A, B, POSITIVE), (np.log(POSITIVE) + (A - B) ** 2 / POSITIVE) / 2),
    "hinge": (F.hinge_embedding_loss, (A, SIGNS), np.where(SIGNS == 1, A, np.maximum(0, 1 - A))),
    "ranking": (lambda *a, **k: F.margin_ranking_loss(*a, margin=0.3, **k), (A, B, SIGNS), np.maximum(0, -SIGNS * (A - B) + 0.3)),
    "soft_margin": (F.soft_margin_loss, (A, SIGNS), softplus(-SIGNS * A)),
}


@pytest.mark.filterwarnings("ignore:kl_div")
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_losses(name):
    function, arguments, want = ELEMENTWISE[name]
    tensors = [gl.tensor(a) for a in arguments]
    np.testing.assert_allclose(function(*tensors, reduction="none").numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(function(*tensors, reduction="sum").item(), want.sum(), rtol=1e-12)
    np.testing.assert_allclose(function(*tensors).item(), want.mean(), rtol=1e-12)
    with pytest.raises(ValueError, match="reduction"):
        function(*tensors, reduction="average")
    fixed = {"hinge": 1, "ranking": 2, "soft_margin": 1}.get(name)
    check_slopes(lambda *a: function(*a, *tensors[len(a) :], reduction="none"), *arguments[:fixed])


LOGITS, CLASSES, WEIGHT = RNG.normal(size=(6, 4)), np.array([0, 3, 1, -100, 2, 3]), RNG.uniform(0.5, 2, 4)


def logs(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("ignore", [-100, 3])
def test_cross_entropy(smoothing, weight, ignore):
    classes = np.where(CLASSES == -100, ignore, CLASSES)
    counts = classes != ignore
    w = np.ones(4) if weight is None else weight
    onehot = np.eye(4)[np.where(counts, classes, 0)] * w[np.where(counts, classes, 0)][:, None]
    smooth = (1 - smoothing) * onehot + smoothing / 4 * w
    want = -(smooth * logs(LOGITS)).sum(1) * counts
    total = (w[np.where(counts, classes, 0)] * counts).sum()
    options = {"weight": None if weight is None else gl.tensor(weight), "ignore_index": ignore, "label_smoothing": smoothing}
    target = gl.tensor(classes)
    np.testing.assert_allclose(F.cross_entropy(gl.tensor(LOGITS), target, reduction="none", **options).numpy(), want, atol=1e-14)
    np.testing.assert_allclose(F.cross_entropy(gl.tensor(LOGITS), target, reduction="sum", **options).item(), want.sum())
    np.testing.assert_allclose(F.cross_entropy(gl.tensor(LOGITS), target, **options).item(), want.sum() / total)
    check_slopes(lambda x: F.cross_entropy(x, target, **options), LOGITS)
    if not smoothing:
        del options["label_smoothing"]
        np.testing.assert_allclose(F.nll_loss(gl.tensor(logs(LOGITS)), target, **options).item(), want.sum() / total)


def test_cross_entropy_of_images_and_of_one_sample():
    x, target = RNG.normal(size=(2, 3, 4, 5)), RNG.integers(0, 3, (2, 4, 5))
    rows = gl.tensor(x.transpose(0, 2, 3, 1).reshape(-1, 3))
    found = F.cross_entropy(gl.tensor(x), gl.tensor(target), reduction="none")
    np.testing.assert_allclose(found.numpy().ravel(), F.cross_entropy(rows, gl.tensor(target.ravel()), reduction="none").numpy())
    check_slopes(lambda a: F.cross_entropy(a, gl.tensor(target)), x)
    one = F.cross_entropy(rows[0], gl.tensor(int(target[0, 0, 0])), reduction="none")
    assert one.shape == ()
    assert one.item() == pytest.approx(found.numpy()[0, 0, 0])


def test_cross_entropy_with_probabilities():
    target = RNG.dirichlet(np.ones(4), 6)
    target[0] = [0, 0, 1, 0]
    for weight in (None, WEIGHT):
        for smoothing in (0.0, 0.3):
            mixed = (1 - smoothing) * target + smoothing / 4
            want = -(mixed * logs(LOGITS) * (1 if weight is None else weight)).sum(1)
            options = {"weight": None if weight is None else gl.tensor(weight), "label_smoothing": smoothing}
            np.testing.assert_allclose(F.cross_entropy(gl.tensor(LOGITS), gl.tensor(target), **options).item(), want.mean())
            check_slopes(lambda x, t, options=options: F.cross_entropy(x, t, reduction="none", **options), LOGITS, mixed)
    ruled_out = gl.tensor([[0.0, -math.inf]], requires_grad=True)
    loss = F.cross_entropy(ruled_out, gl.tensor([[1.0, 0.0]]))
    loss.backward()
    assert loss.item() == 0
    assert ruled_out.grad.tolist() == [[0, 0]]


def test_second_order_of_cross_entropy():
    """The Hessian of log-sum-exp is diag(p) - p pᵀ."""
    x = gl.tensor(LOGITS[:1], requires_grad=True)
    (gradient,) = gl.autograd.grad(F.cross_entropy(x, gl.tensor([2])), x, create_graph=True)
    p = np.exp(logs(LOGITS[:1]))[0]
    for i in range(4):
        (row,) = gl.autograd.grad(gradient[0, i], x, retain_graph=True)
        np.testing.assert_allclose(row.numpy()[0], np.diag(p)[i] - p[i] * p, atol=1e-14)


def test_nothing_counts():
    x = gl.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    loss = F.cross_entropy(x, gl.tensor([-100, -100]))
    assert math.isnan(loss.item())  # as PyTorch
    loss.backward()
    assert x.grad.tolist() == [[0, 0], [0, 0]]


def test_saturated_logits():
    x = gl.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    loss = F.cross_entropy(x, gl.tensor([1]))
    assert loss.item() == 1000
    loss.backward()
    assert x.grad.tolist() == [[1, -1, 0]]
    z = gl.tensor([200.0, -200.0, 200.0, 3e4], requires_grad=True)
    for options in ({}, {"pos_weight": gl.tensor(1.0)}):
        z.grad = None
        loss = F.binary_cross_entropy_with_logits(z, gl.tensor([0.0, 1.0, 1.0, 1.0]), reduction="sum", **options)
        loss.backward()
        assert loss.item() == 400
        assert z.grad.tolist() == [1, -1, 0, 0]
    p = gl.tensor([0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, gl.tensor([1.0, 0.0]), reduction="sum")
    loss.backward()
    assert loss.item() == 200
    assert np.isfinite(p.grad.numpy()).all()


def test_weights():
    want = Q * 0 + (1 - Q) * A + (1 + Q * (WEIGHT[0] - 1)) * softplus(-A)
    found = F.binary_cross_entropy_with_logits(gl.tensor(A), gl.tensor(Q), pos_weight=gl.tensor(WEIGHT[0]), reduction="none")
    np.testing.assert_allclose(found.numpy(), want)
    weight = gl.tensor(P)
    assert F.mse_loss(gl.tensor(A), gl.tensor(B), weight=weight).item() == pytest.approx(((A - B) ** 2 * P).sum() / P.sum())
    assert F.huber_loss(gl.tensor(A), gl.tensor(B), delta=9, weight=weight).item() == pytest.approx(((A - B) ** 2 / 2 * P).mean())
    found = F.binary_cross_entropy(gl.tensor(P), gl.tensor(Q), weight=gl.tensor(WEIGHT[:1]))
    assert found.item() == pytest.approx(WEIGHT[0] * ELEMENTWISE["bce"][2].mean())


def test_broadcasting_is_warned_of():
    x, y = gl.ones(4, 1), gl.zeros(4)
    for function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match="broadcast") as caught:
            assert function(x, y, reduction="sum").shape == ()
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.mse_loss(gl.ones(4), y)
    with pytest.warns(UserWarning, match="deprecated"):
        assert F.mse_loss(gl.ones(4), y, size_average=False).item() == 4


def test_kl_div():
    target = np.array([[0.0, 1.0], [0.5, 0.5]])
    x = gl.tensor([[-math.inf, 0.0], [-1.0, -2.0]], requires_grad=True)
    loss = F.kl_div(x, gl.tensor(target, dtype=gl.float32), reduction="batchmean")
    loss.backward()
    assert loss.item() == pytest.approx((0 + np.log(0.5) + 1.5) / 2)
    np.testing.assert_allclose(x.grad.numpy(), -target / 2)
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(gl.tensor(A), gl.tensor(Q))


def test_gaussian_and_poisson_in_full():
    tensors = gl.tensor(A), gl.tensor(B)
    for var in (2.0, POSITIVE[:, 0], POSITIVE[:, :1]):
        spread = np.broadcast_to(np.asarray(var)[:, None] if np.ndim(var) == 1 else var, A.shape)
        want = (np.log(2 * np.pi * spread) + (A - B) ** 2 / spread).mean() / 2
        assert F.gaussian_nll_loss(*tensors, var if np.ndim(var) == 0 else gl.tensor(var), full=True).item() == pytest.approx(want)
    rate = gl.tensor(POSITIVE)
    counts = np.array([0.0, 1, 2, 3, 7]) + np.zeros((4, 1))
    stirling = np.where(counts > 1, counts * np.log(np.maximum(counts, 1)) - counts + 0.5 * np.log(2 * np.pi * np.maximum(counts, 1)), 0)
    want = POSITIVE - counts * np.log(POSITIVE + 1e-8) + stirling
    np.testing.assert_allclose(F.poisson_nll_loss(rate, gl.tensor(counts), log_input=False, full=True).item(), want.mean())


def test_triplets():
    anchor, near, far = RNG.normal(size=(3, 4, 5))
    distances = [np.linalg.norm(a - b + 1e-6, axis=1) for a, b in ((anchor, near), (anchor, far), (near, far))]
    tensors = [gl.tensor(a) for a in (anchor, near, far)]
    want = np.maximum(0, distances[0] - distances[1] + 2)
    np.testing.assert_allclose(F.triplet_margin_loss(*tensors, margin=2.0, reduction="none").numpy(), want)
    want = np.maximum(0, distances[0] - np.minimum(distances[1], distances[2]) + 2)
    np.testing.assert_allclose(F.triplet_margin_loss(*tensors, margin=2.0, swap=True, reduction="none").numpy(), want)
    check_slopes(lambda *a: F.triplet_margin_loss(*a, margin=5.0), anchor, near, far)
    found = F.triplet_margin_with_distance_loss(*tensors, distance_function=lambda a, b: (a - b).abs().sum(1), margin=9.0)
    assert found.item() == pytest.approx(np.maximum(0, np.abs(anchor - near).sum(1) - np.abs(anchor - far).sum(1) + 9).mean())


def test_margins_of_classes():
    x, target = A, np.array([1, 0, 4, 2])
    for p in (1, 2):
        want = np.zeros(4)
        for n in range(4):
            for i in range(5):
                if i != target[n]:
                    want[n] += max(0, 1 - x[n, target[n]] + x[n, i]) ** p / 5
        found = F.multi_margin_loss(gl.tensor(x), gl.tensor(target), p=p, reduction="none")
        np.testing.assert_allclose(found.numpy(), want)
        check_slopes(lambda a, p=p: F.multi_margin_loss(a, gl.tensor(target), p=p), x)
    labels = np.array([[3, 0, -1, 1, 2], [-1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [2, -1, -1, -1, -1]])
    want = np.zeros(4)
    for n in range(4):
        listed = [*labels[n], -1][: [*labels[n], -1].index(-1)]
        for j in listed:
            want[n] += sum(max(0, 1 - x[n, j] + x[n, i]) for i in range(5) if i not in listed) / 5
    np.testing.assert_allclose(F.multilabel_margin_loss(gl.tensor(x), gl.tensor(labels), reduction="none").numpy(), want)
    truth = (SIGNS > 0).astype(float)
    want = (truth * softplus(-x) + (1 - truth) * softplus(x)).mean(1)
    np.testing.assert_allclose(F.multilabel_soft_margin_loss(gl.tensor(x), gl.tensor(truth), reduction="none").numpy(), want)


def test_cosine_embedding():
    cosine = (A * B).sum(1) / np.sqrt((A * A).sum(1) * (B * B).sum(1))
    target = np.array([1, -1, 1, -1])
    found = F.cosine_embedding_loss(gl.tensor(A), gl.tensor(B), gl.tensor(target), margin=-0.5, reduction="none")
    np.testing.assert_allclose(found.numpy(), np.where(target == 1, 1 - cosine, np.maximum(0, cosine + 0.5)))
    check_slopes(lambda a, b: F.cosine_embedding_loss(a, b, gl.tensor(target), margin=-0.5), A, B)
    assert F.cosine_embedding_loss(gl.tensor([[3, 0]]), gl.tensor([[0, 4]]), gl.tensor([1])).item() == 1.0


X3 = gl.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "error"),
    [(lambda: F.cross_entropy(X3, gl.tensor([0, 1, 4])), IndexError),
     (lambda: F.cross_entropy(X3, gl.tensor([0, -1, 1])), IndexError),
     (lambda: F.cross_entropy(X3, gl.tensor([0, 1])), RuntimeError),
     (lambda: F.cross_entropy(X3, gl.ones(3)), RuntimeError),
     (lambda: F.cross_entropy(X3, gl.tensor([0, 1, 2]), label_smoothing=1.5), RuntimeError),
     (lambda: F.cross_entropy(X3, gl.tensor([0, 1, 2]), weight=gl.ones(3)), RuntimeError),
     (lambda: F.nll_loss(X3[0], gl.tensor([0])), RuntimeError),
     (lambda: F.mse_loss(X3, gl.ones(3, 5)), RuntimeError),
     (lambda: F.mse_loss(X3, 1.0), TypeError),
     (lambda: F.binary_cross_entropy(X3 * 1.5, X3), RuntimeError),
     (lambda: F.binary_cross_entropy(X3, X3[0]), ValueError),
     (lambda: F.binary_cross_entropy_with_logits(X3, X3[0]), ValueError),
     (lambda: F.smooth_l1_loss(X3, X3, beta=-1), RuntimeError),
     (lambda: F.huber_loss(X3, X3, delta=0), RuntimeError),
     (lambda: F.gaussian_nll_loss(X3, X3, -X3), ValueError),
     (lambda: F.gaussian_nll_loss(X3, X3, gl.ones(5)), ValueError),
     (lambda: F.triplet_margin_loss(X3, X3, X3, margin=0), ValueError),
     (lambda: F.triplet_margin_loss(X3, X3, X3[0]), RuntimeError),
     (lambda: F.margin_ranking_loss(X3, X3, X3[0]), RuntimeError),
     (lambda: F.multi_margin_loss(X3, gl.tensor([0, 1, 2]), p=3), ValueError),
     (lambda: F.multi_margin_loss(X3, gl.tensor([0, 1, 9])), RuntimeError),
     (lambda: F.cosine_embedding_loss(X3, X3, gl.ones(3, 1)), RuntimeError),
     (lambda: F.mse_loss(X3, X3, reduction="batchmean"), ValueError)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:mse_loss")
def test_errors(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("compile", [False, True])
def test_classes_that_lie_side_by_side_are_rows(reduction, compile):
    """Logits (N, L, C), transposed to (N, C, L): the same numbers as of a copy whose classes lie apart."""
    gl.manual_seed(0)
    logits, target = gl.randn(3, 5, 7, requires_grad=True), gl.randint(0, 7, (3, 5))
    target[1, 2] = -100

    def both(copied):
        x = logits.transpose(1, 2)
        loss = F.cross_entropy(x.contiguous() if copied else x, target, reduction=reduction)
        return loss, gl.autograd.grad(loss.sum(), logits)[0]

    expected = both(True)
    found = (gl.compile(both) if compile else both)(False)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-7)


class TestAdaptive:
    def test_it_is_the_log_probability_of_the_target(self):
        gl.manual_seed(0)
        loss = gl.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2, head_bias=True)
        assert [tuple(p.shape) for p in loss.parameters()] == [(7, 8), (7,), (4, 8), (5, 4), (2, 8), (10, 2)]
        x = gl.randn(30, 8, requires_grad=True)
        target = gl.randint(0, 20, (30,))
        table = loss.log_prob(x)
        np.testing.assert_allclose(table.exp().sum(1).detach().numpy(), 1, rtol=1e-5)
        want = table.gather(1, target[:, None])[:, 0]
        (wanted,) = gl.autograd.grad(-want.mean(), x)
        for call in (loss, gl.compile(loss)):
            output, mean = call(x, target)
            np.testing.assert_allclose(output.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(gl.autograd.grad(mean, x)[0].numpy(), wanted.numpy(), rtol=1e-4, atol=1e-7)
        assert gl.equal(loss.predict(x), table.argmax(1))
        one = loss(x[3], target[3])
        assert one.output.shape == one.loss.shape == () and one.output.item() == pytest.approx(want[3].item(), rel=1e-5)
        assert loss(x[:2], gl.tensor([0, 1])).output.shape == (2,)  # nothing of the rare ones

    def test_what_is_refused(self):
        for cutoffs in ([], [0, 5], [5, 5], [9, 5], [5, 20], [2.5]):
            with pytest.raises(ValueError, match="cutoffs"):
                gl.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)
        loss = gl.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5])
        for target in (20, -1):
            with pytest.raises(RuntimeError, match="from 0 to 19"):
                loss(gl.ones(1, 8), gl.tensor([target]))
        for x, target in ((gl.ones(2, 8), gl.tensor([1])), (gl.ones(8), gl.tensor([1])), (gl.ones(1, 1, 8), gl.tensor([[1]]))):
            with pytest.raises(RuntimeError, match="expected an input"):
                loss(x, target)


def test_zero_times_infinity_is_nothing():
    """Where a target is 0, neither the value nor a gradient is NaN: a class that cannot be, a count of 0."""
    logits = gl.tensor([[0.0, -float("inf"), 0.0]], requires_grad=True)
    loss = F.cross_entropy(logits, gl.tensor([[0.5, 0.0, 0.5]]))
    loss.backward()
    assert loss.item() == pytest.approx(0.693147, abs=1e-6) and logits.grad.tolist() == [[0.0, 0.0, 0.0]]
    counts = gl.tensor([0.0, 1.0, 3.0], requires_grad=True)
    F.poisson_nll_loss(gl.zeros(3), counts, full=True, reduction="sum").backward()
    assert counts.grad.tolist() == pytest.approx([0.0, 0.0, np.log(3) + 1 / 6], abs=1e-6)
    shares = gl.tensor([0.0, 0.25, 0.75], requires_grad=True)
    F.kl_div(gl.zeros(3), shares, reduction="sum").backward()
    assert shares.grad.tolist() == pytest.approx([0.0, 1 + np.log(0.25), 1 + np.log(0.75)], abs=1e-6)


def test_the_mean_that_is_no_divergence_is_told_of_once_asked_for():
    for options, told in (({}, 1), ({"reduction": "batchmean"}, 0), ({"reduce": True}, 0), ({"reduction": "sum"}, 0)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            F.kl_div(gl.zeros(1, 2), gl.ones(1, 2), **options)
        assert sum("batchmean" in str(w.message) for w in found) == told
