"""No traceback reaches a user for a mistake of theirs: every command, with what can be wrong in what it is told, read or asked to write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gradlab
from gradlab.cli import main
from gradlab.cli.entry import COMMANDS

PACKAGE = Path(gradlab.__file__).parent.parent
MODULE = """
import gradlab as gl
from gradlab import nn

value = 3

def good():
    return nn.Linear(2, 1), (gl.ones(4, 2),), lambda y: y.sum()

def needs(x):
    return good()

def not_a_tuple():
    return "text"

def raises():
    return {}["missing"]

def inner_type_error():
    return len(3)

class Broken(nn.Module):
    def forward(self, x):
        return self.absent(x)

def model_raises():
    return nn.Sequential(Broken()), (gl.ones(4, 2),), lambda y: y.sum()

def wrong_shapes():
    return nn.Linear(3, 1), (gl.ones(4, 2),), lambda y: y.sum()

def no_model():
    return 5, (gl.ones(4, 2),)

def no_tensor():
    return (lambda x: "text"), (gl.ones(4, 2),)
"""
BOTH = ("parity", "explain")
TRAINED = ("m:value", "m:absent", "m:needs", "none:f", "m:raises", "m:inner_type_error", "broken:f", "lacking:f", "raising:f")  # by `train`
TARGETS = [  # of `parity` and `explain`: what is asked for, a part of what is said, and of a traceback the frames that stay
    ("m:value", "m:value is a int, not a function", None),
    ("m:needs", "m:needs is called without arguments, and takes some: needs() missing 1 required positional argument", None),
    ("m:absent", "module m has no function 'absent'; it has ", None),
    ("m:not_a_tuple", "m:not_a_tuple returned str", None),
    ("none:f", "no module named 'none'", None),
    ("none.inner:f", "no module named 'none.inner'", None),
    ("m.inner:f", "no module named 'm.inner'", None),
    ("m:raises", "KeyError: 'missing'", ["raises"]),
    ("m:inner_type_error", "TypeError: object of type 'int' has no len()", ["inner_type_error"]),
    ("m:model_raises", "'Broken' object has no attribute 'absent'", ["forward"]),
    ("m:wrong_shapes", "linear", None),
    ("broken:f", "SyntaxError", []),
    ("lacking:f", "ModuleNotFoundError: No module named 'a_package_that_is_not_there'", ["<module>"]),
    ("raising:f", "ZeroDivisionError: division by zero", ["<module>"]),
]  # fmt: skip
OTHERS = [
    (["launch", "-n", "2"], "say what to run: gradlab launch -n 4 -- train digits"),
    (["launch", "-n", "2", "--", "none.py"], "no file 'none.py'"),
    (["parity", "m:good", "--device", "cuda:5"], "no device 'cuda:5' here"),
    (["parity", "m:no_model", "--device", "cpu"], "m:no_model"),
    (["explain", "m:no_model"], "m:no_model returned a int as model"),
    (["explain", "m:no_tensor"], "the model returned str, not a tensor"),
    (["explain", "m:good", "--svg", "none/x.svg"], "--svg: none/x.svg cannot be written: No such file or directory"),
    (["explain", "m:good", "--html", "."], "--html: . cannot be written: Is a directory"),
    (["build", "garbage.bin"], "garbage.bin"),
    (["build", "empty.csv"], "empty.csv"),
    (["kernels", "garbage.bin", "--emulate"], "garbage.bin"),
    (["kernels", "empty.csv", "--emulate"], "there is no __global__ function in it"),
    (["predict", "none", "good.csv"], "none is no folder of a run"),
    (["predict", "good.csv", "good.csv"], "good.csv is no folder of a run"),
    (["predict", ".", "good.csv"], ". is no folder of a run"),
    (["predict", "damaged", "good.csv"], "damaged"),
    (["predict", "RUN", "none.csv"], "none.csv: No such file or directory"),
    (["predict", "RUN", "."], "."),
    (["predict", "RUN", "garbage.bin"], "garbage.bin"),
    (["predict", "RUN", "empty.csv"], "empty.csv"),
    (["predict", "RUN", "other.csv"], "other.csv"),
    (["predict", "RUN", "good.csv", "--out", "none/x.csv"], "cannot write none/x.csv: No such file or directory"),
    (["train", "good.csv"], "good.csv is data: say what kind of data first"),
    (["train", "table", "good.csv", "--target", "absent", "--find-lr"], "absent"),
    (["train", "table", "good.csv", "--target", "absent", "--search", "2"], "absent"),
    (["train", "images", "none"], "none: there is no such folder"),
    (["train", "images", "good.csv"], "good.csv"),
    (["train", "images", "damaged"], "damaged"),
    (["train", "text", "none.txt"], "no file 'none.txt'"),
    (["train", "text", "empty.csv"], "empty.csv"),
    (["train", "series", "none.csv"], "no file 'none.csv'"),
    (["train", "series", "empty.csv"], "empty.csv"),
    (["train", "series", "good.csv", "--value", "absent"], "absent"),
    (["train", "none.py:f"], "none.py"),
    (["export", "none", "--onnx"], "none is no folder of a run"),
    (["export", "RUN"], "say which form"),
    (["export", "damaged", "--c"], "damaged"),
    (["sample", "none"], "none is no folder of a run"),
    (["sample", "RUN"], "RUN is a run of kind table; only runs of texts write"),
    (["evaluate", "none", "good.csv"], "none is no folder of a run"),
    (["evaluate", "RUN", "none.csv"], "none.csv: No such file or directory"),
    (["evaluate", "RUN", "other.csv"], "other.csv"),
    (["evaluate", "RUN", "empty.csv"], "empty.csv"),
    (["train", "table", "empty.csv", "--target", "y"], "empty.csv"),
    (["train", "table", "garbage.bin", "--target", "y"], "garbage.bin"),
    (["train", "table", ".", "--target", "y"], "."),
    (["train", "table", "good.csv", "--target", "absent"], "absent"),
    (["train", "table", "good.csv", "--target", "y", "--device", "cuda:7"], "no device 'cuda:7' here"),
    (["train", "table", "good.csv", "--target", "y", "--out", "good.csv"], "--out: good.csv is a file, not a folder"),
    (["train", "table", "good.csv", "--target", "y", "--out", "RUN"], "RUN already holds a run"),
    (["train", "--resume", "damaged"], "damaged"),
    (["train", "--resume", "RUN"], "is finished"),
    (["train", "digits", "--resume", "none"], "none"),
    (["run", "garbage.bin"], ""),
    (["run", "."], ""),
    (["runs", "none"], ""),
    (["runs", "good.csv"], ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data that is right and wrong, and a run."""
    place = tmp_path_factory.mktemp("mistakes")
    rows = "".join(f"{i},{'ab'[i % 2]},{3 * i + i % 2}\n" for i in range(40))
    (place / "good.csv").write_text("x,kind,y\n" + rows)
    (place / "other.csv").write_text("p,q\n1,2\n3,4\n")
    (place / "empty.csv").write_text("")
    (place / "garbage.bin").write_bytes(bytes(range(256)) * 8)
    (place / "damaged").mkdir()
    (place / "damaged" / "run.json").write_text('{"format": "gradlab run", ')
    (place / "m.py").write_text(MODULE)
    (place / "broken.py").write_text("def f(:\n")
    (place / "lacking.py").write_text("import a_package_that_is_not_there\n")
    (place / "raising.py").write_text("x = 1 / 0\n")
    before = Path.cwd()
    os.chdir(place)
    try:
        assert main(["train", "table", "good.csv", "--target", "y", "--epochs", "2", "--device", "cpu", "--out", "RUN"]) == 0
    finally:
        os.chdir(before)
    return place


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("gradlab.cli.devices.cuda_available", lambda: False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known = set(sys.modules)

    def files():
        return sorted(p.name for p in folder.iterdir() if p.name not in ("__pycache__", "runs"))

    before = files()
    yield
    for name in ("m", "broken", "lacking", "raising"):
        if name not in known:
            sys.modules.pop(name, None)
    assert files() == before  # nothing is left behind
    shutil.rmtree(folder / "runs", ignore_errors=True)


@pytest.mark.parametrize("command", BOTH)
@pytest.mark.parametrize(("name", "said", "frames"), TARGETS, ids=[name for name, *_ in TARGETS])
def test_targets(command, name, said, frames, capsys):
    more = ["--device", "cpu"] if command == "parity" else []
    assert main([command, name, *more]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == "" and said in err, err
    if frames is None:
        assert err.count("\n") == 1 and err.startswith(f"gradlab {command}: "), err
    else:
        found = [line.rpartition(", in ")[2] for line in err.splitlines() if line.startswith("  File ") and ", in " in line]
        assert found == frames and "gradlab/" not in err.replace(str(Path.cwd()), ""), err


@pytest.mark.parametrize(("name", "frames"), [(name, frames) for name, _, frames in TARGETS if name in TRAINED])
def test_functions_to_train(name, frames, capsys):
    assert main(["train", name, "--device", "cpu"]) in (1, 2)
    out, err = capsys.readouterr()
    found = [line.rpartition(", in ")[2] for line in err.splitlines() if line.startswith("  File ") and ", in " in line]
    assert out == "" and found == (frames or []) and "gradlab/" not in err.replace(str(Path.cwd()), ""), err
    if frames is None:
        assert err.count("\n") == 1 and name.partition(":")[name != "none:f" and 2] in err, err


@pytest.mark.parametrize(("arguments", "said"), OTHERS, ids=[" ".join(a) for a, _ in OTHERS])
def test_every_command(arguments, said, capsys):
    if arguments[0] == "run":  # as Python says it of a script; `torch` would stay gradlab in this process
        done = program(arguments, "")
        assert done.returncode == 1 and done.stderr
        return
    code = main(arguments)
    out, err = capsys.readouterr()
    if arguments[0] == "runs":
        assert (code, err) == (0, "") and out.startswith("no runs in"), out
    else:
        assert code in (1, 2) and err.count("\n") == 1 and err.startswith(f"gradlab {arguments[0]}: ") and said in err, err


def test_every_command_is_here():
    assert {a[0] for a, _ in OTHERS} | set(BOTH) | {"info", "warm", "completion"} == set(COMMANDS)


# ---------------------------------------------------------------- streams

USES = {
    "--version": ["--version"],
    "--help": ["--help"],
    "train --help": ["train", "--help"],
    "info": ["info"],
    "runs": ["runs", "."],
    "predict": ["predict", "RUN", "good.csv"],
    "evaluate": ["evaluate", "RUN", "good.csv"],
    "train": ["train", "table", "good.csv", "--target", "y", "--epochs", "1", "--device", "cpu"],
    "explain": ["explain", "m:good"],
    "parity": ["parity", "m:good", "--device", "cpu"],
}


def program(arguments: list[str], redirection: str) -> subprocess.CompletedProcess[bytes]:
    paths = os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    start = "import sys, gradlab_start; sys.exit(gradlab_start.main())"
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", start, *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("use", USES)
def test_a_full_disk_behind_stdout(use):
    done = program(USES[use], ">/dev/full")
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith(b"note: ")]
    assert len(lines) == 1 and lines[0].startswith(b"gradlab") and b"No space left on device" in lines[0], done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell's redirections")
@pytest.mark.parametrize("use", ["--version", "predict", "train"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(use, closed):
    done = program(USES[use], closed)
    assert done.returncode == 0 and b"Traceback" not in done.stderr + done.stdout, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_stderr_that_takes_nothing():
    for redirection in ("2>/dev/full", "2>&-"):
        done = program(["predict", "none", "good.csv"], redirection)
        assert (done.returncode, done.stdout) == (1, b"")
