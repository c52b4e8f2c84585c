"""Two machines that average numbers until the link between them is cut; run under mpiexec by tests/test_mpi_hosts.py."""

from __future__ import annotations

import socket
import time
from datetime import timedelta

import gradlab as gl
import gradlab.distributed as dist

world = dist.init(timeout=timedelta(seconds=2))
for step in range(2000):
    x = gl.full((20000,), world.rank() + 1.0)
    try:
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        print(f"{socket.gethostname()}: {error}", flush=True)
        break
    assert x[0].item() == 3
    if step == 5:
        print(f"{socket.gethostname()}: under way", flush=True)
    time.sleep(0.01)
