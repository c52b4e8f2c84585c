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


@counted()
def test_collectives(count):
    assert len(lines(started(count, "collectives.py"), "all collectives")) == count


def test_training_is_that_of_one_process():
    """An MLP, a CNN with synchronised batch norm and a GPT in 1 to 4 processes, eager and compiled."""
    assert len(lines(started(4, "training.py", "1,2,3,4", "mlp", "cnn", "gpt", seconds=600), "equal")) == 24


@pytest.mark.parametrize(("count", "ways"), [(2, ["eager"]), pytest.param(3, ["eager", "compiled"], marks=pytest.mark.slow)])
def test_a_shared_step_is_that_of_one_process(count, ways):
    """Dropout, batch norm, and batches that cannot be shared."""
    sizes = range(2, count + 1)
    ended = started(count, "sharing.py", ",".join(map(str, sizes)), *ways, seconds=600)
    assert len(lines(ended, "the run of one process")) == len(ways) * sum(sizes)


@counted(2)
def test_what_the_wrapper_of_a_model_promises(count):
    if count > 1:
        assert len(lines(started(count, "wrapping.py"), "cases")) == count


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("what", ["state", "parameters", "memory"])
def test_what_is_sharded_trains_as_what_is_not(count, what):
    assert len(lines(started(count, "sharding.py", what), "sharded")) == count


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_scripts_as_pytorchs_tutorials_write_them(count):
    assert len(lines(started(count, "idioms.py", seconds=300), "as written")) == count


FAULTS = {"differs": (0, 3), "stopped": (1, 2), "raised": (1, 2), "early": (1, 2), "killed": (137, 0)}  # exit code; how many say so


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow
def test_faults_are_named(fault):
    ended = started(3, "faults.py", fault)
    assert (ended.returncode != 0) == (FAULTS[fault][0] != 0), ended.stderr
    assert ended.stdout.count("as said") == FAULTS[fault][1], ended.stdout + ended.stderr
    if fault == "killed":
        assert "rank 1" in ended.stderr
