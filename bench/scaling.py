"""Step time of data-parallel training against the number of processes: a model, beside what is measured, and for 8 to 1,024 GPUs.

    python bench/scaling.py             # measure at 1, 2 and 4 processes (mpiexec), beside the model, and print both tables
    python bench/scaling.py --write     # and put what was measured into docs/scaling.md
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

MIB = 1 << 20
SIZES, COUNTS = (1 << 14, 1 << 18, 1 << 20), (1, 4)  # bytes of messages, and how many at once
NOTHING = 1e15  # bytes a second: a message's bytes take no time that could be measured
BEGIN, END = "<!-- measured: python bench/scaling.py --write -->", "<!-- until here -->"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
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


def fitted(points: Sequence[tuple[int, float, float]], ranks: int) -> tuple[float, float]:
    """(alpha, beta) of t = messages (alpha + 2 (N - 1) / N bytes / beta) by least squares. points: messages, bytes of each, seconds."""
    share = 2 * (ranks - 1) / ranks
    rows = [(float(count), share * count * size, seconds) for count, size, seconds in points]
    nn, nb, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    nt, bt = (sum(r[i] * r[2] for r in rows) for i in (0, 1))
    determinant = nn * bb - nb * nb
    alpha, slope = (nt * bb - bt * nb) / determinant, (bt * nn - nt * nb) / determinant
    if alpha < 0:
        alpha, slope = 0.0, bt / bb
    if slope <= 0:
        alpha, slope = max(nt / nn, 0.0), 1 / NOTHING
    return alpha, 1 / slope


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
    """One process under mpiexec: rank 0 prints what it measured. Everything is timed from one barrier of all processes to the next."""
    import gradlab as gl
    import gradlab.distributed as dist
    from gradlab.autograd.record import bind
    from gradlab.ops import collective as rows

    group = dist.init()
    gl.set_num_threads(1)
    gl.manual_seed(0)
    net = gl.nn.Sequential(*[layer for _ in range(LAYERS) for layer in (gl.nn.Linear(WIDTH, WIDTH), gl.nn.ReLU())])
    model = gl.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=CAP)
    optimizer = gl.optim.SGD(net.parameters(), lr=1e-3)
    x = gl.randn(BATCH, WIDTH)
    begin, end = bind(rows.all_reduce_begin), bind(rows.all_reduce_end)
    by = group.transport
    givens = {size: [gl.ones(size // 8), gl.ones(size // 8)] for size in SIZES}

    def travel(count: int, size: int, meanwhile: Callable[[], None]) -> None:
        """Messages as buckets are: flattened, begun, awaited and copied, with something meanwhile."""
        with gl.no_grad():
            begun = [begin(gl.cat(givens[size]), by=by, op="mean", slot=-1 - i) for i in range(count)]
        meanwhile()
        with gl.no_grad():
            for i, each in enumerate(begun):
                found = end(each, by=by, op="mean", slot=-1 - i)
                for given, part in zip(givens[size], found.split(size // 8)):
                    given.copy_(part)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def work() -> None:
        with model.no_sync():
            step()

    kinds: dict[str, Callable[[], None]] = {"step": step, "work": work}
    if group.size() > 1:
        kinds |= {f"alone {c} {s}": partial(travel, c, s, lambda: None) for c in COUNTS for s in SIZES}
        kinds |= {f"beside {c} {s}": partial(travel, c, s, work) for c in COUNTS for s in SIZES}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(ROUNDS + 3):  # in turns: the machine has others to serve, too
        for name, run in kinds.items():
            dist.barrier()
            begun = time.perf_counter()
            run()
            dist.barrier()
            if number >= 3:
                times[name].append(time.perf_counter() - begun)
    found = {name: statistics.median(each) for name, each in times.items()}
    if group.rank() == 0:
        reducer = model.reducer
        sizes = [bucket.bytes() for bucket in reducer.buckets] if reducer is not None else []
        print("MEASURED " + json.dumps({"times": found, "gradients": sizes}), flush=True)


def started(count: int) -> dict[str, Any]:
    """What so many processes measured."""
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec: pip install 'gradlab-engine[mpi]'")
    known = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [mpiexec, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", str(count), sys.executable, __file__, "--rank"]
    out = subprocess.run(command, env=known, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(next(line for line in out.splitlines() if line.startswith("MEASURED "))[9:]))


def line_of(count: int, found: dict[str, Any], alone: float) -> tuple[str, float]:
    """A line of the table, and measured / model. alone: the work of one process."""
    times, gradients = found["times"], found["gradients"]
    work, seconds = times["work"], times["step"]
    if count == 1:
        return f"| 1 | {work * 1e3:.3g} | 1 | | | | {work * 1e3:.3g} | {seconds * 1e3:.3g} | {seconds / work:.2f} | |", seconds / work

    def transport(kind: str, without: float) -> tuple[float, float]:
        return fitted([(c, s, times[f"{kind} {c} {s}"] - without) for c in COUNTS for s in SIZES], count)

    idle, busy = transport("alone", 0.0), transport("beside", work)
    if busy[1] >= NOTHING * (1 - 1e-9):  # what messages add cannot be told from other work of the machine
        busy = idle

    def cost(size: float, by: tuple[float, float]) -> float:
        return by[0] + 2 * (count - 1) / count * size / by[1]

    total, _ = step_time(Step(work, 0.0, 0.0, gradients), lambda size: cost(size, busy), False)
    travel = sum(cost(size, idle) for size in gradients)
    hidden = 1 - (seconds - work) / travel
    texts = (f"{alpha * 1e6:.0f} µs, {beta / 1e6:.0f} MB/s" for alpha, beta in (idle, busy))
    cells = [f"{work * 1e3:.3g}", f"{work / alone:.2f}", *texts, f"{travel * 1e3:.3g}", f"{total * 1e3:.3g}", f"{seconds * 1e3:.3g}"]
    return f"| {count} | " + " | ".join(cells) + f" | {seconds / total:.2f} | {hidden:.0%} |", seconds / total


def measured(counts: Sequence[int], page: Path | None) -> None:
    """The model beside what is measured; into the page too, where there is one."""
    found = {count: started(count) for count in counts}
    alone = found.get(1, found[counts[0]])["times"]["work"]
    lines, ratios = zip(*(line_of(count, found[count], alone) for count in counts), strict=True)
    load = os.getloadavg()[1]
    table = "\n".join([
        f"{os.cpu_count()} cores, a load of {load:.1f} before and while it ran; milliseconds of a step, medians of {ROUNDS}:", "",
        "| processes | work | beside one process's | α, β, nothing else running | α, β beside work | buckets alone "
        "| model | measured | measured / model | hidden |",
        "|---|---|---|---|---|---|---|---|---|---|", *lines, "",
        f"Measured steps take {min(ratios):.2f} to {max(ratios):.2f} times what the model says.",
    ])  # fmt: skip
    print("\n" + table)
    if page is not None:
        text = page.read_text(encoding="utf-8")
        head, _, rest = text.partition(BEGIN)
        _, _, tail = rest.partition(END)
        page.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}", encoding="utf-8")


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    if options.rank:
        rank()
        return
    if not options.predict:
        measured(options.counts, PAGE if options.write else None)
    predicted()


if __name__ == "__main__":
    main()
