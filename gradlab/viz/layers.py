"""Layers and their order: for each box, which row each part of it stands in, and in which order, so that lines seldom cross.

Each box is arranged for itself, after the method of Sugiyama, Tagawa and Toda (1981): rows by the longest path, bends where a line passes
a row, few crossings by repeated barycentres. A value that enters or leaves a box has one port on its edge. None of this depends on which
boxes are folded, so a page in a browser needs only `place` to fold a box.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field

from gradlab.viz.diagram import Diagram

Entry = tuple[str, int]  # ("vertex", number) | ("box", number) | ("in" | "out" | "bend", the vertex whose value passes)
SWEEPS = 12


@dataclass
class Frame:
    """The parts of one box: entries in layers, top to bottom and left to right, and links (upper, lower, value) between neighbours.

    `data` are the entries that are tensors from outside: they stand aside of the main line.
    """

    entries: list[Entry] = field(default_factory=list)
    layers: list[list[int]] = field(default_factory=list)
    links: list[tuple[int, int, int]] = field(default_factory=list)
    data: set[int] = field(default_factory=set)


def frames(diagram: Diagram) -> dict[int, Frame]:
    """The frame of every box."""
    edges: dict[int, dict[tuple[Entry, Entry, int], None]] = {box.id: {} for box in diagram.boxes}
    for source, target in diagram.flows:
        up = diagram.path(diagram.vertices[source].box)
        down = diagram.path(diagram.vertices[target].box)
        shared = 0
        while shared < min(len(up), len(down)) and up[shared] == down[shared]:
            shared += 1

        def part(path: list[int], level: int, vertex: int) -> Entry:
            return ("box", path[level]) if level < len(path) else ("vertex", vertex)

        edges[up[shared - 1]][part(up, shared, source), part(down, shared, target), source] = None
        for level in range(shared, len(up)):
            edges[up[level]][part(up, level + 1, source), ("out", source), source] = None
        for level in range(shared, len(down)):
            edges[down[level]][("in", source), part(down, level + 1, target), source] = None
    children = diagram.children()
    found = {}
    for box in diagram.boxes:
        vertices, boxes = children[box.id]
        parts: list[tuple[float, Entry]] = [(diagram.vertices[v].order, ("vertex", v)) for v in vertices]
        parts += [(diagram.boxes[b].order, ("box", b)) for b in boxes]
        data = {("vertex", v) for v in vertices if diagram.vertices[v].kind not in ("operation", "output")}
        found[box.id] = _frame([entry for _, entry in sorted(parts)], list(edges[box.id]), data)
    return found


def _frame(parts: list[Entry], edges: list[tuple[Entry, Entry, int]], data: set[Entry]) -> Frame:
    inside = [e for e, _, _ in edges if e[0] == "in"]
    outside = [e for _, e, _ in edges if e[0] == "out"]
    order = {entry: i for i, entry in enumerate(dict.fromkeys([*inside, *parts, *outside]))}
    edges = [(a, b, v) if order[a] < order[b] else (b, a, v) for a, b, v in edges if a != b]
    layer = _layers(list(order), edges)
    frame = Frame()
    number: dict[Entry, int] = {}
    for entry in order:
        number[entry] = len(frame.entries)
        frame.entries.append(entry)
    depth = max(layer.values(), default=-1) + 1
    frame.layers = [[] for _ in range(depth)]
    for entry in order:
        frame.layers[layer[entry]].append(number[entry])
    bends: dict[tuple[int, int, int], int] = {}  # start, value, layer -> the bend there: lines of one value run together
    links: dict[tuple[int, int, int], None] = {}
    for a, b, value in edges:
        last = number[a]
        for level in range(layer[a] + 1, layer[b]):
            key = (number[a], value, level)
            if key not in bends:
                bends[key] = len(frame.entries)
                frame.entries.append(("bend", value))
                frame.layers[level].append(bends[key])
            links[last, bends[key], value] = None
            last = bends[key]
        links[last, number[b], value] = None
    frame.links = list(links)
    frame.data = {number[entry] for entry in order if entry in data}
    for row in frame.layers:
        row.sort(key=lambda entry: entry in frame.data)
    _untangle(frame)
    return frame


def _layers(entries: list[Entry], edges: list[tuple[Entry, Entry, int]]) -> dict[Entry, int]:
    """The longest path from above; what nothing leads to stands just above what uses it; ports that lead out stand at the bottom."""
    before: dict[Entry, list[Entry]] = {e: [] for e in entries}
    after: dict[Entry, list[Entry]] = {e: [] for e in entries}
    for a, b, _ in edges:
        before[b].append(a)
        after[a].append(b)
    layer: dict[Entry, int] = {}
    for entry in entries:  # in order of time, so that sources come first
        layer[entry] = max((layer[a] + 1 for a in before[entry]), default=0)
    first = 1 if any(e[0] == "in" for e in entries) else 0
    for entry in reversed(entries):
        if entry[0] != "in" and not before[entry]:
            layer[entry] = max(first, min((layer[b] - 1 for b in after[entry]), default=first))
    changed = True
    while changed:  # what was moved down may have to push
        changed = False
        for a, b, _ in edges:
            if layer[b] <= layer[a]:
                layer[b], changed = layer[a] + 1, True
    last = max((n + 1 for e, n in layer.items() if e[0] != "out"), default=0)
    for entry in entries:
        if entry[0] == "out":
            layer[entry] = last
    used = {n: i for i, n in enumerate(sorted(set(layer.values())))}
    return {entry: used[n] for entry, n in layer.items()}


def _untangle(frame: Frame) -> None:
    """Order the layers by barycentres, downwards and upwards in turn; keep the order with the fewest crossings."""
    above: list[list[int]] = [[] for _ in frame.entries]
    below: list[list[int]] = [[] for _ in frame.entries]
    for a, b, _ in frame.links:
        below[a].append(b)
        above[b].append(a)
    best = [list(row) for row in frame.layers]
    fewest = crossings(frame, best)
    rows = [list(row) for row in best]
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        for level in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            fixed = rows[level - 1] if down else rows[level + 1]
            at = {entry: i for i, entry in enumerate(fixed)}
            neighbours = above if down else below
            here = {entry: i for i, entry in enumerate(rows[level])}
            scale = max(len(fixed), 1) / max(len(rows[level]), 1)

            def centre(entry: int) -> float:
                found = [at[n] for n in neighbours[entry]]  # noqa: B023 - used in this round only
                return sum(found) / len(found) if found else here[entry] * scale  # noqa: B023

            rows[level].sort(key=centre)
        count = crossings(frame, rows)
        if count < fewest:
            best, fewest = [list(row) for row in rows], count
    frame.layers = best


def crossings(frame: Frame, rows: list[list[int]]) -> int:
    """How often lines cross between neighbouring layers."""
    at = {entry: i for row in rows for i, entry in enumerate(row)}
    level = {entry: i for i, row in enumerate(rows) for entry in row}
    between: dict[int, list[tuple[int, int]]] = {}
    for a, b, _ in frame.links:
        between.setdefault(level[a], []).append((at[a], at[b]))
    total = 0
    for pairs in between.values():
        seen: list[int] = []
        for _, lower in sorted(pairs):
            total += len(seen) - bisect_right(seen, lower)
            insort(seen, lower)
    return total
