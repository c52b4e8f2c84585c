"""`gradlab run script.py …`: a script written for PyTorch, unchanged, as `python script.py …` would run it, with `torch` being gradlab.

The options stand before the script; everything behind it is the script's own.
"""

from __future__ import annotations

import argparse
import builtins
import os
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pkgutil import get_importer
from types import ModuleType, TracebackType

from gradlab.cli.devices import usable_device
from gradlab.cli.failure import FAILED, Failure
from gradlab.pytorch import compiling, report
from gradlab.pytorch.installing import Settings, install

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


def run(options: argparse.Namespace) -> int:
    """Runs the script; its exit code."""
    command = options.module if options.module is not None else options.script
    path = command[0]
    install(Settings(settled(options.device)))
    if options.compile:
        compiling.start()
    if options.report:
        report.start()
    sys.argv[:] = command
    try:
        return module(path) if options.module is not None else script(path)
    finally:
        if options.report:
            sys.stdout.flush()
            print(report.text(), file=sys.stderr)


def settled(device: str | None) -> str | None:
    """The device's name, after a look whether there is one."""
    if device is None:
        return None
    kind = device.partition(":")[0]
    if kind == "emulated":
        os.environ["GRADLAB_CUDA"] = device
        device = "cuda"
    elif kind == "cpu":
        os.environ.update(CUDA_VISIBLE_DEVICES="", GRADLAB_CUDA="real")  # there is none, nor an emulated one
    return usable_device(device)


def script(path: str) -> int:
    """Runs a file, or a folder or archive with a `__main__.py`, as the module `__main__`."""
    if get_importer(path) is not None:
        return watched(lambda: runpy.run_path(path, run_name="__main__"))
    path = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", FAILED) from None
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    vars(main).update(__annotations__={}, __builtins__=builtins, __cached__=None, __file__=path, __loader__=loader, __package__=None)
    sys.modules["__main__"] = main
    return watched(lambda: exec(compile(source, path, "exec", dont_inherit=True), vars(main)))


def module(name: str) -> int:
    """Runs a module, or a package's `__main__`, found as `python -m` finds it."""
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    return watched(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


def watched(program: Callable[[], object]) -> int:
    """Runs it; what it raises is shown as Python would show it, without the frames that started it. The exit code."""
    try:
        program()
    except (KeyboardInterrupt, Exception) as error:
        report.stopped(error)
        sys.excepthook(type(error), error.with_traceback(own_frames(error.__traceback__)), error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
    return 0


def own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that started the script and those that say that a name is missing. None where it did not get so far as
    to run, as for an error of syntax."""
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") != "__main__":
        traceback = traceback.tb_next
    last = traceback
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_globals.get("__name__", "").startswith("gradlab.pytorch."):
            last.tb_next = None
        last = last.tb_next
    return traceback
