"""A training on two machines that goes on from its last checkpoint; run under mpiexec by tests/test_mpi_hosts.py. Its argument is a folder
that both machines see."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from mpi_programs.training import BATCH, batch, loss_of, made, mlp

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn

STEPS, EVERY = 60, 5


def say(text):
    print(f"{socket.gethostname()}: {text}", flush=True)


def main(folder):
    world = dist.init(timeout=timedelta(seconds=float(os.environ.get("LIMIT", "2"))))
    rank, size = world.rank(), world.size()
    net = nn.parallel.DistributedDataParallel(made(mlp))
    optimizer = gl.optim.AdamW(net.parameters(), lr=0.01)
    first, saved = 0, folder / "last.pt"
    if saved.exists():
        state = gl.load(saved)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    say(f"begins with step {first}")
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    for step in range(first, STEPS):
        x, y = batch(mlp, step)
        optimizer.zero_grad()
        try:
            loss_of(net, x[share], y[share]).backward()
        except dist.DistBackendError as error:
            say(str(error))
            raise
        optimizer.step()
        if (step + 1) % EVERY == 0 and rank == 0:
            fresh = folder / "fresh.pt"
            gl.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, fresh)
            fresh.replace(saved)
        if step == 2 * EVERY:
            say("under way")
        time.sleep(0.02)
    values = np.concatenate([p.detach().numpy().ravel() for p in net.parameters()])
    say(f"is through: {hashlib.sha256(values.tobytes()).hexdigest()}")


main(Path(sys.argv[1]))
