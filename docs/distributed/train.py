"""A script for any number of processes that goes on from its last checkpoint: python train.py, or gradlab launch -n 4 -- train.py."""

import argparse
from pathlib import Path

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()

world = dist.init()
rank, size = world.rank(), world.size()
images, labels = map(gl.from_numpy, gl.data.digits())
data = gl.utils.data.TensorDataset(images.float() / 16, labels)
sampler = gl.utils.data.DistributedSampler(data, seed=1)
loader = gl.utils.data.DataLoader(data, batch_size=64 // size, sampler=sampler)

gl.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = gl.optim.AdamW(model.parameters(), lr=1e-3)
first, saved = 0, options.checkpoints / "last.pt"
if saved.exists():  # written by rank 0, read by all, whatever their number was then
    state = gl.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"]


@gl.compile
def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()  # buckets of gradients travel meanwhile
    optimizer.step()
    return loss


for epoch in range(first, options.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = step(x, y)
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {mean.item():.3f} of {size} processes", flush=True)
        options.checkpoints.mkdir(parents=True, exist_ok=True)
        gl.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, saved)
    dist.barrier()
