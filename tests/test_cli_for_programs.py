"""The command line for other programs: JSON, completion, help with defaults, exit codes, bars in terminals alone."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gradlab as gl
from gradlab import progress
from gradlab.cli import entry, main
from gradlab.cli.kinds import NAMES, kind_named
from gradlab.cli.reporting import plain
from gradlab.progress import waiting
from gradlab.runs.kinds import task_of

PACKAGE = Path(gl.__file__).parent.parent
MODEL = """
import gradlab as gl
def example():
    gl.manual_seed(0)
    return gl.nn.Linear(4, 3), (gl.randn(2, 4),)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("mine.py").write_text(MODEL)
    rows = "".join(f"{i},{i % 7},{3 * i + i % 7}\n" for i in range(60))
    Path("table.csv").write_text("a,b,y\n" + rows)
    yield tmp_path
    sys.modules.pop("mine", None)


def document(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_run_from_its_training_to_its_export(folder, capsys):
    trained = document(capsys, "train", "table", "table.csv", "--target", "y", "--epochs", "2", "--out", "runs/t")
    assert trained["folder"] == "runs/t" and trained["score"] == "r2" and trained["epochs"] == 2 and "linear" in str(trained["baselines"])
    assert 0 < document(capsys, "evaluate", "runs/t", "table.csv")["r2"] <= 1
    predicted = document(capsys, "predict", "runs/t", "table.csv")
    assert len(predicted) == 60 and isinstance(float(predicted[0]["prediction"]), float)
    assert len(document(capsys, "runs")) == 1
    exported = document(capsys, "export", "runs/t", "--glp")
    assert exported["path"] == "runs/t/model.glp" and exported["inputs"]


def test_what_reports(folder, capsys):
    found = document(capsys, "info")
    assert found["gradlab"] == gl.__version__ and isinstance(found["missing"], list)
    report = document(capsys, "parity", "mine:example", "--device", "cpu")
    assert report["agrees"] is True and report["results"][0]["units"] == 0
    told = document(capsys, "explain", "mine:example")
    assert told["operations"] >= 1 and "linear" in told["text"].lower()
    gl.jit.trace(gl.nn.Linear(4, 2).eval(), gl.ones(1, 4)).save("model.glp")
    built = document(capsys, "build", "model.glp")
    assert built["command"].startswith("cc ") and Path(built["source"]).is_file()


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="the emulated GPU needs a C++ compiler")
def test_kernels(folder, capsys):
    Path("k.cu").write_text("__global__ void f(float* y) { y[0] = threadIdx.x; }\n// gradlab: run f<<<1, 32>>>(y: float32[1])\n")
    found = document(capsys, "kernels", "k.cu", "--emulate", code=1)
    assert found["ok"] is False and any("race" in problem for problem in found["files"][0]["launches"][0]["problems"])


def test_every_command_that_reports_can_say_it_in_json():
    for name in set(entry.COMMANDS) - {"run", "completion", "launch"}:
        assert "--json" in entry.parser_of(name, []).option_names, name


def test_what_json_has_not():
    assert plain({"a": float("nan"), "b": [float("inf"), gl.ones(2)], "c": Path("x")}) == {"a": None, "b": [None, [1.0, 1.0]], "c": "x"}


# ---------------------------------------------------------------- help


def test_help_shows_defaults(capsys):
    """Of every option that has a value: what is taken where it is left out, or that something has to be given."""
    for name in entry.COMMANDS:
        for kind in NAMES if name == "train" else ("",):
            for action in entry.parser_of(name, [kind] if kind else [])._actions:
                if action.nargs == 0 or not action.option_strings or action.metavar == "module":
                    continue
                words = r"default|write|go on with|repeatable|try|what to predict|not to see|look back|folder or an address|where new"
                assert re.search(words, action.help or ""), (name, kind, action.option_strings, action.help)
    assert main(["help", "train", "table"]) == 0
    assert "default: 60" in capsys.readouterr().out
    assert main(["help", "tarin"]) == 2
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "To begin" in said and "gradlab train digits" in said and "Exit codes: 0" in said


def test_the_help_s_defaults_are_those_that_are_taken():
    names = ("epochs", "batch_size", "learning_rate")
    for kind in ("text", "series"):
        usual = kind_named(kind).USUAL
        assert (usual["epochs"], usual["batch"], usual["lr"]) == tuple(task_of(kind).defaults[name] for name in names)
    for network, place in (("cnn", 0), ("mlp", 1)):
        usual = [str(value).split("; mlp: ") * 2 for value in kind_named("digits").USUAL.values()]
        taken = task_of("digits").of("digits", {"model": network}).defaults
        assert [parts[place] for parts in usual] == [str(taken[name]) for name in names]


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]), (["train", "t"], ["table", "text"]), (["train", "digits", "--mod"], ["--model"]),
        (["help", "par"], ["parity"]),
        (["train", "text", "--model", "g"], ["gpt", "gru"]), (["train", "digits", "--model", ""], ["cnn", "mlp"]),
        (["completion", "f"], ["fish"]), (["kernels", "--san"], ["--sanitize"]), (["train", "table", "hou"], []), (["nothing", ""], []),
        (["train", "--amp", ""], ["bfloat16", "float16"]), (["help", "train", "se"], ["series"]),
        (["export", "runs/x", "--o"], ["--onnx", "--out"]),
    ],
)  # fmt: skip
def test_what_can_come_next(words, expected, capsys):
    assert main(["completion", "--words", *words]) == 0
    assert sorted(capsys.readouterr().out.split()) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_ones(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False).returncode == 0
    assert "gradlab completion --words" in script


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes(tmp_path, capsys):
    main(["completion", "bash"])
    program = tmp_path / "gradlab"
    program.write_text(f"#!/bin/sh\nPYTHONPATH='{PACKAGE}' exec '{sys.executable}' -m gradlab \"$@\"\n")
    program.chmod(0o755)
    ask = capsys.readouterr().out + 'COMP_WORDS=(gradlab train --am); COMP_CWORD=2; _gradlab; echo "${COMPREPLY[@]}"\n'
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", ask], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "--amp\n", done.stderr


# ---------------------------------------------------------------- terminals

SLOW = "import sys, time, tqdm; from gradlab import progress; progress.PATIENCE = 0.05; progress.TICK = 0.02\n" \
       "with progress.waiting('compiling', 4) as shown:\n    shown.done(3); time.sleep(1.5)\n"  # fmt: skip


def test_bars_are_for_terminals():
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    quiet = subprocess.run([sys.executable, "-c", SLOW], env=environment, capture_output=True, text=True, check=False)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", SLOW], env=environment, stderr=theirs, stdout=subprocess.PIPE) as process:
        assert process.wait(60) == 0
    said = b""
    while select.select([ours], [], [], 0.5)[0]:
        said += os.read(ours, 1 << 16)
    os.close(theirs)
    os.close(ours)
    assert b"compiling: 3/4" in said


def test_what_is_quick_starts_no_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "PATIENCE", 60)  # a busy machine is slow
    for _ in range(100):
        with waiting("nothing") as shown:
            shown.done()
    assert terminal.getvalue() == ""
    assert "gradlab progress" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("arguments", [["--help"], ["help", "train"], ["info"], ["nonsense"], []])
def test_no_colours_where_there_is_no_terminal(arguments):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-m", "gradlab", *arguments], env=environment, capture_output=True, text=True, check=False)
    assert "\x1b" not in done.stdout + done.stderr
