"""What an optimizer notices about the training around it, at its first steps and then ever more rarely, so that no step is slower.

At steps 1 to 4, at powers of two and at every 64th: gradients that are not finite. At steps 1 to 4: parameters without a gradient,
gradients that are never zeroed. From step 16: graphs of earlier steps that are still held; this search goes through all objects, so it
is made only when a hundred times its own duration has passed.
"""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from time import perf_counter
from types import FrameType, ModuleType
from typing import Any, TypeGuard

import numpy as np

from gradlab import call_site
from gradlab.advice import GradlabWarning, HeldGraphWarning, NoGradientWarning, NonFiniteWarning, StaleGradientWarning, warn
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.node import Node
from gradlab.dtype import FLOATING

FIRST, SAMPLE, SCAN = 4, 8, 16  # steps looked at one by one; elements compared; the step of the first search for graphs
PAUSE = 0.5  # seconds, at least, between two searches
NODE_BYTES = 600  # about what a node without kept values takes
CONTAINERS = (list, tuple, set, dict, deque)


class Watch:
    """What is known of one optimizer's earlier steps."""

    def __init__(self) -> None:
        self.without: list[Any] | None = None  # parameters that had no gradient at any step so far
        self.gradient: Any = None  # weak reference to the first gradient
        self.values: Any = None  # its first elements
        self.piled = 0  # steps in which it only grew
        self.nodes = self.counted_at = 0  # how many were alive when last counted, and the step of that
        self.due = perf_counter() + PAUSE  # when to count next
        self.told: set[type[GradlabWarning]] = set()


def look(optimizer: Any, steps: int) -> None:
    """Check what is due after this many steps."""
    if current().tracer is not None:
        return
    watch = optimizer._watch
    if watch is None:
        watch = optimizer._watch = Watch()
    _finite(optimizer, steps, watch)
    if steps <= FIRST:
        _reached(optimizer, steps, watch)
        _zeroed(optimizer, watch)
    elif steps >= SCAN and HeldGraphWarning not in watch.told and perf_counter() >= watch.due:
        _held(steps, watch)


def parameters(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Name and tensor of each parameter that is to be trained."""
    number = 0
    for group in getattr(optimizer, "param_groups", ()):  # a wrapper may have none
        names = group.get("param_names")
        for i, p in enumerate(group["params"]):
            if p._edge is not None:
                yield names[i] if names else f"parameter {number} of shape {p._array.shape}", p
            number += 1


def _tell(watch: Watch, category: type[GradlabWarning], message: str) -> None:
    watch.told.add(category)
    warn(category, message)


def _finite(optimizer: Any, steps: int, watch: Watch) -> None:
    if NonFiniteWarning in watch.told:
        return
    for name, p in parameters(optimizer):
        g = p._grad
        if g is None or type(g._array) is not np.ndarray or g._array.dtype not in FLOATING or np.isfinite(g._array).all():
            continue
        what = "NaN" if np.isnan(g._array).any() else "infinity"
        _tell(
            watch,
            NonFiniteWarning,
            f"{type(optimizer).__name__}: at step {steps} the gradient of {name} has {what}, which the update puts into the parameters. "
            "Run a step under `with gl.autograd.detect_anomaly():` to see which operation made it, with its line in the forward",
        )
        return


def _reached(optimizer: Any, steps: int, watch: Watch) -> None:
    pairs = list(parameters(optimizer))
    without = [p for _, p in pairs if p._grad is None]
    known = watch.without
    watch.without = without if known is None else [p for p in without if any(p is q for q in known)]
    if steps != FIRST - 1 or not watch.without or len(watch.without) == len(pairs):
        return
    names = [name for name, p in pairs if any(p is q for q in watch.without)]
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    _tell(
        watch,
        NoGradientWarning,
        f"{type(optimizer).__name__}: no backward has given a gradient to {shown} in {steps} steps, so they do not learn: the loss does "
        "not depend on them, or detach(), item() or no_grad() lies between. gl.explain(loss, model=model) lists what the loss reaches; "
        "requires_grad_(False) freezes what is not to be trained",
    )


def _zeroed(optimizer: Any, watch: Watch) -> None:
    """Whether the first gradient is the same tensor as at the step before and backward has added to it since, and nobody else wrote it."""
    g = next((p._grad for _, p in parameters(optimizer) if p._grad is not None), None)
    if g is None or type(g._array) is not np.ndarray:
        return
    values = g._array.ravel()[:SAMPLE].copy()
    version = None if g._meta is None else g._meta.version
    written = version is not None and version.count > version.added
    same = watch.gradient is not None and watch.gradient() is g and not written and not np.array_equal(values, watch.values)
    watch.piled = watch.piled + 1 if same else 0
    watch.gradient, watch.values = weakref.ref(g), values
    if watch.piled == FIRST - 1:
        _tell(
            watch,
            StaleGradientWarning,
            f"{type(optimizer).__name__}: gradients were not zeroed in {FIRST} steps, so each step uses the sum of all backwards so far. "
            "Call optimizer.zero_grad() before each backward",
        )


# ---------------------------------------------------------------- graphs that are held


def _held(steps: int, watch: Watch) -> None:
    """Whether the number of nodes that are alive grows with the steps; then who holds them."""
    start = perf_counter()
    kinds = _kinds(Node)
    nodes = [x for x in gc.get_objects() if type(x) in kinds]
    before, since = watch.nodes, watch.counted_at
    watch.nodes, watch.counted_at = len(nodes), steps
    end = perf_counter()
    watch.due = end + max(PAUSE, 100 * (end - start))
    if not since or len(nodes) - before < (steps - since) * 0.9 or len(nodes) < 1.2 * before:
        return
    name = holder(sys._getframe(2))
    who = f"They are held by {name}. " if name else ""
    _tell(
        watch,
        HeldGraphWarning,
        f"after {steps} steps the graphs of earlier steps are still alive: {len(nodes):,} operations, {weight(nodes) / 1e6:.3g} MB, and "
        f"growing. {who}Keep numbers instead of losses: `losses.append(loss.item())`, `total += loss.item()`, or loss.detach()",
    )


def _kinds(base: type) -> set[type]:
    """A class and all derived from it: a look-up takes a third of the time of `isinstance`."""
    return {base}.union(*map(_kinds, base.__subclasses__()))


def weight(nodes: list[Any]) -> int:
    """About how many bytes these nodes keep alive, parameters apart."""
    buffers: dict[int, int] = {}
    for node in nodes:
        for value in node.saved or ():
            for part in value if type(value) is tuple else (value,):
                if not (isinstance(part, Differentiable) and part._edge is LEAF):
                    array = getattr(part, "_array", part)
                    buffers[id(array)] = int(getattr(array, "nbytes", 0))
    return sum(buffers.values()) + NODE_BYTES * len(nodes)


def holder(frame: FrameType | None) -> str:
    """The user's variable, or attribute of one, that holds the most graphs: looked for in the functions that are running."""
    best, most = "", 1
    while frame is not None:
        code = frame.f_code
        if not call_site.inside[code.co_filename]:
            place = call_site.line_of(code, frame.f_lasti)
            for name, value, where in _variables(frame):
                found = graphs(value)
                if found > most:
                    best, most = f'{name}, {_kind(value)} in {where} (File "{place.file}", line {place.line})', found
            del value
            if sys.version_info < (3, 13) and code.co_flags & inspect.CO_OPTIMIZED:
                frame.f_locals.clear()  # a copy that lives as long as the frame, with all that it holds
        frame = frame.f_back
    return best


def _kind(value: Any) -> str:
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, CONTAINERS) else "a tensor"


def _variables(frame: FrameType) -> Iterator[tuple[str, Any, str]]:
    tables = [(frame.f_locals, f"{frame.f_code.co_qualname}()")]
    if frame.f_locals is not frame.f_globals:
        tables.append((frame.f_globals, f"module {frame.f_globals.get('__name__', '?')}"))
    for table, where in tables:
        for name, value in list(table.items()):
            yield name, value, where
            if not isinstance(value, (ModuleType, type)) and not name.startswith("__"):
                for attribute, inner in list(getattr(value, "__dict__", {}).items()):
                    yield f"{name}.{attribute}", inner, where


def graphs(value: Any) -> int:
    """How many computed tensors a container holds; for a tensor, how long the chain of sums behind it is."""
    if isinstance(value, Differentiable):
        node, length = getattr(value._edge, "node", None), 0
        while _is_sum(node):
            length += 1
            node = next((e.node for e in node.edges if _is_sum(getattr(e, "node", None))), None)
        return length
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, CONTAINERS):
        return 0
    return sum(isinstance(x, Differentiable) and getattr(x._edge, "node", None) is not None for x in list(value))


def _is_sum(node: Any) -> TypeGuard[Node]:
    return getattr(getattr(node, "op", None), "name", "") == "add"
