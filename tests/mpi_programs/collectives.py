"""Every collective among the processes of the world, against what NumPy makes of all their values; run under mpiexec."""

from __future__ import annotations

import numpy as np

import gradlab as gl
import gradlab.distributed as dist
from gradlab.distributed import ReduceOp

DTYPES = gl.float32, gl.float64, gl.int64, gl.bfloat16, gl.float16, gl.uint8
REDUCED = {
    ReduceOp.SUM: lambda x: x.sum(0), ReduceOp.AVG: lambda x: x.mean(0), ReduceOp.PRODUCT: lambda x: x.prod(0),
    ReduceOp.MIN: lambda x: x.min(0), ReduceOp.MAX: lambda x: x.max(0),
}  # fmt: skip


def values(size, rank, shape, dtype):
    """The values of one process, which all know."""
    found = np.random.default_rng(10 + rank).integers(1, 4, shape)
    return gl.from_numpy(np.asarray(found)).to(dtype)


def all_of(size, shape, dtype):
    return np.stack([values(size, r, shape, dtype).double().numpy() for r in range(size)])


def equal(found, wanted):
    np.testing.assert_array_equal(found.double().numpy(), np.asarray(wanted, float))


def mean_in(dtype):
    """The mean as it is in that dtype: rounded once, to whole numbers downwards."""
    if not dtype.is_floating_point:
        return lambda x: x.sum(0) // len(x)
    wide = np.float64 if dtype == gl.float64 else np.float32
    return lambda x: gl.from_numpy(np.asarray(x.sum(0).astype(wide) / wide(len(x)))).to(dtype).double().numpy()


def reductions(group, shape, dtype):
    rank, size = group.rank(), group.size()
    every = all_of(size, shape, dtype)
    for op, wanted in REDUCED.items():
        if op is ReduceOp.PRODUCT and dtype in (gl.float16, gl.bfloat16):
            continue
        if op is ReduceOp.AVG:
            wanted = mean_in(dtype)
        x = values(size, rank, shape, dtype)
        dist.all_reduce(x, op, group)
        equal(x, wanted(every))
        x = values(size, rank, shape, dtype)
        work = dist.all_reduce(x, op, group, async_op=True)
        assert work.wait() and work.is_success()
        equal(x, wanted(every))
        x = values(size, rank, shape, dtype)
        dist.reduce(x, op=op, group=group, group_dst=size - 1)
        equal(x, wanted(every) if rank == size - 1 else every[rank])


def movements(group, shape, dtype):
    rank, size = group.rank(), group.size()
    every = all_of(size, shape, dtype)
    own = values(size, rank, shape, dtype)
    for options in ({}, {"async_op": True}):
        def ended(work, given=options):
            assert (work is not None) == bool(given)
            if work is not None:
                work.wait()

        outs = [gl.zeros(shape, dtype=dtype) for _ in range(size)]
        ended(dist.all_gather(outs, own, group, **options))
        for out, wanted in zip(outs, every):
            equal(out, wanted)
        out = gl.zeros(size, *shape, dtype=dtype)
        ended(dist.all_gather_into_tensor(out, own, group, **options))
        equal(out, every)
        x = own.clone()
        ended(dist.broadcast(x, group=group, group_src=size - 1, **options))
        equal(x, every[-1])
        outs = [gl.zeros(shape, dtype=dtype) for _ in range(size)] if rank == 0 else None
        ended(dist.gather(own, outs, group=group, group_dst=0, **options))
        for out, wanted in zip(outs or (), every):
            equal(out, wanted)
        out = gl.zeros(shape, dtype=dtype)
        parts = [values(size, r, shape, dtype) for r in range(size)]
        ended(dist.scatter(out, parts if rank == size - 1 else None, group=group, group_src=size - 1, **options))
        equal(out, every[rank])
        out = gl.zeros(shape, dtype=dtype)
        ended(dist.reduce_scatter(out, parts, group=group, **options))
        equal(out, every[rank] * size)
        ended(dist.reduce_scatter_tensor(out, gl.stack(parts), group=group, **options))
        equal(out, every[rank] * size)
        outs = [gl.zeros(shape, dtype=dtype) for _ in range(size)]
        ended(dist.all_to_all(outs, [own + r for r in range(size)], group, **options))
        for out, wanted in zip(outs, every):
            equal(out, wanted + rank)
        out = gl.zeros(size * (rank + 1), 2, dtype=dtype)
        given = gl.full((size * (size + 1) // 2, 2), rank, dtype=dtype)
        ended(dist.all_to_all_single(out, given, [rank + 1] * size, [r + 1 for r in range(size)], group, **options))
        equal(out[:, 0], np.repeat(np.arange(size), rank + 1))


def between(group):
    rank, size = group.rank(), group.size()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for shape in ((3,), (5000, 2)):
        sent, got = gl.full(shape, float(rank)), gl.zeros(shape)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, got, group=group, group_peer=before), dist.P2POp(dist.isend, sent, group=group, group_peer=after)
        ])
        for work in works:
            work.wait()
        equal(got, np.full(shape, before))
        if rank == 0:
            dist.send(sent + 7, group=group, group_dst=1, tag=3)
        elif rank == 1:
            assert dist.recv(got, group=group, tag=3) == group.ranks[0]
            equal(got, np.full(shape, 7))


def objects(group):
    rank, size = group.rank(), group.size()
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "x": gl.full((rank + 1,), rank)}, group)
    assert [f["rank"] for f in found] == list(range(size)) and [f["x"].numel() for f in found] == list(range(1, size + 1))
    found = [f"from {rank}", rank]
    dist.broadcast_object_list(found, group=group, group_src=size - 1)
    assert found == [f"from {size - 1}", size - 1]
    found = [None] * size if rank == 0 else None
    dist.gather_object(rank * "x", found, group=group, group_dst=0)
    assert rank or found == [r * "x" for r in range(size)]
    found = [None]
    dist.scatter_object_list(found, [10 * r for r in range(size)] if rank == size - 1 else None, group=group, group_src=size - 1)
    assert found == [10 * rank]


def gradients(group):
    """Each recorded collective's gradient, against finite differences of the sum of all processes' losses."""
    rank, size = group.rank(), group.size()
    functional = dist.nn.functional
    weight = gl.arange(1.0, 3) + rank
    cases = {
        "all_reduce": lambda x: functional.all_reduce(x, group=group) * weight,
        "mean": lambda x: functional.all_reduce(x, ReduceOp.AVG, group) * weight,
        "product": lambda x: functional.all_reduce(x, ReduceOp.PRODUCT, group) * weight,
        "max": lambda x: functional.all_reduce(x, ReduceOp.MAX, group) * weight,
        "reduce": lambda x: functional.reduce(x, group.ranks[0], group=group) * weight,
        "broadcast": lambda x: functional.broadcast(x, group.ranks[size - 1], group) * weight,
        "all_gather": lambda x: sum((i + 1) * part * weight for i, part in enumerate(functional.all_gather(x, group))),
        "gather": lambda x: sum((i + 1) * part * weight for i, part in enumerate(functional.gather(x, group.ranks[0], group))),
        "scatter": lambda x: functional.scatter([x * (r + 1) for r in range(size)], group.ranks[size - 1], group) * weight,
        "reduce_scatter": lambda x: functional.reduce_scatter(gl.empty(2), [x * (r + 1) for r in range(size)], group=group) * weight,
        "all_to_all": lambda x: sum(functional.all_to_all([gl.empty(2)] * size, [x * (r + 1) for r in range(size)], group)) * weight,
        "all_to_all_single": lambda x: functional.all_to_all_single(gl.empty(2 * size), x.repeat(size), group=group) * weight.repeat(size),
    }  # fmt: skip

    def total(case, x):
        loss = case(x).sum()
        dist.all_reduce(loss, group=group)
        return loss.item()

    for name, case in cases.items():
        point = gl.tensor([1.5 + rank, 2.5 - rank])
        x = point.clone().requires_grad_()
        case(x).sum().backward()
        for r in range(size):
            for i in range(2):
                step = gl.zeros(2)
                step[i] = 0.25 if r == rank else 0.0
                slope = (total(case, point + step) - total(case, point - step)) / 0.5
                if r == rank:
                    assert abs(slope - x.grad[i].item()) < 1e-3 * max(1, abs(slope)), (name, rank, slope, x.grad)


def main():
    world = dist.init()
    rank, size = world.rank(), world.size()
    groups = [world, dist.new_group(range(size - 1, -1, -1))]
    if size > 2:
        own, _ = dist.new_subgroups_by_enumeration([[0, 2], [r for r in range(size) if r not in (0, 2)]])
        groups.append(own)
    for group in groups:
        for shape in ((), (3,), (2, 3), (0, 2), (4001, 3)):
            for dtype in DTYPES if shape in ((3,), (4001, 3)) else DTYPES[:1]:
                reductions(group, shape, dtype)
                if shape:
                    movements(group, shape, dtype)
        between(group)
        objects(group)
        gradients(group)
        dist.barrier(group)
    print(f"rank {rank} of {size}: all collectives")


if __name__ == "__main__":
    main()
