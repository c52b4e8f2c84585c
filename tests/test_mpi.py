"""Programs of several processes, started by mpiexec: `tests/mpi_programs/`. They skip themselves where there is no MPI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
pytestmark = pytest.mark.skipif(MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="no MPI: pip install .[mpi]")


def started(count, program, *arguments, seconds=120, options=(), **environment):
    """How a program of so many processes ended, with its output."""
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    run_as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container; other MPIs do not read them
    known = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", **run_as_root, **environment}
    command = [MPIEXEC, "--oversubscribe", *options, "-n", str(count), sys.executable, str(HERE / "mpi_programs" / program), *arguments]
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=seconds, check=False)


def lines(ended, text):
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return [line for line in ended.stdout.splitlines() if text in line]


def counted(*quick):
    """1 to 4 processes; those that are not quick belong to the long suite."""
    return pytest.mark.parametrize("count", [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3, 4)])


@counted(3)
def test_collectives(count):
    assert len(lines(started(count, "collectives.py"), "all collectives")) == count


@counted(2)
def test_training_is_that_of_one_process(count):
    assert len(lines(started(count, "training.py", "mlp", "cnn", "gpt"), "equal")) == 6
