"""When a profile records: `schedule` says it by the number of the step, and `tensorboard_trace_handler` writes what was found."""

from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradlab import cuda


class ProfilerActivity(enum.Enum):
    """What to time. Host and, on CUDA devices, device time are always both taken; the names are PyTorch's."""

    CPU = 0
    XPU = 1
    CUDA = 2


def supported_activities() -> set[ProfilerActivity]:
    """What can be timed: the host, and CUDA devices where there is one."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])}


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """For `profile(schedule=…)`: after `skip_first` steps, over and over (`repeat` times, 0 without end) nothing for `wait` steps, nothing
    that is kept for `warmup`, and recording for `active`, at whose end `on_trace_ready` is called. skip_first_wait: 1 to leave out the
    first `wait`.

    ValueError for a negative number, and for active=0.

    >>> import gradlab as gl
    >>> plan = gl.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError("schedule: wait, warmup, repeat and skip_first are not negative, and active is 1 or more")

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step += wait * bool(skip_first_wait) - skip_first
        span = wait + warmup + active
        if repeat and step >= repeat * span:
            return ProfilerAction.NONE
        step %= span
        if step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == span - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str], worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[Any], None]:
    """For `profile(on_trace_ready=…)`: write each trace into that folder, under a name of its own, as `export_chrome_trace` does.

    The file opens in https://ui.perfetto.dev and in TensorBoard's profiler. use_gzip: compress it.
    use_python_export: taken as PyTorch's scripts give it.

    >>> import tempfile, pathlib
    >>> import gradlab as gl
    >>> folder = tempfile.TemporaryDirectory()
    >>> with gl.profiler.profile(on_trace_ready=gl.profiler.tensorboard_trace_handler(folder.name)) as prof:
    ...     y = gl.ones(3) * 2
    >>> len(list(pathlib.Path(folder.name).glob("*.pt.trace.json")))
    1
    >>> folder.cleanup()
    """

    def write(prof: Any) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(folder / f"{name}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")

    return write
