"""Training in several processes against training in one: losses, parameters, eager and compiled; run under mpiexec.

Each model is trained on batches of which each process takes its part. The same program computes what one process gets: on whole batches
(equal but for the order of sums), and on the parts one after another, whose gradients it adds up in the order of the ranks (equal bits).
"""

from __future__ import annotations

import functools
import sys

import numpy as np

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.models import GPT, GPTConfig

F = nn.functional
BATCH, STEPS = 12, 4


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * 16, 3),
    )  # fmt: skip


def gpt():
    return GPT(GPTConfig(vocab_size=11, block_size=6, n_layer=2, n_head=2, n_embd=16))


def batch(model, step):
    generator = np.random.default_rng([7, step])
    if model is mlp:
        return gl.from_numpy(generator.normal(size=(BATCH, 8))).float(), gl.from_numpy(generator.integers(0, 3, BATCH))
    if model is cnn:
        return gl.from_numpy(generator.normal(size=(BATCH, 2, 6, 6))).float(), gl.from_numpy(generator.integers(0, 3, BATCH))
    return gl.from_numpy(generator.integers(0, 11, (BATCH, 6))), gl.from_numpy(generator.integers(0, 11, (BATCH, 6)))


def loss_of(net, x, y):
    out = net(x)
    out = out[0] if isinstance(out, tuple) else out
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def made(model, seed=0):
    gl.manual_seed(seed)
    return model()


def trained(net, model, compiled, part=slice(None), parts=()):
    """Losses of some steps. parts: slices of the batch whose gradients are added up one after another, instead of one part."""
    optimizer = gl.optim.AdamW(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = gl.compile(step) if compiled else step
    losses = []
    for number in range(STEPS):
        x, y = batch(model, number)
        if not parts:
            losses.append(run(x[part], y[part]).item())
            continue
        optimizer.zero_grad()
        some = []
        for each in parts:
            loss = loss_of(net, x[each], y[each])
            loss.backward()
            some.append(loss.item())
        for p in net.parameters():
            p.grad /= len(parts)
        optimizer.step()
        losses.append(np.mean(some))
    if compiled:
        names = {call.op.name for call in run.graph.calls}
        assert getattr(net, "reducer", None) is None or "all_reduce_begin" in names, names
    return losses


def flat(net):
    return np.concatenate([p.detach().numpy().ravel() for p in (*net.parameters(), *net.buffers())])


@functools.cache
def in_one_process(model, compiled):
    """Losses and parameters of training on whole batches."""
    whole = made(model)
    return trained(whole, model, compiled), flat(whole)


def main(sizes, names):
    rank = dist.init().rank()
    for size in sizes:
        group = dist.new_group(range(size))  # as a world of that size would be, but that the processes are started once
        if rank < size:
            compare(rank, size, group, names)
    dist.barrier()


def compare(rank, size, group, names):
    share = BATCH // size
    parts = [slice(r * share, (r + 1) * share) for r in range(size)]
    for name in names:
        model = globals()[name]
        for compiled in (False, True):
            net = made(model, seed=rank)  # all take those of rank 0
            if model is cnn:
                net = nn.SyncBatchNorm.convert_sync_batchnorm(net, group)
            ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001, process_group=group)
            assert size == 1 or len(ddp.reducer.buckets) > 1
            own = trained(ddp, model, compiled, parts[rank])
            every = [None] * size
            dist.all_gather_object(every, (own, flat(net).tobytes()), group)
            assert len({weights for _, weights in every}) == 1, f"{name}: the processes' parameters differ"
            losses = np.mean([losses for losses, _ in every], 0)
            if rank:
                continue  # all have the same
            wanted, whole = in_one_process(model, compiled)
            np.testing.assert_allclose(losses, wanted, rtol=2e-5, err_msg=name)
            np.testing.assert_allclose(flat(net), whole, rtol=1e-3, atol=2e-5, err_msg=name)
            if model is not cnn and not compiled:
                pieces = made(model)
                trained(pieces, model, False, parts=parts)
                np.testing.assert_array_equal(flat(net), flat(pieces), err_msg=name)
            print(f"{name} {'compiled' if compiled else 'eager'} n={size}: losses {np.abs(losses - wanted).max():.1e} apart, "
                  f"parameters {np.abs(flat(net) - whole).max():.1e}, equal")  # fmt: skip


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1].split(",")], sys.argv[2:])
