"""Where the time goes: host time, bytes and FLOPs of every operation, and on CUDA devices device time by events; memory; modules.

Names follow `torch.profiler`, and `torch.autograd.profiler` before it.
"""

from __future__ import annotations

from gradlab.profiler.events import Event
from gradlab.profiler.profile import profile
from gradlab.profiler.ranges import emit_nvtx, record_function
from gradlab.profiler.schedule import ProfilerAction, ProfilerActivity, schedule, supported_activities, tensorboard_trace_handler
from gradlab.profiler.table import Averages, EventAverage

__all__ = [
    "Averages", "Event", "EventAverage", "ProfilerAction", "ProfilerActivity", "emit_nvtx", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
