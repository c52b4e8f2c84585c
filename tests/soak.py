"""A long run: `python tests/soak.py [--seconds 3600] [--steps 1000000] [--traces 10000]`, with the garbage collector off all the time.

Two threads train, one eagerly and one compiled, each its own networks with data loaders, checkpoints and mixed precision; then come tiny
steps, and traces without end: of one function whose shapes change, and of ever new functions. Resident memory, open files and threads are
noted ten times in each part; the last line is a JSON object. Memory that grows from the third note to the last by more than GROWTH MB is
an error, and so is a file or thread more.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F
from gradlab.utils.data import DataLoader, TensorDataset

NOTES, GROWTH = 10, 24


def now():
    """Resident memory in MB, open files, and threads."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1), len(os.listdir("/proc/self/fd")), threading.active_count()


def network():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 3))


class Training:
    """One thread's: epochs over a small set, a checkpoint after each, its network eager or compiled."""

    def __init__(self, folder, compiled, seed):
        generator = gl.Generator().manual_seed(seed)
        data = TensorDataset(gl.randn(64, 1, 8, 8, generator=generator), gl.randint(0, 3, (64,), generator=generator))
        self.model, self.path, self.epochs = network(), folder / f"{seed}.safetensors", 0
        self.loader = DataLoader(data, 16, shuffle=True, generator=generator)
        self.optimizer = gl.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.step = gl.compile(self._step) if compiled else self._step

    def _step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def epoch(self):
        for x, y in self.loader:
            self.step(x, y)
        with gl.no_grad(), gl.autocast("cpu", dtype=gl.bfloat16):
            self.model(x)
        gl.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, self.path)
        self.model.load_state_dict(gl.load(self.path)["model"])
        self.epochs += 1


def mixed(seconds, note):
    """Both ways at once; what was noted at ten moments."""
    with tempfile.TemporaryDirectory() as folder:
        trainings = [Training(Path(folder), compiled, seed) for seed, compiled in enumerate((False, True))]
        for training in trainings:
            for _ in range(3):
                training.epoch()
        end, failed = time.monotonic() + seconds, []

        def work(training):
            try:
                while time.monotonic() < end and not failed:
                    training.epoch()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(training,)) for training in trainings]
        for thread in threads:
            thread.start()
        for _ in range(NOTES):
            time.sleep(seconds / NOTES * 0.95)
            note()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return sum(training.epochs for training in trainings)


def tiny(steps, note):
    model = nn.Linear(2, 1)
    optimizer = gl.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = gl.randn(4, 2), gl.randn(4, 1)
    for i in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        if (i + 1) % (steps // NOTES) == 0:
            note()
    return steps


def traces_of_shapes(count, note):
    """One function, each call of another shape."""
    model = nn.Linear(4, 4)
    step = gl.compile(lambda x: model(x).square().mean())
    for i in range(count):
        x = gl.ones(i % 5000 + 1, 4)
        step(x)
        step(x)
        if (i + 1) % (count // NOTES) == 0:
            note()
    assert len(step.programs) <= 64
    return count


def traces_of_functions(count, note):
    """Ever new functions, which are dropped."""
    model = nn.Linear(4, 4)
    x = gl.ones(3, 4)
    for i in range(count):
        step = gl.compile(lambda x, i=i: model(x).square().mean() + i)
        step(x)
        step(x)
        if (i + 1) % (count // NOTES) == 0:
            note()
    return count


def part(work, amount):
    """What was noted in a part, and what is wrong with it."""
    notes = []
    done = work(amount, lambda: notes.append(now()))
    memory, files, threads = zip(*notes, strict=True)
    wrong = [f"memory grew by {memory[-1] - memory[2]:.1f} MB"] if memory[-1] - memory[2] > GROWTH else []
    wrong += ["files stay open"] if min(files[-3:]) > max(files[:3]) else []
    wrong += ["threads stay"] if min(threads[-3:]) > max(threads[:3]) else []
    return {"done": done, "memory": memory, "files": files[-1], "threads": threads[-1], "wrong": wrong}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600, help="of mixed training")
    parser.add_argument("--steps", type=int, default=1_000_000, help="tiny ones")
    parser.add_argument("--traces", type=int, default=10_000, help="of each kind")
    given = parser.parse_args()
    gc.disable()
    warnings.simplefilter("ignore")
    found = {}
    for name, work, amount in (
        ("mixed", mixed, given.seconds), ("tiny", tiny, given.steps),
        ("shapes", traces_of_shapes, given.traces), ("functions", traces_of_functions, given.traces),
    ):  # fmt: skip
        found[name] = part(work, amount)
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found))
    return 1 if any(one["wrong"] for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
