"""The callbacks of `gl.train.fit`, each in an eager and in a compiled loop: what they write is right and whole, and so again."""

from __future__ import annotations

import csv
import io
import json
import time
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.advice import GradlabWarning
from gradlab.train import Bar, BestWeights, Checkpoint, Curves, Diverged, EarlyStop, TableOfEpochs, TensorBoard, fit

F = nn.functional
pytestmark = pytest.mark.parametrize("compile", [False, True])


def parts():
    gl.manual_seed(0)
    x = gl.randn(160, 6)
    data = gl.utils.data.TensorDataset(x, x[:, :3].argmax(1))
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    training, validation = (gl.utils.data.DataLoader(data, 16, shuffle=shuffle) for shuffle in (True, False))
    return model, training, validation, gl.optim.AdamW(model.parameters(), lr=0.02)


def run(compile, callbacks, epochs=3, **more):
    model, training, validation, optimizer = parts()
    metrics = {"accuracy": gl.metrics.Accuracy(), "confusions": gl.metrics.ConfusionMatrix()}
    found = fit(model, training, F.cross_entropy, optimizer, epochs=epochs, validation=validation, metrics=metrics, compile=compile,
                callbacks=callbacks, **more)  # fmt: skip
    return found, validation


def test_a_table(compile, tmp_path):
    found, _ = run(compile, [TableOfEpochs(tmp_path / "t.csv")])
    text = (tmp_path / "t.csv").read_text()
    lines = list(csv.DictReader(text.splitlines()))
    assert len(lines) == 3 == text.count("\n") - 1
    for line, noted in zip(lines, found.history, strict=True):
        assert float(line["validation_loss"]) == noted["validation_loss"]
        assert json.loads(line["validation_confusions"]) == noted["validation_confusions"].tolist()


def test_curves(compile, tmp_path):
    seen = []
    found, _ = run(compile, [Curves(tmp_path / "c.svg"), lambda run: seen.append((tmp_path / "c.svg").read_text())])
    assert len(set(seen)) == 3 and len(found.history) == 3  # while it trains
    for picture in seen:
        assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "accuracy" in seen[-1] and "confusions" not in seen[-1] and "3 epochs" in seen[-1]
    with pytest.raises(ValueError, match=r"ends in \.svg"):
        Curves(tmp_path / "c.png")


def test_tensorboard(compile, tmp_path):
    callback = TensorBoard(tmp_path)
    found, _ = run(compile, [callback])
    run(compile, [callback], epochs=1)  # the same object again: in a file of its own
    files = sorted(tmp_path.iterdir(), key=lambda p: int(p.name.rpartition(".")[2]))
    assert len(files) == 2 and all(f.stat().st_size > 100 for f in files)
    assert b"validation_accuracy" in files[0].read_bytes() and found.history


def test_a_bar(compile, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    slow = type("Slow", (gl.train.Callback,), {"batch_end": lambda self, run: time.sleep(0.02)})()
    run(compile, [Bar(), slow])
    assert "epoch 1/3" in terminal.getvalue() and "loss=" in terminal.getvalue() and "/s" in terminal.getvalue()
    assert capsys.readouterr().out.count("validation accuracy") == 3
    for stderr in (None, io.StringIO()):  # closed; not a terminal
        monkeypatch.setattr("sys.stderr", stderr)
        run(compile, [Bar(lines=False)], epochs=1)
    assert capsys.readouterr().out == "" and stderr.getvalue() == ""


def test_early_stop_and_the_best_weights(compile, tmp_path):
    worse = lambda run: run.history[-1].update(validation_loss=float(run.epoch))
    kept: dict[int, list[np.ndarray]] = {}
    keep = lambda run: kept.update({run.epoch: [p.detach().numpy().copy() for p in run.model.parameters()]})
    found, _ = run(compile, [worse, keep, BestWeights(), EarlyStop(2)], epochs=9)
    assert found.epoch == 3 and "validation_loss has not become better than 1 of epoch 1 for 2 epochs" in found.stop
    assert all(np.array_equal(a, b.detach().numpy()) for a, b in zip(kept[1], found.model.parameters(), strict=True))


def test_checkpoints_go_on_to_the_same_bits(compile, tmp_path):
    whole, _ = run(compile, [])
    run(compile, [Checkpoint(tmp_path, every=4)], epochs=2)
    state = gl.train.read_checkpoint(tmp_path)
    again, _ = run(compile, [], resume=state)
    assert [line["loss"] for line in whole.history] == [line["loss"] for line in again.history]


@pytest.mark.parametrize("where", ["loss", "model", "update"])
def test_what_is_no_number_is_named_and_the_model_is_as_before(where, compile):
    model, training, _, optimizer = parts()
    losses = {"loss": lambda y, t: (y - 100).log().mean(), "update": lambda y, t: F.cross_entropy(y, t) ** 3}
    loss = losses.get(where, F.cross_entropy)
    if where == "model":
        model = nn.Sequential(model, type("Root", (nn.Module,), {"forward": lambda self, x: (x - 50).sqrt()})())
    if where == "update":
        optimizer = gl.optim.SGD(model.parameters(), lr=1e12)
    states = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradlabWarning)
        with pytest.raises(Diverged) as error:
            fit(model, training, loss, optimizer, epochs=2, compile=compile,
                callbacks=[type("Note", (gl.train.Callback,), {"batch_end": lambda self, run: states.append(run.batch)})()])  # fmt: skip
    text = str(error.value)
    began = {"loss": "began in log", "model": "began in 1, sqrt", "update": "began in "}[where]
    assert began in text and "already" not in text and "smaller learning rate" in text, text
    assert all(bool(gl.isfinite(p).all().item()) for p in model.parameters())
    assert bool(states) == (where == "update")
