"""The program starts at once: what can be said without the engine imports neither it nor NumPy, and Ctrl-C on the way is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import MISTAKES

import gradlab
from gradlab.cli.entry import COMMANDS
from gradlab.cli.kinds import NAMES

PACKAGE = Path(gradlab.__file__).parent.parent
ENGINE = ("numpy", "gradlab", "ml_dtypes", "tqdm", "safetensors")
SAID = [["--version"], ["-V"], ["--help"], ["help"], *([c, "--help"] for c in COMMANDS), *(["train", kind, "--help"] for kind in NAMES)]
MORE = [
    ["parity", "m"], ["parity", "m:f", "--steps", "0"], ["parity", "m:f", "--device", "gpu"], ["explain", "m:f", "--depth", "-1"],
    ["explain", ":f"], ["build", "nothing.glp"], ["build", "x.glp", "--size", "batch"], ["kernels", "none.cu"],
    ["kernels", "none.cu", "--emulate", "--arch", "90"], ["run"], ["run", "none.py"], ["run", "--device", "tpu", __file__], ["predict"],
    ["evaluate", "runs/x"], ["runs", "a", "b"], ["train", "--resume", "nowhere"], ["train", "--resume", ".", "--lr", "1"],
    ["train", "table"], ["train", "table", "none.csv", "--target", "y"], ["train", "table", "--validation", "2"], ["info", "more"],
]  # fmt: skip
WRONG = [*MORE, *(list(a) for a, _ in MISTAKES)]

PROGRAM = """
import contextlib, io, json, sys
import gradlab_start
found = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["gradlab", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = gradlab_start.said_at_once()
    tops = sorted({name.partition(".")[0] for name in sys.modules})
    found.append([code, out.getvalue(), err.getvalue(), tops])
print(json.dumps(found))
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")]), **more}


def at_once(cases: list[list[str]], folder: Path) -> list[tuple]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(cases)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(zip(cases, json.loads(done.stdout), strict=True))


def test_what_is_said_without_the_engine(tmp_path):
    for arguments, (code, out, err, modules) in at_once(SAID, tmp_path):
        assert (code, err) == (0, "") and out, arguments
        assert not set(ENGINE) & set(modules), arguments


def test_usage_errors_need_no_engine(tmp_path):
    for arguments, (code, out, err, modules) in at_once(WRONG, tmp_path):
        assert (code, out) == (2, ""), (arguments, code, out, err)
        assert err.count("\n") == 1 and err.startswith("gradlab"), (arguments, err)
        assert not set(ENGINE) & set(modules), arguments
    assert not list(tmp_path.iterdir())


def test_a_command_leaves_no_trace_of_the_start(tmp_path):
    ((_, (code, out, err, modules)),) = at_once([["info"]], tmp_path)
    assert (code, out, err) == (None, "", "") and "gradlab" not in modules


@pytest.mark.parametrize("how", ["-m gradlab", "-mgradlab"])
def test_as_a_module(how, tmp_path):
    loaded = "import sys, atexit; atexit.register(lambda: print('numpy' in sys.modules))"
    (tmp_path / "sitecustomize.py").write_text(loaded)
    command, paths = [sys.executable, *how.split(), "train", "--epochs", "0"], f"{tmp_path}{os.pathsep}{PACKAGE}"
    done = subprocess.run(command, env=environment(PYTHONPATH=paths), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert done.stderr == "gradlab train: --epochs: must be at least 1, not 0\n"


HOW = [["-m", "gradlab"], ["-c", "import sys, gradlab_start; sys.exit(gradlab_start.main())"]]
# Stands for a Ctrl-C while a module is imported.
PRESSED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("module", ["gradlab.cli", "gradlab.cli.options", "numpy", "gradlab.tensor", "gradlab.cli.use", "gradlab.runs"])
@pytest.mark.parametrize("how", HOW, ids=["-m", "script"])
def test_ctrl_c_while_importing_is_one_line(module, how, tmp_path):
    if (module, how[0]) in (("gradlab.cli", "-m"), ("gradlab.cli.options", "-m")):
        pytest.skip("a millisecond in which `python -m` has not handed over to the program")
    (tmp_path / "sitecustomize.py").write_text(PRESSED.format(name=module))
    command = [sys.executable, *how, "runs"]
    paths = f"{tmp_path}{os.pathsep}{PACKAGE}"
    done = subprocess.run(command, env=environment(PYTHONPATH=paths), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (130, -2) and done.stdout == ""
    assert done.stderr == "gradlab: interrupted\n"
