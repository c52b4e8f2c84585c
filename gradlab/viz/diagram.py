"""What a picture of a graph shows, before anything is placed: vertices, what flows between them, and the boxes of module calls around them.

`from_autograd` and `from_program` make a Diagram; `frames`, `place` and `drawing` turn it into a picture, `notation` into text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradlab import call_site

ROOT = 0  # the box around everything
ABOVE = os.path.dirname(call_site.PACKAGE) + os.sep

# kind -> the word for it in a legend
KINDS = {
    "operation": "operation",
    "module": "module (folded)",
    "parameter": "parameter",
    "leaf": "leaf that requires grad",
    "input": "input",
    "constant": "constant",
    "state": "state",
    "output": "output",
}


@dataclass
class Chip:
    """A tensor drawn at the side of the one operation that uses it: a parameter, mostly."""

    kind: str
    name: str
    shape: str
    elements: int


@dataclass
class Vertex:
    """An operation, or a tensor that several operations use. `order` is its time; `kept` the bytes kept for backward; `place` its line."""

    id: int
    kind: str
    title: str
    shape: str
    box: int
    order: float
    name: str = ""  # of the module, where the vertex is all that a module call did
    chips: list[Chip] = field(default_factory=list)
    kept: int = 0
    place: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Box:
    """One call of a module: its class, its name in the module around it, when it began."""

    id: int
    kind: str
    name: str
    parent: int
    order: float
    place: str = ""
    line: bool = False  # of one line of the user's instead


@dataclass
class Diagram:
    """Vertices by number, boxes by number (ROOT is the whole), and flows: pairs of vertex numbers."""

    title: str
    note: str = ""
    vertices: list[Vertex] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=lambda: [Box(ROOT, "", "", ROOT, 0)])
    flows: list[tuple[int, int]] = field(default_factory=list)

    def vertex(self, kind: str, title: str, shape: str, box: int, order: float, **more: Any) -> Vertex:
        """Add a vertex."""
        made = Vertex(len(self.vertices), kind, title, shape, box, order, **more)
        self.vertices.append(made)
        return made

    def flow(self, source: Vertex, target: Vertex) -> None:
        """Add a flow, once."""
        pair = (source.id, target.id)
        if pair not in self._known:
            self._known.add(pair)
            self.flows.append(pair)

    def __post_init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        self._boxes: dict[int, int] = {}
        self.likes: dict[int, str] = {}  # box -> the name of the first one that is built alike

    def box_of(self, scope: Any, order: float) -> int:
        """The box of a module call (a `position.Scope`), made with those around it on first use."""
        if scope is None:
            return ROOT
        known = self._boxes.get(id(scope))
        if known is None:
            parent = self.box_of(scope.outer, order)
            known = self._boxes[id(scope)] = len(self.boxes)
            self.boxes.append(Box(known, scope.module, scope.name, parent, order))
        return known

    # ------------------------------------------------------------ the tree of boxes

    def path(self, box: int) -> list[int]:
        """The boxes from ROOT to this one."""
        found = [box]
        while found[-1] != ROOT:
            found.append(self.boxes[found[-1]].parent)
        return found[::-1]

    def children(self) -> dict[int, tuple[list[int], list[int]]]:
        """For each box that has any: the vertices and the boxes directly in it, by time."""
        found: dict[int, tuple[list[int], list[int]]] = {ROOT: ([], [])}
        for box in self.boxes[1:]:
            found.setdefault(box.id, ([], []))
        for vertex in sorted(self.vertices, key=lambda v: v.order):
            found[vertex.box][0].append(vertex.id)
        for box in sorted(self.boxes[1:], key=lambda b: b.order):
            found[box.parent][1].append(box.id)
        return found

    def within(self, box: int) -> list[Vertex]:
        """All vertices in a box and in those inside it."""
        inside = {box}
        for other in self.boxes[1:]:  # parents come first
            if other.parent in inside:
                inside.add(other.id)
        return [v for v in self.vertices if v.box in inside]

    def melt(self) -> Diagram:
        """Take away boxes around a single operation (its module becomes the operation's name) and boxes with nothing in them."""
        children = self.children()
        for box in reversed(self.boxes[1:]):
            vertices, boxes = children[box.id]
            if boxes or len(vertices) > 1:
                continue
            siblings = children[box.parent]
            siblings[1].remove(box.id)
            for number in vertices:
                vertex = self.vertices[number]
                vertex.box = box.parent
                if vertex.kind == "operation" and not vertex.name:
                    vertex.facts.insert(0, ("operation", vertex.title))
                    vertex.title, vertex.name = box.kind, box.name
                siblings[0].append(number)
            vertices.clear()
        kept = [ROOT, *(b.id for b in self.boxes[1:] if any(children[b.id]))]
        renamed = {old: new for new, old in enumerate(kept)}
        self.boxes = [self.boxes[old] for old in kept]
        for box in self.boxes:
            box.id, box.parent = renamed[box.id], renamed[box.parent]
        for vertex in self.vertices:
            vertex.box = renamed[vertex.box]
        return self

    def common(self, boxes: Iterable[int]) -> int:
        """The innermost box around all of these."""
        paths = [self.path(box) for box in boxes]
        found = ROOT
        for level in zip(*paths):
            if len(set(level)) > 1:
                break
            found = level[0]
        return found

    # ------------------------------------------------------------ folding

    def signatures(self) -> dict[int, Any]:
        """For each box what is in it: the same for two calls of modules of one structure, whatever their shapes."""
        children = self.children()
        found: dict[int, Any] = {}
        for box in reversed(self.boxes):
            vertices, boxes = children[box.id]
            parts = [(self.vertices[v].order, self.vertices[v].title, len(self.vertices[v].chips)) for v in vertices]
            parts += [(self.boxes[b].order, found[b], -1) for b in boxes]
            found[box.id] = (box.kind, tuple(part[1:] for part in sorted(parts, key=lambda p: p[0])))
        return found

    def folded(self, depth: int | None, repeats: bool) -> set[int]:
        """The boxes to show folded: those deeper than `depth`, and, unless `repeats`, those built like one that is shown before."""
        found: set[int] = set()
        shown: dict[Any, int] = {}
        signatures = self.signatures()
        self.likes = {}
        for box in self.boxes[1:]:
            level = len(self.path(box.id)) - 1
            hidden = any(b in found for b in self.path(box.id)[:-1])
            if depth is not None and level > depth:
                found.add(box.id)
            elif not hidden and not repeats:
                first = shown.setdefault(signatures[box.id], box.id)
                if first != box.id:
                    found.add(box.id)
                    self.likes[box.id] = self.boxes[first].name or self.boxes[first].kind
        return found

    def visible(self, folded: set[int]) -> int:
        """How many vertices and folded boxes a picture with these folds shows."""
        count = 0
        for box in [*(v.box for v in self.vertices), *(b.parent for b in self.boxes[1:] if b.id in folded)]:
            count += not any(b in folded for b in self.path(box))
        return count

    # ------------------------------------------------------------ sums

    @property
    def kept(self) -> int:
        """Bytes that all operations keep for backward."""
        return sum(v.kept for v in self.vertices)

    def summary(self, vertices: Sequence[Vertex]) -> list[str]:
        """Number of operations, parameters and kept bytes of some vertices, as text."""
        operations = sum(v.kind == "operation" for v in vertices)
        parameters = sum(c.elements for v in vertices for c in v.chips if c.kind == "parameter")
        kept = sum(v.kept for v in vertices)
        parts = [counted(operations, "operation")]
        if parameters:
            parts.append(counted(parameters, "parameter"))
        return [*parts, f"keeps {size(kept)}"] if kept else parts


def counted(number: int, word: str) -> str:
    """`1 operation`, `2,000 operations`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Bytes as people read them, in decimal units."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} GB"


def source_line(place: Any) -> tuple[str, list[tuple[str, str]]]:
    """A `position.Position` as text, and the line itself as a fact; nothing for None.

    The file is given as seen from the working directory, or from where gradlab is: pictures are shown to others.
    """
    if place is None or place.file.startswith("<frozen"):
        return "", []
    file = place.file.removeprefix(os.getcwd() + os.sep).removeprefix(ABOVE)
    where = f"{place.cell}, line {place.line}" if place.cell else f"{file}:{place.line}"
    within = "" if place.cell and place.function == "<module>" else f" in {place.function}"
    return f"{where}{within}", [("line", place.text)] if place.text else []


def extent(shape: Sequence[int] | None, dtype: Any = None) -> str:
    """A shape as text, `16×3×3`, with a dtype other than float32."""
    if shape is None:
        return ""
    text = "×".join(map(str, shape)) if shape else "scalar"
    return text if dtype is None or str(dtype) == "float32" else f"{text} {dtype}"
