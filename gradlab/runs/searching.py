"""Before a run: which learning rate, and which settings. A range test, and a random search with successive halving.

K. Jamieson and A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, AISTATS 2016; random draws as in
J. Bergstra and Y. Bengio, Random Search for Hyper-Parameter Optimization, JMLR 2012.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gradlab as gl
from gradlab.runs.folder import Files, RunError, TrainedRun
from gradlab.runs.kinds import task_of
from gradlab.runs.report import write_report
from gradlab.runs.training import Settings, resume, start, write_description
from gradlab.train import Diverged, RangeTest, find_learning_rate
from gradlab.utils.atomic import write_text

HALVING = 3  # one of so many goes on, for so many times the epochs
PLAN = "search.json"  # while a search is under way
SHOWN = {"learning_rate": "learning rate", "weight_decay": "weight decay", "batch_size": "batch size"}
Say = Callable[[str], None]


def find_rate(source: Any, folder: str | os.PathLike[str], settings: Settings, say: Say = print, kind: str = "table") -> RangeTest:
    """A range test of a kind's model on its data; learning-rate.svg and learning-rate.csv are written into the folder."""
    gl.manual_seed(settings.seed)
    task = task_of(kind).of(source, settings.data)
    say(task.summary())
    settings = settings.filled(task)
    gl.manual_seed(settings.seed)
    model, (training, _) = task.model(), task.loaders(settings.batch_size or 1, settings.seed)
    model = model.to(settings.device)
    optimizer, clip = task.optimizer(model, settings), task.fitting().get("clip")
    found = find_learning_rate(model, training, None, optimizer, clip=clip, amp=settings.amp, device=settings.device, step=task.step)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / "learning-rate.svg", found.picture())
    lines = [f"{rate:.6g},{loss:.6g}" for rate, loss in zip(found.rates, found.losses, strict=True)]
    write_text(place / "learning-rate.csv", "\n".join(["learning_rate,loss", *lines]) + "\n")
    return found


def search(
    source: Any, folder: str | os.PathLike[str], settings: Settings, trials: int, say: Say = print, kind: str = "table"
) -> TrainedRun:
    """Try so many random settings, each for few epochs, go on with the best third for three times as many, and so on; the best is the run.

    Drawn are the learning rate (a tenth to ten times the kind's), the weight decay, the batch size and what `Task.variants` names, where
    `settings` does not say them; the first trial has the kind's own. All are in `search.csv`, the folder is that of the best's run. A
    search that was interrupted goes on with `go_on`. DataError as for `start`, ValueError for fewer than two trials.
    """
    if trials < 2:
        raise ValueError(f"search: two trials are the least, not {trials}")
    which = task_of(kind)
    gl.manual_seed(settings.seed)
    task = which.of(source, settings.data)
    say(task.summary())
    located = which.located(source)
    if located is None:
        raise RunError("a search reads its data anew for each trial: give it as a file")
    whole = settings.filled(task)
    task.optimizer(task.model(), replace(whole, learning_rate=whole.learning_rate or 1e-3))  # it refuses rates where it has its own
    drawn = [{}, *(_drawn(random.Random(f"{settings.seed} {i}"), settings, whole, task.variants()) for i in range(1, trials))]
    plan = {"kind": kind, "source": located, "settings": asdict(whole), "trials": drawn, "rounds": rounds(trials, whole.epochs or 1)}
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / PLAN, json.dumps(plan, indent=1) + "\n")
    return go_on(place, say)


def rounds(trials: int, epochs: int) -> list[tuple[int, int]]:
    """Of each round how many are tried, and up to which epoch: the last has all epochs.

    >>> rounds(9, 27)
    [(9, 3), (3, 9), (1, 27)]
    """
    many = 1 + max(0, math.floor(math.log(trials, HALVING) + 1e-9))
    found = [(max(1, trials // HALVING**i), max(1, round(epochs / HALVING ** (many - 1 - i)))) for i in range(many)]
    return [pair for i, pair in enumerate(found) if not i or pair[1] > found[i - 1][1]]


def _drawn(generator: random.Random, given: Settings, whole: Settings, variants: Any) -> dict[str, Any]:
    """One trial's settings, as far as they are not given."""
    found: dict[str, Any] = {}
    if given.learning_rate is None:
        found["learning_rate"] = float(f"{(whole.learning_rate or 1e-3) * 10 ** generator.uniform(-1, 1):.3g}")
    if given.weight_decay is None:
        found["weight_decay"] = float(f"{10 ** generator.uniform(-4, -1):.3g}")
    if given.batch_size is None and whole.batch_size is not None:
        found["batch_size"] = max(2, int(whole.batch_size * generator.choice((0.5, 1, 2))))
    found |= {name: generator.choice(list(values)) for name, values in variants.items() if name not in given.data}
    return found


def go_on(folder: str | os.PathLike[str], say: Say = print) -> TrainedRun:
    """Go on with a search where it was interrupted, to its end. RunError where there is none in the folder."""
    place = Path(folder)
    try:
        plan = json.loads((place / PLAN).read_text(encoding="utf-8"))
        base, drawn, kind = Settings(**plan["settings"]), plan["trials"], plan["kind"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise RunError(f"{place} has no search that could be gone on with: {error}") from error
    alive, table = list(range(len(drawn))), {i: _line(i, base, one) for i, one in enumerate(drawn)}
    for count, epochs in plan["rounds"]:
        alive = alive[:count]
        say(f"{len(alive)} of {len(drawn)} settings up to epoch {epochs}")
        scores = {}
        for i in alive:
            trained = _trial(place / "trials" / str(i + 1), plan["source"], _settings(base, drawn[i]), kind, epochs)
            if isinstance(trained, str):
                table[i] |= {"epochs": "", "result": trained}
                continue
            result, better = trained.description["result"], 1 if trained.description["greater"] else -1
            if result["stopped"].startswith("signal"):
                return replace(trained, folder=place)
            scores[i] = (better * result["best"], -result["validation"].get("loss", 0.0))
            table[i] |= {"epochs": result["epochs"], "result": result["best"]}
            say("  " + ", ".join(f"{name} {_short(value)}" for name, value in table[i].items()))
        if not scores:
            raise Diverged("the loss of every trial became infinite or NaN")
        alive = sorted(scores, key=lambda i: scores[i], reverse=True)
        _write_table(place, list(table.values()))
    return _kept(place, place / "trials" / str(alive[0] + 1), list(table.values()))


def _settings(base: Settings, drawn: dict[str, Any]) -> Settings:
    own = {name: value for name, value in drawn.items() if name not in SHOWN}
    return replace(base, data={**base.data, **own}, **{name: value for name, value in drawn.items() if name in SHOWN})


def _line(number: int, base: Settings, drawn: dict[str, Any]) -> dict[str, Any]:
    """A trial's line of the table."""
    settings = {shown: drawn.get(name, getattr(base, name)) for name, shown in SHOWN.items()}
    found = {"trial": number + 1, **{name: value for name, value in settings.items() if value is not None}}
    return found | {name: value for name, value in drawn.items() if name not in SHOWN}


def _trial(folder: Path, source: str, settings: Settings, kind: str, epochs: int) -> TrainedRun | str:
    """A trial, trained up to an epoch; or why it cannot be."""
    files = Files(folder)
    try:
        if not files.description.exists():
            shutil.rmtree(folder, ignore_errors=True)
            return start(source, folder, settings, _nothing, kind, until=epochs)
        known = files.read().get("result", {})
        if known.get("epochs", 0) >= epochs or (known.get("stopped") and not known["stopped"].startswith(("signal", "left off"))):
            return gl.load_run(folder)
        return resume(folder, None, None, _nothing, until=epochs)
    except Diverged:
        return "diverged"


def _nothing(text: str) -> None:
    """Says nothing."""


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_table(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *([line.get(name, "") for name in names] for line in lines)])
    write_text(folder / "search.csv", text.getvalue())


def _kept(folder: Path, best: Path, table: list[dict[str, Any]]) -> TrainedRun:
    """The best trial becomes the folder's run; the others are taken away."""
    description = Files(best).read() if Files(best).description.exists() else Files(folder).read()
    for name in ("checkpoints", "model.safetensors", "epochs.csv", "run.json"):
        if (best / name).exists():
            os.replace(best / name, folder / name)
    description["search"] = sorted(table, key=lambda line: -line["result"] if isinstance(line["result"], float) else math.inf)
    if not description["greater"]:
        description["search"] = sorted(table, key=lambda line: line["result"] if isinstance(line["result"], float) else math.inf)
    files = Files(folder)
    write_description(files, description)
    trained = gl.load_run(folder)
    gl.manual_seed(description["settings"]["seed"])
    trained = replace(trained, task=task_of(description["kind"]).of(description["source"], description["settings"]["data"]))
    write_report(files, trained, trained.history)
    shutil.rmtree(folder / "trials", ignore_errors=True)
    (folder / PLAN).unlink(missing_ok=True)
    return trained
