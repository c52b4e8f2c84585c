"""The emulated GPU's NCCL in several processes (`nccl_ranks.py`): what it computes, and that planted mistakes are caught."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradlab.backends.cuda.nccl.hub import Hub
from gradlab.backends.cuda.nccl.library import nccl_of
from gradlab.backends.cuda.nccl.names import CONSTANTS

HERE = Path(__file__).parent


@pytest.fixture
def nccl(cuda):
    if cuda.driver.name != "emulated":
        pytest.skip("only on the emulated GPU")
    found = nccl_of(cuda.driver)
    yield found
    for hub in found.hubs:
        hub._listener.close()
    found.hubs.clear()


def ranks(nccl, what, size, ids=1, seconds="60"):
    """What each of the processes prints, and asserts that all are through."""
    made = [str(nccl.get_unique_id()) for _ in range(ids)]
    known = {
        **os.environ, "GRADLAB_CUDA": f"emulated:{size}", "GRADLAB_EMULATED_NCCL_SECONDS": seconds,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]),
    }  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "nccl_ranks.py"), what, str(rank), str(size), *made],
            env=known, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    said = []
    try:
        for rank, process in enumerate(started):
            out, err = process.communicate("go\n", timeout=120)
            assert f"rank {rank} is through" in out, f"{out}\n{err[-3000:]}"
            said.append(out)
    finally:
        for process in started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()
    return said


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_collectives(nccl, size):
    ranks(nccl, "collectives", size)


def test_captures(nccl):
    ranks(nccl, "captures", 2)


def test_work_goes_on_by_itself(nccl):
    ranks(nccl, "progress", 2)


def test_mistakes(nccl):
    ranks(nccl, "faults", 2, 24, seconds="2")


def test_names(nccl):
    """Those of CuPy's module that are used, here or there."""
    for name in ("NcclCommunicator", "NcclError", "get_unique_id", "get_version", "groupStart", "groupEnd", "available"):
        assert hasattr(nccl, name)
    calls = "allReduce reduce broadcast bcast reduceScatter allGather send recv"
    for name in f"{calls} check_async_error destroy abort rank_id size device_id initAll".split():
        assert callable(getattr(nccl.NcclCommunicator, name))
    assert all(getattr(nccl, name) == number for name, number in CONSTANTS.items())
    first = nccl.get_unique_id()
    assert len(first) == 128 and all(-128 <= number < 128 for number in first) and first != nccl.get_unique_id()
    assert isinstance(nccl.hubs[0], Hub)


@pytest.mark.parametrize(("count", "models"), [(2, ["mlp"]), pytest.param(3, ["mlp", "cnn"], marks=pytest.mark.slow)])
def test_collectives_of_a_program(nccl, count, models):
    """`gl.distributed` on tensors of GPUs, by MPI's processes: rows, gradients, a compiled step, training, messages."""
    test_mpi = pytest.importorskip("test_mpi")
    if test_mpi.MPIEXEC is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install .[mpi]")
    environment = {"GRADLAB_CUDA": f"emulated:{count}", "GRADLAB_EMULATED_NCCL_SECONDS": "60"}
    said = test_mpi.started(count, "on_gpu.py", *models, seconds=600, **environment)
    assert len(test_mpi.lines(said, "all on GPUs")) == len(test_mpi.lines(said, "trained on GPUs")) == count


@pytest.mark.slow
def test_two_processes_on_one_gpu(nccl):
    test_mpi = pytest.importorskip("test_mpi")
    if test_mpi.MPIEXEC is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install .[mpi]")
    assert len(test_mpi.lines(test_mpi.started(2, "on_gpu.py", GRADLAB_CUDA="emulated:1"), "all by the host")) == 2
