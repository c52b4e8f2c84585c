"""Where a new run is kept."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from gradlab.cli.failure import FAILED, Failure

RUNS = Path("runs")
ATTEMPTS = 1000


def new_folder(requested: Path | None, prefix: str) -> Path:
    """A fresh folder for a run: the one asked for, or the next free runs/PREFIX-N."""
    if requested is not None:
        if (requested / "run.json").exists():
            raise Failure(f"{requested} already holds a run: --resume {quote(str(requested))} continues it, another --out starts anew")
        if requested.is_dir() and any(requested.iterdir()):
            raise Failure(f"--out: {requested} is not empty; name a new or an empty folder")
        make(requested, exist_ok=True)
        return requested
    number = 1 + max((run_number(path, prefix) for path in RUNS.glob(f"{prefix}-*")), default=0)
    for candidate in range(number, number + ATTEMPTS):
        try:
            path = RUNS / f"{prefix}-{candidate}"
            make(path, exist_ok=False)
            return path
        except FileExistsError:  # another run was started in the same moment
            continue
    raise Failure(f"no free folder under {RUNS}; name one with --out", FAILED)


def run_number(path: Path, prefix: str) -> int:
    number = path.name.removeprefix(f"{prefix}-")
    return int(number) if number.isdecimal() else 0


def make(path: Path, *, exist_ok: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok:
            raise
        raise Failure(f"--out: {path} is a file, not a folder") from None
    except OSError as error:
        raise Failure(f"cannot create the run folder {path}: {error.strerror}", FAILED) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise Failure(f"the run folder {path} is not writable", FAILED)
