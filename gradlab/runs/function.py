"""The task of a function of one's own: `module:function` or `file.py:function`, which returns what `gl.train.fit` takes."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, Self

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.data import DataError
from gradlab.metrics import Metric
from gradlab.optim import Optimizer
from gradlab.runs.interface import Interface
from gradlab.runs.task import Task, literal
from gradlab.train.callbacks import length
from gradlab.train.fit import supervised
from gradlab.train.recipe import Recipe


class FunctionError(DataError):
    """A name that leads to no function, or a function that returns nothing that can be trained; one line."""


class FunctionTask(Task):
    """What a function returned, with its name and the folder from which its module is imported."""

    kind = "function"
    unfit = ", as the function makes another model now"

    def __init__(self, target: str, folder: str, seed: int) -> None:
        self.target, self.folder, self.seed = target, folder, seed
        self.goal = target
        self._recipe: Recipe | None = None

    @property
    def recipe(self) -> Recipe:
        """What the function returned; it is called where that is first asked for."""
        if self._recipe is None:
            self._recipe = recipe = recipe_of(self.target, self.folder, self.seed)
            named: dict[str, Any] = recipe.metrics if isinstance(recipe.metrics, dict) else {}
            self.notes = list(recipe.notes)
            self.score = recipe.score or next(iter(named), "loss")
            self.greater = bool(self.score in named and named[self.score].higher_is_better)
            self.validated = recipe.validation is not None
            self.defaults = {"epochs": recipe.epochs or 10}
        return self._recipe

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> Self:
        """source: "module:function" or "file.py:function"; settings: `seed` of all random numbers, and `folder`, which modules are found
        from (the current one). FunctionError where that leads to nothing that can be trained; what the function raises passes through.
        """
        task = cls.from_state({"target": str(source), "folder": os.getcwd(), "seed": 0, **settings})
        assert task.recipe is not None
        return task

    @classmethod
    def located(cls, source: Any) -> str:
        return str(source)

    @classmethod
    def fingerprint(cls, source: str) -> str:
        """Of the name alone: code may be written on, and a model that has changed is seen by its weights."""
        return hashlib.sha256(source.encode()).hexdigest()

    def state(self) -> dict[str, Any]:
        return {"target": self.target, "folder": self.folder, "seed": self.seed}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The function is called again where the model is asked for."""
        return cls(state["target"], state["folder"], state["seed"])

    # ------------------------------------------------------------ learning

    def facts(self) -> str:
        recipe = self.recipe
        many = length(recipe.loader)
        parameters = sum(p.numel() for p in recipe.model.parameters())
        batches = f"{many:,} batches an epoch" if many else "batches of a stream"
        held_out = "" if self.validated else "; nothing is held out (validation=), so epochs are compared by the training loss"
        return f"{self.target}: {type(recipe.model).__name__}, {parameters:,} parameters, {batches}{held_out}"

    def model(self) -> nn.Module:
        return self.recipe.model

    def step(self, model: nn.Module, batch: Any) -> Any:
        return (self.recipe.step or supervised(self.recipe.loss))(model, batch)

    def metrics(self) -> dict[str, Metric]:
        return dict(self.recipe.metrics or {})  # type: ignore[arg-type]

    def loaders(self, batch_size: int, seed: int) -> tuple[Any, Any]:
        return self.recipe.loader, self.recipe.validation

    def optimizer(self, model: nn.Module, settings: Any) -> Any:
        given = self.recipe.optimizer
        if given is None:
            return super().optimizer(model, settings)
        if settings.learning_rate is not None:
            raise FunctionError(f"{self.target} makes its own optimizer: set the learning rate there, and leave --lr (learning_rate=) out")
        if isinstance(given, Optimizer):
            return given
        made = given(model.parameters())
        if not isinstance(made, Optimizer):
            raise FunctionError(f"{self.target}: optimizer= made a {type(made).__name__}, no optimizer")
        return made

    def scheduler(self, optimizer: Any, steps: int) -> Any:
        given = self.recipe.scheduler
        return given(optimizer) if callable(given) and not hasattr(given, "step") else given

    def fitting(self) -> dict[str, Any]:
        recipe = self.recipe
        return {
            "scheduler_each": recipe.scheduler_each, "clip": recipe.clip, "accumulate": recipe.accumulate, "average": recipe.average,
            "callbacks": list(recipe.callbacks),
        }  # fmt: skip

    # ------------------------------------------------------------ using

    def predict(self, model: nn.Module, source: Any) -> dict[str, Any]:
        """What the recipe's `predict` makes of a source; FunctionError where it has none."""
        if self.recipe.predict is None:
            away = "give the recipe predict=, a function of the model and a path, or use gl.load_run(folder).model"
            raise FunctionError(f"{self.target} says nothing of how its model predicts: {away}")
        with gl.no_grad():
            found = self.recipe.predict(model.eval(), source)
        if not isinstance(found, Mapping):
            raise FunctionError(f"{self.target}: predict returned a {type(found).__name__}, not columns by name")
        columns = {str(name): np.asarray(v.detach().cpu() if isinstance(v, gl.Tensor) else v) for name, v in found.items()}
        sizes = {name: len(column) if column.ndim else 0 for name, column in columns.items()}
        if len(set(sizes.values())) != 1 or any(column.ndim != 1 for column in columns.values()):
            raise FunctionError(f"{self.target}: predict returns columns of one length, got {sizes}")
        return columns

    def evaluate(self, model: nn.Module, source: Any) -> dict[str, float]:
        raise FunctionError(f"{self.target} is no reader of files: its metrics are measured on its own validation=, by its run")

    def interface(self, model: nn.Module) -> Interface:
        """The example is the recipe's, or the first batch without its target."""
        given = self.recipe.example
        if given is None:
            batch = next(iter(self.recipe.loader), None)
            given = batch[:-1] if isinstance(batch, (tuple, list)) and len(batch) > 1 else None
        example = list(given.values() if isinstance(given, Mapping) else [given] if isinstance(given, gl.Tensor) else given or ())
        if not example or not all(isinstance(x, gl.Tensor) and x.ndim and len(x) for x in example):
            raise FunctionError(f"{self.target}: give the recipe example=, a tuple of the model's arguments, tensors of a batch of two")
        example = [gl.cat([x, x])[:2] for x in example]
        names = ["input"] if len(example) == 1 else [f"input{i}" for i in range(len(example))]
        names = list(given) if isinstance(given, Mapping) else names
        with gl.no_grad():
            found = copy.deepcopy(model).cpu().eval()(*example)
        many = 1 if isinstance(found, gl.Tensor) else len(found)
        outputs = ["output"] if many == 1 else [f"output{i}" for i in range(many)]
        meaning = dict.fromkeys(names, f"what {self.target} gives its model") | dict.fromkeys(outputs, "what its model returns")
        return Interface(dict(zip(names, example, strict=True)), outputs, meaning)

    def usage(self, folder: str) -> list[str]:
        shell = [f"gradlab predict {quote(folder)} file --out predictions.csv"] if self.recipe.predict is not None else []
        return [*shell, f'import gradlab as gl\n\nrun = gl.load_run({literal(folder)})\nrun.model  # {self.target}, trained']


def recipe_of(target: str, folder: str, seed: int) -> Recipe:
    """What the function returns, called with all random numbers seeded."""
    function = found_function(target, folder)
    gl.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 -- the user's code may draw by it
    with on_path(_start(target, folder)):
        try:
            returned = function()
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise FunctionError(f"{target} is called without arguments, and takes some: {error}") from None
    try:
        return Recipe.of(returned)
    except (TypeError, ValueError) as error:
        raise FunctionError(f"{target} returned what cannot be trained: {error}") from error


def found_function(target: str, folder: str) -> Any:
    """The function of that name; FunctionError, in one line, where there is none."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise FunctionError(f"{target!r} is not of the form module:function or file.py:function")
    with on_path(_start(target, folder)):
        module = _file(Path(folder, place), target) if place.endswith(".py") else _module(place, target)
    function = getattr(module, name, None)
    if function is None:
        own = {n: v for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__}
        names = [n for n in own if not n.startswith("_")]
        raise FunctionError(f"{place} has no function {name!r}; it has {', '.join(names) or 'none'}")
    if not callable(function):
        raise FunctionError(f"{target} is no function (it is {function!r:.60}); write one that returns what gl.train.fit takes")
    return function


def _module(name: str, target: str) -> ModuleType:
    try:
        importlib.invalidate_caches()  # it may have been written a moment ago
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise FunctionError(f"{target}: no module named {error.name!r} here or installed") from None
        raise


def _file(path: Path, target: str) -> ModuleType:
    """A script as a module of its own name, or of another where that one is taken."""
    if not path.is_file():
        raise FunctionError(f"{target}: there is no file {path}")
    there = sys.modules.get(path.stem)
    taken = there is not None and getattr(there, "__file__", None) != str(path)
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FunctionError(f"{target}: {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _start(target: str, folder: str) -> str:
    """The folder that Python would look into first."""
    place = target.rpartition(":")[0]
    return str(Path(folder, place).parent) if place.endswith(".py") else folder


@contextmanager
def on_path(folder: str) -> Iterator[None]:
    """With a folder as the first that modules are looked for in."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)

