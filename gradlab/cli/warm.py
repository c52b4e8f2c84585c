"""`gradlab warm`: compile the CPU's kernels for eager code, so that they lie ready for every program that begins later."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress

from gradlab.backends.native import ready
from gradlab.backends.native.common import texts
from gradlab.backends.native.toolchain import CompileError
from gradlab.cli.failure import Failure
from gradlab.ops import ROWS

try:
    import fcntl
except ImportError:  # Windows, where there is no compiler for this either
    fcntl = None  # type: ignore[assignment]

PRIORITY = 19  # the lowest


def run(options: argparse.Namespace) -> int:
    if options.background:
        with suppress(OSError):
            os.setsid()  # whoever started it may end
        os.nice(PRIORITY)
    try:
        with ready.list_file().with_suffix(".lock").open("w") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if options.background else 0))
                except BlockingIOError:
                    return 0
            begun = time.perf_counter()
            count = ready.build(texts(ROWS.values()))
    except CompileError as error:
        raise Failure(str(error)) from None
    options.result = {"kernels": count, "seconds": time.perf_counter() - begun}
    if not options.background:
        print(f"{count} kernels lie ready ({time.perf_counter() - begun:.0f} s)")
    return 0
