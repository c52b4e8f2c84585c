"""The wheel, installed: on each Python that is here, with the oldest NumPy that it allows and with the newest; and run by uvx.

Slow, and needs a registry of packages; `.ci/run` and `.ci/full` ask for it. What cannot be had here is skipped, and said.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repository import ROOT

pytestmark = pytest.mark.slow

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NEWEST = "newest"
# The oldest that pyproject.toml allows, or where there is no wheel of it for a Python, the first that has one.
OLDEST = {"3.14": "2.3.2"}
PROGRAM = """
import numpy, gradlab as gl
x = gl.ones(3, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0]
model = gl.nn.Linear(2, 1)
step = gl.compile(lambda v: model(v).sum())
assert step(gl.ones(1, 2)).item() == step(gl.ones(1, 2)).item()
assert gl.from_numpy(numpy.ones(2, numpy.float32)).numpy().sum() == 2
print(numpy.__version__)
"""


def allowed():
    return re.search(r'"numpy>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[1]


def interpreter(version):
    """A Python of that version that runs; None where there is none."""
    others = (Path.home() / ".pyenv" / "versions").glob(f"{version}*/bin/python{version}")
    names = [shutil.which(f"python{version}"), *sorted(map(str, others))]
    for name in [sys.executable, *filter(None, names)]:
        asked = run(name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return name
    return None


def run(*command, **options):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    return subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.parametrize("numpy", ["oldest", NEWEST])
@pytest.mark.parametrize("version", VERSIONS)
def test_installed(wheel, version, numpy, tmp_path):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    assert run(python, "-m", "venv", tmp_path / "venv").returncode == 0
    inside = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = "numpy" if numpy == NEWEST else f"numpy=={OLDEST.get(version, allowed() + '.*' if allowed().count('.') == 1 else allowed())}"
    done = run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, wanted)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"the registry has no {wanted} for Python {version}")
    assert done.returncode == 0, done.stderr
    found = run(inside, "-c", PROGRAM, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert numpy == NEWEST or found.stdout.startswith(OLDEST.get(version, allowed()))
    trained = run(inside, "-m", "gradlab", "train", "digits", "--epochs", "1", cwd=tmp_path)
    assert trained.returncode == 0 and (tmp_path / "runs" / "digits-1" / "report.html").is_file(), trained.stderr


def test_uvx(wheel, tmp_path):
    """`uvx --from gradlab-engine gradlab train digits`, of the wheel that was built."""
    uvx = shutil.which("uvx") or shutil.which("uvx", path=str(Path(sys.executable).parent))
    if uvx is None:
        pytest.skip("uv is not installed")
    done = run(uvx, "--python", sys.executable, "--from", wheel, "gradlab", "train", "digits", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "digits-1" / "report.html").is_file()
