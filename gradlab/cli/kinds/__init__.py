"""What `gradlab train` takes: a file for each kind of run, with its options, and how they become settings.

A kind has SUMMARY, USUAL (defaults, for the help), `configure(parser)` for its own options, `source(options)`, its data, and
`data(options)`, what `Task.of` is told.
It loads nothing of the engine before it is asked for its data.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from gradlab.cli.failure import chosen

NAMES = ("digits", "table", "images", "text", "series")
FUNCTION = "module:function"  # any such name is a kind, too


def kind_named(name: str) -> ModuleType:
    """The file of a kind; a Failure where there is none of the name."""
    return import_module(f"gradlab.cli.kinds.{plain(chosen('kind', name, (*NAMES, name if ':' in name else FUNCTION)))}")


def plain(name: str) -> str:
    """What a kind is called in a run's folder."""
    return "function" if ":" in name else name
