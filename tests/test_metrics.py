"""gradlab.metrics: numbers worked out by hand, scikit-learn's where it is installed, and the same in any batches and merged."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import metrics as m

RNG = np.random.default_rng(0)
TRUE = RNG.integers(0, 4, 97)
SCORES = RNG.normal(size=(97, 4)) + np.eye(4)[TRUE]
CHANCES = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
BINARY, SURE = (TRUE > 1).astype(int), np.round(1 / (1 + np.exp(-SCORES[:, 3])), 1)  # rounded: there are ties
FOUND, WANTED = RNG.normal(size=(97, 3)), RNG.normal(size=(97, 3)) + 1000
TEXTS = ["the cat sat on the mat", "a dog barks at me", "there is a cat on the mat today", "he said so often"]
REFERENCES = [["the cat sat on a mat", "a cat sat on the mat"], ["a dog barks"], ["there is a cat on the mat"], ["so he said it"]]



def classes(scores):
    return scores > 0.5 if scores.ndim == 1 else scores.argmax(1)


# Of every metric: how to make it, what it is fed with, and scikit-learn's function of the same.
CASES = {
    "accuracy": (lambda: m.Accuracy(), SCORES, TRUE, lambda s: s.accuracy_score(TRUE, SCORES.argmax(1))),
    "accuracy top 2": (lambda: m.Accuracy(top_k=2), SCORES, TRUE, lambda s: s.top_k_accuracy_score(TRUE, SCORES, k=2)),
    "accuracy balanced": (lambda: m.Accuracy(average="macro"), SCORES, TRUE, lambda s: s.balanced_accuracy_score(TRUE, SCORES.argmax(1))),
    "accuracy binary": (lambda: m.Accuracy(threshold=0.65), SURE, BINARY, lambda s: s.accuracy_score(BINARY, SURE > 0.65)),
    "auc": (lambda: m.ROCAUC(), SURE, BINARY, lambda s: s.roc_auc_score(BINARY, SURE)),
    "auc of classes": (lambda: m.ROCAUC(), CHANCES, TRUE, lambda s: s.roc_auc_score(TRUE, CHANCES, multi_class="ovr")),
    "auc weighted": (
        lambda: m.ROCAUC("weighted"), CHANCES, TRUE, lambda s: s.roc_auc_score(TRUE, CHANCES, multi_class="ovr", average="weighted")),
    "average precision": (lambda: m.AveragePrecision(), SURE, BINARY, lambda s: s.average_precision_score(BINARY, SURE)),
    "average precision of classes": (
        lambda: m.AveragePrecision(None), CHANCES, TRUE, lambda s: s.average_precision_score(np.eye(4)[TRUE], CHANCES, average=None)),
    "log loss": (lambda: m.LogLoss(), CHANCES, TRUE, lambda s: s.log_loss(TRUE, CHANCES)),
    "log loss binary": (lambda: m.LogLoss(), SURE.clip(0.1, 0.9), BINARY, lambda s: s.log_loss(BINARY, SURE.clip(0.1, 0.9))),
    "mae": (lambda: m.MeanAbsoluteError(), FOUND, WANTED, lambda s: s.mean_absolute_error(WANTED, FOUND)),
    "mase": (
        lambda: m.MeanAbsoluteScaledError.of(WANTED[::-1], 2), FOUND, WANTED,
        lambda s: np.mean(s.mean_absolute_error(WANTED, FOUND, multioutput="raw_values")
                          / s.mean_absolute_error(WANTED[:-2], WANTED[2:], multioutput="raw_values"))),
    "mse": (lambda: m.MeanSquaredError(), FOUND, WANTED, lambda s: s.mean_squared_error(WANTED, FOUND)),
    "rmse": (lambda: m.RootMeanSquaredError(), FOUND, WANTED, lambda s: s.root_mean_squared_error(WANTED, FOUND)),
    "r2": (lambda: m.R2Score(), FOUND, WANTED, lambda s: s.r2_score(WANTED, FOUND)),
    "r2 good": (lambda: m.R2Score(), WANTED[:, 0] + FOUND[:, 0] / 9, WANTED[:, 0],
                lambda s: s.r2_score(WANTED[:, 0], WANTED[:, 0] + FOUND[:, 0] / 9)),
    "perplexity": (lambda: m.Perplexity(), SCORES, TRUE, lambda s: math.exp(s.log_loss(TRUE, CHANCES))),
    "bits": (lambda: m.BitsPerCharacter([2] * 4), SCORES, TRUE, lambda s: s.log_loss(TRUE, CHANCES) / (2 * math.log(2))),
    "bleu": (lambda: m.BLEU(), TEXTS, REFERENCES, None),
    "bleu smooth": (lambda: m.BLEU(3, smooth=True), TEXTS, REFERENCES, None),
    "calibration": (lambda: m.CalibrationError(bins=10), CHANCES, TRUE, None),
    "calibration root": (lambda: m.CalibrationError(bins=7, norm="l2"), SURE, BINARY, None),
    "calibration largest": (lambda: m.CalibrationError(norm="max"), CHANCES, TRUE, None),
}  # fmt: skip
for _normal in (None, "true", "pred", "all"):
    CASES[f"confusions {_normal}"] = (
        lambda n=_normal: m.ConfusionMatrix(normalize=n), SCORES, TRUE,
        lambda s, n=_normal: s.confusion_matrix(TRUE, SCORES.argmax(1), normalize=n))  # fmt: skip
for _average in ("micro", "macro", "weighted", None, "binary"):
    _x, _t = (SURE, BINARY) if _average == "binary" else (SCORES, TRUE)
    for _name, _function in {"Precision": "precision_score", "Recall": "recall_score", "F1": "f1_score"}.items():
        CASES[f"{_name} {_average}"] = (
            lambda n=_name, a=_average: getattr(m, n)(a), _x, _t,
            lambda s, f=_function, a=_average, x=_x, t=_t: getattr(s, f)(t, classes(x), average=a))  # fmt: skip
    CASES[f"F2 {_average}"] = (
        lambda a=_average: m.FBeta(2.0, a), _x, _t,
        lambda s, a=_average, x=_x, t=_t: s.fbeta_score(t, classes(x), beta=2.0, average=a))  # fmt: skip


def test_every_metric_is_tried():
    tried = {type(make()).__name__ for make, *_ in CASES.values()}
    assert tried == set(m.__all__) - {"Metric", "MetricCollection"}


def whole(name):
    make, prediction, target, _ = CASES[name]
    return make().update(prediction, target).compute()


@pytest.mark.parametrize("name", CASES)
def test_is_scikit_learns(name):
    theirs = CASES[name][3]
    if theirs is None:
        pytest.skip("scikit-learn has none: worked out by hand below")
    np.testing.assert_allclose(whole(name), theirs(pytest.importorskip("sklearn.metrics")), rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_batches_merging_tensors_and_calls_agree(name):
    make, prediction, target, _ = CASES[name]
    size = len(target)
    cuts = [(0, size // 4), (size // 4, size // 4 + 1), (size // 4 + 1, size)]
    as_tensor = (lambda v: v) if isinstance(prediction, list) else gl.tensor
    fed, left, right = make(), make(), make()
    for start, end in cuts:
        value = fed(as_tensor(prediction[start:end]), as_tensor(target[start:end])) if "auc" not in name and end - start > 1 and \
            not name.startswith("r2") else fed.update(as_tensor(prediction[start:end]), as_tensor(target[start:end]))  # fmt: skip
        assert value is not None
        (left if start == 0 else right).update(prediction[start:end], target[start:end])
    np.testing.assert_allclose(fed.compute(), whole(name), rtol=1e-9)
    assert left.merge(right) is left
    np.testing.assert_allclose(left.compute(), whole(name), rtol=1e-9)
    np.testing.assert_allclose(make().merge(left).compute(), whole(name), rtol=1e-9)
    left.reset()
    with pytest.raises(ValueError, match="no batch was counted"):
        left.compute()
    with pytest.raises(TypeError, match="merge: expected another"):
        left.merge(m.MetricCollection())


def test_by_hand():
    assert m.Accuracy()(gl.tensor([[2.0, 1.0], [0.0, 1.0]]), gl.tensor([0, 0])) == 0.5
    assert m.Accuracy(top_k=2)(np.array([[3.0, 2.0, 1.0]] * 2), np.array([1, 2])) == 0.5
    assert m.Accuracy(average="macro")(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0])) == 0.75
    assert m.F1("binary")(np.array([1, 1, 0]), np.array([1, 0, 0])) == pytest.approx(2 / 3)
    assert m.ConfusionMatrix(3)(np.array([0, 1]), np.array([0, 0])).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert m.ROCAUC()(np.array([0.5, 0.5]), np.array([0, 1])) == 0.5
    assert m.AveragePrecision()(np.array([0.9, 0.8, 0.7]), np.array([1, 0, 1])) == pytest.approx((1 + 2 / 3) / 2)
    assert m.CalibrationError(bins=1)(np.array([[0.9, 0.1]] * 4), np.array([0, 0, 1, 1])) == pytest.approx(0.4)
    assert m.CalibrationError(bins=2, norm="l2")(np.array([0.75, 1.0]), np.array([1, 0])) == pytest.approx(0.375)
    assert m.R2Score()(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) == 1.0
    assert m.R2Score()(np.array([1.0, 2.0]), np.array([5.0, 5.0])) == 0.0
    assert m.MeanAbsoluteError()(np.array([[1.0, 2.0]]), np.array([[2.0, 4.0]])) == 1.5
    for dtype in (np.float32, np.float64):  # scikit-learn's least probability
        assert m.LogLoss()(np.array([1.0], dtype), np.array([0])) == pytest.approx(-math.log(np.finfo(dtype).eps))
    assert m.LogLoss(eps=0.1)(np.array([1.0]), np.array([0])) == pytest.approx(-math.log(0.1))
    uneven = m.Perplexity(ignore_index=0)(gl.tensor([[[0.0, 0.0], [0.0, math.log(3.0)]]]), gl.tensor([[0, 1]]))
    assert uneven == pytest.approx(4 / 3)
    assert m.Perplexity()(np.array([[0.0, 1e6]]), np.array([0])) == math.inf
    assert m.BLEU()(["a b c d"], [["a b c d"]]) == 1.0
    assert m.BLEU(1)(["the the the"], ["the cat"]) == pytest.approx(1 / 3)
    assert m.BLEU(2)(["a b"], [["a b c d"]]) == pytest.approx(math.exp(-1))  # half as long as its reference
    assert m.BLEU()(["a b"], [["c d"]]) == 0.0
    assert m.BLEU(2)([[1, 2, 3]], [[[1, 2, 3]]]) == 1.0  # tokens of any kind


def test_bleu_is_nltks():
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    theirs = bleu.corpus_bleu([[r.split() for r in rs] for rs in REFERENCES], [t.split() for t in TEXTS])
    assert whole("bleu") == pytest.approx(theirs)


def test_half_types_and_devices():
    scores = gl.tensor(SCORES, dtype=gl.bfloat16, requires_grad=True)
    assert m.Accuracy()(scores, gl.tensor(TRUE)) == m.Accuracy()(scores.detach().float().numpy(), TRUE)
    assert m.Accuracy()(gl.tensor([True, False]), gl.tensor([1.0, 1.0])) == 0.5


def test_a_collection():
    both = m.MetricCollection({"accuracy": m.Accuracy()}, confusions=m.ConfusionMatrix())
    alone = both(np.array([0, 1]), np.array([0, 0]))
    assert alone["accuracy"] == 0.5
    both.update(np.array([1, 1]), np.array([1, 1]))
    assert both.compute()["accuracy"] == 0.75 and both["confusions"].compute().tolist() == [[1, 1], [0, 2]]
    other = m.MetricCollection({"accuracy": m.Accuracy()}, confusions=m.ConfusionMatrix())
    assert other.merge(both).compute()["accuracy"] == 0.75
    both.reset()
    with pytest.raises(ValueError, match="no batch"):
        both.compute()
    with pytest.raises(TypeError, match="is a int, not a Metric"):
        m.MetricCollection(a=1)


def test_a_metric_of_ones_own():
    class Largest(m.Metric):
        def reset(self):
            self.value = -math.inf

        def update(self, prediction, target):
            self.value = max(self.value, float(abs(prediction - target).max()))
            return self

        def compute(self):
            return self.value

    largest = Largest()
    largest.reset()
    assert [largest(gl.tensor([3.0]), gl.tensor([1.0])), largest(gl.tensor([1.0]), gl.tensor([1.0]))] == [2.0, 0.0]
    assert largest.compute() == 2.0
    with pytest.raises(NotImplementedError, match="cannot be merged"):
        largest.merge(Largest())


@pytest.mark.parametrize(
    ("metric", "prediction", "target", "message"),
    [
        (m.Accuracy(), np.zeros((3, 2)), np.zeros(4, int), r"scores of shape \(3, 2\).*targets of shape \(4,\)"),
        (m.Accuracy(), np.zeros(3, int), np.zeros(4, int), r"shape \(3,\) do not fit targets of shape \(4,\)"),
        (m.Accuracy(), np.array([0, 1]), np.array([0.5, 1.0]), "whole numbers; got 0.5"),
        (m.Accuracy(), np.array([0, 1]), np.array([0, -100]), "counted from 0; got -100"),
        (m.Accuracy(), np.array([0.0, 1.0, 2.0]), np.array([0, 1, 2]), "a target is 2, where predictions are one score for each element"),
        (m.Recall(), np.array([[0.1], [2.0]]), np.array([0, 2]), "a target is 2, where predictions are one score for each element"),
        (m.Accuracy(), np.array([np.nan, 1.0]), np.array([0, 1]), r"value at \(0,\) is NaN"),
        (m.Accuracy(top_k=3), np.zeros((1, 2)), np.zeros(1, int), "top_k=3 of 2 classes"),
        (m.ConfusionMatrix(), np.array([0, 123456]), np.array([0, 1]), "class 123456 is beyond"),
        (m.F1("binary"), np.array([0, 2]), np.array([0, 1]), 'average="binary" of 3 classes'),
        (m.ROCAUC(), np.array([0.5, 0.5]), np.array([1, 1]), "all targets are of one class"),
        (m.ROCAUC(), np.zeros((2, 3)), np.array([0, 3]), "a target is 3, where there are classes 0 to 2"),
        (m.LogLoss(), np.array([[2.0, 1.0]]), np.array([0]), "needs probabilities"),
        (m.R2Score(), np.array([1.0]), np.array([1.0]), "one target has no variance"),
        (m.MeanAbsoluteError(), np.zeros((3, 1)), np.zeros(3), r"\(3, 1\) do not fit targets of shape \(3,\)"),
        (m.Perplexity(), np.zeros((2, 3)), np.array([0, 3]), "a target is 3, where the vocabulary is of 3"),
        (m.Perplexity(), np.zeros((2, 3)), np.array([0, 0.5]), "whole numbers; got 0.5"),
        (m.BLEU(), "a b", "a b", "needs a list of translations"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(metric, prediction, target, message):
    with pytest.raises(ValueError, match=message):
        metric.update(prediction, target).compute()


@pytest.mark.parametrize("make", [
    lambda: m.F1("mean"), lambda: m.Accuracy(average="weighted"), lambda: m.Accuracy(top_k=0), lambda: m.ROCAUC("micro"),
    lambda: m.CalibrationError(norm="l3"), lambda: m.CalibrationError(bins=0), lambda: m.BLEU(0),
    lambda: m.ConfusionMatrix(normalize="rows"), lambda: m.ConfusionMatrix(-1), lambda: m.FBeta(-1.0), lambda: m.FBeta(math.nan),
])  # fmt: skip
def test_settings_are_checked(make):
    with pytest.raises(ValueError, match="not"):
        make()


def test_every_metric_says_which_way_is_better():
    for name in m.__all__:
        cls = getattr(m, name)
        if cls not in (m.Metric, m.MetricCollection, m.ConfusionMatrix):
            assert cls.higher_is_better in (True, False), name
        assert inspect.getdoc(cls)


@pytest.mark.parametrize("metric", [m.Accuracy(), m.Accuracy(top_k=2), m.Accuracy(average="macro"), m.F1(), m.ConfusionMatrix()])
@pytest.mark.parametrize(("target", "message"), [
    ([0, 9], "a target is 9, where scores are of classes 0 to 2"), ([0, -1], "a target is -1"), ([0.5, 1.0], "whole numbers; got 0.5"),
])  # fmt: skip
def test_targets_are_of_the_scores_classes(metric, target, message):
    with pytest.raises(ValueError, match=message):
        metric.update(gl.tensor([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]]), gl.tensor(target))


@pytest.mark.parametrize("dtype", [gl.uint8, gl.int8, gl.int64, gl.float16, gl.float64])
def test_the_largest_scores_of_any_type(dtype):
    scores = gl.tensor([[1, 5, 3], [0, 2, 9]], dtype=dtype)
    assert m.Accuracy(top_k=2)(scores, gl.tensor([1, 0])) == 0.5 == m.Accuracy(top_k=2)(scores, gl.tensor([0, 1]))


def test_scores_in_one_column_and_batches_of_nothing():
    scores, true = gl.tensor([0.1, 0.4, 0.35, 0.8]), gl.tensor([0, 0, 1, 1])
    for metric in (m.ROCAUC, m.AveragePrecision, m.LogLoss, m.CalibrationError):
        assert metric()(scores[:, None], true) == metric()(scores, true) == metric()(scores[:, None], true[:, None])
        with pytest.raises(ValueError, match="no batch was counted"):
            metric()(scores[:0], true[:0])
        both = metric().update(scores[:0], true[:0])
        assert both.update(scores, true).compute() == metric()(scores, true)
    for classes in (m.Accuracy, m.F1, m.Precision, m.Recall):
        assert classes()(scores[:, None], true) == classes()(scores, true) == classes()(scores[:, None], true[:, None])


@pytest.mark.parametrize("infinity", [math.inf, -math.inf])
def test_infinite_scores_are_equal(infinity):
    """-inf is what a masked score is; many of them are one threshold."""
    true, finite = np.array([0, 1, 1, 0, 1, 0]), np.array([5.0, 5.0, 5.0, 0.2, 0.1, 0.7]) * math.copysign(1.0, infinity)
    scores = np.where(abs(finite) == 5, infinity, finite)
    for metric in (m.ROCAUC(), m.AveragePrecision()):
        assert metric(scores, true) == metric(finite, true)


def test_what_settings_mean():
    found, true = np.array([0, 1, 1, 2, 2, 0]), np.array([0, 1, 2, 2, 1, 1])
    assert m.FBeta(math.inf)(found, true) == m.Recall()(found, true)
    with pytest.raises(ValueError, match="'micro' and 'macro' do not add up"):
        m.Accuracy().merge(m.Accuracy(average="macro"))
    for given in ([m.Accuracy()], m.Accuracy(), m.Accuracy):
        with pytest.raises(TypeError, match="metrics have names"):
            m.MetricCollection(given)
    with pytest.raises(TypeError, match="accuracy is the class Accuracy itself, not a Metric"):
        m.MetricCollection(accuracy=m.Accuracy)
