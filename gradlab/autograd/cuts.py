"""Where the graph was cut lately: detach(), item(), no_grad() and their relatives in the user's code, for the errors that ask why.

A cut is noted only where a tensor that requires grad is cut outside a backward, or where recording is switched off; it holds no tensor.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from sys import _getframe as getframe
from typing import Any, NamedTuple

from gradlab.autograd import position

SHOWN = 4


class Cut(NamedTuple):
    """One place where gradients stop. `source` is a weak reference to the node or leaf that was cut off, None for a mode."""

    what: str
    shape: tuple[int, ...] | None
    source: Any
    code: Any
    lasti: int
    thread: int


_recent: deque[Cut] = deque(maxlen=16)


def note(what: str, tensor: Any) -> None:
    """`tensor`, which is in a graph, was copied out of it by a method that the user called."""
    frame = getframe(2)
    code = frame.f_code
    if position.inside[code.co_filename]:
        return  # a step of a library function
    edge = tensor._edge
    source = tensor if getattr(edge, "node", None) is None else edge.node
    if source is not tensor and source.saved is None:
        return  # backward has run through it: what is read for a log
    _recent.append(Cut(what, tensor._array.shape, weakref.ref(source), code, frame.f_lasti, threading.get_ident()))


def note_mode(what: str) -> None:
    """Recording was switched off by a `with` statement of the user's, or by a decorator."""
    frame = getframe(2)
    if frame.f_code.co_name == "wrapped" and frame.f_back is not None:
        frame = frame.f_back
    if not position.inside[frame.f_code.co_filename]:
        _recent.append(Cut(what, None, None, frame.f_code, frame.f_lasti, threading.get_ident()))


def forget() -> None:
    """A backward has worked: what was cut before is not what a later error is about."""
    if _recent:
        _recent.clear()


def leads_to(source: Any, leaf: Any) -> bool:
    """Whether `source`, a node or leaf, was computed from `leaf`."""
    if source is leaf:
        return True
    seen, stack = set(), [source]
    while stack:
        node = stack.pop()
        if node in seen or not hasattr(node, "edges"):
            continue
        seen.add(node)
        for edge in node.edges:
            if edge is leaf:
                return True
            if edge is not None and hasattr(edge, "node"):
                stack.append(edge.node)
    return False


def because(leaf: Any = None) -> str:
    """The cuts since the last backward that worked, newest first, as the end of an error; only those that can concern `leaf`, if given."""
    here = threading.get_ident()
    found: dict[str, None] = {}
    for cut in reversed(_recent):
        if cut.thread != here:
            continue
        source = cut.source() if cut.source is not None else None
        if leaf is not None and source is not None and not leads_to(source, leaf):
            continue
        place = position.line_of(cut.code, cut.lasti)
        of = "" if cut.shape is None else f" of a tensor of shape {cut.shape}"
        what = f"{cut.what}{of}" if cut.source is not None else f"{cut.what}, if it was computed inside,"
        found[f"{what} at: {place}"] = None
    if not found:
        return ""
    lines = list(found)[:SHOWN]
    if len(lines) == 1:
        return f"\n  because of {lines[0]}"
    return "\n  because of one of these, newest first:" + "".join(f"\n  {line}" for line in lines)
