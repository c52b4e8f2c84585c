"""Coordinates: how large each part is and where it stands. `page.js` does the same in a browser when boxes are folded there.

Every part has an anchor, where lines enter at its top and leave at its bottom; x is measured from it. A layer's x minimise the squared
lengths of its links under the least distances, by pooling adjacent violators, in sweeps over the layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gradlab.viz.diagram import ROOT, Chip, Diagram, Vertex
from gradlab.viz.layers import Frame

NARROW, WIDE = frozenset("fijlrtI.,:;'|!()[]- "), frozenset("mwMW&%@<>=+×")
PAD, STRIP, GAP, ROW = 14.0, 26.0, 22.0, 26.0  # around the inside of a box, its title's height, between neighbours, between layers
PULLS = (4.0, 0.02, 8.0)  # of a link between two parts, of one that ends at a bend, of one between two bends
DATA = 0.02  # pull of a link from a tensor
SWEEPS = 24
MORE = 36.0  # beside a box's title: its distance from the edge, and the sign that folds it
CHIP, CHIP_GAP, STEM = 17.0, 3.0, 12.0  # height of a chip, between chips, from chips to their operation


def width_of(text: str, font: float = 10.5) -> float:
    """About how many pixels a text takes, in the widest of the usual fonts: SVG cannot measure, and fonts differ."""
    return sum(0.39 if c in NARROW else 0.9 if c in WIDE else 0.64 for c in text) * font


def title_width(title: str, name: str) -> float:
    """As `width_of`, of a title in bold letters and a name in plain ones."""
    return width_of(title, 13.6) + (width_of(f" {name}", 12.0) if name else 0.0)


@dataclass
class Part:
    """A placed entry. `left` and `right` are its extents from the anchor; `ins` and `outs` are where values enter and leave, from there."""

    left: float
    right: float
    height: float
    ins: dict[int, float] = field(default_factory=dict)
    outs: dict[int, float] = field(default_factory=dict)
    x: float = 0.0  # of the anchor, in the coordinates of the box around it
    y: float = 0.0  # of the top
    inside: Inside | None = None


@dataclass
class Inside:
    """A box's contents: the parts by entry number, and top and bottom of each layer."""

    box: int
    frame: Frame
    parts: list[Part]
    bands: list[tuple[float, float]]


class Placer:
    """Places a diagram with some boxes folded."""

    def __init__(self, diagram: Diagram, frames: dict[int, Frame], folded: set[int]) -> None:
        self.diagram, self.frames, self.folded = diagram, frames, folded
        self.cards = {v.id: vertex_part(v) for v in diagram.vertices}

    def whole(self) -> Part:
        """Everything, as the part of ROOT."""
        return self.box(ROOT)

    def box(self, number: int) -> Part:
        """One box, unfolded, with all that is in it."""
        frame = self.frames[number]
        parts = []
        for kind, target in frame.entries:
            if kind == "vertex":
                card = self.cards[target]
                parts.append(Part(card.left, card.right, card.height))
            elif kind == "box":
                parts.append(folded_part(self.diagram, target) if target in self.folded else self.box(target))
            else:
                parts.append(Part(3.0, 3.0, 0.0))
        across(frame, parts)
        bands = down(frame, parts, 0.0 if number == ROOT else STRIP)
        left = min((p.x - p.left for p in parts), default=0.0) - PAD
        right = max((p.x + p.right for p in parts), default=0.0) + PAD
        ins = {v: parts[i].x for i, (kind, v) in enumerate(frame.entries) if kind == "in"}
        outs = {v: parts[i].x for i, (kind, v) in enumerate(frame.entries) if kind == "out"}
        if number != ROOT:  # the title stands left of all lines that enter
            box = self.diagram.boxes[number]
            title = title_width(box.kind, box.name) + MORE
            left = min(left, min(ins.values(), default=left + title) - title)
            right = max(right, left + title)
        anchor = sum(ins.values()) / len(ins) if ins else (left + right) / 2
        for part in parts:
            part.x -= left
        bottom = bands[-1][1] if bands else STRIP
        return Part(
            anchor - left, right - anchor, bottom + (0.0 if number == ROOT else PAD),
            {v: x - anchor for v, x in ins.items()}, {v: x - anchor for v, x in outs.items()}, inside=Inside(number, frame, parts, bands),
        )  # fmt: skip


def vertex_part(vertex: Vertex) -> Part:
    """The size of a vertex with its chips at its left."""
    chips, shape = vertex.chips, vertex.shape
    width = max(title_width(vertex.title, vertex.name), width_of(shape), 40.0) + 20.0
    height = 40.0 if shape else 28.0
    left = width / 2
    if chips:
        height = max(height, len(chips) * (CHIP + CHIP_GAP) - CHIP_GAP)
        left += STEM + max(chip_width(c) for c in chips)
    return Part(left, width / 2, height)


def chip_width(chip: Chip) -> float:
    return width_of(f"{chip.name} {chip.shape}", 10.0) + 16.0


def folded_lines(diagram: Diagram, number: int) -> list[str]:
    """What a folded box says below its title."""
    like = diagram.likes.get(number)
    return [*diagram.summary(diagram.within(number)), *([f"built like {like} above"] if like else [])]


def folded_part(diagram: Diagram, number: int) -> Part:
    """The size of a folded box."""
    box = diagram.boxes[number]
    lines = folded_lines(diagram, number)
    width = max(title_width(box.kind, box.name) + 14.0, *map(width_of, lines)) + 26.0
    return Part(width / 2, width / 2, 32.0 + 14.0 * len(lines))


def down(frame: Frame, parts: list[Part], top: float) -> list[tuple[float, float]]:
    """Set every y; give top and bottom of each layer. Lines that go far aside get more height to do so."""
    level = {entry: i for i, row in enumerate(frame.layers) for entry in row}
    aside = [0.0] * len(frame.layers)
    fed = {b for _, b, _ in frame.links}
    for a, b, value in frame.links:
        reach = abs(parts[a].x + parts[a].outs.get(value, 0.0) - parts[b].x - parts[b].ins.get(value, 0.0))
        aside[level[b]] = max(aside[level[b]], reach)
    bands = []
    y = top
    for i, row in enumerate(frame.layers):
        if i > 0:
            kinds = {frame.entries[e][0] for e in frame.layers[i - 1]}, {frame.entries[e][0] for e in row}
            ports = kinds[0] <= {"in", "bend"} or kinds[1] <= {"out", "bend"}
            y += max(ROW / 2 if ports else ROW, min(64.0, 0.14 * aside[i] + 10.0))
        height = max((parts[e].height for e in row), default=0.0)
        for entry in row:  # what begins here stands low, near what uses it
            parts[entry].y = y + (height - parts[entry].height) / (2 if entry in fed else 1)
        bands.append((y, y + height))
        y += height
    return bands


def across(frame: Frame, parts: list[Part]) -> None:
    """Set every x."""
    above: list[list[tuple[int, float, float]]] = [[] for _ in parts]  # neighbour, difference of x at rest, pull
    below: list[list[tuple[int, float, float]]] = [[] for _ in parts]
    for a, b, value in frame.links:
        bends = (frame.entries[a][0] == "bend") + (frame.entries[b][0] == "bend")
        pull = DATA if a in frame.data and not bends else PULLS[bends]
        rest = parts[a].outs.get(value, 0.0) - parts[b].ins.get(value, 0.0)
        above[b].append((a, rest, pull))
        below[a].append((b, -rest, pull))
    for row in frame.layers:
        spread(row, parts, [(0.0, 1.0)] * len(row))
    order = list(range(len(frame.layers)))
    for sweep in range(SWEEPS):
        last = sweep >= SWEEPS - 6
        for level in order if sweep % 2 == 0 else order[::-1]:
            row = frame.layers[level]
            wishes = []
            for entry in row:
                near = above[entry] + below[entry] if last else above[entry] if sweep % 2 == 0 else below[entry]
                weight = sum(pull for _, _, pull in near)
                if near:  # bends give way to parts
                    firm = 0.1 if frame.entries[entry][0] == "bend" else weight
                    wishes.append((sum((parts[n].x + rest) * pull for n, rest, pull in near) / weight, firm))
                else:
                    wishes.append((parts[entry].x, 0.05))
            spread(row, parts, wishes)
    straighten(frame, parts)


def straighten(frame: Frame, parts: list[Part]) -> None:
    """Make each line of bends one straight line where its neighbours leave room."""
    after = {a: b for a, b, _ in frame.links if frame.entries[a][0] == "bend" and frame.entries[b][0] == "bend"}
    starts = [e for row in frame.layers for e in row if frame.entries[e][0] == "bend" and e not in after.values()]
    place = {e: (row, i) for row in frame.layers for i, e in enumerate(row)}
    for start in starts:
        line = [start]
        while line[-1] in after:
            line.append(after[line[-1]])
        low, high = -math.inf, math.inf
        for bend in line:
            row, i = place[bend]
            if i > 0:
                low = max(low, parts[row[i - 1]].x + parts[row[i - 1]].right + GAP)
            if i + 1 < len(row):
                high = min(high, parts[row[i + 1]].x - parts[row[i + 1]].left - GAP)
        if low <= high:
            x = min(max(sum(parts[bend].x for bend in line) / len(line), low), high)
            for bend in line:
                parts[bend].x = x


def spread(row: list[int], parts: list[Part], wishes: list[tuple[float, float]]) -> None:
    """The x of a layer nearest to the wishes (place, weight) that keep the order and the distances."""
    offset = 0.0
    offsets: list[float] = []
    for i, entry in enumerate(row):
        if i > 0:
            offset += parts[row[i - 1]].right + GAP + parts[entry].left
        offsets.append(offset)
    groups: list[list[float]] = []  # mean, weight, number of entries
    for (wish, weight), shift in zip(wishes, offsets):
        groups.append([wish - shift, weight, 1.0])
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            mean, weight_, count = groups.pop()
            first = groups[-1]
            total = first[1] + weight_
            first[0] = (first[0] * first[1] + mean * weight_) / total
            first[1] = total
            first[2] += count
    i = 0
    for mean, _, count in groups:
        for _ in range(int(count)):
            parts[row[i]].x = mean + offsets[i]
            i += 1
