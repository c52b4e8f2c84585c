"""Runs as files for elsewhere: every kind as ONNX, as a traced program and as C, run and compared, with what their numbers mean."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from deployed import compiler

import gradlab as gl
from gradlab.cli.entry import main
from gradlab.runs import Settings, load_run, start
from gradlab.runs.exporting import ExportError, export_run
from gradlab.runs.kinds import KINDS

FUNCTION = """
import gradlab as gl

class Two(gl.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = gl.nn.Linear(3, 2)

    def forward(self, x, scale):
        y = self.layer(x) * scale
        return {outputs}

def recipe():
    batch = (gl.randn(8, 3), gl.rand(8, 1), gl.randn(8, 2))
    def step(model, batch):
        found = model(*batch[:2])
        return ((found if isinstance(found, gl.Tensor) else found[0]) - batch[2]).square().mean()
    return {{"model": Two(), "loader": [batch], "step": step}}

def strange():
    step = lambda model, batch: model(batch["x"]).square().mean()
    return {{"model": gl.nn.Linear(3, 1), "loader": [{{"x": gl.randn(4, 3)}}], "step": step}}

def sorting():
    class Sorts(gl.nn.Linear):
        def forward(self, x):
            return super().forward(x) * gl.linalg.cholesky(gl.eye(2) * (1 + x.square().sum()))[0, 0]
    return Sorts(3, 1), [(gl.randn(4, 3), gl.randn(4, 1))], gl.nn.functional.mse_loss
"""
ROWS = 60
NUMBERS = {"size": np.linspace(0, 3, ROWS), "age": [None if i % 9 == 0 else str(i % 17) for i in range(ROWS)]}
WORDS = {"town": [f"t{i % 3}" for i in range(ROWS)], "tone": ["high" if i % 5 else "low" for i in range(ROWS)]}
TARGETS = {"price": np.sin(np.arange(ROWS)) * 3, "grade": [("good", "poor", "rare")[i % 3] for i in range(ROWS)]}


def table(columns, target):
    return "table", {**columns, target: TARGETS[target]}, {"target": target}


def series(network):
    return "series", {"y": np.sin(np.arange(80) / 2)}, {"value": "y", "horizon": 3, "window": 6, "network": network}


def text(model):
    return "text", "the cat sat on the mat and the dog sat on the cat. " * 8, {"model": model, "width": 32, "layers": 1, "context": 16}


SOURCES = {  # of every kind: its name, what is learned from, and its settings
    "table of both": lambda folder: table({**NUMBERS, **WORDS}, "grade"),
    "table of numbers": lambda folder: table(NUMBERS, "price"),
    "table of words": lambda folder: table(WORDS, "grade"),
    "series, gru": lambda folder: series("gru"),
    "series, convolutions": lambda folder: series("convolutions"),
    "text, gpt": lambda folder: text("gpt"),
    "text, lstm": lambda folder: text("lstm"),
    "function": lambda folder: ("function", f"{folder}/own.py:recipe", {}),
    "function of two results": lambda folder: ("function", f"{folder}/two.py:recipe", {}),
    "digits": lambda folder: ("digits", None, {"model": "mlp"}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each of SOURCES trained for an epoch, when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    for name, outputs in (("own", "y"), ("two", "y, y.square()")):
        (folder / f"{name}.py").write_text(FUNCTION.format(outputs=outputs))

    def run(name):
        if name not in made:
            kind, source, data = SOURCES[name](folder)
            if kind == "text":
                (folder / "corpus.txt").write_text(source)
                source = folder / "corpus.txt"
            place = folder / name.replace(" ", "-").replace(",", "")
            made[name] = start(source, place, Settings(epochs=1, data=data), lambda line: None, kind)
        return made[name]

    return run


def test_every_kind_is_tried(tmp_path):
    assert {make(tmp_path)[0] for make in SOURCES.values()} | {"images"} == set(KINDS)  # images share what they do with the digits


def compared(found, run, example):
    """Results, tensors or arrays, and those of the model."""
    with gl.no_grad():
        wanted = run(*example)
    pairs = [[x] if isinstance(x, gl.Tensor) else x for x in (found, wanted)]
    for x, y in zip(*pairs, strict=True):
        array = x.detach().numpy() if isinstance(x, gl.Tensor) else x
        assert np.allclose(array, y.numpy(), rtol=1e-4, atol=1e-4 * float(y.abs().max()))


def example_of(trained, many):
    """Other arguments than the example's, of so many samples, for the model as it is exported."""
    interface = trained.task.interface(trained.model)
    grown = {name: gl.cat([x] * many)[:many].flip(0) for name, x in interface.example.items()}
    return interface.model or trained.model, grown


@pytest.mark.parametrize("name", SOURCES)
def test_traced_programs(runs, tmp_path, name):
    trained = runs(name)
    done = export_run(trained, tmp_path / "model.glp")
    model, example = example_of(trained, 5)
    compared(gl.jit.load(done.path)(*example.values()), model, example.values())
    assert all(shape[0] == "batch" for shape in (*done.inputs.values(), *done.outputs.values())) and "2 batches" in done.checked
    about = json.loads((tmp_path / "model.glp.json").read_text())
    assert set(about["inputs"]) == set(example) and about["kind"] == trained.task.kind and about["preprocessing"] == trained.task.state()
    assert all(part["meaning"] for part in (*about["inputs"].values(), *about["outputs"].values()))
    assert {p.name for p in tmp_path.iterdir()} == {"model.glp", "model.glp.json"} == {p.name for p in done.files}


@pytest.mark.parametrize("name", SOURCES)
def test_onnx(runs, tmp_path, name):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    trained = runs(name)
    done = export_run(trained, tmp_path / "model.onnx")
    model, example = example_of(trained, 5)
    session = runtime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == list(example) and [o.name for o in session.get_outputs()] == list(done.outputs)
    compared(session.run(None, {n: x.numpy() for n, x in example.items()}), model, example.values())
    assert "ONNX Runtime" in done.checked and json.loads((tmp_path / "model.onnx.json").read_text())["checked"] == done.checked


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", [n for n in SOURCES if n not in ("text, lstm", "series, convolutions")])
def test_c(runs, tmp_path, name):
    done = export_run(runs(name), tmp_path / "model.c")
    assert "off by" in done.checked and done.command.startswith("cc ") and all(shape[0] == 1 for shape in done.inputs.values())
    assert {p.name for p in done.files} == {"model.c", "model.h", "model.weights", "model.c.json"}


def test_without_a_compiler_it_is_said(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    done = export_run(runs("table of numbers"), tmp_path / "model.c")
    assert done.checked == "nothing: there is no C compiler here (CC)" and (tmp_path / "model.c").exists()


# ---------------------------------------------------------------- what is said


def test_what_numbers_mean(runs, tmp_path):
    meaning = export_run(runs("table of both"), tmp_path / "a.glp").meaning
    assert "size, age, age is missing" in meaning["numbers"] and "town, tone" in meaning["categories"]
    assert meaning["scores"].startswith("a score for each of good, poor, rare: softmax")
    trained = runs("series, gru")
    done = trained.export(tmp_path / "b.glp")
    about = json.loads((tmp_path / "b.glp.json").read_text())
    coding = about["preprocessing"]["coding"]
    series = trained.task.coding.read({"y": np.sin(np.arange(80) / 2)})
    window = (series.values[-6:] - coding["means"]) / coding["deviations"]
    outputs = gl.jit.load(done.path)(gl.tensor(window[None], dtype=gl.float32)).detach().numpy()[0, :, 0]
    wanted = trained.predict({"y": np.sin(np.arange(80) / 2)})["y"]
    assert outputs * coding["deviations"][0] + coding["means"][0] == pytest.approx(wanted, rel=1e-4)


def test_from_the_shell(runs, tmp_path, capsys):
    folder = runs("series, gru").folder
    assert main(["export", str(folder), "--glp"]) == 0
    out = capsys.readouterr().out
    assert f"{folder}/model.glp" in out and "takes window [batch, 6, 1]: the last 6 steps" in out and "checked by gl.jit.load" in out
    assert main(["export", str(folder), "--glp", "--out", str(tmp_path / "other.glp")]) == 0 and (tmp_path / "other.glp.json").exists()
    assert main(["build", str(tmp_path / "other.glp"), "--size", "batch=2"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which form: --onnx, --glp, --c or --web"),
        (["--glp", "--out", "x.onnx"], "x.onnx ends with .onnx, and --glp was asked for"),
        (["--glp", "--out", "nowhere/x.glp"], "there is no folder nowhere"),
        (["--c", "--out", "1x.c"], "'1x' is no name for functions of C"),
        (["--pt"], "unknown option --pt"),
    ],
)  # fmt: skip
def test_wrong_calls_are_one_line(runs, tmp_path, monkeypatch, capsys, arguments, message):
    folder = runs("table of numbers").folder
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(folder), *arguments]) in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_what_cannot_be_written_leaves_nothing(runs, tmp_path, capsys):
    folder = runs("function").folder.parent
    for name, form, message in (("strange", "glp", "give the recipe example="), ("sorting", "c", "cholesky")):
        run = start(f"{folder}/own.py:{name}", tmp_path / name, Settings(epochs=1), lambda line: None, "function")
        assert main(["export", str(run.folder), f"--{form}", "--out", str(tmp_path / f"x.{form}")]) == 1
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1 and not list(tmp_path.glob("*x.*")) and not list(tmp_path.glob(".export*"))
    with pytest.raises(ExportError, match=r"ends with none of \.onnx, \.glp, \.c"):
        load_run(tmp_path / "sorting").export(tmp_path / "model.pt")


def test_other_results_are_not_put_in_place(runs, tmp_path, monkeypatch):
    trained = runs("table of numbers")
    monkeypatch.setattr(gl.jit, "load", lambda path: lambda x: gl.zeros(len(x), 1))
    with pytest.raises(ExportError, match="gives other results than the model"):
        export_run(trained, tmp_path / "model.glp")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("onnx") is not None, reason="onnx is here")
def test_without_onnx_the_package_is_named(runs, tmp_path):
    with pytest.raises(ImportError, match="onnx"):
        export_run(runs("table of numbers"), tmp_path / "model.onnx")
