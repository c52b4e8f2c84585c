"""`module:function`: code of the user's that a command asks for something, and what becomes of an exception in it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from gradlab.call_site import inside
from gradlab.cli.failure import FAILED, Failure, Raised

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
REFUSALS = (ValueError, TypeError, RuntimeError, NotImplementedError, IndexError)  # what gradlab says no with


@contextmanager
def users_code(name: str, refusals: tuple[type[Exception], ...] = REFUSALS) -> Iterator[None]:
    """What the block raises out of code of the user's ends the program with that code's frames alone; what gradlab refuses, with one line.

    name: whose code it is, for that line. refusals: what gradlab says no with; anything else of its own passes through.
    """
    try:
        yield
    except Failure:
        raise
    except SystemExit as error:
        raise Failure(f"{name}: its code ends the program ({error!r}) before anything is returned", FAILED) from error
    except Exception as error:
        frames = users_frames(error.__traceback__)
        if not frames and not isinstance(error, (*refusals, SyntaxError)):
            raise
        if not frames and not isinstance(error, SyntaxError):
            raise Failure(f"{name}: {error or type(error).__name__}", FAILED) from error
        head = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
        raise Raised("".join([*head, *traceback.format_exception_only(error)]).rstrip("\n")) from error


def users_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """A traceback without the frames of gradlab, of its models too, and of Python's own import."""
    others = (importlib.__file__, "<frozen importlib", PACKAGE)
    return [f for f in traceback.extract_tb(trace) if not inside[f.filename] and not f.filename.startswith(others)]


def returned_by(name: str) -> Any:
    """What the function returned that module:function names. Failure, in one line, for a name that leads nowhere."""
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    with users_code(name):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(f"{error.name}.")):
                raise Failure(f"no module named {module!r} here or installed") from None
            raise
    if not hasattr(found, function):
        names = ", ".join(n for n, v in vars(found).items() if callable(v) and not n.startswith("_"))
        raise Failure(f"module {module} has no function {function!r}; it has {names or 'none'}")
    call = getattr(found, function)
    if not callable(call):
        raise Failure(f"{name} is a {type(call).__name__}, not a function; write one that returns what is asked for")
    with users_code(name):
        try:
            return call()
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise Failure(f"{name} is called without arguments, and takes some: {error}") from None
