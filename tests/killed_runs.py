"""A program that trains, is killed at moments by chance, and goes on: `python tests/killed_runs.py FOLDER KILLS SEED`.

It forks, so that a training begins at once: each child trains in a folder, from its newest checkpoint on, until it has finished or
SIGKILL ends it. Its last line is a JSON object: how many were killed, how often a run was finished, and how many of the finished ones
differ in a bit from the run that nobody killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.metrics import Accuracy
from gradlab.train import Checkpoint, fit, read_checkpoint
from gradlab.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(np.int64)


def noisy(samples):
    """A batch that draws from everybody's random numbers, as transforms of one's own do."""
    x, y = gl.utils.data.default_collate(samples)
    return x + np.random.normal(scale=0.1) + random.gauss(0, 0.1) + 0.1 * gl.randn(6), y  # noqa: NPY002


def train(folder: Path) -> None:
    """Everything that a checkpoint holds: model with buffers and dropout, optimizer, scheduler, scaler, average, loader, random state."""
    for seed in (gl.manual_seed, random.seed, np.random.seed):
        seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    data = TensorDataset(gl.from_numpy(X), gl.from_numpy(Y))
    loader = DataLoader(data, 8, shuffle=True, collate_fn=noisy)
    optimizer = gl.optim.AdamW(model.parameters(), lr=1e-2)
    average = gl.optim.swa_utils.AveragedModel(model, multi_avg_fn=gl.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    run = fit(
        model, loader, nn.functional.cross_entropy, optimizer, epochs=4, validation=DataLoader(data, 16), metrics={"accuracy": Accuracy()},
        scheduler=gl.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=99), scheduler_each="step", clip=1.0, amp=gl.float16,
        average=average, callbacks=[Checkpoint(folder, every=1, keep=2)],
        resume=read_checkpoint(folder) if list(folder.glob("checkpoint-*")) else None,
    )  # fmt: skip
    history = [{name: value for name, value in line.items() if name not in ("seconds", "samples_per_second")} for line in run.history]
    state = run.state_dict()
    gl.save({"history": history, **{name: state[name] for name in ("model", "average", "optimizer", "scheduler", "scaler", "random")}},
            folder / "end.safetensors")  # fmt: skip


def child(folder: Path) -> int:
    """The process that trains in a folder."""
    process = os.fork()
    if not process:
        code = 1
        try:
            train(folder)
            code = 0
        finally:
            os._exit(code)
    return process


def ended(folder: Path) -> list[bytes]:
    """What a finished run has left: its end, its best weights, and nothing half written."""
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["best.safetensors", "checkpoint-3-4.safetensors", "checkpoint-4-0.safetensors", "end.safetensors"], names
    return [(folder / name).read_bytes() for name in ("end.safetensors", "best.safetensors")]


def main(place: Path, kills: int, seed: int) -> dict[str, int]:
    choose = random.Random(seed)
    begin = time.perf_counter()
    assert os.waitpid(child(place / "whole"), 0)[1] == 0
    seconds, whole = time.perf_counter() - begin, ended(place / "whole")
    killed, finished, differ = 0, 0, 0
    while killed < kills or finished == 0:
        folder = place / f"cut{finished}"
        process = child(folder)
        if killed < kills:
            time.sleep(choose.uniform(0, 0.5) * seconds)
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        killed += status == signal.SIGKILL
        assert status in (0, signal.SIGKILL), f"the training failed: {status}"
        if status == 0:
            differ += ended(folder) != whole
            finished += 1
    return {"killed": killed, "finished": finished, "differ": differ}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
