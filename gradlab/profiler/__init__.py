"""Where the time goes: host time of every operation, and on CUDA devices device time by events. Names follow `torch.profiler`."""

from __future__ import annotations

from gradlab.profiler.profile import emit_nvtx, profile, record_function
from gradlab.profiler.schedule import ProfilerAction, ProfilerActivity, schedule, tensorboard_trace_handler
from gradlab.profiler.table import Averages, EventAverage

__all__ = [
    "Averages", "EventAverage", "ProfilerAction", "ProfilerActivity", "emit_nvtx", "profile", "record_function", "schedule",
    "tensorboard_trace_handler",
]  # fmt: skip
