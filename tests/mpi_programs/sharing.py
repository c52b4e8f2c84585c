"""`gl.train.shared` in several processes against one: dropout, batch norm, batches that cannot be shared; run under mpiexec.

In float64, so that what is left of a difference is the order of sums.
"""

from __future__ import annotations

import sys

import numpy as np

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn

F = nn.functional
SIZES = (12, 12, 7, 12)  # of the batches; 7 are computed by all


class Net(nn.Module):
    """Numbers that are drawn for rows, channels, and by name; statistics of batches."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.25))
        self.last = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 8), nn.AlphaDropout(0.25), nn.Linear(8, 3))

    def forward(self, x):
        x = self.first(x)
        return self.last(x + 0.1 * gl.randn_like(x) + 0.1 * gl.rand_like(x))


def trained(compiled, group):
    gl.manual_seed(5)
    net = Net().double()

    def step(model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y)

    run = step if group is None else gl.train.shared(step, net, group)
    optimizer = gl.optim.AdamW(net.parameters(), lr=0.01)

    def whole(x, y):
        optimizer.zero_grad()
        loss = run(net, (x, y))
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = gl.compile(whole) if compiled else whole
    losses = []
    for number, size in enumerate(SIZES):
        generator = np.random.default_rng([3, number])
        x, y = gl.from_numpy(generator.normal(size=(size, 1, 4, 4))), gl.from_numpy(generator.integers(0, 3, size))
        losses.append(call(x, y).item())
    return losses, np.concatenate([t.detach().numpy().ravel() for t in net.state_dict().values()]), gl.get_rng_state().tolist()


def main(sizes, ways):
    rank = dist.init().rank()
    for way in ways:
        compiled = way == "compiled"
        wanted = trained(compiled, None)
        for size in sizes:
            group = dist.new_group(range(size))
            if rank < size:
                found = trained(compiled, group)
                np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
                np.testing.assert_allclose(found[1], wanted[1], rtol=1e-9, atol=1e-12)
                assert found[2] == wanted[2]  # all have drawn as much
                print(f"{way} rank {rank} of {size}: the run of one process")
    dist.barrier()


main([int(size) for size in sys.argv[1].split(",")], sys.argv[2:])
