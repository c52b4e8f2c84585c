"""Training in several processes with an emulated GPU each, and messages between them by NCCL; run under mpiexec."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from mpi_programs.training import BATCH, batch, cnn, loss_of, made, mlp

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.backends.cuda.loading import load
from gradlab.backends.cuda.nccl import communicators
from gradlab.backends.cuda.nccl.names import NcclError

MODELS = {"mlp": mlp, "cnn": cnn}


def trained(net, model, part, compiled, steps=6):
    """Losses, and the program of a compiled step."""
    optimizer = gl.optim.AdamW(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = gl.compile(step) if compiled else step
    losses = []
    for number in range(steps):
        x, y = batch(model, number)
        losses.append(run(x[part].cuda(), y[part].cuda()).item())
    return losses, run.graph if compiled else None


def values(net):
    return np.concatenate([p.detach().cpu().numpy().ravel() for p in (*net.parameters(), *net.buffers())])


def training(rank, size, name):
    """That of one process. Buckets begin to travel before backward is over, and lie in the captured graph."""
    model, driver = MODELS[name], load().driver
    for compiled in (False, True):
        net = made(model, rank).cuda()
        if model is cnn:
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        ddp = nn.parallel.DistributedDataParallel(net, device_ids=[gl.cuda.current_device()], bucket_cap_mb=0.001)
        assert len(ddp.reducer.buckets) > 1
        replays = driver.replays
        losses, graph = trained(ddp, model, slice(rank * BATCH // size, (rank + 1) * BATCH // size), compiled)
        if compiled:
            names = [call.op.name for call in graph.calls]
            assert driver.replays - replays >= 3 and names.count("all_reduce_begin") == len(ddp.reducer.buckets), names
            first, ends = names.index("all_reduce_begin"), names.index("all_reduce_end")
            assert any(other in ("matmul", "conv_weight_grad", "sum") for other in names[first:ends]), names
        every = [None] * size
        dist.all_gather_object(every, losses)
        if rank == 0:
            whole = made(model).cuda()
            wanted, _ = trained(whole, model, slice(None), compiled)
            np.testing.assert_allclose(np.mean(every, 0), wanted, rtol=2e-5)
            np.testing.assert_allclose(values(net), values(whole), rtol=1e-3, atol=2e-5)


def messages(rank, size):
    """All send before they receive; in one piece; to a part of a tensor; what differs is found."""
    following, before = (rank + 1) % size, (rank - 1) % size
    x, y = gl.full((5,), rank + 1.0, device="cuda"), gl.zeros(2, 5, device="cuda")
    dist.all_reduce(y)  # the group has its communicator
    works = [dist.isend(x, following), dist.irecv(y[0], before)]
    assert all(work.wait() for work in works) and works[1].source_rank() == before
    assert y.tolist() == [[before + 1.0] * 5, [0.0] * 5]
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, y.t()[:, 1], before), dist.P2POp(dist.isend, x * 2, following)]):
        work.wait()
    assert y.tolist() == [[before + 1.0] * 5, [2 * before + 2.0] * 5]
    if rank == 0:
        dist.isend(gl.ones(3, dtype=gl.bfloat16, device="cuda"), 1)  # begins with the next call
    dist.barrier()
    if rank == 1:
        word = gl.zeros(3, dtype=gl.bfloat16, device="cuda")
        assert dist.recv(word, 0) == 0 and word.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"recv: .*give src"):
        dist.irecv(y)
    (made,) = communicators._known[dist.group.WORLD.transport].values()
    assert made is not None
    if rank < 2:
        with pytest.raises(NcclError, match="counts and types have to be the same"):
            for work in [dist.isend(x, 1 - rank), dist.irecv(gl.zeros(4, device="cuda"), 1 - rank)]:
                work.wait()
            gl.cuda.synchronize()
    dist.barrier()  # the first process carries the stand-in's messages


def main(names):
    world = dist.init()
    for name in names:
        training(world.rank(), world.size(), name)
    messages(world.rank(), world.size())
    print("trained on GPUs", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
