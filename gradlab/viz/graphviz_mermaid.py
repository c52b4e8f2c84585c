"""A diagram in the languages of other programs: Graphviz and Mermaid."""

from __future__ import annotations

from gradlab.viz.diagram import ROOT, Diagram, Vertex

DOT = {
    "operation": 'shape=box, style="rounded,filled", fillcolor="#ffffff", color="#5b7fb5"',
    "module": 'shape=box3d, style=filled, fillcolor="#e3ecfa", color="#1f6feb"',
    "parameter": 'shape=box, style="rounded,filled", fillcolor="#fdeedd", color="#d9730d"',
    "leaf": 'shape=hexagon, style=filled, fillcolor="#efe8fc", color="#7c4ddb"',
    "input": 'shape=parallelogram, style=filled, fillcolor="#e0f3e9", color="#1a8754"',
    "constant": 'shape=box, style=filled, fillcolor="#eef0f3", color="#8c96a3"',
    "state": 'shape=box, style=filled, fillcolor="#fdeedd", color="#d9730d"',
    "output": 'shape=ellipse, style=filled, fillcolor="#1c2128", fontcolor="#ffffff"',
}
MERMAID = {  # brackets around the text: the shape
    "operation": ("[", "]"), "module": ("[[", "]]"), "parameter": ("([", "])"), "leaf": ("{{", "}}"), "input": ("[/", "/]"),
    "constant": ("[", "]"), "state": ("[", "]"), "output": ("((", "))"),
}  # fmt: skip
COLOURS = {
    "operation": ("#ffffff", "#5b7fb5"), "module": ("#e3ecfa", "#1f6feb"), "parameter": ("#fdeedd", "#d9730d"),
    "leaf": ("#efe8fc", "#7c4ddb"), "input": ("#e0f3e9", "#1a8754"), "constant": ("#eef0f3", "#8c96a3"),
    "state": ("#fdeedd", "#d9730d"), "output": ("#1c2128", "#1c2128"),
}  # fmt: skip


class Shown:
    """What is seen with some boxes folded: for each vertex itself or the outermost folded box around it."""

    def __init__(self, diagram: Diagram, folded: set[int]) -> None:
        self.diagram, self.folded = diagram, folded
        self.name: dict[int, str] = {}
        for v in diagram.vertices:
            box = next((b for b in diagram.path(v.box) if b in folded), None)
            self.name[v.id] = f"v{v.id}" if box is None else f"b{box}"
        self.children = diagram.children()

    def flows(self) -> list[tuple[str, str]]:
        """Pairs of names, each once, none from a folded box to itself."""
        pairs = ((self.name[a], self.name[b]) for a, b in self.diagram.flows)
        return list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))

    def entries(self, box: int) -> list[tuple[str, int]]:
        """("vertex" | "box", number) of what is directly in a box, by time."""
        vertices, boxes = self.children[box]
        found = [(self.diagram.vertices[v].order, "vertex", v) for v in vertices]
        found += [(self.diagram.boxes[b].order, "box", b) for b in boxes]
        return [(kind, number) for _, kind, number in sorted(found)]

    def box_title(self, number: int) -> str:
        box = self.diagram.boxes[number]
        return f"{box.kind} {box.name}".strip()


def label(vertex: Vertex) -> list[str]:
    return [text for text in (f"{vertex.title} {vertex.name}".strip(), vertex.shape) if text]


def dot(diagram: Diagram, folded: set[int]) -> str:
    """Graphviz: module calls are clusters, parameters with one use are nodes of their own."""
    shown = Shown(diagram, folded)
    lines = ["digraph gradlab {", '  node [fontname="Helvetica", fontsize=11]; edge [color="#7d8896"]; compound=true;']

    def quoted(*parts: str) -> str:
        return '"' + "\\n".join(p.replace("\\", "\\\\").replace('"', '\\"') for p in parts) + '"'

    def draw(box: int, indent: str) -> None:
        for kind, number in shown.entries(box):
            if kind == "vertex":
                v = diagram.vertices[number]
                lines.append(f"{indent}v{number} [label={quoted(*label(v))}, {DOT[v.kind]}];")
                for i, chip in enumerate(v.chips):
                    lines.append(f"{indent}v{number}c{i} [label={quoted(f'{chip.name} {chip.shape}')}, {DOT[chip.kind]}, fontsize=9];")
                    lines.append(f"{indent}v{number}c{i} -> v{number} [arrowhead=none];")
            elif number in folded:
                parts = [shown.box_title(number), *diagram.summary(diagram.within(number))]
                lines.append(f"{indent}b{number} [label={quoted(*parts)}, {DOT['module']}];")
            else:
                lines.append(f"{indent}subgraph cluster_{number} {{")
                lines.append(f'{indent}  label={quoted(shown.box_title(number))}; style="rounded"; color="#9fb0c6"; labeljust=l;')
                draw(number, indent + "  ")
                lines.append(f"{indent}}}")

    draw(ROOT, "  ")
    lines += [f"  {a} -> {b};" for a, b in shown.flows()]
    return "\n".join([*lines, "}", ""])


def mermaid(diagram: Diagram, folded: set[int]) -> str:
    """A Mermaid flowchart: module calls are subgraphs; an operation's own parameters stand in its text."""
    shown = Shown(diagram, folded)
    lines = ["flowchart TD"]

    def quoted(*parts: str) -> str:
        return '"' + "<br>".join(p.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;") for p in parts) + '"'

    def draw(box: int, indent: str) -> None:
        for kind, number in shown.entries(box):
            if kind == "vertex":
                v = diagram.vertices[number]
                left, right = MERMAID[v.kind]
                chips = [f"{chip.name} {chip.shape}" for chip in v.chips]
                lines.append(f"{indent}v{number}{left}{quoted(*label(v), *chips)}{right}:::{v.kind}")
            elif number in folded:
                left, right = MERMAID["module"]
                parts = [shown.box_title(number), *diagram.summary(diagram.within(number))]
                lines.append(f"{indent}b{number}{left}{quoted(*parts)}{right}:::module")
            else:
                lines.append(f"{indent}subgraph b{number}[{quoted(shown.box_title(number))}]")
                draw(number, indent + "  ")
                lines.append(f"{indent}end")

    draw(ROOT, "  ")
    lines += [f"  {a} --> {b}" for a, b in shown.flows()]
    used = {v.kind for v in diagram.vertices} | ({"module"} if folded else set())
    for kind in sorted(used):
        fill, stroke = COLOURS[kind]
        lines.append(f"  classDef {kind} fill:{fill},stroke:{stroke},color:{'#ffffff' if kind == 'output' else '#1c2128'}")
    return "\n".join([*lines, ""])
