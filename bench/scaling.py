"""Step time of data-parallel training against the number of processes: a model, beside what is measured, and for 8 to 1,024 GPUs.

    python bench/scaling.py             # measure at 1, 2 and 4 processes (mpiexec), beside the model, and print both tables
    python bench/scaling.py --predict   # the table for GPUs alone, at once

docs/scaling.md says what the model is and where its figures come from.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22)  # bytes of an all_reduce
WIDTH, LAYERS, BATCH, CAP, ROUNDS = 384, 6, 64, 1.0, 25  # the model that is trained here; bucket_cap_mb


class Step(NamedTuple):
    """One process's work in a step. Seconds; gradients: bytes of each bucket, in the order in which backward fills them."""

    forward: float
    backward: float
    update: float
    gradients: Sequence[float]

    @property
    def compute(self) -> float:
        """Without any communication."""
        return self.forward + self.backward + self.update


def step_time(step: Step, cost: Callable[[float], float], overlapped: bool) -> tuple[float, float]:
    """Seconds of a step, and how much of them communication adds. cost: seconds of an all_reduce of so many bytes.

    Buckets are full in proportion to their bytes while backward runs, and travel one after another; what is not there when backward ends is
    waited for. Not overlapped: the processor that computes also carries, and all of it is added.
    """
    total, done, filled = sum(step.gradients), 0.0, 0.0
    for size in step.gradients:
        filled += size
        done = max(done, step.backward * filled / total if overlapped else step.backward) + cost(size)
    exposed = max(0.0, done - step.backward)
    return step.compute + exposed, exposed


def fitted(times: dict[int, float], ranks: int) -> tuple[float, float]:
    """(alpha, beta): seconds of an all_reduce of nothing, and bytes a second of t = alpha + 2 (N - 1) / N bytes / beta; least squares of
    relative errors."""
    share = 2 * (ranks - 1) / ranks
    weights = {size: 1 / t**2 for size, t in times.items()}
    total = sum(weights.values())
    x, y = ({size: size * share for size in times}, times)
    mean_x, mean_y = (sum(weights[s] * v[s] for s in times) / total for v in (x, y))
    slope = sum(weights[s] * (x[s] - mean_x) * (y[s] - mean_y) for s in times) / sum(weights[s] * (x[s] - mean_x) ** 2 for s in times)
    return max(mean_y - slope * mean_x, 0.0), 1 / slope


# ---------------------------------------------------------------- GPUs

# NCCL's own model (src/graph/tuning.cc of NVIDIA/nccl 2.26, protocol "Simple", microseconds): base, a hop by NVLink, a hop by the network.
BASE, RING_NVLINK, RING_NET, TREE_NVLINK, TREE_NET = 8.4e-6, 3.4e-6, 14e-6, 4.0e-6, 14e-6
IN_NODE = 480e9  # bus bandwidth of 8 H100 by NVLink SHARP: NCCL's maintainer in NVIDIA/nccl-tests issue 212
NVLINK = 370e9  # of a ring there, protocol overhead taken off: the same
NETWORK = 0.9 * 8 * 50e9  # a node's eight adapters of 400 Gb/s (DGX H100), an assumed tenth taken off
TREE = 0.92  # of a ring's bandwidth, where a tree is taken
NODE = 8


def nccl_time(size: float, gpus: int) -> float:
    """Seconds of an all_reduce by NCCL: the quicker of ring and tree, whose latencies are counted as in its own model."""
    if gpus == 1:
        return 0.0
    moved = 2 * (gpus - 1) / gpus * size
    if gpus <= NODE:
        return BASE + 2 * (gpus - 1) * RING_NVLINK + moved / IN_NODE
    nodes = gpus // NODE
    hops = 2 * (gpus - 1)
    between = 2 * nodes
    bandwidth = min(NVLINK, NETWORK)
    ring = BASE + (hops - between) * RING_NVLINK + between * RING_NET + moved / bandwidth
    tree = BASE + 2 * ((NODE - 1) * TREE_NVLINK + (nodes - 1).bit_length() * TREE_NET) + moved / (TREE * bandwidth)
    return min(ring, tree)


PEAK, REACHED = 989e12, 0.4  # bfloat16 operations a second of an H100 (data sheet, dense), and the part that a training step reaches
MODELS = {"124 million parameters (GPT-2)": 124e6, "1.5 billion (GPT-2 XL)": 1.5e9, "7 billion": 7e9}
BUCKET = 25 * MIB


def gpu_step(parameters: float, tokens: float) -> Step:
    """6 operations for a parameter and a token, a third of them forward; gradients in bfloat16; the update reads and writes 16 bytes of a
    parameter at 3 TB/s."""
    seconds = 6 * parameters * tokens / (PEAK * REACHED)
    size = 2 * parameters
    whole = int(size // BUCKET)
    rest = size - whole * BUCKET
    return Step(seconds / 3, seconds * 2 / 3, 16 * parameters / 3e12, [BUCKET] * whole + ([rest] if rest else []))


GPUS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)


def efficiency(parameters: float, gpus: int, tokens: float) -> tuple[float, float, float]:
    """Step seconds, how many of them are waiting for communication, and the efficiency beside one GPU with the same tokens."""
    step = gpu_step(parameters, tokens)
    total, exposed = step_time(step, lambda size: nccl_time(size, gpus), True)
    return total, exposed, step.compute / total


def predicted() -> None:
    """The tables for GPUs."""
    kinds = (("the same 16,384 tokens for each GPU", lambda gpus: 16384), ("524,288 tokens in all", lambda gpus: 524288 / gpus))
    for title, tokens_of in kinds:
        print(f"\n{title}: milliseconds of a step (of them waiting), efficiency\n")
        print("| GPUs | " + " | ".join(MODELS) + " |\n|---|" + "---|" * len(MODELS))
        for gpus in GPUS:
            cells = []
            for parameters in MODELS.values():
                total, exposed, part = efficiency(parameters, gpus, tokens_of(gpus))
                cells.append(f"{total * 1e3:.4g} ({exposed * 1e3:.3g}), {part:.0%}")
            print(f"| {gpus} | " + " | ".join(cells) + " |")


# ---------------------------------------------------------------- here


def rank() -> None:
    """One process under mpiexec: rank 0 prints what it measured."""
    import gradlab as gl
    import gradlab.distributed as dist

    group = dist.init()
    gl.set_num_threads(1)
    gl.manual_seed(0)
    net = gl.nn.Sequential(*[layer for _ in range(LAYERS) for layer in (gl.nn.Linear(WIDTH, WIDTH), gl.nn.ReLU())])
    model = gl.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=CAP)
    optimizer = gl.optim.SGD(net.parameters(), lr=1e-3)
    x = gl.randn(BATCH, WIDTH)
    messages = {size: gl.ones(size // 4) for size in SIZES if group.size() > 1}
    times: dict[int, list[float]] = {size: [] for size in messages}
    alone: list[list[float]] = []
    together: list[float] = []

    def step() -> list[float]:
        dist.barrier()
        moments = [time.perf_counter()]
        loss = model(x).square().mean()
        moments.append(time.perf_counter())
        loss.backward()
        moments.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad()
        moments.append(time.perf_counter())
        return [b - a for a, b in pairwise(moments)]

    for round in range(ROUNDS + 3):  # in turns: the machine has others to serve, too
        with model.no_sync():
            parts = step()
        whole = sum(step())
        if round >= 3:
            alone.append(parts)
            together.append(whole)
        for size, message in messages.items():
            dist.barrier()
            begun = time.perf_counter()
            work = dist.all_reduce(message, async_op=True)  # as buckets go, beside the program
            assert work is not None
            work.wait()
            times[size].append(time.perf_counter() - begun)
    reducer = model.reducer
    found = {
        "parts": [statistics.median(column) for column in zip(*alone)], "step": statistics.median(together),
        "times": {str(size): statistics.median(found) for size, found in times.items()},
        "gradients": [bucket.bytes() for bucket in reducer.buckets] if reducer is not None else [],
    }  # fmt: skip
    if group.rank() == 0:
        print("MEASURED " + json.dumps(found), flush=True)


def started(count: int) -> dict[str, object]:
    """What so many processes measured."""
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec: pip install 'gradlab-engine[mpi]'")
    known = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [mpiexec, "--oversubscribe", "-n", str(count), sys.executable, __file__, "--rank"]
    out = subprocess.run(command, env=known, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(next(line for line in out.splitlines() if line.startswith("MEASURED "))[9:]))


def measured(counts: Sequence[int]) -> None:
    """The model beside what is measured. Of each run: the work by steps that keep their gradients to themselves (no_sync), alpha and beta
    by single messages, all in turns with the steps that the model is held to."""
    print(f"\n{os.cpu_count()} cores: milliseconds of a step\n")
    print("| processes | work | alpha µs | beta MB/s | model | measured | measured / model |\n|---|---|---|---|---|---|---|")
    for count in counts:
        found = started(count)
        step = Step(*found["parts"], found["gradients"])  # type: ignore[misc]
        seconds: float = found["step"]  # type: ignore[assignment]
        total, said = step.compute, "| |"
        if count > 1:
            alpha, beta = fitted({int(size): t for size, t in found["times"].items()}, count)  # type: ignore[attr-defined]
            total, _ = step_time(step, lambda size, a=alpha, b=beta, n=count: a + 2 * (n - 1) / n * size / b, False)
            said = f"{alpha * 1e6:.0f} | {beta / 1e6:.0f} |"
        print(f"| {count} | {step.compute * 1e3:.3g} | {said} {total * 1e3:.3g} | {seconds * 1e3:.3g} | {seconds / total:.2f} |")


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    if options.rank:
        rank()
        return
    if not options.predict:
        measured(options.counts)
    predicted()


if __name__ == "__main__":
    main()
