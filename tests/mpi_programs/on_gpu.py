"""Collectives of tensors on emulated GPUs: by NCCL where each process has a GPU of its own, else by the host; run under mpiexec."""

from __future__ import annotations

import sys
import warnings

import numpy as np
from mpi_programs import gpus

import gradlab as gl
import gradlab.distributed as dist
from gradlab.backends.cuda.loading import load
from gradlab.backends.cuda.nccl import communicators
from gradlab.distributed import ReduceOp


def equal(found, wanted):
    assert found.device.type == "cuda"
    np.testing.assert_array_equal(found.detach().cpu().double().numpy(), np.asarray(wanted, float))


def main():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        group = dist.init()
        rank, size = group.rank(), group.size()
        own = gl.cuda.device_count() >= size
        assert gl.cuda.current_device() == (rank if own else 0)
        for dtype in (gl.float32, gl.bfloat16, gl.int64, gl.bool):
            every = np.stack([(np.arange(6) + r) % 3 for r in range(size)])
            every = every.astype(bool) if dtype == gl.bool else every
            x = gl.tensor(every[rank], device="cuda").to(dtype)
            if dtype != gl.bool:
                y = x.clone()
                dist.all_reduce(y)
                equal(y, every.sum(0))
                y = x.clone()
                dist.reduce(y, size - 1, ReduceOp.MAX)
                equal(y, every.max(0) if rank == size - 1 else every[rank])
                y = gl.zeros(6, dtype=dtype, device="cuda")
                dist.reduce_scatter_tensor(y, gl.cat([x + r for r in range(size)]))
                equal(y, every.sum(0) + size * rank)
            y = x.clone()
            dist.broadcast(y, size - 1)
            equal(y, every[-1])
            y = gl.zeros(size, 6, dtype=dtype, device="cuda")
            dist.all_gather_into_tensor(y, x)
            equal(y, every)
            y = gl.zeros(6 * size, 2, dtype=dtype, device="cuda")
            dist.all_to_all_single(y, gl.stack([x, x], 1).repeat(size, 1))
            equal(y[:, 1], every.reshape(-1))
        mean = gl.tensor([rank + 1.0, 2.0], device="cuda")
        dist.all_reduce(mean, ReduceOp.AVG)
        equal(mean, [np.mean(np.arange(size) + 1), 2])
        words = gl.tensor([1 << rank, 3], device="cuda")
        dist.all_reduce(words, ReduceOp.BOR)  # not among NCCL's
        equal(words, [(1 << size) - 1, 3])
        a = gl.full((2,), rank + 1.0, device="cuda", requires_grad=True)
        dist.nn.functional.all_reduce(a.square()).sum().backward()
        equal(a.grad, [2 * size * (rank + 1)] * 2)

        @gl.compile
        def step(x):
            return dist.nn.functional.all_reduce(x * 2) + 1

        for n in range(4):
            equal(step(gl.full((5,), float(rank + n), device="cuda")), np.full(5, 2 * sum(r + n for r in range(size)) + 1))
        assert not own or load().driver.replays >= 2  # it was captured
        (made,) = communicators._known[group.transport].values()
        assert (made is not None) == own
        text = [str(w.message) for w in said if "go by the host" in str(w.message)]
        assert len(text) == (0 if own else 1) and (own or "two processes are on" in text[0])
    print("all on GPUs" if own else "all by the host")


main()
if sys.argv[1:]:
    gpus.main(sys.argv[1:])
