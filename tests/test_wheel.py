"""The wheel and the sdist carry everything, and an installed wheel works away from the repository."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from repository import ROOT, project_files

DEPENDENCIES = ("numpy", "ml_dtypes", "safetensors", "tqdm")

PROGRAM = """
import pathlib, sys
import gradlab, gradlab.kernel
package = pathlib.Path(gradlab.__file__).resolve().parent
sources = gradlab.kernel.source_folders("cuda")[1]
print(package)
print(pathlib.Path(sources).resolve())
print(gradlab.__version__)
print(*sorted(path.name for path in pathlib.Path(sources).rglob("*") if path.is_file()))
"""


def clean_environment() -> dict[str, str]:
    """This process's environment without what would lead Python back to the repository."""
    leading = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in leading}


def output(*command: str | Path, cwd: Path) -> str:
    run = subprocess.run(command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{command} exited {run.returncode}:\n{run.stdout}\n{run.stderr}"
    return run.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it: what a package index would get. Needs no network."""
    output(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def make_environment(folder: Path, wheel: Path) -> Path:
    """A virtual environment with the wheel, and with this environment's copies of what it depends on."""
    output(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    output(python, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", wheel, cwd=folder.parent)
    # Only now, or pip would find a gradlab of this environment and let it be. The .pth files in the folders named
    # here are not read, so an editable gradlab stays out of sight.
    homes = {str(Path(spec.origin).parent.parent) for name in DEPENDENCIES if (spec := find_spec(name)) and spec.origin}
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(sorted(homes)) + "\n", encoding="utf-8")
    return python


@pytest.mark.skipif(os.name == "nt", reason="the folders of a virtual environment are spelled for POSIX")
def test_wheel(tmp_path):
    sdist, wheel = build(tmp_path)

    package = set(project_files("gradlab"))
    kernels = set(project_files("kernels"))
    assert "gradlab/py.typed" in package
    assert "kernels/scalar_math.h" in kernels
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    papers = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"}
    assert package | kernels | papers | {"tests/test_wheel.py"} <= packed
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert package | {f"gradlab/{name}" for name in kernels} <= packed
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed)
    strangers = {name for name in packed if not name.startswith(("gradlab/", "gradlab_engine-", "gradlab_start.py"))}
    assert not strangers

    python = make_environment(tmp_path / "environment", wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home, sources, version, names = output(python, "-c", PROGRAM, cwd=elsewhere).splitlines()
    assert Path(home).is_relative_to((tmp_path / "environment").resolve())
    assert Path(sources) == Path(home, "kernels")
    assert version in wheel.name
    assert {Path(name).name for name in kernels} <= set(names.split())
    assert output(python, "-m", "gradlab", "info", cwd=elsewhere)
    assert output(python.with_name("gradlab"), "info", cwd=elsewhere)
    shutil.rmtree(tmp_path / "environment")
