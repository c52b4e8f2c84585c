"""The kinds of runs by name, each found in its file when it is asked for."""

from __future__ import annotations

from importlib import import_module

from gradlab.runs.task import Task

KINDS = {
    "digits": "gradlab.runs.digits:DigitsTask",
    "function": "gradlab.runs.function:FunctionTask",
    "images": "gradlab.runs.images:ImagesTask",
    "series": "gradlab.runs.series:SeriesTask",
    "table": "gradlab.runs.table:TableTask",
    "text": "gradlab.runs.text:TextTask",
}


def task_of(kind: str) -> type[Task]:
    """The class of a kind. KeyError where there is none of the name."""
    module, _, name = KINDS[kind].partition(":")
    found: type[Task] = getattr(import_module(module), name)
    return found
