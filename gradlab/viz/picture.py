"""`graph`: the picture of what leads to a tensor, or of a traced program."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from gradlab.viz import diagram_svg, from_autograd, from_program, graphviz_mermaid, page
from gradlab.viz.diagram import Diagram

READABLE = 60  # a picture with more parts than this shows repeated modules once, unless asked otherwise


class Picture:
    """A graph that shows itself in a notebook, and goes to a file with `save`. Made by `graph`."""

    def __init__(self, diagram: Diagram, folded: set[int]) -> None:
        self.diagram = diagram
        self.folded = folded

    def to_svg(self) -> str:
        """A complete SVG document, for light and dark pages."""
        return diagram_svg.svg(self.diagram, self.folded)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_html(self) -> str:
        """One page that needs no other file: search, zoom, folding, and for each operation its line and what it keeps."""
        return page.html(self.diagram, self.folded)

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        return graphviz_mermaid.dot(self.diagram, self.folded)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart, which Markdown renderers such as GitHub's draw."""
        return graphviz_mermaid.mermaid(self.diagram, self.folded)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file whose ending says what: .svg, .html, .dot (.gv) or .mmd. Raises ValueError for another ending."""
        writers = {
            ".svg": self.to_svg, ".html": self.to_html, ".dot": self.to_dot, ".gv": self.to_dot, ".mmd": self.to_mermaid,
        }  # fmt: skip
        writer = writers.get(Path(path).suffix.lower())
        if writer is None:
            raise ValueError(f"save: {str(path)!r} ends in none of {', '.join(writers)}")
        Path(path).write_text(writer(), encoding="utf-8")

    def __repr__(self) -> str:
        return f"<picture of {self.diagram.title}: {self.diagram.note}; save('graph.svg') or save('graph.html')>"


def diagram_of(value: Any, model: Any = None, title: str = "") -> Diagram:
    """The Diagram of a tensor or of a traced program."""
    program = value if from_program.is_program(value) else getattr(value, "graph", None)
    named = dict(model.named_parameters()) if model is not None else {}
    if program is not None and from_program.is_program(program):
        found = from_program.diagram(program, {id(p._array): name for name, p in named.items()})
    else:
        found = from_autograd.diagram(value, {id(p): name for name, p in named.items()})
    found.title = title or found.title
    return found


def graph(value: Any, *, model: Any = None, depth: int | None = None, repeats: bool | None = None, title: str = "") -> Picture:
    """A picture of what was computed, in the order of the forward: operations, parameters, inputs, and module calls as boxes.

    value: a tensor that was computed (a loss), or a traced program (`gradlab.graph.trace`).
    model: the nn.Module whose parameters' names are shown.
    depth: fold module calls deeper than this; 0 folds the outermost.
    repeats: False shows modules that are built alike once and folds the others; None does so in large pictures only.
    Raises TypeError for what is no tensor, RuntimeError for a tensor without graph.

        >>> import gradlab as gl
        >>> w = gl.ones(3, requires_grad=True)
        >>> picture = gl.viz.graph((w * 2).sum())
        >>> print(picture.to_mermaid().splitlines()[0])
        flowchart TD
    """
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise ValueError(f"graph: depth is the number of levels to show, 0 or more, not {depth!r}")
    found = diagram_of(value, model, title)
    if repeats is None:
        repeats = found.visible(found.folded(depth, True)) <= READABLE
    folded = found.folded(depth, repeats)
    if depth is None and not repeats and found.visible(folded) > READABLE:
        folded |= {box.id for box in found.boxes if box.line}
    return Picture(found, folded)
