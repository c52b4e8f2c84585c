"""The program `gradlab`, also `python -m gradlab`. Nothing else in the package imports this room.

`entry.py` holds the table of commands; each command is one file with `configure(parser)` and `run(options) -> int`.
Whatever a user can get wrong ends as one line on stderr (`failure.Failure`); a traceback means a bug of ours.
"""

from gradlab.cli.entry import main as main

__all__ = ["main"]
