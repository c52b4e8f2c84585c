"""gradlab.sklearn: scikit-learn's own checks, its pipelines and searches, and no less than its linear models reach."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import gradlab as gl

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from gradlab.sklearn import Classifier, Regressor

pytestmark = pytest.mark.filterwarnings("default")

BATCHES = "rows are drawn into batches by chance, so a row of weight two is not the row twice"
EXCEPTIONS = {f"check_sample_weight_equivalence_on_{kind}_data": BATCHES for kind in ("dense", "sparse")}
SHORT = {"epochs": 8, "random_state": 0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_scikit_learns_own_checks(kind):
    found = check_estimator(kind(epochs=20), expected_failed_checks=EXCEPTIONS, on_skip=None)
    failed = {each["check_name"] for each in found if each["status"] == "xfail"}
    assert failed == set(EXCEPTIONS) and sum(each["status"] == "passed" for each in found) >= 55


def folds(kind):
    return (StratifiedKFold if kind is Classifier else KFold)(5, shuffle=True, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "load", "linear"),
    [(Classifier, load_breast_cancer, LogisticRegression()), (Regressor, load_diabetes, Ridge())],
    ids=["breast cancer", "diabetes"],
)
def test_it_reaches_the_linear_model(kind, load, linear):
    X, y = load(return_X_y=True)
    found = cross_val_score(kind(random_state=0), X, y, cv=folds(kind)).mean()
    assert found >= cross_val_score(make_pipeline(StandardScaler(), linear), X, y, cv=folds(kind)).mean() - 0.005


def test_what_no_linear_model_learns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    model = Regressor(epochs=40, random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.7 > 0.3 > Ridge().fit(X[:300], y[:300]).score(X[300:], y[300:]) and not model.is_linear_
    rings = (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4).astype(int)
    assert Classifier(epochs=30, random_state=0).fit(X[:300], rings[:300]).score(X[300:], rings[300:]) > 0.85


def test_pipelines_searches_and_processes():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), Classifier(**SHORT))
    assert cross_val_score(pipeline, X, y, cv=3, n_jobs=2).min() > 0.8  # processes of joblib's
    search = GridSearchCV(pipeline, {"classifier__hidden": [(8,), (16, 8)], "classifier__learning_rate": [1e-3]}, cv=2).fit(X, y)
    assert search.best_estimator_[-1].n_iter_ <= 8 and search.best_score_ > 0.8
    found = clone(search.best_estimator_[-1])
    assert found.get_params()["random_state"] == 0 and not hasattr(found, "model_")
    assert "Classifier" in repr(search.best_estimator_)


@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_the_same_seed_gives_the_same_model_and_leaves_random_numbers_alone(kind):
    X, y = load_iris(return_X_y=True)
    before, others = gl.get_rng_state().tolist(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (kind(**SHORT).fit(X, y).predict(X) for _ in range(2))
    assert np.array_equal(first, second) and gl.get_rng_state().tolist() == before
    assert np.array_equal(np.random.get_state()[1], others)  # noqa: NPY002
    model = kind(epochs=3, random_state=np.random.RandomState(3)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))


def test_several_outputs_and_units():
    X, y = make_regression(120, 5, n_targets=3, random_state=0)
    model = Regressor(**SHORT).fit(X, 1000 * y + 5e6)
    assert model.predict(X).shape == (120, 3) and model.score(X, 1000 * y + 5e6) > 0.95
    assert Regressor(**SHORT).fit(X, y[:, :1]).predict(X).shape == (120, 1)
    assert Regressor(**SHORT).fit(X, y[:, 0]).predict(X).shape == (120,)


def test_sparse_input():
    sparse = pytest.importorskip("scipy.sparse")
    X, y = load_iris(return_X_y=True)
    model = Classifier(**SHORT).fit(sparse.csr_matrix(X), y)
    assert model.score(sparse.csr_matrix(X), y) > 0.8 and model.score(X, y) == model.score(sparse.coo_matrix(X), y)
    wide = sparse.random(60, 50_000, 1e-3, format="csr", random_state=0)
    assert Classifier(hidden=(4,), epochs=2).fit(wide, np.arange(60) % 2).predict(wide).shape == (60,)


def test_data_frames_with_words():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "green", "blue"], 200)
    frame = pandas.DataFrame({
        "size": np.where(rng.random(200) < 0.1, np.nan, rng.normal(size=200)), "colour": colour, "new": rng.random(200) < 0.5,
        "grade": pandas.Categorical(rng.choice([1, 2, 3], 200)),
    })  # fmt: skip
    y = np.where(colour == "red", "warm", "cold")
    model = Classifier(**SHORT).fit(frame, y)
    assert model.score(frame, y) > 0.95 and list(model.feature_names_in_) == list(frame.columns)
    assert list(model.classes_) == ["cold", "warm"] and model.predict_proba(frame[:3]).sum(1) == pytest.approx(1)
    strange = frame[:2].assign(colour=["violet", None])
    assert set(model.predict(strange)) <= {"cold", "warm"}
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"size": "length"}))
    own = Classifier(model=lambda features, outputs: gl.nn.Linear(features, outputs), **SHORT).fit(frame, y)
    assert own.model_.weight.shape[1] > 3 + 4 and own.score(frame, y) > 0.6
    numbers = Regressor(**SHORT).fit(frame[["size"]].fillna(0), rng.normal(size=200))
    assert numbers.n_features_in_ == 1


def test_weights_of_rows_and_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 1.2).astype(int)
    plain, balanced = (Classifier(class_weight=weight, **SHORT).fit(X, y) for weight in (None, "balanced"))
    assert balanced.predict(X).sum() > plain.predict(X).sum()
    assert Classifier(class_weight={0: 1, 1: 50}, **SHORT).fit(X, y).predict(X).sum() >= balanced.predict(X).sum() - 5
    wrong = np.where(np.arange(200) < 100, y, 1 - y)  # rows of weight 0 are as if they were not there
    half = Classifier(**SHORT).fit(X, wrong, sample_weight=np.arange(200) < 100)
    assert np.array_equal(half.predict_proba(X), Classifier(**SHORT).fit(X[:100], y[:100]).predict_proba(X))
    with pytest.raises(ValueError, match="two rows at least"):
        Regressor().fit(X, y, sample_weight=np.arange(200) == 3)


@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_partial_fit(kind):
    X, y = load_iris(return_X_y=True)
    model, order = kind(random_state=0), np.random.default_rng(0).permutation(150)
    for i in range(15):
        part = order[30 * (i % 5) : 30 * (i % 5) + 30]
        model.partial_fit(X[part], y[part], **({"classes": [0, 1, 2]} if kind is Classifier and i == 0 else {}))
    assert model.score(X, y) > 0.85
    if kind is Classifier:
        with pytest.raises(ValueError, match="classes must be passed"):
            Classifier().partial_fit(X, y)
        with pytest.raises(ValueError, match=r"y has classes \[7\]"):
            model.partial_fit(X, y + 7 * (y == 2) - 2 * (y == 2))


def test_models_of_ones_own_and_options():
    X, y = load_iris(return_X_y=True)

    def network(features, outputs):
        return gl.nn.Sequential(gl.nn.Linear(features, 16), gl.nn.Tanh(), gl.nn.Linear(16, outputs))

    assert Classifier(model=network, epochs=40, learning_rate=0.02, random_state=0).fit(X, y).score(X, y) > 0.9
    with pytest.raises(ValueError, match="the model gives 5 outputs for a row, and 3 are needed"):
        Classifier(model=lambda features, outputs: gl.nn.Linear(features, 5), **SHORT).fit(X, y)
    compiled, eager = (Classifier(compile=compile, dropout=0.0, **SHORT).fit(X, y).predict_proba(X) for compile in (True, False))
    assert np.allclose(compiled, eager, atol=1e-3)
    everything = Classifier(early_stop=None, **SHORT).fit(X, y)
    assert everything.n_iter_ == 8 and "validation_loss" not in everything.history_[0] and not hasattr(everything, "is_linear_")
    for options in ({"epochs": 0}, {"learning_rate": -1.0}, {"batch_size": 0}, {"validation_fraction": 1.5}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} is"):
            Classifier(**options).fit(X, y)
    with pytest.raises(ValueError, match="feature 0 of X has numbers whose squares overflow"), np.errstate(all="ignore"):
        Regressor().fit(X * 1e200, y)
    with pytest.raises(ValueError, match="only one class"):
        Classifier().fit(X, np.zeros(150))


def test_verbose_says_each_epoch(capsys):
    X, y = load_iris(return_X_y=True)
    Classifier(verbose=True, **SHORT).fit(X, y)
    assert "validation loss" in capsys.readouterr().out
    Classifier(**SHORT).fit(X, y)
    assert capsys.readouterr().out == ""
