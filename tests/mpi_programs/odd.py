"""Collectives of odd shapes and all dtypes, odd groups, odd models; called by wrapping.py with two processes or more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.distributed.fsdp import FullyShardedDataParallel
from gradlab.nn.parallel import DistributedDataParallel as Wrapped

SHAPES = [(), (0,), (3, 0, 2), (2, 3), (5000,)]
DTYPES = [
    gl.bool, gl.uint8, gl.int8, gl.int16, gl.int32, gl.int64, gl.float16, gl.bfloat16, gl.float32, gl.float64, gl.complex64, gl.complex128,
]  # fmt: skip
BITS, ORDER = ("BAND", "BOR", "BXOR"), ("MIN", "MAX")


def values(shape, dtype, rank):
    count = int(np.prod(shape))
    found = gl.from_numpy((np.arange(count) % 3 + rank + 1).reshape(shape).astype(np.float64))
    return found.to(dtype) * (1 + 0.5j) if dtype.is_complex else found.to(dtype)


def same(outputs, wanted):
    assert all(gl.equal(a, b) for a, b in zip(outputs, wanted, strict=True))


def defined(op, dtype):
    if op.name in BITS:
        return not (dtype.is_complex or dtype.is_floating_point)
    return not (op.name in ORDER and dtype.is_complex) and not (op.name == "AVG" and dtype == gl.bool)


def all_shapes_and_dtypes(rank, size):
    for shape, dtype in itertools.product(SHAPES, DTYPES):
        every = [values(shape, dtype, r) for r in range(size)]
        x, rooms = every[rank], [gl.empty_like(every[0]) for _ in range(size)]
        for op in dist.ReduceOp:
            y = x.clone()
            if not defined(op, dtype):
                with pytest.raises(RuntimeError, match=f"all_reduce: ReduceOp.{op.name} is for"):
                    dist.all_reduce(y, op)
                continue
            dist.all_reduce(y, op)
            if op.name == "MAX":
                assert gl.equal(y, every[-1])
            if op.name == "SUM" and dtype != gl.bool:
                wide = gl.complex128 if dtype.is_complex else gl.float64
                assert gl.equal(y.to(wide), sum(each.to(wide) for each in every))
        dist.all_gather(rooms, x)
        same(rooms, every)
        y = x.clone()
        dist.broadcast(y, size - 1)
        assert gl.equal(y, every[-1])
        dist.scatter(y, every if rank == 0 else None, 0)
        assert gl.equal(y, x)
        rooms = [gl.empty_like(x) for _ in range(size)]
        dist.gather(x, rooms if rank == 1 else None, 1)
        if rank == 1:
            same(rooms, every)
        rooms = [gl.empty_like(x) for _ in range(size)]
        dist.all_to_all(rooms, [x] * size)
        same(rooms, every)
        works = [dist.isend(x, (rank + 1) % size), dist.irecv(y, (rank - 1) % size)]
        assert all(work.wait() for work in works) and gl.equal(y, every[rank - 1])
        dist.all_reduce(y, async_op=True).wait()


def gradients_of_complex_numbers(rank, size):
    x = (gl.arange(3.0) + 1j * (rank + 1)).requires_grad_()
    dist.nn.all_reduce(x * 2j).abs().square().sum().backward()
    total = sum(2j * (np.arange(3) + 1j * (r + 1)) for r in range(size))
    np.testing.assert_allclose(x.grad.numpy(), size * 2 * total * np.conj(2j), rtol=1e-6)


def parts_of_tensors(rank, size):
    base = gl.arange(12.0).reshape(3, 4)
    y = (base + rank).t()
    dist.all_reduce(y)
    assert gl.equal(y, (base * size + sum(range(size))).t())
    z = base + rank
    dist.broadcast(z[:, ::2], 1)
    assert gl.equal(z[:, ::2], (base + 1)[:, ::2]) and gl.equal(z[:, 1::2], (base + rank)[:, 1::2])
    rooms = [gl.zeros(4, 3).t() for _ in range(size)]
    dist.all_gather(rooms, base + rank)
    same(rooms, [base + r for r in range(size)])


def groups_of_one_and_nested(rank, size):
    ones = [dist.new_group([r]) for r in range(size)]
    x = gl.ones(2)
    dist.all_reduce(x, group=ones[rank])
    assert x.tolist() == [1, 1]
    Wrapped(nn.Linear(2, 2), process_group=ones[rank])(gl.ones(1, 2)).sum().backward()
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [2, 2]
        dist.destroy_process_group(pair)
    dist.destroy_process_group(ones[rank])
    dist.barrier()


class Tied(nn.Module):
    """Two layers of one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(gl.relu(self.first(x)))


class Frozen(Tied):
    """The same before a layer that stays."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.last(super().forward(x))


class Sparse(nn.Module):
    """Gradients of few rows, others in each process."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.words((x.abs() * 3).long().clamp(max=9)).sum(1))


def dense(gradient):
    return gradient.to_dense() if gradient is not None and gradient.layout is not gl.strided else gradient


def odd_models(rank, size):
    for kind in (Tied, Frozen, Sparse):
        nets = []
        for _ in range(2):
            gl.manual_seed(0)
            nets.append(kind().double())
        x = gl.randn(4 * size, 4, dtype=gl.float64, generator=gl.Generator().manual_seed(3))
        wrapped = Wrapped(nets[0])  # which averages as long as it lives
        wrapped(x[rank * 4 : rank * 4 + 4]).square().mean().backward()
        nets[1](x).square().mean().backward()
        for (name, a), b in zip(nets[0].named_parameters(), nets[1].parameters(), strict=True):
            assert (a.grad is None) == (b.grad is None), name
            assert a.grad is None or gl.allclose(dense(a.grad), dense(b.grad)), name


def everywhere(value):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def steps_of_other_kinds(rank, size):
    net = Wrapped(nn.Linear(4, 1))  # three passes whose gradients add up
    for step in range(3):
        net(gl.full((2, 4), float(step + rank))).sum().backward()
    assert net.module.weight.grad[0, 0].item() == sum(2 * (step + r) for step in range(3) for r in range(size)) / size
    x = gl.ones(2, 4, requires_grad=True)  # a gradient of a gradient
    y = Wrapped(nn.Linear(4, 1))
    out = y(x).square().sum()
    (g,) = gl.autograd.grad(out, x, create_graph=True)
    (out + g.square().sum()).backward()
    assert len(set(map(str, everywhere(y.module.weight.grad.tolist())))) == 1
    net, scaler = Wrapped(nn.Linear(4, 1)), gl.amp.GradScaler("cpu")  # one process has an infinite gradient
    optimizer = gl.optim.SGD(net.parameters(), 0.1)
    scaler.scale(net(gl.full((2, 4), float("inf") if rank == 0 else 1.0)).sum()).backward()
    before = net.module.weight.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    assert gl.equal(net.module.weight, before) and len(set(everywhere(scaler.get_scale()))) == 1
    net = Wrapped(nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))))
    run = gl.compile(net)
    for _ in range(3):
        run(gl.randn(3, 4)).sum().backward()
    assert len(set(map(str, everywhere(net.module[0].weight.grad.tolist())))) == 1
    with net.join():  # nobody has a batch
        pass


def norms_of_what_is_divided(rank, size):
    nets = []
    for _ in range(2):
        gl.manual_seed(0)
        nets.append(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)))
    sharded = FullyShardedDataParallel(nets[0])
    x = gl.randn(2 * size, 4, generator=gl.Generator().manual_seed(3))
    sharded(x[2 * rank : 2 * rank + 2]).square().mean().backward()
    nets[1](x).square().mean().backward()
    for norm in (2.0, 1.0, float("inf")):
        assert gl.allclose(sharded.clip_grad_norm_(0.01, norm), nn.utils.clip_grad_norm_(nets[1].parameters(), 0.01, norm), rtol=1e-4)


CASES = [
    all_shapes_and_dtypes, gradients_of_complex_numbers, parts_of_tensors, groups_of_one_and_nested, odd_models, steps_of_other_kinds,
    norms_of_what_is_divided,
]  # fmt: skip
