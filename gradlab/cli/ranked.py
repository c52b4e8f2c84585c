"""One process of `gradlab launch`: `python -m gradlab.cli.ranked LOGS COMMAND…` runs a command and keeps what it says.

What is said goes into LOGS/rank-N.log; that of rank 0 is shown too, and goes by a terminal of its own where the launcher has one, so that
it draws its progress bar. Nothing of the engine is imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")


def rank() -> int:
    """This process's number, as who started it says."""
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0)


def main(logs: str, command: list[str]) -> int:
    """Run the command; its exit code."""
    number = rank()
    os.environ.update(RANK=str(number), LOCAL_RANK=os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", str(number)))
    terminal = os.environ.get("GRADLAB_TERMINAL")
    with open(Path(logs, f"rank-{number}.log"), "ab", buffering=0) as log:
        if number:
            return ended(subprocess.call(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        ours, theirs = os.openpty() if terminal and hasattr(os, "openpty") else os.pipe()
        with open(terminal, "wb", buffering=0) if terminal else os.fdopen(os.dup(1), "wb", buffering=0) as screen:
            if os.isatty(theirs):
                like(theirs, screen.fileno())
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
            os.close(theirs)
            copied(ours, [log, screen])
            return ended(child.wait())


def like(terminal: int, screen: int) -> None:
    """Let a terminal be as large as the one that is looked at, whose own business the ends of lines are."""
    termios = import_module("termios")  # there is none on Windows
    columns, lines = os.get_terminal_size(screen)
    termios.tcsetwinsize(terminal, (lines or 24, columns or 80))
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def copied(source: int, targets: list[BinaryIO]) -> None:
    """What comes, until nobody writes any more; a pseudo-terminal says so by an error."""
    while True:
        try:
            text = os.read(source, 1 << 16)
        except OSError:
            return
        if not text:
            return
        for target in targets:
            target.write(text)


def ended(code: int) -> int:
    """An exit code; a command that a signal ended is followed by the same signal."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
