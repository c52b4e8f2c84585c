"""`gradlab run --report`: which names of PyTorch's a program asked for that gradlab has not, and where.

Names that it needs and names that it only asks about (`hasattr`, `getattr` with a default, an import within `try`) are told apart. A name
that is needed is answered with a stand-in, so that the program goes on until it uses it.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Any, NoReturn

from gradlab.pytorch.asking import takes_it, within_try
from gradlab.tensor import Tensor
from gradlab.tensor.missing_names import TENSOR

NEEDED, ASKED, TRIED = "needed", "only asked about (hasattr, getattr)", "imported within a try"
_IMPORTING = ("importlib", "<frozen importlib", "gradlab.pytorch", "gradlab/pytorch")

active = False
_found: dict[tuple[str, str], tuple[str, str]] = {}  # by way of asking and name: the place, and the advice
_stopped = ""


class Missing:
    """Stands for a name that gradlab has not. It can be imported, asked about, derived from and used as a decorator; not used."""

    def __init__(self, name: str, reason: str) -> None:
        self.__name__, self.reason = name, reason

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self.reason)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], type(self)):
            return args[0]
        raise NotImplementedError(f"gradlab has no {self.__name__}: {self.reason}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


def start() -> None:
    """From here on names are noted."""
    global active
    active = True
    Tensor.__getattr__ = _of_tensor  # type: ignore[attr-defined]


def missing(module: str, name: str, reason: str, frame: FrameType | None) -> Any:
    """Note a name that a module has not; a stand-in if the program needs it, else None."""
    if frame is None or "<frozen importlib" in frame.f_code.co_filename:  # `from package import name` looks first, and then asks again
        return None
    way = _way(frame)
    _note(way, f"{module}.{name}", reason, frame)
    return Missing(f"{module}.{name}", reason) if way is NEEDED else None


def missing_module(name: str, reason: str, frame: FrameType | None) -> bool:
    """Note a module that cannot be imported; whether the program needs it, and does not try it only."""
    asking = _outside(frame)
    way = TRIED if asking is not None and within_try(asking) else NEEDED
    _note(way, name, reason, asking)
    return way is NEEDED


def _of_tensor(self: Tensor, name: str) -> NoReturn:
    reason = TENSOR.get(name, "")
    if not name.startswith("__"):
        frame = sys._getframe(1)
        _note(_way(frame), f"torch.Tensor.{name}", reason, frame)
    raise AttributeError(f"gradlab has no Tensor.{name}: {reason}" if reason else f"'Tensor' object has no attribute {name!r}")


def stopped(error: BaseException) -> None:
    """Note what ended the program."""
    global _stopped
    if isinstance(error, Exception):
        _stopped = traceback.format_exception_only(error)[-1].strip()


def text() -> str:
    """What was found, in words."""
    lines = []
    for way in (NEEDED, ASKED, TRIED):
        rows = sorted((name, *found) for (how, name), found in _found.items() if how == way)
        if rows:
            width = max(len(name) for name, *_ in rows)
            lines += [f"{way}:", *(f"  {name:<{width}}  {place}  {reason}".rstrip() for name, place, reason in rows)]
    head = "gradlab run --report: names that gradlab has not" if lines else "gradlab run --report: every name asked for is there"
    return "\n".join([head, *lines, *([f"it ended with {_stopped}"] if _stopped else [])])


def _note(way: str, name: str, reason: str, frame: FrameType | None) -> None:
    asking = _outside(frame)
    place = f"{asking.f_code.co_filename}:{asking.f_lineno}" if asking is not None else "?"
    _found.setdefault((way, name), (place, reason))


def _outside(frame: FrameType | None) -> FrameType | None:
    """The first frame that is neither the import system's nor of this room."""
    while frame is not None and any(part in frame.f_code.co_filename for part in _IMPORTING):
        frame = frame.f_back
    return frame


def _way(frame: FrameType) -> str:
    return NEEDED if takes_it(frame) else ASKED
