"""Sharded optimizer state and sharded parameters against plain training, with the memory that each process keeps; run under mpiexec."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
from mpi_programs.training import BATCH, batch, flat, gpt, loss_of, made, mlp

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.distributed.fsdp import FullyShardedDataParallel
from gradlab.distributed.optim import ZeroRedundancyOptimizer

WIDTH, LAYERS = 384, 8


def everywhere(value):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def steps(net, model, optimizer, rank, size, compiled=False, count=4):
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = gl.compile(step) if compiled else step
    for number in range(count):
        x, y = batch(model, number)
        run(x[share], y[share])


def state_bytes(optimizer):
    return sum(t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values() if gl.is_tensor(t))


def optimizer_state(rank, size, compiled):
    for model in (mlp, gpt):
        plain, shared = (nn.parallel.DistributedDataParallel(made(model)) for _ in range(2))
        one = gl.optim.AdamW(plain.parameters(), lr=0.01)
        steps(plain, model, one, rank, size)
        many = ZeroRedundancyOptimizer(shared.parameters(), gl.optim.AdamW, lr=0.01)
        steps(shared, model, many, rank, size, compiled)
        np.testing.assert_allclose(flat(plain), flat(shared), rtol=1e-4, atol=2e-5)
        if not compiled:
            np.testing.assert_array_equal(flat(plain), flat(shared))
        every = everywhere((state_bytes(one), state_bytes(many.optim)))
        assert sum(own for _, own in every) == every[0][0] and max(own for _, own in every) < every[0][0] * (0.5 / size + 0.5)
        if not compiled:
            many.consolidate_state_dict(0)
            if rank == 0:
                state, wanted = many.state_dict(), one.state_dict()
                assert state["param_groups"][0]["params"] == wanted["param_groups"][0]["params"]
                for number, values in wanted["state"].items():
                    for key, value in values.items():
                        assert gl.equal(state["state"][number][key], value), (number, key)
            elif size > 1:
                with pytest.raises(RuntimeError, match="consolidate_state_dict"):
                    many.state_dict()
            saved = everywhere(many.state_dict() if rank == 0 else None)[0]
            again = ZeroRedundancyOptimizer(shared.parameters(), gl.optim.AdamW, lr=0.5)
            again.load_state_dict(saved)
            assert again.param_groups[0]["lr"] == 0.01
            steps(plain, model, one, rank, size, count=1)
            steps(shared, model, again, rank, size, count=1)
            np.testing.assert_array_equal(flat(plain), flat(shared))


def parameters(rank, size, compiled):
    for model in (mlp, gpt):
        plain = nn.parallel.DistributedDataParallel(made(model))
        steps(plain, model, gl.optim.AdamW(plain.parameters(), lr=0.01), rank, size)
        whole = made(model, seed=rank)
        count = sum(p.numel() for p in whole.parameters())
        sharded = FullyShardedDataParallel(whole)
        assert len(list(sharded.parameters())) > 1
        assert sum(p.numel() for p in sharded.parameters()) < count / size + 10 * size
        optimizer = gl.optim.AdamW(sharded.parameters(), lr=0.01)
        steps(sharded, model, optimizer, rank, size, compiled)
        state = sharded.state_dict()
        alone = made(model, seed=9)
        alone.load_state_dict(state)
        np.testing.assert_allclose(flat(plain), flat(alone), rtol=1e-4, atol=2e-5)
        sharded.load_state_dict(made(model, seed=5).state_dict())
        other = made(model, seed=6)
        other.load_state_dict(sharded.state_dict())
        np.testing.assert_array_equal(flat(other), flat(made(model, seed=5)))


def memory(rank, size):
    """What one process keeps for a model of eight wide layers, and the most in a step."""
    found = {}
    for name in ("DistributedDataParallel", "ZeroRedundancyOptimizer", "FullyShardedDataParallel"):
        tracemalloc.start()
        net = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
        wrapped = FullyShardedDataParallel(net) if name.startswith("Fully") else nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
        of = ZeroRedundancyOptimizer if name.startswith("Zero") else None
        optimizer = of(wrapped.parameters(), gl.optim.Adam) if of else gl.optim.Adam(wrapped.parameters())
        for number in range(3):
            if number == 2:
                tracemalloc.reset_peak()
            optimizer.zero_grad()
            wrapped(gl.ones(4, WIDTH)).square().mean().backward()
            optimizer.step()
        optimizer.zero_grad()
        del net
        kept, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found[name] = kept / 1e6, most / 1e6
        del wrapped, optimizer
    for name, (kept, most) in found.items():
        if rank == 0:
            print(f"memory n={size} {name}: {kept:.1f} MB between steps, {most:.1f} MB at most")
    plain, zero, fully = found.values()
    assert zero[0] < plain[0] * (1 / 3 + 2 / 3 / size) * 1.1 and fully[0] < plain[0] / size * 1.3 and fully[1] < zero[1] < plain[1]


if __name__ == "__main__":
    world = dist.init()
    for each in sys.argv[1:]:
        if each == "memory":
            memory(world.rank(), world.size())
        else:
            for is_compiled in (False, True):
                {"state": optimizer_state, "parameters": parameters}[each](world.rank(), world.size(), is_compiled)
        dist.barrier()
    print(f"rank {world.rank()}: sharded {sys.argv[1:]}")
