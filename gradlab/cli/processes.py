"""`gradlab train` in several processes: rank 0 writes the run's folder, the others compute with it and leave nothing."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradlab import distributed
from gradlab.cli.failure import Failure
from gradlab.cli.launch import FOLDER
from gradlab.distributed.rendezvous import counted


@contextmanager
def joined(options: argparse.Namespace) -> Iterator[None]:
    """For the time of the command: the processes that were started together find each other, and those besides rank 0 write elsewhere."""
    if counted(None, -1, -1)[0] < 2:
        yield
        return
    if options.search is not None or options.find_lr:
        raise Failure("--search and --find-lr train many models: start them in one process")
    rank = distributed.init().rank()
    if not rank:
        if options.resume is not None:
            tell(options.resume)
        distributed.barrier()  # until the others have their copies
        yield
        distributed.barrier()
        return
    away = Path(tempfile.mkdtemp(prefix="gradlab-rank-"))
    try:
        if options.resume is not None:
            options.resume = Path(shutil.copytree(options.resume, away / "run"))
        else:
            options.out = away / "run"
        if "GRADLAB_LAUNCH" not in os.environ:
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
        distributed.barrier()
        yield
        distributed.barrier()
    finally:
        shutil.rmtree(away, ignore_errors=True)


def tell(folder: Path) -> None:
    """Let `gradlab launch` know where the run is, to go on with it."""
    if "GRADLAB_LAUNCH" in os.environ and (not distributed.is_initialized() or distributed.get_rank() == 0):
        Path(os.environ["GRADLAB_LAUNCH"], FOLDER).write_text(str(Path(folder).absolute()), encoding="utf-8")
