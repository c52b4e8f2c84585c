"""The program `gradlab`, also `python -m gradlab`. Nothing else in the package imports this room.

`entry.py` holds the table of commands. What a command is told (`options.py`, and for `train` a file for each kind of run in `kinds/`) is
read without the engine; what it does is in a file of its own, which is imported when it is to be done.
Whatever a user can get wrong ends as one line on stderr (`failure.Failure`); a traceback means a bug of ours.
"""

from gradlab.cli.entry import at_once as at_once, begin as begin, main as main

__all__ = ["at_once", "begin", "main"]
