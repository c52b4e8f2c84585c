"""`explain`: what was computed, as a tree of module calls and operations in plain text."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.engine import reachable
from gradlab.named_errors import named_functions
from gradlab.viz.diagram import ROOT, Diagram, Vertex, counted, size
from gradlab.viz.graphviz_mermaid import Shown
from gradlab.viz.picture import diagram_of

GAP = "  "


class Explanation:
    """The tree as text: `print` it, or let a notebook show it. Made by `explain`.

    operations, parameters, kept_bytes: the number of operations and of trained numbers, and the bytes kept for backward.
    unreached: the names of the model's parameters from which nothing leads to the tensor.
    """

    def __init__(self, diagram: Diagram, folded: set[int], unreached: list[str]) -> None:
        self.diagram, self.folded, self.unreached = diagram, folded, unreached
        self.operations = sum(v.kind == "operation" for v in diagram.vertices)
        self.parameters = sum(c.elements for v in diagram.vertices for c in v.chips if c.kind == "parameter")
        self.kept_bytes = diagram.kept

    def __str__(self) -> str:
        rows = list(self._rows())
        columns = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
        lines = [f"{self.diagram.title}: {self.diagram.note}"]
        for row in rows:
            cells = [cell.rjust(width) if i in (0, 3) else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, columns))]
            lines.append(GAP.join([*cells, row[5]]).rstrip())
        if self.unreached:
            lines.append(f"No gradient reaches {counted(len(self.unreached), 'parameter tensor')}: {', '.join(self.unreached)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """Number, tree and name, shape, kept bytes, where the values come from, the line."""
        shown = Shown(self.diagram, self.folded)
        self._numbers = {v.id: str(i + 1) for i, v in enumerate(self._order(shown, ROOT))}
        self._before = ""
        self._sources: dict[int, list[int]] = {}
        for a, b in self.diagram.flows:
            self._sources.setdefault(b, []).append(a)
        yield from self._inside(shown, ROOT, "")

    def _order(self, shown: Shown, box: int) -> Iterator[Vertex]:
        for kind, number in shown.entries(box):
            if kind == "vertex":
                yield self.diagram.vertices[number]
            else:
                yield from self._order(shown, number)

    def _inside(self, shown: Shown, box: int, lead: str) -> Iterator[tuple[str, ...]]:
        groups = _alike(self.diagram, self.folded, shown.entries(box))
        for i, group in enumerate(groups):
            last = i == len(groups) - 1
            branch, deeper = ("", "") if box == ROOT else (("└─ ", "   ") if last else ("├─ ", "│  "))
            kind, number = group[0]
            if kind == "vertex":
                yield self._vertex(self.diagram.vertices[number], lead + branch)
            elif number in self.folded:
                yield self._folded([n for _, n in group], lead + branch)
            else:
                title = shown.box_title(number)
                kept = sum(v.kept for v in self.diagram.within(number))
                yield "", lead + branch + title, "", size(kept) if kept else "", "", ""
                yield from self._inside(shown, number, lead + deeper)

    def _vertex(self, v: Vertex, lead: str) -> tuple[str, ...]:
        sources = [self._numbers[a] for a in self._sources.get(v.id, ())]
        origin = "" if not sources or sources == [self._before] else "← " + ", ".join(sources)
        chips = ", ".join(f"{c.name} {c.shape}" for c in v.chips)
        self._before = self._numbers[v.id]
        mark = "" if v.kind == "operation" else f" ({v.kind})"
        path, _, line = v.place.partition(" in ")[0].rpartition(":")
        place = f"{Path(path).name}:{line}" if path else line  # of a notebook: cell 3, line 2
        name = f"{v.title} {v.name}".strip()
        return self._before, f"{lead}{name}{mark}", v.shape, size(v.kept) if v.kept else "", GAP.join(filter(None, (origin, chips))), place

    def _folded(self, boxes: list[int], lead: str) -> tuple[str, ...]:
        first, vertices = self.diagram.boxes[boxes[0]], [v for b in boxes for v in self.diagram.within(b)]
        name = f"{first.kind} {first.name}".strip()
        if len(boxes) > 1:
            name = f"{name} … {self.diagram.boxes[boxes[-1]].name} ({len(boxes)} times)"
        inside = [v for v in vertices if v.kind == "operation"]
        if inside:
            self._before = self._numbers[inside[-1].id]
        like = self.diagram.likes.get(boxes[0])
        note = " · ".join([*self.diagram.summary(vertices)[:2], *([f"built like {like}"] if like else [])])
        kept = sum(v.kept for v in vertices)
        return "", f"{lead}{name}", inside[-1].shape if inside else "", size(kept) if kept else "", note, ""


def _alike(diagram: Diagram, folded: set[int], entries: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Entries, with folded boxes that follow one another and are built like the same one put together."""
    groups: list[list[tuple[str, int]]] = []
    for kind, number in entries:
        like = diagram.likes.get(number) if kind == "box" and number in folded else None
        before = groups[-1][-1] if groups else ("", 0)
        if like is not None and before[0] == "box" and before[1] in folded and diagram.likes.get(before[1]) == like:
            groups[-1].append((kind, number))
        else:
            groups.append([(kind, number)])
    return groups


def explain(value: Any, *, model: Any = None, depth: int | None = None, repeats: bool = False) -> Explanation:
    """What was computed, as a tree in the order of the forward: module calls and operations with shapes, kept bytes and source lines.

    value: a tensor that was computed (a loss), or a traced program.
    model: the nn.Module whose parameters' names are shown, and checked: those from which nothing leads to `value` are listed.
    depth: fold module calls deeper than this. repeats: show modules that are built like an earlier one in full, too.
    A row is: number, operation, shape (and a dtype other than float32), what backward keeps, the numbers of the rows whose results it
    uses if that is not just the row before, its parameters, its line. Raises as `gradlab.viz.graph` does.

        >>> import gradlab as gl
        >>> w = gl.ones(3, requires_grad=True)
        >>> gl.explain((w * w).sum()).operations
        2
    """
    found = diagram_of(value, model)
    unreached = []
    if model is not None and isinstance(value, Differentiable):
        leaves = {id(e) for node in reachable([value._edge.node]) for e in node.edges if isinstance(e, Differentiable)}
        unreached = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in leaves]
    return Explanation(found, found.folded(depth, repeats), unreached)


named_functions(__name__)
