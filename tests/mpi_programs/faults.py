"""What goes wrong among processes, and what the others say; run under mpiexec with three. The argument names the fault."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import pytest

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn

LATE = 1.5  # seconds


def differs(rank):
    """All raise, and can go on."""
    last = rank == 2
    for call, text in (
        (lambda: dist.all_reduce(gl.ones(3 if last else 4)), r"all_reduce: .*ranks 0, 1: .*of \(4,\) float32, sum; rank 2: .*\(3,\)"),
        (lambda: dist.all_reduce(gl.ones(3, 2) if last else gl.ones(2, 3)), r"\(2, 3\).*\(3, 2\)"),
        (lambda: dist.all_reduce(gl.ones(3, dtype=gl.int32 if last else gl.float32)), "float32.*int32"),
        (lambda: dist.all_reduce(gl.ones(3), dist.ReduceOp.MAX if last else dist.ReduceOp.SUM), "sum; rank 2: .*max"),
        (lambda: dist.broadcast(gl.ones(3), 1) if last else dist.all_reduce(gl.ones(3)), r"rank 2: broadcast of \(3,\) float32, root 1"),
        (lambda: dist.broadcast(gl.ones(3), 1 if last else 0), "root 0; rank 2: .*root 1"),
        (lambda: dist.barrier() if last else dist.all_reduce(gl.ones(9000)), "rank 2: barrier"),
        (lambda: dist.all_gather([gl.empty(2 + last)] * 3, gl.ones(2 + last)), r"all_gather of \(2,\).*\(3,\)"),
    ):
        with pytest.raises(dist.DistBackendError, match=text):
            call()
        job = dist.group.WORLD.transport.start(call)
        with pytest.raises(dist.DistBackendError, match=text):
            job.wait()
    if rank < 2:
        works = [dist.isend(gl.ones(3), 1 - rank), dist.irecv(gl.ones(4), 1 - rank)]
        with pytest.raises(dist.DistBackendError, match=rf"rank {1 - rank} sends a tensor of \(3,\).*\(4,\)"):
            works[1].wait()
        works = [dist.isend(gl.ones(30), 1 - rank), dist.irecv(gl.ones(4), 1 - rank)]
        with pytest.raises(dist.DistBackendError, match="longer than"):
            works[1].wait()
    dist.barrier()
    x = gl.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [3, 3, 3]
    print(f"rank {rank}: as said")


def stopped(rank):
    """Rank 1 hangs: the others name it after the limit, and whatever they call then says so at once."""
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    if rank == 1:
        time.sleep(4 * LATE)
        os._exit(3)
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=rf"rank {rank} has waited {LATE:g} s for rank 1, which has not come"):
        net(gl.ones(1, 2)).sum().backward()
    assert time.monotonic() - begun < 3 * LATE
    with pytest.raises(dist.DistBackendError, match="ended before"):
        dist.barrier()
    print(f"rank {rank}: as said", flush=True)
    time.sleep(LATE)


def raised(rank):
    """An exception in rank 1 is told by the others, at once."""
    if rank == 1:
        raise KeyError("planted")
    begun = time.monotonic()
    try:
        dist.all_reduce(gl.ones(3))
    except dist.DistBackendError as error:
        assert "rank 1 has ended: KeyError: 'planted'" in str(error), error
        assert time.monotonic() - begun < LATE
        print(f"rank {rank}: as said", flush=True)
        time.sleep(LATE)
        raise


def early(rank):
    """Rank 1's program is over before the others'."""
    if rank == 1:
        return
    try:
        dist.all_reduce(gl.ones(3))
    except dist.DistBackendError as error:
        assert "rank 1 has ended: its program is over" in str(error), error
        print(f"rank {rank}: as said", flush=True)


def killed(rank):
    """Nobody can say anything; the launcher ends the others."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(gl.ones(3))


if __name__ == "__main__":
    seconds = 600.0 if sys.argv[1] in ("raised", "early", "killed") else 20.0 if sys.argv[1] == "differs" else LATE
    dist.init(timeout=timedelta(seconds=seconds))
    globals()[sys.argv[1]](dist.get_rank())
