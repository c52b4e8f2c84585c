"""How much of the gradients' way is hidden behind backward: mpiexec -n 2 python bench/overlap.py [--bucket MIB]

A deep MLP's backward with `DistributedDataParallel` in buckets, against the same backward followed by one average of all gradients, and
against backward alone and the average alone. Medians of steps taken in turns; each process on a core of its own.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn

WIDTH, LAYERS, BATCH, STEPS = 1024, 8, 128, 15


def net() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket", type=float, default=8, help="MiB")
    options = parser.parse_args()
    world = dist.init()
    plain, wrapped = net(), nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=options.bucket)
    flat = gl.zeros(sum(p.numel() for p in plain.parameters()))
    x = gl.ones(BATCH, WIDTH)

    def backward(model: nn.Module) -> float:
        loss = model(x).mean()
        model.zero_grad()
        dist.barrier()
        begun = time.perf_counter()
        loss.backward()
        return time.perf_counter() - begun

    def average() -> float:
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(flat, dist.ReduceOp.AVG)
        return time.perf_counter() - begun

    times: dict[str, list[float]] = {"backward": [], "average": [], "both at once": []}
    for _ in range(STEPS):
        times["backward"].append(backward(plain))
        times["average"].append(average())
        times["both at once"].append(backward(wrapped))
    if world.rank() == 0:
        compute, travel, both = (statistics.median(seconds[3:]) * 1e3 for seconds in times.values())
        hidden = (compute + travel - both) / min(compute, travel)
        size = f"n={world.size()}, {flat.numel() * 4 / 2**20:.0f} MiB"
        print(f"{size}: backward {compute:.1f} ms, average {travel:.1f} ms, at once {both:.1f} ms: {hidden:.0%} of what could be hidden is")


if __name__ == "__main__":
    main()
