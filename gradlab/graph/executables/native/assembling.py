"""Where kernels write: attention in the layout that its readers want, and the parts of a `cat` where the whole lies, so that nothing is
copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gradlab.backends.native.lowerings.loops import is_elementwise
from gradlab.backends.native.place import Place, place_of, viewed
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line
from gradlab.graph.ir.memory_plan import Moment

# Rows whose kernels write results of four dimensions with any strides but the last, which is 1.
STRIDED = ("scaled_dot_product_attention", "scaled_dot_product_attention_backward")


def readers_of(line: Line) -> dict[int, list[Call]]:
    """The calls that read each value."""
    found: dict[int, list[Call]] = {}
    for call in line.calls:
        for x in call.inputs:
            if isinstance(x, Value):
                found.setdefault(x.id, []).append(call)
    return found


def chosen(call: Call, readers: Mapping[int, Sequence[Call]], leaving: set[int]) -> dict[int, Place]:
    """Places, as their own base, for those results of a call that had better not be in row-major order: with heads beside each other where
    somebody takes them so."""
    found: dict[int, Place] = {}
    if call.op.name not in STRIDED:
        return found
    for v in call.outputs:
        if len(v.spec.shape) != 4 or v.id in leaving:
            continue
        _, heads, rows, width = v.spec.shape
        place = place_of(v.id, v.spec)._replace(strides=(rows * heads * width, width, heads * width, 1))
        views = [viewed(place, reader.op, reader.params) for reader in readers.get(v.id, ()) if reader.op.view]
        if any(view is not None and view.contiguous for view in views):
            found[v.id] = place
    return found


def assembled(
    line: Line, relative: Mapping[int, Place], leaving: set[int], apart: Callable[[Call], bool] = lambda call: True
) -> dict[int, Place]:
    """For values that are parts of a `cat`: their places in its result.

    relative: for each value that whose memory it lies in, and how. leaving: values that are needed after the line. apart: whether a call
    is a kernel of its own, which alone can write elsewhere.
    """
    makers = {v.id: c for c in line.calls for v in c.outputs}
    updated = {new.id for _, new in line.updates}
    found: dict[int, Place] = {}
    wholes: set[int] = set()
    for call in line.calls:
        y = call.outputs[0]
        if call.op.name != "cat" or y.id in updated or relative[y.id].size == 0 or not apart(call):
            continue
        start, dim = 0, call.params["dim"]
        for x in call.inputs:
            p, whole = relative[x.id], relative[y.id]
            shift = start * whole.strides[dim] * whole.dtype.itemsize
            start += p.shape[dim]
            maker = makers.get(p.base)
            if maker is None or not apart(maker) or p.base in found or p.base in leaving or p.base in wholes:
                continue
            if not p.dtype == whole.dtype == relative[p.base].dtype:  # of other bits, what is made would be taken for the whole's type
                continue
            place = _within(relative[p.base], p, whole._replace(offset=shift, shape=p.shape))
            if place is not None and _writes(maker, place):
                found[p.base] = place
                wholes.add(y.id)
    # A whole that is itself a part of another: the inner parts would have to follow. Leave them.
    return {n: p for n, p in found.items() if p.base not in found}


def _within(source: Place, view: Place, target: Place) -> Place | None:
    """The place of `source` for which that view of it is `target`; None if there is none."""
    digits: list[tuple[int, int, int]] = []  # how many, how far apart in the source's memory, how far apart in the target's
    expected = 1
    for step, n, far in sorted((s, n, t) for n, s, t in zip(view.shape, view.strides, target.strides) if n != 1):
        if step != expected:
            return None
        expected *= n
        if digits and digits[-1][2] * digits[-1][0] == far:
            digits[-1] = (digits[-1][0] * n, *digits[-1][1:])
        else:
            digits.append((n, step, far))
    if expected != source.size or view.offset != 0:
        return None
    strides = []
    for n, s in zip(source.shape, source.strides):
        found = next((far * (s // step) for many, step, far in digits if s % step == 0 and s * n <= step * many), None)
        if found is None and n != 1:
            return None
        strides.append(1 if found is None else found)
    return target._replace(shape=source.shape, strides=tuple(strides))


def _writes(call: Call, place: Place) -> bool:
    """Whether the call can write its result there."""
    if call.op.view or is_elementwise(call) or call.op.name == "cat":
        return False
    return place.contiguous or (call.op.name in STRIDED and place.strides[-1] == 1)


def with_wholes(moments: Sequence[Moment], parts: Mapping[int, Place]) -> list[Moment]:
    """The moments, in which a whole begins to live with the first of its parts."""
    wholes = {p.base for p in parts.values()}
    begun: set[int] = set()
    found = []
    for moment in moments:
        reads, makes = list(moment.reads), []
        for n in moment.makes:
            whole = parts[n].base if n in parts else n
            if whole not in wholes:
                makes.append(n)
            elif whole in begun:
                reads.append(whole)
            else:
                begun.add(whole)
                makes.append(whole)
        found.append(Moment(reads, makes, moment.over))
    return found


__all__ = ["assembled", "chosen", "readers_of", "with_wholes"]
