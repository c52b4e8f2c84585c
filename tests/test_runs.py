"""Runs of tables: trained from the shell and from Python to no less than simpler models reach, stopped, resumed, used, and reported."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.cli.entry import main
from gradlab.data.tables import TableError
from gradlab.runs import RunError, Settings, load_run, resume, runs_in, start


def waves(path, rows=300, seed=0):
    """Untidy columns, a class and a number that depend on them, the number not in a line."""
    rng = np.random.default_rng(seed)
    size, tone = rng.normal(20, 5, rows), rng.choice(["low", "mid", "high"], rows)
    price = np.sin(size / 3) * 40 + (tone == "high") * 25 + rng.normal(size=rows)
    grade = np.where(price > 30, "rare", np.where(price > 0, "good", "poor"))
    with path.open("w") as file:
        file.write("id;size;tone;price;grade\n")
        for i in range(rows):
            file.write(f"{i};{'' if i % 17 == 0 else f'{size[i]:.3f}'};{tone[i]};{price[i]:.3f};{grade[i]}\n")
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return waves(tmp_path_factory.mktemp("data") / "waves.csv")


@pytest.fixture(scope="module")
def trained(table, tmp_path_factory):
    """A run of each kind of target."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        target: start(table, folder / target, Settings(epochs=25, data={"target": target, "exclude": [other]}), say=lambda line: None)
        for target, other in (("price", "grade"), ("grade", "price"))
    }


@pytest.mark.parametrize("target", ["price", "grade"])
def test_it_beats_simpler_models(trained, target):
    description = trained[target].description
    score, baselines = description["score"], description["baselines"]
    assert score == {"price": "r2", "grade": "accuracy"}[target]
    others = [values[score] for values in baselines.values()]
    assert description["result"]["best"] > max(others) + 0.1 and others[1] > others[0]
    assert description["result"]["validation"][score] == pytest.approx(description["result"]["best"])  # the best epoch's weights are kept


@pytest.mark.parametrize("target", ["price", "grade"])
def test_a_folder_holds_everything(trained, target, table):
    folder = trained[target].folder
    names = {p.name for p in folder.iterdir()}
    assert names == {"run.json", "checkpoints", "model.safetensors", "epochs.csv", "report.html"}
    again = gl.load_run(folder)
    expected, found = trained[target].predict(table), again.predict(str(table))
    assert list(expected) == list(found) and all(np.array_equal(expected[name], found[name]) for name in expected)
    assert len(again.history) == 26 and again.history[0]["epoch"] == 0  # measured before the first epoch, too
    with (folder / "epochs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 26
    assert again.evaluate(table).keys() == again.description["baselines"]["linear model"].keys() | again.evaluate(table).keys()
    assert not again.model.training


def test_predictions_are_in_the_tables_words_and_units(trained, table):
    rows = {"size": ["20.5", "", "31"], "tone": ["high", "unheard of", "low"]}
    prices = trained["price"].predict(rows)["prediction"]
    assert prices.shape == (3,) and abs(prices).max() < 200
    grades = trained["grade"].predict(rows)
    assert set(grades["prediction"]) <= {"rare", "good", "poor"}
    assert sum(grades[f"probability of {name}"] for name in ("good", "poor", "rare")) == pytest.approx(np.ones(3), abs=1e-6)
    measured = trained["price"].evaluate(table)
    true = np.array([float(row["price"]) for row in csv.DictReader(table.read_text().splitlines(), delimiter=";")])
    assert measured["mae"] == pytest.approx(np.mean(abs(trained["price"].predict(table)["prediction"] - true)), rel=1e-4)


class Page(html.parser.HTMLParser):
    """What is open and what the page asks for from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "rect", "line", "circle", "path", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("target", ["price", "grade"])
def test_the_report_is_one_whole_page(trained, target):
    text = (trained[target].folder / "report.html").read_text()
    page = Page(text)
    words = " ".join(page.words)
    assert not page.open and not page.links and "http" not in text.replace("http://www.w3.org", "")
    for part in ("Learning", "Beside simpler models", "Farthest off", "linear model", "gradlab predict", "semicolons", "Settings"):
        assert part in words
    assert ("Confusions" if target == "grade" else "Residuals") in words and "Better than the simpler models" in words


def test_the_same_seed_gives_the_same_run(table, tmp_path):
    settings = [Settings(epochs=2, seed=seed, data={"target": "grade"}) for seed in (1, 1, 2)]
    first, again, other = (start(table, tmp_path / str(i), s, say=lambda line: None) for i, s in enumerate(settings))
    weights = [[p.detach().numpy() for p in run.model.parameters()] for run in (first, again, other)]
    assert all(np.array_equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))


def test_rare_classes_weigh_alike(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    source = {"x": x, "y": np.where(x > 1.5, "snow", "sun")}
    run = start(source, tmp_path / "run", Settings(epochs=3, data={"target": "y"}), say=lambda line: None)
    assert run.task.weights is not None and run.description["score"] == "balanced_accuracy"
    assert run.description["baselines"]["commonest class"]["balanced_accuracy"] == 0.5 < 0.9 < run.description["result"]["best"]
    with pytest.raises(RunError, match="data in memory; only a run of a file can be resumed"):
        resume(tmp_path / "run", epochs=9)


# ---------------------------------------------------------------- from the shell


def test_train_predict_evaluate_runs(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "table", str(table), "--target", "grade", "--exclude", "price", "--epochs", "3", "--early-stop", "9"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "240 rows to train on, 60 held out; 1 columns of numbers, 1 of categories; grade is one of 3 classes" in out
    assert 'note: "id" is left out: it numbers the rows' in out and "note: cells are separated by semicolons" in out and "epoch 3/3" in out
    assert main(["predict", "runs/table-1", str(table)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 300 and rows[0]["tone"] in ("low", "mid", "high") and rows[0]["prediction"] in ("rare", "good", "poor")
    assert float(rows[0]["probability of good"]) <= 1
    assert main(["predict", "runs/table-1", str(table), "--out", "p.csv"]) == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 301
    assert main(["evaluate", "runs/table-1", str(table)]) == 0
    assert "balanced accuracy" in capsys.readouterr().out
    assert main(["runs"]) == 0 and "runs/table-1" in capsys.readouterr().out
    assert main(["runs", "nowhere"]) == 0 and "no runs in nowhere" in capsys.readouterr().out
    assert [line["epochs"] for line in runs_in()] == ["3/3"]


def test_a_run_goes_on_by_its_path_alone(table, tmp_path, capsys):
    whole = start(table, tmp_path / "whole", Settings(epochs=5, data={"target": "price"}), say=lambda line: None)
    program = (
        "import os, signal, sys\nfrom gradlab.train import Checkpoint\n"
        "old = Checkpoint.batch_end\n"
        "def batch_end(self, run):\n"
        "    if (run.epoch, run.batch) == (2, 4): os.kill(os.getpid(), signal.SIGTERM)\n"
        "    old(self, run)\n"
        "Checkpoint.batch_end = batch_end\n"
        "from gradlab.cli.entry import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["train", "table", str(table), "--target", "price", "--epochs", "5", "--out", str(tmp_path / "cut"), "--device", "cpu"]
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert f"resume with: gradlab train --resume {tmp_path / 'cut'}" in ended.stdout
    assert main(["train", "--resume", str(tmp_path / "cut")]) == 0
    assert "epoch 5/5" in capsys.readouterr().out
    for a, b in zip(whole.model.parameters(), load_run(tmp_path / "cut").model.parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
    assert main(["train", "--resume", str(tmp_path / "cut")]) == 1
    assert "is finished: it has 5 epochs" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path / "cut"), "--epochs", "6"]) == 0


def test_killed_at_any_moment_it_goes_on(table, tmp_path):
    """SIGKILL gives no time for anything: what lies in the folder is whole all the same."""
    arguments = [sys.executable, "-m", "gradlab", "train", "table", str(table), "--target", "grade", "--epochs", "400", "--device", "cpu"]
    for i in range(4):
        folder = tmp_path / str(i)
        process = subprocess.Popen([*arguments, "--out", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not list(folder.glob("checkpoints/checkpoint-[1-9]*")) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.07 * i)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        done = gl.train.read_checkpoint(folder / "checkpoints")["counts"]["epoch"]
        assert resume(folder, epochs=done + 2, say=lambda line: None).description["result"]["epochs"] == done + 2


def test_killed_at_its_very_end_it_is_brought_to_it(table, tmp_path):
    """All epochs are trained, and neither the weights nor the result were written."""
    whole = start(table, tmp_path / "run", Settings(epochs=2, data={"target": "price"}), say=lambda line: None)
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    result = description.pop("result")
    (tmp_path / "run" / "run.json").write_text(json.dumps(description))
    for name in ("model.safetensors", "report.html"):
        (tmp_path / "run" / name).unlink()
    run = resume(tmp_path / "run", say=lambda line: None)
    measured = dict.fromkeys(("seconds", "memory"))
    assert run.description["result"] | measured == result | measured and (tmp_path / "run" / "report.html").exists()
    for a, b in zip(whole.model.parameters(), load_run(tmp_path / "run").model.parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
    with pytest.raises(RunError, match="is finished: it has 2 epochs"):
        resume(tmp_path / "run")


MISTAKES = {
    "no target": (["{table}"], "a table is a file and a column to predict"),
    "no file": (["nothing.csv", "--target", "x"], "no file 'nothing.csv'"),
    "another target": (["{table}", "--target", "prize"], 'no column "prize" to predict; the columns are id, size, tone, price, grade'),
    "another column": (["{table}", "--target", "price", "--exclude", "colour"], 'there is no column "colour"'),
    "no classes": (["{table}", "--target", "tone", "--task", "number"], "is no number"),
    "a share": (["{table}", "--target", "price", "--validation", "2"], "--validation: must be a share, below 1, not 2"),
    "batches of one": (["{table}", "--target", "price", "--batch-size", "1"], "a batch of one row cannot be normalised"),
    "nothing left": (["{table}", "--target", "price", "--exclude", "id,size,tone,grade"], "no column is left to learn from: cells are"),
    "a folder": (["{folder}", "--target", "x"], "is a folder; name one file in it"),
    "few rows": (["{few}", "--target", "x"], "5 of 6 rows are to be trained on and 1 held out, and two of each are the least"),
    "two rows": (["{two}", "--target", "y"], "1 of 2 rows are to be trained on"),
    "a model": (["{table}", "--target", "price", "--model", "cnn"], "unknown option --model"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(mistake, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments, message = MISTAKES[mistake]
    few, two = tmp_path / "few.csv", tmp_path / "two.csv"
    few.write_text("x,y\n" + "".join(f"{i**1.5:.2f},{i % 4}\n" for i in range(1, 7)))
    two.write_text("x,y\n1,a\n2,b\n")
    assert main(["train", "table", *(a.format(table=table, folder=table.parent, few=few, two=two) for a in arguments)]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not list(tmp_path.glob("runs/*"))


def test_other_mistakes(trained, table, tmp_path, capsys):
    folder = str(trained["grade"].folder)
    assert main(["train", "digits", "--target", "x"]) == 2 and "unknown option --target" in capsys.readouterr().err
    assert main(["train", "--resume", folder, "--lr", "1"]) == 2 and "--lr: a resumed run keeps its settings" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), str(table)]) == 1 and "is no folder of a run" in capsys.readouterr().err
    (tmp_path / "t.csv").write_text("size,tone\n1,low\n")
    assert main(["evaluate", folder, str(tmp_path / "t.csv")]) == 1 and 'no column "grade" to compare with' in capsys.readouterr().err
    (tmp_path / "t.csv").write_text("size,tone,grade\n1,low,superb\n")
    with pytest.raises(TableError, match="'superb', which is none of good, poor, rare"):
        trained["grade"].evaluate(tmp_path / "t.csv")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"format": "gradlab run", "version": 99, "gradlab": "9.0"}))
    with pytest.raises(RunError, match=r"was written by gradlab 9\.0"):
        load_run(tmp_path)


def test_what_is_damaged_is_one_line(table, tmp_path, capsys):
    arguments = ["train", "table", str(table), "--target", "price", "--epochs", "2", "--out", str(tmp_path / "run"), "--early-stop", "1"]
    assert main([*arguments, "--lr", "1e-9"]) == 0
    assert main(["train", "--resume", str(tmp_path / "run")]) == 1 and "is finished: " in capsys.readouterr().err
    resumed = ["train", "--resume", str(tmp_path / "run"), "--epochs", "9"]
    for path in (tmp_path / "run" / "checkpoints").glob("checkpoint-*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 8
        path.write_bytes(content)
    description = json.loads((tmp_path / "run" / "run.json").read_text())

    def said(*arguments):
        assert main([*arguments]) in (1, 2)
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and str(tmp_path) in err
        return err

    assert "cannot be gone on with" in said(*resumed) and "no checkpoint can be read" in said(*resumed)
    for path in (tmp_path / "run" / "checkpoints").glob("checkpoint-*"):
        path.unlink()
    assert "there is no checkpoint in" in said(*resumed)
    for key in ("task", "settings", "baselines"):
        (tmp_path / "run" / "run.json").write_text(json.dumps({k: v for k, v in description.items() if k != key}))
        assert f"is damaged: it lacks {key}" in said(*resumed)
        assert f"it lacks {key}" in said("predict", str(tmp_path / "run"), str(table)) and runs_in(tmp_path) == []
    (tmp_path / "run" / "run.json").write_text(json.dumps(description | {"task": {"coding": 3}}))
    assert "is damaged: the task cannot be read" in said("predict", str(tmp_path / "run"), str(table))
    assert "there is no run's folder" in said("train", "--resume", str(tmp_path / "none"))
    assert "No such file" in said("predict", str(trained_run(table, tmp_path)), str(tmp_path / "none.csv"))


def trained_run(table, folder):
    return start(table, folder / "small", Settings(epochs=1, data={"target": "price"}), say=lambda line: None).folder


def test_rows_unlike_those_of_the_training_are_said(trained, tmp_path, capsys):
    """A text or a size that was never met gives a prediction all the same, but not in silence."""
    run, path = str(trained["grade"].folder), tmp_path / "new.csv"
    path.write_text("size,tone,grade,prediction\n20,low,good,a\n21,LOW,poor,b\n9000,loud,rare,c\n")
    for command in ("predict", "evaluate"):
        assert main([command, run, str(path)]) == 0
        said = capsys.readouterr()
        assert '"tone": 2 of 3 cells are texts that the training did not have' in said.err and "'LOW' in" in said.err
        assert '"size": 1 of 3 cells are more than 10 deviations from the' in said.err and "new.csv, line 4" in said.err
    assert main(["predict", run, str(path)]) == 0
    assert capsys.readouterr().out.startswith("size,tone,grade,prediction,prediction (new),probability of good")
    path.write_text("size,tone\n20,low\n")
    assert main(["predict", run, str(path)]) == 0 and not capsys.readouterr().err
    nothing = trained["grade"].predict({"size": np.zeros(0), "tone": np.zeros(0, object)})
    assert [len(column) for column in nothing.values()] == [0] * 4


def test_one_row_is_predicted_and_measured(trained, tmp_path):
    (tmp_path / "row.csv").write_text("size,tone,price\n20,low,3\n")
    assert trained["price"].evaluate(tmp_path / "row.csv").keys() == {"mae", "rmse"}  # no variance to explain
    assert len(trained["price"].predict(tmp_path / "row.csv")["prediction"]) == 1


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # a line is one write


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")
@pytest.mark.parametrize(("where", "code", "said"), [
    (">/dev/full", 1, "No space left on device"), (">&-", 0, ""), ("| head -1", 141, ""),
])  # fmt: skip
def test_a_stdout_that_takes_nothing(trained, table, where, code, said, tmp_path):
    """Full, closed, or with a reader that goes away: one line at most. A table too large for a pipe's buffer is what a reader leaves."""
    rows = table.read_text().splitlines()
    (tmp_path / "many.csv").write_text("\n".join([rows[0], *rows[1:] * 20]) + "\n")
    command = f"{sys.executable} -m gradlab predict {trained['grade'].folder} {tmp_path / 'many.csv'} {where}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False, env=BUFFERED)
    assert (ended.returncode, ended.stderr.count("\n")) == (code, 1 if said else 0) and said in ended.stderr


def test_training_into_a_stdout_that_is_gone(table, tmp_path):
    """What was learned stays, and can be gone on with."""
    train = f"{sys.executable} -m gradlab train table {table} --target price --epochs 50 --device cpu --out {tmp_path / 'run'}"
    command = f"{train} | head -1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120, check=False, env=BUFFERED)
    assert ended.returncode == 141 and not ended.stderr
    assert resume(tmp_path / "run", epochs=51, say=lambda line: None).description["result"]["epochs"] == 51


def test_changed_data_is_not_resumed(tmp_path):
    path = waves(tmp_path / "t.csv", 60)
    start(path, tmp_path / "run", Settings(epochs=1, data={"target": "price"}), say=lambda line: None)
    waves(path, 60, seed=1)
    with pytest.raises(RunError, match="has changed since the run was started"):
        resume(tmp_path / "run", epochs=2)
    path.unlink()
    with pytest.raises(RunError, match="is gone since"):
        resume(tmp_path / "run", epochs=2)
