"""The task of a table: its model, loss and metrics, what simpler models reach, and predictions in the table's own words and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import gradlab as gl
from gradlab import Tensor, metrics, nn
from gradlab.data.tables import Table, TableCoding, TableDataset, TableError, TargetCoding, read_with_columns
from gradlab.models.table import TableModel
from gradlab.runs import html
from gradlab.runs.classes import class_weights, commonest, fit_at_once
from gradlab.runs.interface import Interface
from gradlab.runs.task import Baselines, Task, shuffled

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun

WORST = 10  # rows that the report shows
WORDS = {"number": "columns of numbers", "category": "of categories", "date": "of dates"}


class InUnit(metrics.Metric):
    """A metric of scaled numbers, given in the target's unit."""

    higher_is_better = False

    def __init__(self, metric: metrics.Metric, unit: float) -> None:
        self.metric, self.unit = metric, unit

    def reset(self) -> None:
        self.metric.reset()

    def update(self, prediction: Any, target: Any) -> metrics.Metric:
        self.metric.update(prediction, target)
        return self

    def compute(self) -> float:
        return float(self.metric.compute() * self.unit)


class OnePart(nn.Module):
    """A model of tables that have numbers or categories alone, which takes no other argument."""

    def __init__(self, model: nn.Module, part: str) -> None:
        super().__init__()
        self.model, self.part = model, part

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.model(x, x[:, :0].long()) if self.part == "numbers" else self.model(x[:, :0].float(), x)
        return found


class TableTask(Task):
    """What is known of a table's columns and target; with `dataset`, the table it is learned from.

    weights: of the classes in the loss, where one is more than three times as rare as another.
    """

    kind = "table"
    beginning = "the linear model"

    def __init__(
        self, coding: TableCoding, target: TargetCoding, weights: list[float] | None, layers: Mapping[str, Any],
        dataset: TableDataset | None = None,
    ) -> None:  # fmt: skip
        self.coding, self.target, self.weights, self.layers, self.dataset = coding, target, weights, layers, dataset
        self.goal, self.notes = target.name, dataset.notes if dataset is not None else []
        self.score = "r2" if not self.classes else "accuracy" if weights is None else "balanced_accuracy"
        self.greater = True
        rows = 0 if dataset is None else len(dataset.training_rows)
        batch = int(min(256, max(16, 2 ** round(np.log2(max(rows / 20, 1))))))
        self.defaults = {"epochs": 60, "batch_size": batch, "learning_rate": 3e-3, "weight_decay": 0.01}

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> TableTask:
        """From a table; settings: what TableDataset takes, and width and dropout. TableError where it cannot be learned from."""
        dataset = TableDataset(source, **{name: value for name, value in settings.items() if name not in ("width", "dropout")})
        if dataset.target is None:
            raise TableError(f"{dataset.table.source}: name the column to predict: {', '.join(dataset.table.columns)}")
        weights = None
        if dataset.target.kind == "classes":
            weights = class_weights(dataset.tensors[2].numpy()[dataset.training_rows], len(dataset.target.classes))
        rows, held_out = len(dataset.training_rows), len(dataset.validation_rows)
        if rows < 2 or (held_out < 2 and dataset.target.kind == "number"):
            few = f"{rows} of {rows + held_out} rows are to be trained on and {held_out} held out, and two of each are the least"
            raise TableError(f"{dataset.table.source}: {few}; give more rows, or hold out another share (--validation, fraction=0.5)")
        width = settings.get("width") or (32 if rows < 500 else 64 if rows < 20_000 else 128)
        layers = {"hidden": [width, width // 2], "dropout": settings.get("dropout", 0.3 if rows < 500 else 0.1)}
        return cls(dataset.coding, dataset.target, weights, layers, dataset)

    def variants(self) -> Mapping[str, Sequence[Any]]:
        return {"width": (32, 64, 128), "dropout": (0.0, 0.1, 0.3, 0.5)}

    def state(self) -> dict[str, Any]:
        """For JSON; `from_state` is the inverse, but for the table."""
        return {"coding": self.coding.state(), "target": self.target.state(), "weights": self.weights, "layers": dict(self.layers)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableTask:
        return cls(TableCoding.from_state(state["coding"]), TargetCoding(**state["target"]), state["weights"], state["layers"])

    # ------------------------------------------------------------ learning

    @property
    def classes(self) -> list[str]:
        return self.target.classes

    def model(self) -> TableModel:
        numbers, sizes = self.coding.sizes
        return TableModel(numbers, sizes, len(self.classes) or 1, **self.layers)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        if not self.classes:
            return nn.functional.mse_loss(outputs[:, 0], target)
        weights = None if self.weights is None else gl.tensor(self.weights, device=outputs.device)
        return nn.functional.cross_entropy(outputs, target, weight=weights)

    def step(self, model: nn.Module, batch: Any) -> Any:
        numbers, categories, target = batch
        outputs = model(numbers, categories)
        return self.loss(outputs, target), outputs if self.classes else outputs[:, 0], target

    def metrics(self) -> dict[str, metrics.Metric]:
        if not self.classes:
            unit = self.target.deviation
            found = {"mae": InUnit(metrics.MeanAbsoluteError(), unit), "rmse": InUnit(metrics.RootMeanSquaredError(), unit)}
            return {"r2": metrics.R2Score(), **found}
        rows = self.dataset
        pair = len(self.classes) == 2 and rows is not None and len(np.unique(rows.tensors[2].numpy()[rows.validation_rows])) == 2
        return {
            "accuracy": metrics.Accuracy(), "balanced_accuracy": metrics.Accuracy(average="macro"), "f1": metrics.F1("macro"),
            **({"roc_auc": metrics.ROCAUC()} if pair else {}),
        }  # fmt: skip

    def facts(self) -> str:
        dataset, target = self.learned(), self.target
        kinds = list(self.coding.kinds.values())
        columns = ", ".join(f"{kinds.count(kind)} {word}" for kind, word in WORDS.items() if kind in kinds)
        what = f"one of {len(target.classes)} classes" if target.classes else "a number"
        weighed = "" if self.weights is None else "; rare classes weigh as much as common ones"
        head = f"{len(dataset.training_rows):,} rows to train on, {len(dataset.validation_rows):,} held out; {columns}"
        return f"{head}; {target.name} is {what}{weighed}"

    def loaders(self, batch_size: int, seed: int) -> tuple[Any, Any]:
        """Of the training and of the validation rows. TableError where batches would be of one row, which cannot be normalised."""
        if batch_size == 1:
            raise TableError("a batch of one row cannot be normalised; take two rows at least (--batch-size, batch_size)")
        dataset = self.learned()
        return shuffled(dataset.training, batch_size, seed), gl.utils.data.DataLoader(dataset.validation, 1024)

    def learned(self) -> TableDataset:
        """The table that is learned from."""
        if self.dataset is None:
            raise ValueError("TableTask: only a task made of a table can be learned; this one was read back for predicting")
        return self.dataset

    def baselines(self, model: Any) -> Baselines:
        """What the commonest class (or the mean) and a linear model reach on the validation rows. The linear part is put into `model`."""
        dataset = self.learned()
        training, validation = dataset.training.tensors, dataset.validation.tensors
        found = {}
        if self.classes:
            outputs = commonest(training[2], len(validation[2]), len(self.classes))
        else:
            outputs = gl.zeros(len(validation[2]))
        found["commonest class" if self.classes else "mean"] = self.measured(outputs, validation[2])
        factors = [model.wide.weight, *(shift.weight for shift in model.shifts)]
        numbers, categories, target = training
        fit_at_once(lambda: self.loss(model.linear(numbers, categories), target), [model.wide.bias], factors, len(target))
        with gl.no_grad():
            outputs = model.linear(validation[0], validation[1])
        found["linear model"] = self.measured(outputs if self.classes else outputs[:, 0], validation[2])
        return found

    def measured(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """What the metrics say of outputs as `step` gives them."""
        named = self.metrics()
        if len(target) < 2:  # one number has no variance that could be explained
            named.pop("r2", None)
        collection = metrics.MetricCollection(named)
        return {name: float(value) for name, value in collection.update(outputs, target).compute().items()}

    # ------------------------------------------------------------ using

    def outputs(self, model: nn.Module, source: Any) -> tuple[Table, Tensor]:
        """A table, read, and the model's outputs for its rows."""
        table = source if isinstance(source, Table) else read_with_columns(source, self.coding.kinds)
        numbers, categories = self.coding.coded(table)
        if not table.rows:
            return table, gl.zeros(0, len(self.classes) or 1)
        rows = gl.utils.data.TensorDataset(gl.from_numpy(numbers), gl.from_numpy(categories))
        batches: Any = gl.utils.data.DataLoader(rows, 1024)
        return table, gl.train.predict(model, batches, next(model.parameters()).device, targets=False)

    def predict(self, model: nn.Module, source: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Columns: `prediction`, a class or a number in the target's unit, and of classes `probability of …` each."""
        _, outputs = self.outputs(model, source)
        found = {"prediction": self.target.decoded(outputs.numpy())}
        if self.classes:
            chances = outputs.softmax(1).numpy()
            found |= {f"probability of {name}": chances[:, i] for i, name in enumerate(self.classes)}
        return found

    def interface(self, model: nn.Module) -> Interface:
        many, sizes = self.coding.sizes
        parts = {"numbers": gl.randn(2, many), "categories": gl.zeros(2, len(sizes), dtype=gl.int64)}
        example = {name: x for name, x in parts.items() if x.shape[1]}
        meaning = {
            "numbers": f"(value - mean) / deviation, 0 where missing: {', '.join(self.coding.number_names)}",
            "categories": f"of a word its place, from 1, and 0 for missing and unknown ones: {', '.join(self.coding.words)}",
            "scores": f"a score for each of {', '.join(self.classes)}: softmax makes probabilities of them",
            "value": f"{self.target.name}: times {self.target.deviation:.6g}, plus {self.target.mean:.6g}",
        }
        whole = None if len(example) == 2 else OnePart(model, *example)
        return Interface(example, ["scores" if self.classes else "value"], meaning, model=whole)

    def evaluate(self, model: nn.Module, source: Any) -> dict[str, float]:
        """The metrics on a table that has the target; TableError where it is missing or of classes that were not learned."""
        table, outputs = self.outputs(model, source)
        if self.target.name not in table.columns:
            raise TableError(f'{table.source}: there is no column "{self.target.name}" to compare with')
        target = gl.from_numpy(np.ascontiguousarray(self.target.coded(self.target.values(table))))
        return self.measured(outputs if self.classes else outputs[:, 0], target)

    def predicted(self, model: nn.Module, sources: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """The table's own columns, and those of `predict`."""
        if len(sources) != 1:
            raise TableError(f"one table at a time, not {len(sources)}: {', '.join(sources)}")
        table = self.read(sources[0])
        found = self.predict(model, table)
        columns: dict[str, Any] = {name: ["" if c is None else c for c in cells] for name, cells in table.columns.items()}
        columns |= {f"{name} (new)" if name in columns else name: column for name, column in found.items()}
        return columns, table.notes

    def evaluated(self, model: nn.Module, source: str) -> tuple[dict[str, float], list[str]]:
        table = self.read(source)
        return self.evaluate(model, table), table.notes

    def read(self, source: Any) -> Table:
        """A table to predict: what is said of it is only what the run finds strange."""
        table = read_with_columns(source, self.coding.kinds)
        table.notes.clear()
        return table

    # ------------------------------------------------------------ the report

    def sections(self, trained: TrainedRun) -> list[tuple[str, str]]:
        """The table of confusions, or residuals; and the rows that are farthest off."""
        dataset = self.learned()
        *inputs, target = dataset.validation.tensors
        outputs = gl.train.predict(trained.model, [inputs], next(trained.model.parameters()).device, targets=False)
        true = target.numpy()
        if self.classes:
            chances = outputs.softmax(1).numpy()
            off = 1 - chances[np.arange(len(true)), true]
            found = [(self.classes[int(i)], f"{c:.3f}") for i, c in zip(chances.argmax(1), chances.max(1), strict=True)]
            wanted = [self.classes[int(t)] for t in true]
            shown = ("Confusions", html.confusions(self.classes, true, chances.argmax(1)))
        else:
            decoded, real = self.target.decoded(outputs.numpy()), self.target.decoded(true)
            off = abs(decoded - real)
            found = [(f"{v:.5g}", f"{v - r:+.4g}") for v, r in zip(decoded, real, strict=True)]
            wanted = [f"{v:.5g}" for v in real]
            shown = ("Residuals", html.residuals(decoded, real))
        columns = list(self.coding.kinds)[:8]
        rows = []
        for i in np.argsort(-off, kind="stable")[:WORST]:
            row = int(dataset.validation_rows[i])
            cells = ["" if (c := dataset.table.columns[name][row]) is None else c for name in columns]
            rows.append([dataset.table.where(row).rsplit(", ", 1)[-1], wanted[i], *found[i], *cells])
        head = ["row", "true", "predicted", "probability" if self.classes else "residual", *columns]
        return [shown, ("Farthest off", html.table(head, rows))]
