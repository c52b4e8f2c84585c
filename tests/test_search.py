"""The range test of learning rates, the search for settings, and the profile of a run: from Python and from the shell."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.cli.entry import main
from gradlab.runs import Settings, find_rate, search, searching
from gradlab.runs.kinds import KINDS, task_of
from gradlab.runs.searching import go_on, rounds


def problem(rows=400):
    gl.manual_seed(0)
    x = gl.randn(rows, 10)
    data = gl.utils.data.TensorDataset(x, x[:, :4].argmax(1))
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, gl.utils.data.DataLoader(data, batch_size=32, shuffle=True)


class TestRangeTest:
    @pytest.mark.parametrize("kind", ["SGD", "AdamW"])
    def test_a_rate_that_trains(self, kind):
        model, loader = problem()
        optimizer = getattr(gl.optim, kind)(model.parameters(), lr=1e-3)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        random = gl.get_rng_state()
        found = gl.train.find_learning_rate(model, loader, nn.functional.cross_entropy, optimizer, highest=10)
        assert all(gl.equal(value, before[name]) for name, value in model.state_dict().items())
        assert gl.equal(gl.get_rng_state(), random) and optimizer.state_dict()["state"] == {} and optimizer.param_groups[0]["lr"] == 1e-3
        assert all(p.grad is None for p in model.parameters()) and model.training
        assert found.rates == sorted(found.rates) and len(found.rates) == len(found.losses) <= 100
        losses = {}
        for rate in (found.suggestion, found.suggestion / 1000):
            model.load_state_dict(before)
            run = gl.train.fit(model, loader, nn.functional.cross_entropy, getattr(gl.optim, kind)(model.parameters(), lr=rate), epochs=3)
            losses[rate] = run.history[-1]["loss"]
        assert losses[found.suggestion] < 0.7 * losses[found.suggestion / 1000], (found.suggestion, losses)
        assert found.picture().startswith("<svg") and "learning rate" in found.picture()

    def test_groups_keep_their_proportions_and_a_used_optimizer_its_state(self):
        model, loader = problem()
        groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.01}]
        optimizer = gl.optim.SGD(groups, momentum=0.9)
        gl.train.fit(model, loader, nn.functional.cross_entropy, optimizer, epochs=1)
        state = {k: v["momentum_buffer"].clone() for k, v in optimizer.state_dict()["state"].items()}
        seen = []
        optimizer.register_step_pre_hook(lambda o, *_: seen.append([g["lr"] for g in o.param_groups]))
        gl.train.find_learning_rate(model, loader, nn.functional.cross_entropy, optimizer, steps=20)
        assert all(a == pytest.approx(10 * b) for a, b in seen) and len(seen) > 10
        assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.01]
        assert all(gl.equal(v["momentum_buffer"], state[k]) for k, v in optimizer.state_dict()["state"].items())

    def test_what_is_wrong(self):
        model, loader = problem()
        optimizer = gl.optim.SGD(model.parameters(), lr=0.1)
        loss = nn.functional.cross_entropy
        with pytest.raises(ValueError, match="rates rise from above 0"):
            gl.train.find_learning_rate(model, loader, loss, optimizer, lowest=1.0, highest=0.1)
        with pytest.raises(ValueError, match="there is no batch"):
            gl.train.find_learning_rate(model, [], loss, optimizer)
        with pytest.raises(ZeroDivisionError):
            gl.train.find_learning_rate(model, loader, None, optimizer, step=lambda model, batch: 1 / 0)
        assert model.training and optimizer.param_groups[0]["lr"] == 0.1
        flat = gl.train.find_learning_rate(model, loader, lambda y, t: y.sum() * 0 + 1, optimizer)
        assert flat.suggestion is None and "did not fall" in flat.picture()


def test_rounds():
    assert rounds(2, 10) == [(2, 10)] and rounds(9, 27) == [(9, 3), (3, 9), (1, 27)]
    assert rounds(30, 60) == [(30, 2), (10, 7), (3, 20), (1, 60)]
    assert rounds(9, 1) == [(9, 1)] and rounds(27, 3) == [(27, 1), (1, 3)]


@pytest.fixture
def table(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 3))
    y = x[:, 0] * x[:, 1] + 0.1 * random.normal(size=120)
    lines = [",".join(f"{v:.4f}" for v in (*row, t)) for row, t in zip(x, y, strict=True)]
    (tmp_path / "data.csv").write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    return tmp_path / "data.csv"


def settings(**more):
    return Settings(epochs=4, data={"target": "y", "seed": 0}, **more)


def table_in(folder):
    return list(csv.DictReader((folder / "search.csv").read_text().splitlines()))


def weights(folder):
    return {name: value.numpy() for name, value in gl.load(folder / "model.safetensors").items()}


def test_a_search_is_one_run_and_one_table(table, tmp_path):
    said: list[str] = []
    trained = search(table, tmp_path / "found", settings(), 4, said.append)
    lines = table_in(tmp_path / "found")
    assert len(lines) == 4 and [int(line["epochs"]) for line in lines].count(4) == 1
    best = max(lines, key=lambda line: (int(line["epochs"]), float(line["result"])))
    assert trained.description["result"]["best"] == pytest.approx(float(best["result"]))
    assert trained.description["settings"]["learning_rate"] == pytest.approx(float(best["learning rate"]))
    assert sorted(p.name for p in (tmp_path / "found").iterdir()) == [
        "checkpoints", "epochs.csv", "model.safetensors", "report.html", "run.json", "search.csv",
    ]  # fmt: skip
    page = (tmp_path / "found" / "report.html").read_text()
    assert "The search" in page and "trials" not in page and str(tmp_path / "found") in page
    assert len(gl.load_run(tmp_path / "found").predict(table)["prediction"]) == 120
    assert any(line.startswith("1 of 4 settings up to epoch 4") for line in said)


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_search_that_was_interrupted_goes_on_to_the_same_end(after, table, tmp_path, monkeypatch):
    search(table, tmp_path / "whole", settings(), 3, print)
    trial, seen = searching._trial, []

    def interrupted(*arguments):
        seen.append(arguments)
        if len(seen) > after:
            raise KeyboardInterrupt
        return trial(*arguments)

    monkeypatch.setattr(searching, "_trial", interrupted)
    if after < 4:
        with pytest.raises(KeyboardInterrupt):
            search(table, tmp_path / "parts", settings(), 3, print)
        monkeypatch.setattr(searching, "_trial", trial)
        assert main(["train", "--resume", str(tmp_path / "parts")]) == 0
    else:
        search(table, tmp_path / "parts", settings(), 3, print)
    assert (tmp_path / "parts" / "search.csv").read_text() == (tmp_path / "whole" / "search.csv").read_text()
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)


def test_a_trial_that_diverges_is_said_and_left(table, tmp_path):
    drawn = {"learning_rate": 1e30}
    base = settings()
    plan = {"kind": "table", "source": str(table), "settings": {**vars(base), "batch_size": 16}, "trials": [{}, drawn], "rounds": [[2, 2]]}
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "search.json").write_text(json.dumps(plan))
    trained = go_on(tmp_path / "s", print)
    assert trained.description["search"][1]["result"] == "diverged" and trained.description["settings"]["learning_rate"] is not None


def test_what_is_given_is_not_searched(table, tmp_path):
    search(table, tmp_path / "s", settings(learning_rate=0.01, batch_size=16), 3, print)
    lines = table_in(tmp_path / "s")
    assert {line["learning rate"] for line in lines} == {"0.01"} and {line["batch size"] for line in lines} == {"16"}
    assert len({line["weight decay"] for line in lines}) == 3


def test_what_each_kind_varies():
    """Every kind has something of its model to search, by names that its task takes (a kind that is new has to say)."""
    for kind in set(KINDS) - {"function"}:  # which makes its model itself
        which = task_of(kind)
        task = which.of("digits", {}) if kind == "digits" else which.__new__(which)
        for name, values in task.variants().items():
            assert name.isidentifier() and len(values) > 1
        assert task.variants(), kind


def test_digits_are_searched_too(tmp_path):
    trained = search("digits", tmp_path / "s", Settings(epochs=1), 2, print, "digits")
    assert {line["trial"] for line in trained.description["search"]} == {1, 2} and trained.description["result"]["best"] > 0.5


class TestShell:
    def test_find_lr(self, table, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["train", "table", "data.csv", "--target", "y", "--find-lr", "--device", "cpu"]) == 0
        out = capsys.readouterr().out
        assert "picture: runs/table-rate-1/learning-rate.svg" in out and "train with: --lr " in out
        assert sorted(p.name for p in (tmp_path / "runs" / "table-rate-1").iterdir()) == ["learning-rate.csv", "learning-rate.svg"]
        found = find_rate("data.csv", tmp_path / "again", Settings(data={"target": "y", "seed": 0}), print)
        assert f"train with: --lr {found.suggestion:.2g}" in out

    def test_search(self, table, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["train", "table", "data.csv", "--target", "y", "--search", "2", "--epochs", "1", "--device", "cpu"]) == 0
        assert "report: runs/table-1/report.html" in capsys.readouterr().out
        assert main(["train", "--resume", "runs/table-1", "--epochs", "2"]) == 0

    @pytest.mark.parametrize("more", [[], ["--compile"]])
    def test_profile(self, more, table, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        common = ["train", "table", "data.csv", "--target", "y", "--epochs", "1", "--device", "cpu", "--out", "r", "--profile"]
        assert main([*common, *more]) == 0
        page = (tmp_path / "r" / "report.html").read_text()
        assert "Where time and memory go" in page and ("compiled " if more else "linear") in page and "TableModel" in page
        assert json.loads((tmp_path / "r" / "trace.json").read_text())["traceEvents"]

    def test_nothing_is_left_of_what_failed(self, table, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        for option in (["--find-lr"], ["--search", "3"], ["--profile"]):
            assert main(["train", "table", "data.csv", "--target", "none", *option]) == 1
            assert capsys.readouterr().err.count("\n") == 1
        assert [p.name for p in tmp_path.iterdir()] in (["data.csv"], ["runs", "data.csv"], ["data.csv", "runs"])
        assert not list(tmp_path.glob("runs/*"))
        assert main(["train", "table", "data.csv", "--target", "y", "--find-lr", "--search", "3"]) == 2
        assert main(["train", "table", "data.csv", "--target", "y", "--search", "1"]) == 2


def test_a_function_of_ones_own_is_searched_where_it_leaves_the_optimizer_to_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "searched_function.py").write_text(OWN)
    assert main(["train", "searched_function:make", "--search", "2", "--epochs", "1", "--device", "cpu"]) == 0
    assert main(["train", "searched_function:make", "--find-lr", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["train", "searched_function:fixed", "--search", "2", "--device", "cpu"]) == 1
    assert "makes its own optimizer" in capsys.readouterr().err
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["function-1", "function-rate-1"]


OWN = """
import gradlab as gl
from gradlab import nn

def make():
    x = gl.randn(64, 5)
    data = gl.utils.data.TensorDataset(x, x[:, :2].argmax(1))
    return nn.Linear(5, 2), gl.utils.data.DataLoader(data, 16), nn.functional.cross_entropy

def fixed():
    model, loader, loss = make()
    return model, loader, loss, gl.optim.SGD(model.parameters(), lr=0.1)
"""
