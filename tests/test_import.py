"""`import gradlab` stays cheap: nothing heavy comes along. bench/import_time.py measures the time itself."""

import subprocess
import sys

import pytest

import gradlab

# What must not be loaded by `import gradlab` unless `import numpy` loads it already: other people's packages that
# are not needed to make a tensor, and the parts of the standard library that cost ten milliseconds or more.
HEAVY = {
    "IPython",
    "asyncio",
    "concurrent.futures.process",
    "cupy",
    "cupyx",
    "email",
    "hashlib",
    "http",
    "importlib.metadata",
    "matplotlib",
    "multiprocessing",
    "numpy.f2py",
    "numpy.polynomial",
    "numpy.testing",
    "onnx",
    "pathlib",
    "pdb",
    "safetensors",
    "socket",
    "torch",
    "tqdm",
    "unittest",
    "urllib.parse",
    "urllib.request",
    "zipfile",
}
OUTSIDE = {"gradlab", "ml_dtypes"}
# Rooms that wait until somebody asks for them. Each module costs about half a millisecond, five without byte code: whoever raises the
# number says in the commit why the module cannot wait.
WAITING = ("backends.cuda.gemm.plan", "cli", "cuda", "data", "func", "graph", "nn", "optim", "runs", "session", "utils", "viz")
MOST = 190  # rows of sequences, their losses, few bits and grids are rows, and what calls came to is remembered from the first one on

PROGRAM = """
import sys
import numpy
before = set(sys.modules)
import gradlab
print(*sorted(set(sys.modules) - before))
"""


def run(program: str) -> str:
    """What a fresh interpreter prints, warnings being errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def added() -> set[str]:
    """The modules that `import gradlab` loads beyond NumPy's own."""
    return set(run(PROGRAM).split())


def test_nothing_heavy(added):
    assert not {name for name in added if name in HEAVY or name.partition(".")[0] in HEAVY}


def test_nothing_foreign(added):
    tops = {name.partition(".")[0] for name in added}
    # NumPy loads some of its own parts late; compiled packages register helper modules with a leading underscore.
    foreign = {name for name in tops - OUTSIDE - sys.stdlib_module_names - {"numpy"} if not name.startswith("_")}
    assert not foreign


def test_how_many(added):
    own = {name for name in added if name.partition(".")[0] == "gradlab"}
    assert not {name for name in own for room in WAITING if f"{name}.".startswith(f"gradlab.{room}.")}
    assert len(own) <= MOST, f"{len(own)} modules: let what is not needed to make a tensor be imported where it is used"
    assert len(added - own) <= 20


def test_the_program_starts_without_the_engine():
    begun = run("import sys, gradlab_start; sys.argv[1:] = ['--version']; gradlab_start.main(); print(*sys.modules)").split()
    assert not {"numpy", "gradlab.op", "gradlab.tensor"} & set(begun)
    assert len([name for name in begun if not name.startswith("encodings")]) < 150


def test_silent():
    assert run("import gradlab") == ""


def test_without_scikit_learn_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="Classifier is an estimator of scikit-learn, which is not installed: pip install"):
        gradlab.sklearn.Classifier
    assert "Classifier" not in dir(gradlab.sklearn)
    with pytest.raises(AttributeError):
        gradlab.sklearn.Clasifier
