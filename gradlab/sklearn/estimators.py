"""`Classifier` and `Regressor`: a network for tables as an estimator of scikit-learn, for its pipelines, searches and comparisons."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_random_state, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, column_or_1d, validate_data

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.models.table import TableModel
from gradlab.runs.training import Measured
from gradlab.sklearn.rows import PREDICTED_AT_ONCE, Batches, Numbers, Words, has_words, one_hot
from gradlab.train import Bar, BestWeights, EarlyStop, fit, predict

FEW = 8  # rows held out, below which they say too little to stop by


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both share: the parameters, from X to a model's inputs, and the training."""

    def __init__(
        self, hidden: Sequence[int] = (64, 32), *, epochs: int = 60, batch_size: int | None = None, learning_rate: float = 3e-3,
        weight_decay: float = 0.01, dropout: float | None = None, early_stop: int | None = 10, validation_fraction: float = 0.1,
        model: Callable[[int, int], nn.Module] | None = None, device: Any = "cpu", compile: bool = False, random_state: Any = None,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        self.hidden, self.epochs, self.batch_size, self.learning_rate = hidden, epochs, batch_size, learning_rate
        self.weight_decay, self.dropout, self.early_stop = weight_decay, dropout, early_stop
        self.validation_fraction, self.model = validation_fraction, model
        self.device, self.compile, self.random_state, self.verbose = device, compile, random_state, verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ------------------------------------------------------------ what each of the two says in its own way

    def _targets(self, y: Any, first: bool) -> Any:
        """What the loss takes: int64 [rows], or float32 [rows, outputs]."""
        raise NotImplementedError

    def _loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss of each row."""
        raise NotImplementedError

    def _linear(self, X: Any, target: Any, weights: Any) -> tuple[Any, Any]:
        """Factors [outputs, features] and summands [outputs] of the linear model that the network begins as."""
        raise NotImplementedError

    # ------------------------------------------------------------ reading

    def _checked(self, X: Any, first: bool, **options: Any) -> Any:
        if has_words(X) if first else isinstance(self.inputs_, Words):
            validate_data(self, X, skip_check_array=True, reset=first)
            return X
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=first, ensure_min_samples=2 if first else 1, **options)

    def _inputs(self, X: Any) -> tuple[Any, ...]:
        """The model's inputs: numbers and categories for the model of tables, and numbers alone for one of the user's own."""
        numbers, categories = self.inputs_.coded(X)
        return (numbers, categories) if self.model is None else (one_hot(numbers, categories, self.inputs_.sizes),)

    def _begin(self, X: Any, target: Any, weights: Any) -> None:
        """Statistics of the inputs, a model and its optimizer."""
        for name, least in (("epochs", 1), ("learning_rate", 0), ("weight_decay", 0), ("batch_size", 1), ("early_stop", 1)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{type(self).__name__}: {name} is at least {least}, not {value!r}")
        self.inputs_: Any = (Words if has_words(X) else Numbers)(X, weights)
        features, sizes = self.inputs_.features, self.inputs_.sizes
        if self.model is None:
            self.model_: nn.Module = TableModel(features, sizes, self.outputs_, tuple(self.hidden), self._dropout(len(target)))
            self._begin_as_linear(X, target, weights)
        else:
            self.model_ = self.model(features + sum(sizes), self.outputs_)
        self.model_ = self.model_.to(self.device)
        self.optimizer_ = gl.optim.AdamW(self.model_.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)

    def _dropout(self, rows: int) -> float:
        return (0.3 if rows < 500 else 0.1) if self.dropout is None else self.dropout

    def _begin_as_linear(self, X: Any, target: Any, weights: Any) -> None:
        numbers, categories = self.inputs_.coded(X)
        design = one_hot(numbers, categories, self.inputs_.sizes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where the network begins, not where it ends
            factors, summands = self._linear(design, target, weights)
        parts = np.split(factors.astype(np.float32), np.cumsum((self.inputs_.features, *self.inputs_.sizes[:-1])), axis=1)
        model: Any = self.model_
        with gl.no_grad():
            model.wide.weight.copy_(gl.from_numpy(np.ascontiguousarray(parts[0])))
            model.wide.bias.copy_(gl.from_numpy(np.ascontiguousarray(summands.astype(np.float32))))
            for shift, part in zip(model.shifts, parts[1:], strict=False):
                shift.weight.copy_(gl.from_numpy(np.ascontiguousarray(part.T)))

    # ------------------------------------------------------------ training

    def _train(self, X: Any, target: Any, weights: Any, epochs: int, validated: bool, first: bool) -> None:
        """`epochs` passes; validated: some rows are held out, and the weights that were best on them stay."""
        if first:
            self._seed = int(check_random_state(self.random_state).randint(1 << 31))
        with gl.random.fork_rng():
            gl.manual_seed(self._seed)
            self._seed = (self._seed + 1) % (1 << 31)
            if first:
                self._begin(X, target, weights)
            rows = X.shape[0] if hasattr(X, "shape") else len(X)
            parts = (*self._inputs(X), target, (weights / weights.mean()).astype(np.float32))
            training, held_out = self._split(rows, target) if validated else (np.arange(rows), None)
            size = self.batch_size or int(min(256, max(16, 2 ** round(math.log2(max(len(training) / 20, 1))))))
            loader = Batches(tuple(part[training] for part in parts), size, gl.Generator().manual_seed(self._seed))
            validation = None if held_out is None else Batches(tuple(part[held_out] for part in parts), PREDICTED_AT_ONCE)
            callbacks: list[Any] = [Bar()] if self.verbose else []
            if validation is not None:
                callbacks += [Measured(), BestWeights(), EarlyStop(self.early_stop or epochs)]
                linear, at_first = copy.deepcopy(self.model_.state_dict()), self._losses(validation)
            schedule = gl.optim.lr_scheduler.CosineAnnealingLR(self.optimizer_, epochs) if epochs > 1 else None
            run = fit(self.model_, loader, None, self.optimizer_, epochs=epochs, validation=validation, scheduler=schedule, step=self._step,
                      clip=1.0, compile=self.compile, device=self.device, callbacks=callbacks)  # fmt: skip
            if validation is not None and self.model is None:
                gain = at_first - self._losses(validation)
                self.is_linear_ = bool(gain.mean() <= 2 * gain.std() / math.sqrt(len(gain)))
                if self.is_linear_:  # a gain that chance explains is no reason for a larger model
                    self.model_.load_state_dict(linear)
        self.model_.eval()
        self.n_iter_ = run.epoch
        self.history_ = run.history

    def _step(self, model: nn.Module, batch: Any) -> Any:
        *inputs, target, weights = batch
        outputs = model(*inputs)
        outputs = outputs.reshape(len(weights), -1)
        if outputs.shape[1] != self.outputs_:
            raise ValueError(f"{type(self).__name__}: the model gives {outputs.shape[1]} outputs for a row, and {self.outputs_} are needed")
        return (self._loss(outputs, target) * weights).mean()

    def _losses(self, batches: Batches) -> Any:
        """The loss of each row, float64."""
        outputs = predict(self.model_, (batch[:-2] for batch in batches), self.device, targets=False).reshape(batches.rows, -1)
        return self._loss(outputs, gl.from_numpy(batches.parts[-2])).numpy().astype(np.float64) * batches.parts[-1]

    def _split(self, rows: int, target: Any) -> tuple[Any, Any]:
        """Rows to train on and rows held out, with each class in both; none held out where they would be too few."""
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"{type(self).__name__}: validation_fraction is between 0 and 1, not {self.validation_fraction!r}")
        count = round(self.validation_fraction * rows)
        classes = target if target.ndim == 1 else None
        few = count < FEW or (classes is not None and (count < self.outputs_ or np.bincount(classes).min() < 2))
        if self.early_stop is None or few:
            return np.arange(rows), None
        training, held_out = train_test_split(np.arange(rows), test_size=count, random_state=self._seed, stratify=classes)
        return training, held_out

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, partial: bool = False, first: bool = True) -> Any:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X = self._checked(X, first)
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        target = self._targets(y, first)
        if len(target) != rows:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: X has {rows} rows, y {len(target)}")
        weights = _check_sample_weight(sample_weight, X if hasattr(X, "shape") else target, dtype=np.float64, ensure_non_negative=True)
        weights = weights * self._class_weights(target)
        if not weights.all():
            chosen = np.flatnonzero(weights)
            if len(chosen) < 2:
                raise ValueError(f"{type(self).__name__}: two rows at least have a weight above 0, not {len(chosen)}")
            X, target, weights = _safe_indexing(X, chosen), target[chosen], weights[chosen]
        self._train(X, target, weights, 1 if partial else self.epochs, not partial, first)
        return self

    def _class_weights(self, target: Any) -> Any:
        return 1.0

    def _outputs(self, X: Any) -> Any:
        """The model's outputs, float64 [rows, outputs]."""
        check_is_fitted(self, "model_")
        inputs, model = self._inputs(self._checked(X, False)), self.model_
        if self.model is None:  # in double precision a row's result does not depend on the rows beside it
            inputs, model = (inputs[0].astype(np.float64), *inputs[1:]), copy.deepcopy(model).double()
        batches = Batches(inputs, PREDICTED_AT_ONCE)
        found = predict(model, batches, self.device, targets=False)
        return found.reshape(batches.rows, -1).numpy().astype(np.float64)


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A network that tells classes apart, as an estimator of scikit-learn.

    X: numbers [rows, features], a sparse matrix, or a data frame, whose text, categories, dates and missing cells are coded as those of
    `gradlab train table`. Features are scaled here. y: classes of any kind.

    hidden, dropout: the widths of `gradlab.models.TableModel`'s layers and the share of them left out (None: by the number of rows). It
    begins as the fitted logistic regression, and stays it (`is_linear_`) where what it learned is no better than that on the rows held out
    by more than two standard errors. model: a function of the numbers of features and of outputs that gives a module of one's own
    instead, from float32 [rows, features] (categories as one column for each word) to [rows, outputs]. epochs, batch_size (None: by the
    number of rows), learning_rate, weight_decay (of AdamW), device, compile: as in `gradlab.train.fit`. early_stop: the share
    `validation_fraction` of the rows is held out, training ends after so many epochs without a better loss on them, and the best epoch's
    weights stay; None: no rows are held out. class_weight: a dict, or "balanced". random_state: decides everything that is drawn;
    gradlab's own random numbers are left as they were. verbose: a bar, and a line for each epoch.

    After `fit`: `classes_`, `model_`, `history_`, `n_iter_` (epochs), `n_features_in_`.

        from sklearn.model_selection import cross_val_score
        cross_val_score(gradlab.sklearn.Classifier(random_state=0), X, y)
    """

    def __init__(
        self, hidden: Sequence[int] = (64, 32), *, epochs: int = 60, batch_size: int | None = None, learning_rate: float = 3e-3,
        weight_decay: float = 0.01, dropout: float | None = None, early_stop: int | None = 10, validation_fraction: float = 0.1,
        class_weight: Any = None, model: Callable[[int, int], nn.Module] | None = None, device: Any = "cpu", compile: bool = False,
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            hidden, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay, dropout=dropout,
            early_stop=early_stop, validation_fraction=validation_fraction, model=model, device=device, compile=compile,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Classifier:
        """Learn from rows. sample_weight: [rows], how much each counts in the loss; rows of weight 0 are left out."""
        found: Classifier = self._fit(X, y, sample_weight)
        return found

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Classifier:
        """One pass over more rows. classes: all that will ever come, at the first call. Features are scaled as at that call."""
        first = not hasattr(self, "model_")
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"partial_fit: classes={classes!r} are not those of the first call, {self.classes_!r}")
        self._partial = True
        try:
            found: Classifier = self._fit(X, y, sample_weight, partial=True, first=first)
        finally:
            del self._partial
        return found

    def _targets(self, y: Any, first: bool) -> Any:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if hasattr(self, "_partial"):
            if unknown := set(np.unique(y).tolist()) - set(self.classes_.tolist()):
                raise ValueError(f"partial_fit: y has classes {sorted(unknown)}, which are none of {self.classes_.tolist()}")
            places = np.searchsorted(self.classes_, y)
        else:
            self.classes_, places = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: y is {self.classes_.tolist()[0]!r} everywhere")
        self.outputs_ = len(self.classes_)
        return places.astype(np.int64)

    def _class_weights(self, target: Any) -> Any:
        if self.class_weight is None:
            return 1.0
        return compute_sample_weight(self.class_weight, self.classes_[target])

    def _loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, target, reduction="none")

    def _linear(self, X: Any, target: Any, weights: Any) -> tuple[Any, Any]:
        there = np.unique(target)
        factors, summands = np.zeros((self.outputs_, X.shape[1])), np.zeros(self.outputs_)
        if len(there) > 1:
            found = LogisticRegression(max_iter=200).fit(X, target, weights)
            pair = len(found.classes_) == 2
            factors[found.classes_] = np.concatenate([-found.coef_, found.coef_]) / 2 if pair else found.coef_
            summands[found.classes_] = np.concatenate([-found.intercept_, found.intercept_]) / 2 if pair else found.intercept_
        return factors, summands

    def predict_proba(self, X: Any) -> Any:
        """Probabilities, float64 [rows, classes], in the order of `classes_`."""
        scores = self._outputs(X)
        found = np.exp(scores - scores.max(axis=1, keepdims=True))
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        scores = self._outputs(X)
        return self.classes_[scores.argmax(axis=1)]


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A network that predicts one number for a row or several, as an estimator of scikit-learn; see `Classifier` for the parameters.

    y: [rows] or [rows, outputs], scaled here and given back in its own unit; the loss is the mean squared error. The model begins as the
    fitted ridge regression.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Regressor:
        """Learn from rows. sample_weight: [rows], how much each counts in the loss."""
        found: Regressor = self._fit(X, y, sample_weight)
        return found

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Regressor:
        """One pass over more rows. Features and targets are scaled as at the first call."""
        found: Regressor = self._fit(X, y, sample_weight, partial=True, first=not hasattr(self, "model_"))
        return found

    def _targets(self, y: Any, first: bool) -> Any:
        y = check_array(y, ensure_2d=False, allow_nd=False, dtype=np.float64, input_name="y", estimator=self)
        if first:
            self._flat = y.ndim == 1
            self.outputs_ = 1 if self._flat else y.shape[1]
            self.mean_, deviation = y.mean(axis=0), y.std(axis=0)
            self.deviation_ = np.where(deviation > 0, deviation, 1.0)
        elif (1 if y.ndim == 1 else y.shape[1]) != self.outputs_:
            raise ValueError(f"partial_fit: y has shape {y.shape}, and {self.outputs_} numbers for a row were learned")
        return ((y - self.mean_) / self.deviation_).reshape(len(y), -1).astype(np.float32)

    def _loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return (outputs - target).square().mean(1)

    def _linear(self, X: Any, target: Any, weights: Any) -> tuple[Any, Any]:
        found = Ridge().fit(X.astype(np.float64) if sparse.issparse(X) else X, target, weights)
        return found.coef_.reshape(self.outputs_, -1), np.reshape(found.intercept_, -1)

    def predict(self, X: Any) -> Any:
        """The numbers, float64 [rows] or [rows, outputs], as y was."""
        found = self._outputs(X)
        found = found[:, 0] if self._flat else found
        return found * self.deviation_ + self.mean_
