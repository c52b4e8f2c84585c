"""Runs of series: to no less than naive and linear forecasts reach, gone on with, used from the shell and from Python, reported."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.cli.entry import main
from gradlab.data import SeriesError
from gradlab.models import SeriesModel
from gradlab.runs import Settings, resume, start

from repository import ROOT

SUNSPOTS = ROOT / "tests/data/sunspots.csv"


def quiet(line):
    """Nobody listens."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = {"value": "SUNACTIVITY", "horizon": 11}
    return start(SUNSPOTS, tmp_path_factory.mktemp("runs") / "sun", Settings(epochs=4, data=data), quiet, "series")


def two_waves(path, rows=160):
    """A file of two series of different units, of a covariate, and of a gap."""
    lines = ["day,warm,wide,hint"]
    for i in range(rows):
        warm, wide = 10 * math.sin(i / 3), 5000 + 400 * math.cos(i / 3)
        lines.append(f"{np.datetime64('2020-01-01') + i},{'' if i == 40 else f'{warm:.3f}'},{wide:.2f},{i % 5}")
    path.write_text("\n".join(lines) + "\n")
    return path


# ---------------------------------------------------------------- learning


def test_the_sunspots_reach_the_autoregression(trained):
    description = trained.description
    baselines, result = description["baselines"], description["result"]
    assert list(baselines) == ["last value", "last season (11 steps)", "autoregression"] and description["score"] == "mae"
    errors = [values["mae"] for values in baselines.values()]
    assert errors[0] > 50 > 29.5 > errors[1] > 28 > 22.5 > errors[2] >= result["best"]  # in sunspots
    assert result["validation"]["mae"] == result["best"] and set(result["validation"]) == {"loss", "mae", "rmse", "mase"}
    assert trained.history[0]["validation_mae"] == pytest.approx(errors[2], rel=1e-5)  # it begins as the autoregression


def test_the_autoregression_is_no_straw_man(trained):
    """Least squares of the same windows, written anew, reach no less."""
    dataset = trained.task.dataset
    parts = [part for windows in (dataset.training, dataset.validation) for part in windows.arrays()]
    x, y, a, b = (part.reshape(len(part), -1).astype(np.float64) for part in parts)
    about = x.mean(0)
    for penalty in (0.0, 1.0, 30.0, 1000.0):
        design = np.concatenate([x - about, math.sqrt(penalty) * np.eye(x.shape[1])])
        factors = np.linalg.lstsq(design, np.concatenate([y - y.mean(0), np.zeros((x.shape[1], y.shape[1]))]), rcond=None)[0]
        error = np.mean(abs((a - about) @ factors + y.mean(0) - b)) * trained.task.coding.deviations[0]
        assert trained.description["baselines"]["autoregression"]["mae"] < 1.02 * error


def test_a_walk_is_beaten_by_nothing_and_that_is_said(tmp_path, capsys):
    walk = np.random.default_rng(3).normal(size=200).cumsum()
    (tmp_path / "walk.csv").write_text("y\n" + "\n".join(f"{v:.4f}" for v in walk) + "\n")
    options = ["--horizon", "5", "--epochs", "1", "--lr", "0.1", "--out", str(tmp_path / "run")]
    assert main(["train", "series", str(tmp_path / "walk.csv"), *options]) == 0
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    best = min(values["mae"] for values in description["baselines"].values())
    assert ("this does not beat" in capsys.readouterr().out) == (description["result"]["best"] >= best - 1e-9)
    assert description["baselines"]["autoregression"]["mae"] < 1.2 * description["baselines"]["last value"]["mae"]


@pytest.mark.parametrize("network", ["gru", "convolutions"])
def test_the_network_learns_what_a_line_cannot(network, tmp_path):
    random = np.random.default_rng(0)
    level, values = 0.4, []
    for _ in range(700):  # the logistic map: the next value is 3.8 · x · (1 - x)
        values.append(level)
        level = 3.8 * level * (1 - level)
    data = {"value": "x", "horizon": 1, "window": 4, "network": network}
    source, settings = {"x": np.array(values) + 0.001 * random.normal(size=700)}, Settings(epochs=12, learning_rate=0.01, data=data)
    run = start(source, tmp_path / "run", settings, quiet, "series")
    assert run.description["result"]["best"] < 0.5 * run.description["baselines"]["autoregression"]["mae"]
    again = gl.load_run(tmp_path / "run")
    assert again.predict({"x": values})["x"] == pytest.approx(run.predict({"x": values})["x"])


def test_several_values_covariates_and_gaps(tmp_path):
    path = two_waves(tmp_path / "two.csv")
    data = {"value": "warm,wide", "covariates": ["hint"], "horizon": 6, "window": 12, "gaps": "split"}
    run = start(path, tmp_path / "run", Settings(epochs=1, data=data), quiet, "series")
    found = run.evaluate(path)
    assert list(found) == ["mase", "mae of warm", "mae of wide"] and found["mase"] < 0.2 and found["mae of wide"] < 40
    forecast = run.predict(path)
    assert list(forecast) == ["day", "warm", "wide"] and forecast["day"][0] == "2020-06-09" and len(forecast["wide"]) == 6
    assert forecast["wide"] == pytest.approx([5000 + 400 * math.cos(i / 3) for i in range(160, 166)], abs=60)
    reported = (tmp_path / "run" / "report.html").read_text()
    assert "mae of wide" in reported and "warm, the worst window" in reported


def test_going_on_keeps_what_was_learned(trained, tmp_path):
    data = {"value": "SUNACTIVITY", "horizon": 11}
    start(SUNSPOTS, tmp_path / "run", Settings(epochs=2, data=data), quiet, "series")
    again = resume(tmp_path / "run", 3, say=quiet)
    whole = start(SUNSPOTS, tmp_path / "whole", Settings(epochs=3, data=data), quiet, "series")
    assert again.history[1]["epoch"] == 1 and len(again.history) == 4
    assert whole.history[0] == pytest.approx(again.history[0], nan_ok=True)
    with pytest.raises(Exception, match="is finished"):
        resume(tmp_path / "run", say=quiet)


@pytest.mark.parametrize("settings", [{"compile": True}, {"amp": "bfloat16"}])
@pytest.mark.parametrize("network", ["gru", "convolutions"])
def test_compiled_and_mixed(settings, network, tmp_path):
    path = two_waves(tmp_path / "two.csv", 90)
    data = {"value": "warm", "horizon": 4, "window": 8, "network": network}
    run = start(path, tmp_path / "run", Settings(epochs=1, data=data, **settings), quiet, "series")
    assert run.description["result"]["best"] <= run.description["baselines"]["autoregression"]["mae"] * 1.001
    eager = start(path, tmp_path / "eager", Settings(epochs=1, data=data), quiet, "series")
    assert run.history[-1]["loss"] == pytest.approx(eager.history[-1]["loss"], rel=1e-4 if "compile" in settings else 0.2)


# ---------------------------------------------------------------- using


def test_the_next_steps_with_their_dates(trained, tmp_path, capsys):
    assert main(["predict", str(trained.folder), str(SUNSPOTS)]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == ["YEAR", "SUNACTIVITY"] and [row[0] for row in rows[1:]] == [str(year) for year in range(2009, 2020)]
    from_python = gl.load_run(trained.folder).predict(str(SUNSPOTS))
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(from_python["SUNACTIVITY"], rel=1e-5)
    lines = SUNSPOTS.read_text().splitlines()
    (tmp_path / "short.csv").write_text("\n".join([lines[0], *lines[-30:]]) + "\n2009,\n")
    assert main(["predict", str(trained.folder), str(tmp_path / "short.csv"), "--out", str(tmp_path / "next.csv")]) == 0
    streams = capsys.readouterr()
    assert "the last 1 steps have no value: the forecast begins after 2008" in streams.err and "11 predictions" in streams.out
    assert (tmp_path / "next.csv").read_text().splitlines()[1:] == [",".join(row) for row in rows[1:]]
    lines[-5] = lines[-5].partition(",")[0] + ","
    (tmp_path / "gap.csv").write_text("\n".join(lines))
    assert main(["evaluate", str(trained.folder), str(tmp_path / "gap.csv")]) == 0
    assert 10 < float(capsys.readouterr().out.splitlines()[0].split()[-1]) < 30  # mae


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("YEAR,SUNACTIVITY\n2000,5\n2001,6\n", "2 steps, where the run looks at the last 22; give more of what came before"),
        ("YEAR,SPOTS\n2000,5\n2001,6\n", 'there is no column "SUNACTIVITY"'),
        ("YEAR,SUNACTIVITY\n" + "".join(f"{1900 + 0.5 * i},{i}\n" for i in range(60)),
         "its dates are in steps of 0.5, and the run learned from steps of 1"),
        ("YEAR,SUNACTIVITY\n" + "".join(f"{1900 + i},{'x' if i == 7 else i}\n" for i in range(60)),
         "line 9: column \"SUNACTIVITY\" is no number"),
        ("YEAR,SUNACTIVITY\n" + "".join(f"{1900 + i},{'' if 45 < i < 57 else i}\n" for i in range(60)),
         '"SUNACTIVITY" is missing at 1946 and around it'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_what_cannot_be_gone_on_from_is_one_line(trained, content, message, command, tmp_path, capsys):
    (tmp_path / "other.csv").write_text(content)
    code = main([command, str(trained.folder), str(tmp_path / "other.csv")])
    said = capsys.readouterr().err
    if command == "evaluate" and "missing at" in message:
        assert code == 0
    elif command == "evaluate" and "looks at" in message:
        assert code == 1 and "2 steps hold no forecast and its truth, which take 33" in said
    else:
        assert code == 1 and message in said and said.count("\n") == 1


def test_wrong_calls_leave_nothing_behind(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["--horizon", "80"], "80 steps are to be forecast, and 62 of 309 are held out; take a --horizon of 62 at most, or hold out more"),
        (["--horizon", "60", "--window", "500"], "take a --window of 184 at most"),
        (["--value", "SPOTS"], 'there is no column "SPOTS"'), (["--horizon", "0"], "--horizon: must be at least 1"),
        (["--model", "lstm"], "--model"), (["--validation", "2"], "--validation"),
    ):  # fmt: skip
        assert main(["train", "series", str(SUNSPOTS), *arguments]) in (1, 2)
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1
    assert main(["train", "series"]) == 2 and main(["train", "series", "nowhere.csv"]) == 2
    assert not list(tmp_path.rglob("*.json"))


def test_a_run_from_the_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    two_waves(tmp_path / "two.csv")
    arguments = ["--value", "warm", "--covariates", "hint", "--horizon", "7", "--window", "14", "--date", "day", "--gaps", "fill"]
    arguments += ["--season", "19", "--model", "convolutions", "--epochs", "2", "--validation", "0.3"]
    assert main(["train", "series", "two.csv", *arguments]) == 0
    out = capsys.readouterr().out
    for part in ("112 steps to learn from, the last 48 held out (2020-04-22 to 2020-06-08)", "steps of a day", "a season of 19 steps",
                 "warm, 7 steps ahead", "1 of 160 steps are missing", "autoregression",
                 "gradlab predict runs/series-1 newest.csv"):  # fmt: skip
        assert part in out
    assert main(["train", "--resume", "runs/series-1", "--epochs", "3"]) == 0 and "epoch 3/3" in capsys.readouterr().out
    assert main(["runs"]) == 0 and "warm, 7 steps ahead" in capsys.readouterr().out


def test_the_report_shows_forecasts(trained):
    text = (trained.folder / "report.html").read_text()
    for part in ("Forecasts and the truth", "Errors by steps ahead", "Residuals", "Farthest off", "autoregression",
                 "last season",
                 "steps from 1947", "gradlab predict", "steps ahead"):  # fmt: skip
        assert part in text
    assert "http" not in text.replace("http://www.w3.org", "") and "nan" not in text.replace("nance", "").lower()


# ---------------------------------------------------------------- the model


def test_the_model_begins_as_what_is_carried_on():
    x = gl.randn(3, 8, 3)
    for network in ("gru", "convolutions"):
        model = SeriesModel(8, 3, 5, 2, network=network).eval()
        assert gl.equal(model(x), x[:, -1:, :2].expand(-1, 5, -1))
        model.start_from(4)
        assert gl.equal(model(x), x[:, [4, 5, 6, 7, 4], :2])
        model.start_from(0)
        assert not model(x).any()
        assert model.features(x).shape == (3, 24)
    with pytest.raises(ValueError, match="a season of 9 steps is not in a window of 8"):
        model.start_from(9)
    with pytest.raises(ValueError, match="network"):
        SeriesModel(8, 1, 5, network="lstm")


def test_convolutions_see_no_later_step():
    block = gl.nn.Sequential(*SeriesModel(32, 1, 1, network="convolutions").eval().blocks)
    x = gl.randn(1, 32, 32, requires_grad=True)
    block(x)[0, :, 20].sum().backward()
    assert x.grad[0, :, 21:].abs().max() == 0 and x.grad[0, :, 0].abs().max() > 0  # and they see the whole window


def test_a_task_read_back_cannot_be_learned(trained):
    task = gl.load_run(trained.folder).task
    with pytest.raises(ValueError, match="read back"):
        task.loaders(8, 0)
    with pytest.raises(SeriesError, match="from one table, not from 2"):
        task.predicted(trained.model, ["a.csv", "b.csv"])
