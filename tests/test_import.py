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
    "http",
    "importlib.metadata",
    "matplotlib",
    "multiprocessing",
    "numpy.f2py",
    "numpy.testing",
    "onnx",
    "pdb",
    "safetensors",
    "socket",
    "torch",
    "tqdm",
    "unittest",
    "urllib.request",
    "zipfile",
}
OUTSIDE = {"gradlab", "ml_dtypes"}

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


def test_silent():
    assert run("import gradlab") == ""


def test_without_scikit_learn_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="Classifier is an estimator of scikit-learn, which is not installed: pip install"):
        gradlab.sklearn.Classifier
    assert "Classifier" not in dir(gradlab.sklearn)
    with pytest.raises(AttributeError):
        gradlab.sklearn.Clasifier
