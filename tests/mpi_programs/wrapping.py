"""What `DistributedDataParallel` promises besides equal losses; run under mpiexec with two processes or more."""

from __future__ import annotations

import copy
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from mpi_programs import hooks_and_files, odd

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.nn.parallel import DistributedDataParallel as Wrapped
from gradlab.utils.data import DistributedSampler


def everywhere(value):
    """Every process's value."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def linear(seed=None):
    if seed is not None:
        gl.manual_seed(seed)
    return nn.Linear(3, 2)


def begins_with_rank_0s(rank, size):
    net = nn.Sequential(linear(rank), nn.BatchNorm1d(2))
    net[1].running_mean.fill_(float(rank))
    Wrapped(net)
    assert len(set(everywhere((net[0].weight.tolist(), net[1].running_mean.tolist()).__repr__()))) == 1
    assert net[1].running_mean.tolist() == [0, 0]


def models_that_differ(rank, size):
    with pytest.raises(RuntimeError, match=rf"the models differ: rank 0 has .*weight.*, rank {size - 1} .*weight"):
        Wrapped(nn.Linear(3, 2 if rank < size - 1 else 4))


def buffers(rank, size):
    net = Wrapped(nn.Sequential(linear(0), nn.BatchNorm1d(2)))
    net(gl.randn(4, 3, generator=gl.Generator().manual_seed(rank)))
    own = net.module[1].running_mean.tolist()
    assert len(set(map(str, everywhere(own)))) == size
    mean = everywhere(own)[0]
    net.module[0].weight.data.zero_()
    net.module[0].bias.data.zero_()
    net(gl.randn(4, 3))  # begins with rank 0's, which then move by a tenth towards 0
    np.testing.assert_allclose(net.module[1].running_mean.tolist(), np.array(mean) * 0.9, rtol=1e-5)


def no_sync(rank, size):
    net = Wrapped(linear(0))
    x = gl.full((1, 3), rank + 1.0)
    with net.no_sync():
        net(x).sum().backward()
    assert net.module.weight.grad[0].tolist() == [rank + 1.0] * 3
    net(x).sum().backward()
    assert net.module.weight.grad[0].tolist() == [size + 1.0] * 3  # twice the mean of 1 … size
    step = gl.compile(lambda x: net(x).sum().backward())
    for number in range(6):
        net.zero_grad()
        if number % 2:
            with net.no_sync():
                step(x)
        else:
            step(x)
        expected = rank + 1.0 if number % 2 else (size + 1) / 2
        assert net.module.weight.grad[0].tolist() == [expected] * 3, number


class Forked(nn.Module):
    """The first branch in rank 0, the second in the others, the third in none."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([linear() for _ in range(3)])

    def forward(self, x):
        return self.branches[min(dist.get_rank(), 1)](x)


def unused(rank, size):
    net = Wrapped(Forked(), find_unused_parameters=True)
    net(gl.ones(1, 3)).sum().backward()
    first, second, third = [branch.bias.grad for branch in net.module.branches]
    assert first.tolist() == [1 / np.float32(size)] * 2
    np.testing.assert_allclose(second.tolist(), [(size - 1) / size] * 2, rtol=1e-6)
    assert third is None
    net = Wrapped(Forked())
    with pytest.raises(RuntimeError, match=r"find_unused_parameters=True"):
        net(gl.ones(1, 3)).sum().backward()


def uneven(rank, size):
    """Rank r has r + 1 batches; the last ones decide alone, and all end with their parameters."""
    for by_all in (True, False):
        net = Wrapped(linear(0))
        optimizer = gl.optim.SGD(net.parameters(), lr=1.0)
        start = net.module.bias.detach().clone()
        with net.join(divide_by_initial_world_size=by_all):
            for _ in range(rank + 1):
                optimizer.zero_grad()
                net(gl.ones(1, 3)).sum().backward()
                optimizer.step()
        wanted = sum((size - n) / size if by_all else 1.0 for n in range(size))
        np.testing.assert_allclose((start - net.module.bias).tolist(), [wanted] * 2, rtol=1e-5)
    net = Wrapped(linear(0))
    with pytest.raises(RuntimeError, match=r"ranks \[0\] have no more batches"), net.join(throw_on_early_termination=True):
        for _ in range(rank + 1):
            net(gl.ones(1, 3)).sum().backward()


def copies(rank, size):
    net = Wrapped(linear(0))
    other = copy.deepcopy(net)
    other(gl.full((1, 3), float(rank))).sum().backward()
    assert other.module.weight.grad[0].tolist() == [(size - 1) / 2] * 3 and net.module.weight.grad is None


def an_error_in_backward_leaves_no_message(rank, size):
    net = Wrapped(nn.Sequential(linear(0), nn.Linear(2, 2)), bucket_cap_mb=1e-6)

    def fail(gradient):
        raise KeyError("planted")

    out = net(gl.ones(1, 3))
    handle = net.module[0].weight.register_hook(fail)
    with pytest.raises(KeyError, match="planted"):
        out.sum().backward()
    handle.remove()
    net.zero_grad()
    net(gl.full((1, 3), float(rank))).sum().backward()
    dist.barrier()


def halves(rank, size):
    net = Wrapped(linear(0).bfloat16())
    net(gl.full((1, 3), float(rank + 1)).bfloat16()).sum().backward()
    assert net.module.weight.grad.dtype == gl.bfloat16
    assert net.module.weight.grad[0].tolist() == [(size + 1) / 2] * 3


def samples(rank, size):
    """Each index once in an epoch over all processes; a sampler continues at another number of them."""
    sampler = DistributedSampler(range(24), seed=3)
    own = list(sampler)
    assert sorted(itertools.chain(*everywhere(own))) == list(range(24))
    seen = list(itertools.islice(DistributedSampler(range(24), seed=3), 2))
    state = DistributedSampler(range(24), seed=3).state_dict(seen=2 * size)
    rest = []
    for r in range(2):
        again = DistributedSampler(range(24), 2, r, seed=0)
        again.load_state_dict(state)
        rest += list(again)
        assert len(list(again)) == 12  # the epoch after it is whole
    assert sorted([*itertools.chain(*everywhere(seen)), *rest]) == list(range(24))


def checkpoints(rank, size):
    """Written by rank 0, read without a wrapper: by a world of one."""
    net = Wrapped(linear(rank))
    path = Path(everywhere(tempfile.mkdtemp() if rank == 0 else None)[0]) / "model.pt"
    if rank == 0:
        gl.save(net.state_dict(), path)
    dist.barrier()
    alone = linear(99)
    alone.load_state_dict({key.removeprefix("module."): value for key, value in gl.load(path).items()})
    assert gl.equal(alone.weight, net.module.weight)
    net.load_state_dict(gl.load(path))


CASES = [
    begins_with_rank_0s, models_that_differ, buffers, no_sync, unused, uneven, copies, an_error_in_backward_leaves_no_message, halves,
    samples, checkpoints,
]  # fmt: skip

if __name__ == "__main__":
    world = dist.init()
    cases = [*CASES, *hooks_and_files.CASES, *odd.CASES]
    for case in cases:
        case(world.rank(), world.size())
        dist.barrier()
    print(f"rank {world.rank()}: {len(cases)} cases")
