"""A run of one's own data: trained, kept in a folder with all that belongs to it, and used from there.

`start` makes a run of a kind of data, `load_run` finds one again: its model with the coding of its data, ready to predict. A kind is one
subclass of `Task`, listed in `kinds.py`.
"""

from __future__ import annotations

from gradlab.runs.folder import RunError, TrainedRun, load_run, runs_in
from gradlab.runs.searching import find_rate, search
from gradlab.runs.task import Task
from gradlab.runs.training import Settings, resume, start

__all__ = ["RunError", "Settings", "Task", "TrainedRun", "find_rate", "load_run", "resume", "runs_in", "search", "start"]
