"""Runs of a function of one's own: what it may return, that the run is a run like others, and what is said where it leads nowhere."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.cli.entry import main
from gradlab.data import DataError
from gradlab.runs import RunError, Settings, resume, start
from gradlab.train import Recipe

CODE = '''
import random

import numpy as np

import gradlab as gl
from gradlab import nn

WIDTH = 16


def recipe():
    x = gl.from_numpy(np.random.randn(128, 4).astype("float32"))
    y = x[:, :1] * x[:, 1:2] + random.random()
    data = gl.utils.data.TensorDataset(x, y)
    model = nn.Sequential(nn.Linear(4, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = gl.optim.Adam(model.parameters(), lr=0.02)
    return {
        "model": model, "loader": gl.utils.data.DataLoader(data, 32, shuffle=True), "loss": nn.functional.mse_loss, "optimizer": optimizer,
        "validation": gl.utils.data.DataLoader(data, 64), "metrics": {"r2": gl.metrics.R2Score()}, "clip": 5.0,
        "scheduler": gl.optim.lr_scheduler.StepLR(optimizer, 2), "epochs": 3, "notes": ["a note of mine"],
        "predict": lambda model, path: {"found": model(gl.ones(3, 4))[:, 0], "row": [1, 2, 3]},
    }


def made_later():
    found = recipe()
    found["optimizer"] = lambda parameters: gl.optim.SGD(parameters, lr=0.01)
    found["scheduler"] = lambda optimizer: gl.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    return gl.train.Recipe(**found)


def averaged():
    found = recipe()
    return {**found, "average": gl.optim.swa_utils.AveragedModel(found["model"]), "accumulate": 2}


def bare():
    return nn.Linear(2, 1), [(gl.ones(4, 2), gl.zeros(4, 1))], nn.functional.mse_loss


def stepped():
    def step(model, batch):
        return model(batch["x"]).square().mean()

    return {"model": nn.Linear(2, 1), "loader": [{"x": gl.randn(4, 2)} for _ in range(3)], "step": step}


class AsAnObject:
    def __init__(self):
        self.model, self.loader, self.loss = bare()


def takes(what):
    return what


def nothing():
    pass


def unknown():
    return {**recipe(), "epoch": 3}


def lossless():
    return {"model": nn.Linear(2, 1), "loader": []}


def once():
    return {"model": nn.Linear(2, 1), "loader": iter([1]), "loss": nn.functional.mse_loss}


def a_list():
    return {"model": [1], "loader": [], "loss": nn.functional.mse_loss}


def raises():
    return helper()


def helper():
    return gl.ones(2, 3) @ gl.ones(2, 3)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)


def broken():
    return {"model": Broken(), "loader": [(gl.ones(4, 2), gl.zeros(4, 1))], "loss": nn.functional.mse_loss}


def wrong_predict():
    return {**recipe(), "predict": lambda model, path: [1]}


number = 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module of one's own, in which one stands; global seeds are put back."""
    (tmp_path / "ownmodule.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    states = random.getstate(), np.random.get_state(), gl.get_rng_state()  # noqa: NPY002
    yield tmp_path
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    gl.set_rng_state(states[2])
    for name in [name for name in sys.modules if name.startswith("ownmodule")]:
        del sys.modules[name]


def quiet(line):
    """Nobody listens."""


def trained(name, folder, **settings):
    return start(name, folder, Settings(**settings), quiet, "function")


# ---------------------------------------------------------------- what it may return


@pytest.mark.parametrize("form", ["ownmodule:{}", "ownmodule.py:{}"])
def test_a_run_is_a_run_like_others(own, form):
    said = []
    run = start(form.format("recipe"), "run", Settings(), said.append, "function")
    assert "Sequential, 129 parameters, 4 batches an epoch" in said[0] and "note: a note of mine" in said[0]
    description = run.description
    assert description["score"] == "r2" and description["greater"] and description["result"]["epochs"] == 3
    assert description["result"]["best"] == max(line["validation_r2"] for line in run.history)
    assert {p.name for p in (own / "run").iterdir()} == {"run.json", "checkpoints", "model.safetensors", "epochs.csv", "report.html"}
    again = gl.load_run("run")
    assert all(gl.equal(p, q) for p, q in zip(again.model.state_dict().values(), run.model.state_dict().values(), strict=True))
    assert list(again.predict("anything")) == ["found", "row"] and again.predict("anything")["found"].shape == (3,)
    assert run.history[2]["learning_rate"] == pytest.approx(0.02) and run.history[3]["learning_rate"] == pytest.approx(0.002)
    with pytest.raises(DataError, match="no reader of files"):
        again.evaluate("x.csv")


def test_it_is_seeded_before_it_is_called(own):
    runs = [trained("ownmodule:recipe", f"run{i}", epochs=2, seed=seed) for i, seed in enumerate((3, 3, 4))]
    losses = [[line["loss"] for line in run.history[1:]] for run in runs]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("settings", [{"compile": True}, {"amp": "bfloat16"}, {"early_stop": 1}, {"compile": True, "amp": "float16"}])
def test_ways_of_training(own, settings):
    run = trained("ownmodule:recipe", "run", epochs=3, **settings)
    assert run.history[-1]["loss"] < run.history[1]["loss"] and run.description["settings"]["epochs"] == 3


@pytest.mark.parametrize("name", ["recipe", "made_later", "averaged", "stepped"])
def test_going_on_is_as_if_it_had_never_stopped(own, name):
    whole = trained(f"ownmodule:{name}", "whole", epochs=4)
    trained(f"ownmodule:{name}", "run", epochs=2)
    random.seed(99)
    again = resume("run", 4, say=quiet)
    lines = [[str({k: v for k, v in line.items() if "second" not in k}) for line in run.history] for run in (whole, again)]
    assert lines[0] == lines[1]
    assert all(gl.equal(p, q) for p, q in zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True))


def test_an_average_is_what_is_kept(own):
    run = trained("ownmodule:averaged", "run", epochs=2)
    measured = gl.train.evaluate(run.model, run.task.recipe.validation, run.task.step)
    assert measured["loss"] == pytest.approx(run.history[-1]["validation_loss"])


@pytest.mark.parametrize("name", ["bare", "stepped", "AsAnObject"])
def test_without_validation_the_training_loss_decides(own, name):
    run = trained(f"ownmodule:{name}", "run", epochs=2)
    assert run.description["score"] == "loss" and run.description["result"]["validation"] == {}
    assert run.description["result"]["best"] == run.history[-1]["loss"] and len(run.history) == 2
    assert "nothing is held out" in run.task.summary() and "training part" in (own / "run" / "report.html").read_text()
    with pytest.raises(DataError, match="give the recipe predict="):
        run.predict("x")


# ---------------------------------------------------------------- what leads nowhere


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ownmodule", "'ownmodule' is not of the form module:function"),
        ("ownmodule:", "not of the form"),
        (":recipe", "not of the form"),
        ("nowhere:recipe", "no module named 'nowhere' here or installed"),
        ("ownmodule.deeper:recipe", "no module named 'ownmodule.deeper'"),
        ("nowhere.py:recipe", "there is no file"),
        ("ownmodule:missing", "ownmodule has no function 'missing'; it has recipe, made_later"),
        ("ownmodule:number", "ownmodule:number is no function .it is 3."),
        ("ownmodule:takes", "is called without arguments, and takes some: .*'what'"),
        ("ownmodule:nothing", "returned what cannot be trained: None has no model and no loader; return a dict or a gl.train.Recipe"),
        ("ownmodule:unknown", "there is no epoch in a recipe; it has model, loader"),
        ("ownmodule:lossless", "a loss is missing"),
        ("ownmodule:once", "gives its batches once"),
        ("ownmodule:a_list", "model is an nn.Module, not a list"),
    ],
)
def test_what_leads_nowhere_is_one_line(own, target, message):
    with pytest.raises(DataError, match=message) as raised:
        trained(target, "run")
    assert "\n" not in str(raised.value) and not (own / "run").exists()


def test_what_it_raises_passes_through(own):
    with pytest.raises(ValueError, match="inner sizes differ"):
        trained("ownmodule:raises", "run")
    with pytest.raises(DataError, match="predict returned a list"):
        trained("ownmodule:wrong_predict", "run", epochs=1).predict("x")
    with pytest.raises(DataError, match="set the learning rate there"):
        trained("ownmodule:recipe", "other", learning_rate=0.1)


def test_code_that_is_gone_or_has_changed(own):
    trained("ownmodule.py:recipe", "run", epochs=1)
    (own / "ownmodule.py").write_text(CODE.replace("WIDTH = 16", "WIDTH = 8"))
    with pytest.raises(RunError, match="does not hold this run's weights, as the function makes another model now"):
        gl.load_run("run")
    with pytest.raises(RunError, match="does not fit, as the function makes another model now"):
        resume("run", 2, say=quiet)
    (own / "ownmodule.py").write_text("x = 1")
    with pytest.raises(RunError, match=r"cannot be read back: ownmodule.py has no function 'recipe'"):
        gl.load_run("run")
    (own / "ownmodule.py").unlink()
    with pytest.raises(RunError, match=r"cannot be read back: ownmodule.py:recipe: there is no file"):
        gl.load_run("run")


def test_a_run_is_found_from_another_folder(own, monkeypatch, tmp_path_factory):
    trained("ownmodule:recipe", own / "run", epochs=1)
    for name in [name for name in sys.modules if name.startswith("ownmodule")]:
        del sys.modules[name]
    before = list(sys.path)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert gl.load_run(own / "run").task.target == "ownmodule:recipe" and sys.path == before


# ---------------------------------------------------------------- from the shell


def test_from_the_shell(own, capsys):
    assert main(["train", "ownmodule.py:recipe", "--epochs", "2", "--compile", "--seed", "3"]) == 0
    assert "use it: gradlab predict runs/function-1 file" in capsys.readouterr().out
    assert main(["train", "--resume", "runs/function-1", "--epochs", "3"]) == 0 and "epoch 3/3" in capsys.readouterr().out
    assert main(["predict", "runs/function-1", "anything"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "found,row" and len(lines) == 4 and lines[1].endswith(",1")
    assert main(["runs"]) == 0 and "ownmodule.py:recipe" in capsys.readouterr().out
    assert main(["train", "ownmodule:bare", "--epochs", "1", "--out", "mine"]) == 0 and "on the training part" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ownmodule:"], "is not of the form module:function or file.py:function"), (["nowhere:recipe"], "no module named 'nowhere'"),
        (["ownmodule:takes"], "takes some"), (["ownmodule:number"], "is no function"), (["ownmodule:nothing"], "None has no model"),
        (["ownmodule:recipe", "--batch-size", "9"], "makes its own batches"), (["ownmodule:recipe", "--lr", "9"], "learning rate there"),
        (["ownmodule:recipe", "--target", "y"], "unknown option --target"), (["ownmodul"], "kinds are: digits, table"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(own, capsys, arguments, message):
    assert main(["train", *arguments]) in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not list(own.glob("runs/*/run.json"))


@pytest.mark.parametrize(("name", "lines"), [("raises", ["return helper()", "return gl.ones(2, 3)"]), ("broken", ["return self.layer(x)"])])
def test_what_it_raises_is_shown_with_its_own_frames(own, capsys, name, lines):
    assert main(["train", f"ownmodule.py:{name}"]) == 1
    said = capsys.readouterr().err
    files = [line for line in said.splitlines() if line.startswith("  File")]
    assert said.startswith("Traceback") and len(files) == len(lines) and all("ownmodule.py" in line for line in files)
    assert all(line in said for line in lines) and "ShapeError: " in said.splitlines()[-1]


# ---------------------------------------------------------------- recipes


def test_recipes_say_what_is_wrong_with_them():
    model, loader, loss = nn.Linear(1, 1), [(gl.ones(1, 1), gl.ones(1, 1))], nn.functional.mse_loss
    for wrong, message in (
        ({"optimizer": 3}, "optimizer is one of gl.optim, or a function"), ({"loss": 3}, "loss is a function, not an int"),
        ({"metrics": {"r2": gl.metrics.R2Score()}}, "measured on validation="), ({"loader": 3}, "loader is a DataLoader or a list"),
        ({"predict": 3}, "predict is a function"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            Recipe(**{"model": model, "loader": loader, "loss": loss, **wrong})
    with pytest.raises(ValueError, match="score is one of loss"):
        Recipe(model, loader, loss, score="f1")
    given = Recipe.of(SimpleNamespace(model=model, loader=loader, loss=loss, other=3))
    assert given.model is model and Recipe.of(given) is given
    assert Recipe(model, loader, loss, validation=loader, metrics=gl.metrics.R2Score()).metrics.keys() == {"r2score"}
