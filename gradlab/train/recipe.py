"""What a training is made of, in one object: what a function of one's own returns to `gradlab train module:function`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gradlab import Tensor, nn
from gradlab.metrics import Metric
from gradlab.optim import Optimizer

POSITIONS = ("model", "loader", "loss", "optimizer")  # of a tuple, as `fit` takes them


@dataclass
class Recipe:
    """What `gl.train.fit` takes, and what a run of it is to be called and compared by.

    model, loader, loss, step, validation, metrics, scheduler_each, accumulate, clip, average, callbacks: as of `fit`; a loss or a step is
    needed. optimizer: an optimizer of the model's parameters, or a function that makes one of them (`lambda parameters: SGD(parameters,
    lr=0.1)`); None: AdamW. scheduler: a scheduler of that optimizer, or a function that makes one of it. epochs: where the command line
    names none. score: the metric by which epochs are compared; by default the first of `metrics`, or the loss. predict: a function of the
    model and a file's path (or whatever `TrainedRun.predict` is given) that returns columns by name, for `gradlab predict`. example: the
    model's arguments, for `gradlab export`; by default the inputs of the loader's first batch. notes: lines that the run is to say.

    >>> model = gl.nn.Linear(1, 1)
    >>> recipe = gl.train.Recipe(model, [(gl.ones(2, 1), gl.zeros(2, 1))], gl.nn.functional.mse_loss)
    >>> recipe.model is model, recipe.optimizer
    (True, None)
    """

    model: nn.Module
    loader: Iterable[Any]
    loss: Callable[..., Tensor] | None = None
    optimizer: Any = None
    validation: Iterable[Any] | None = None
    metrics: dict[str, Metric] | Metric | None = None
    scheduler: Any = None
    scheduler_each: str = "epoch"
    step: Callable[[nn.Module, Any], Any] | None = None
    accumulate: int = 1
    clip: float | None = None
    average: Any = None
    callbacks: Sequence[Any] = ()
    epochs: int | None = None
    score: str | None = None
    predict: Callable[[nn.Module, Any], Mapping[str, Any]] | None = None
    example: Any = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise TypeError(f"Recipe: model is an nn.Module, not {_kind(self.model)}")
        if not isinstance(self.loader, Iterable):
            raise TypeError(f"Recipe: loader is a DataLoader or a list of batches, not {_kind(self.loader)}")
        if iter(self.loader) is self.loader:
            raise TypeError("Recipe: loader gives its batches once, as an iterator does; pass a DataLoader or a list")
        if self.loss is None and self.step is None:
            raise TypeError("Recipe: a loss is missing; give loss=, or step=, a function of the model and a batch that returns the loss")
        for name in ("loss", "step", "predict"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise TypeError(f"Recipe: {name} is a function, not {_kind(given)}")
        if self.optimizer is not None and not isinstance(self.optimizer, Optimizer) and not callable(self.optimizer):
            raise TypeError(f"Recipe: optimizer is one of gl.optim, or a function that makes one, not {_kind(self.optimizer)}")
        if isinstance(self.metrics, Metric):
            self.metrics = {type(self.metrics).__name__.lower(): self.metrics}
        if self.metrics and self.validation is None:
            raise TypeError("Recipe: metrics are measured on validation=, which is missing")
        if self.score is not None and self.score not in {"loss", *(self.metrics or {})}:
            raise ValueError(f"Recipe: score is one of {', '.join(['loss', *(self.metrics or {})])}; got {self.score!r}")

    @staticmethod
    def of(returned: Any) -> Recipe:
        """What a function returned as a Recipe: one, a mapping with its names, a tuple (model, loader, loss, optimizer), or an object with
        attributes of these names. TypeError for anything else, in one line.
        """
        names = [field.name for field in fields(Recipe)]
        if isinstance(returned, Recipe):
            return returned
        if isinstance(returned, Mapping):
            given = dict(returned)
            if unknown := [str(name) for name in given if name not in names]:
                raise TypeError(f"there is no {', '.join(unknown)} in a recipe; it has {', '.join(names)}")
        elif isinstance(returned, tuple) and 2 <= len(returned) <= len(POSITIONS):
            given = dict(zip(POSITIONS, returned))
        else:
            given = {name: getattr(returned, name) for name in names if hasattr(returned, name)}
        if lacking := [name for name in ("model", "loader") if name not in given]:
            away = "return a dict or a gl.train.Recipe with model, loader and loss"
            raise TypeError(f"{_kind(returned)} has no {' and no '.join(lacking)}; {away}")
        return Recipe(**given)


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
