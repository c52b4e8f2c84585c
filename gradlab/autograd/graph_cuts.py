"""Where the graph was cut lately: detach(), item(), no_grad() and their relatives in the user's code, for the errors that ask why.

A cut is noted only where a tensor that requires grad is cut outside a backward, or where recording is switched off; it holds no tensor.
"""

from __future__ import annotations

import os.path
from collections import deque
from sys import _getframe as getframe
from threading import get_ident
from typing import Any
from weakref import ref

from gradlab import call_site
from gradlab.autograd.base import LEAF
from gradlab.autograd.node import SPENT

SHOWN = 4
_ASKING = os.path.join(call_site.PACKAGE, "overrides", "overridable.py")  # where classes may answer for a public function


# what, shape, weak reference to the node or leaf that was cut off (None for a mode), code, instruction, thread
Cut = tuple[str, tuple[int, ...] | None, Any, Any, int, int]
_recent: deque[Cut] = deque(maxlen=16)
noted = _recent.append


def note(what: str, tensor: Any) -> None:
    """`tensor`, which is in a graph, was copied out of it by a method that the user called."""
    edge = tensor._edge
    source = tensor if edge is LEAF else edge.node
    if source is not tensor and (source.saved is None or source.saved is SPENT):
        return  # backward has run through it: what is read for a log
    frame = getframe(2)
    if frame.f_code.co_filename == _ASKING and frame.f_back is not None:
        frame = frame.f_back
    code = frame.f_code
    if not call_site.inside[code.co_filename]:  # else a step of a library function
        _recent.append((what, tensor._array.shape, ref(source), code, frame.f_lasti, get_ident()))


def note_mode(what: str) -> None:
    """Recording was switched off by a `with` statement of the user's, or by a decorator."""
    frame = getframe(2)
    if frame.f_code.co_name == "wrapped" and frame.f_back is not None:
        frame = frame.f_back
    if not call_site.inside[frame.f_code.co_filename]:
        _recent.append((what, None, None, frame.f_code, frame.f_lasti, get_ident()))


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
    here = get_ident()
    found: dict[str, None] = {}
    for what, shape, reference, code, lasti, thread in list(_recent)[::-1]:
        if thread != here:
            continue
        source = reference() if reference is not None else None
        if leaf is not None and source is not None and not leads_to(source, leaf):
            continue
        concerns = ", if it was computed inside," if reference is None else f" of a tensor of shape {shape}"
        found[f"{what}{concerns} at: {call_site.line_of(code, lasti)}"] = None
    if not found:
        return ""
    lines = list(found)[:SHOWN]
    if len(lines) == 1:
        return f"\n  because of {lines[0]}"
    return "\n  because of one of these, newest first:" + "".join(f"\n  {line}" for line in lines)
