"""A placed diagram as SVG text.

Kinds differ in shape as well as in colour; colours are those of the charts, distinct in the common kinds of colour blindness, one set for
light and one for dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.viz.diagram import KINDS, ROOT, Box, Diagram, Vertex, size
from gradlab.viz.diagram_layout import CHIP, CHIP_GAP, STRIP, Inside, Part, Placer, chip_width, folded_lines, width_of
from gradlab.viz.layers import frames
from gradlab.viz.svg_text import escape

HEAD, MARGIN, SPACE = 84.0, 24.0, 14.0
FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif'

STYLE = f"""
text{{font:10.5px {FONT};fill:#57606a}}.t{{font-size:12px;font-weight:600;fill:#1c2128}}.n{{font-weight:400;fill:#57606a}}
.h{{font-size:17px;font-weight:600;fill:#1c2128}}.s{{font-size:12px}}.c{{font-size:10px;fill:#1c2128}}
.card{{fill:#fff;stroke:#d9dee5}}.box{{fill:#3b5b8c;fill-opacity:.045;stroke:#9fb0c6;stroke-dasharray:none}}
.edge{{fill:none;stroke:#7d8896;stroke-width:1.4}}.tip{{fill:#7d8896}}.stem{{stroke:#d9730d;stroke-width:1.4}}
.shape{{stroke-width:1.5}}.back{{stroke-width:1.2;opacity:.6}}
.operation{{fill:#fff;stroke:#5b7fb5}}.module{{fill:#e3ecfa;stroke:#1f6feb}}.parameter{{fill:#fdeedd;stroke:#d9730d}}
.leaf{{fill:#efe8fc;stroke:#7c4ddb}}.input{{fill:#e0f3e9;stroke:#1a8754}}.constant{{fill:#eef0f3;stroke:#8c96a3}}
.state{{fill:#fdeedd;stroke:#d9730d}}.output{{fill:#1c2128;stroke:#1c2128}}.output-text{{fill:#fff}}.kept{{fill:#c2387f}}
"""
DARK_STYLE = """
text{fill:#9aa5b1}.t,.h,.c{fill:#e9edf2}.n{fill:#9aa5b1}.card{fill:#14181f;stroke:#2d343e}
.box{fill:#8fb4e8;fill-opacity:.05;stroke:#475569}.edge{stroke:#8b96a5}.tip{fill:#8b96a5}.stem{stroke:#ffa657}
.operation{fill:#1b212b;stroke:#6f93c9}.module{fill:#1c2f4d;stroke:#6cb0ff}.parameter,.state{fill:#3b2a17;stroke:#ffa657}
.leaf{fill:#2d2446;stroke:#b79bff}.input{fill:#17352a;stroke:#56d391}.constant{fill:#262c35;stroke:#6d7885}
.output{fill:#e9edf2;stroke:#e9edf2}.output-text{fill:#14181f}.kept{fill:#ff8fc4}
"""
STYLE_SHEET = f"{STYLE}@media (prefers-color-scheme:dark){{{DARK_STYLE}}}\n"


@dataclass
class Layers:
    """SVG in the order of painting: boxes at the back, lines, then parts."""

    boxes: list[str]
    lines: list[str]
    parts: list[str]


def svg(diagram: Diagram, folded: set[int]) -> str:
    """The whole picture as a complete SVG document."""
    whole = Placer(diagram, frames(diagram), folded).whole()
    layers = Layers([], [], [])
    assert whole.inside is not None
    draw_inside(diagram, whole.inside, 0.0, 0.0, layers, max((v.kept for v in diagram.vertices), default=0))
    legend, needed = draw_legend(diagram, folded)
    width = max(whole.left + whole.right, needed, width_of(diagram.note, 12.0), width_of(diagram.title, 19.0)) + 2 * MARGIN
    height = whole.height + HEAD + MARGIN
    shift = (width - whole.left - whole.right) / 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
            f"role=\"img\" font-family='{FONT}'>",
            f"<title>{escape(diagram.title)}</title>",
            f"<desc>{escape(diagram.note)}</desc>",
            f"<style>{STYLE_SHEET}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10"/>',
            f'<text class="h" x="{MARGIN}" y="32">{escape(diagram.title)}</text>',
            f'<text class="s" x="{MARGIN}" y="51">{escape(diagram.note)}</text>',
            f'<g transform="translate({MARGIN},62)">',
            *legend,
            "</g>",
            f'<g transform="translate({shift:.1f},{HEAD + 4:.1f})">',
            *layers.boxes,
            *layers.lines,
            *layers.parts,
            "</g>",
            "</svg>",
            "",
        ]
    )


# ---------------------------------------------------------------- parts


def draw_inside(diagram: Diagram, inside: Inside, x: float, y: float, layers: Layers, most: int) -> None:
    """A box's contents, its upper left corner at (x, y)."""
    for entry, part in zip(inside.frame.entries, inside.parts):
        kind, number = entry
        if kind == "vertex":
            draw_vertex(diagram.vertices[number], part, x + part.x, y + part.y, layers, most)
        elif kind == "box" and part.inside is None:
            draw_folded(diagram, number, part, x + part.x, y + part.y, layers)
        elif kind == "box" and part.inside is not None:
            left, top = x + part.x - part.left, y + part.y
            draw_frame(diagram.boxes[number], part, left, top, layers)
            draw_inside(diagram, part.inside, left, top, layers, most)
    draw_links(inside, x, y, layers)


def draw_frame(box: Box, part: Part, x: float, y: float, layers: Layers) -> None:
    layers.boxes.append(
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{part.left + part.right:.1f}" height="{part.height:.1f}" rx="9"/>'
    )
    layers.parts.append(titled(x + 11, y + STRIP - 8.5, box.kind, box.name))


def titled(x: float, y: float, title: str, name: str, anchor: str = "", style: str = "t") -> str:
    rest = f' <tspan class="n">{escape(name)}</tspan>' if name else ""
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(title)}{rest}</text>'


def tooltip(vertex: Vertex) -> str:
    lines = [f"{vertex.title} {vertex.name}".strip(), *(f"{k}: {v}" for k, v in vertex.facts)]
    if vertex.kept:
        lines.append(f"kept for backward: {size(vertex.kept)}")
    return f"<title>{escape(chr(10).join([*lines, vertex.place] if vertex.place else lines))}</title>"


def outline(kind: str, x: float, y: float, width: float, height: float) -> str:
    """The shape of a kind: rectangles compute, pills are trained, pointed ones are leaves, slanted ones come from outside."""
    style = f'class="shape {kind}"'
    if kind in ("parameter", "output"):
        radius: float = min(height, 40.0) / 2
    elif kind == "leaf":
        tip = height / 3
        points = [(x - tip / 2, y + height / 2), (x + tip / 2, y), (x + width - tip / 2, y), (x + width + tip / 2, y + height / 2)]
        points += [(x + width - tip / 2, y + height), (x + tip / 2, y + height)]
        return f'<polygon {style} points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
    elif kind == "input":
        slant = 5.0
        points = [(x + slant, y), (x + width + slant, y), (x + width - slant, y + height), (x - slant, y + height)]
        return f'<polygon {style} points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
    else:
        radius = 3.0 if kind in ("constant", "state") else 6.0
    return f'<rect {style} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"/>'


def draw_vertex(vertex: Vertex, part: Part, x: float, y: float, layers: Layers, most: int) -> None:
    """A vertex with its anchor at x, its top at y. `most` is what the thickest memory bar stands for."""
    width, height = 2 * part.right, 40.0 if vertex.shape else 28.0
    top = y + (part.height - height) / 2
    middle = top + height / 2
    parts = [f"<g>{tooltip(vertex)}"]
    if vertex.chips:
        total = len(vertex.chips) * (CHIP + CHIP_GAP) - CHIP_GAP
        wide = max(map(chip_width, vertex.chips))
        left, at = x - part.left, y + (part.height - total) / 2
        for chip in vertex.chips:
            centre = at + CHIP / 2
            stem = "stem" if chip.kind in ("parameter", "state") else "edge"
            end = min(max(centre, top + 6), top + height - 6)
            parts.append(f'<path class="{stem}" fill="none" d="M{left + wide:.1f} {centre:.1f}L{x - part.right:.1f} {end:.1f}"/>')
            parts.append(outline(chip.kind, left, at, wide, CHIP))
            parts.append(f'<text class="c" x="{left + 8:.1f}" y="{centre + 3.6:.1f}">{escape(chip.name)} ')
            parts[-1] += f'<tspan class="n">{escape(chip.shape)}</tspan></text>'
            at += CHIP + CHIP_GAP
    parts.append(outline(vertex.kind, x - part.right, top, width, height))
    light = vertex.kind == "output"
    if vertex.shape:
        parts.append(titled(x, middle - 4, vertex.title, vertex.name, "middle", "t output-text" if light else "t"))
        style = ' class="output-text"' if light else ""
        parts.append(f'<text{style} x="{x:.1f}" y="{middle + 12:.1f}" text-anchor="middle">{escape(vertex.shape)}</text>')
    else:
        parts.append(titled(x, middle + 4, vertex.title, vertex.name, "middle", "t output-text" if light else "t"))
    if vertex.kept and most:
        bar = max(1.5, (width - 12) * vertex.kept / most)
        left, low = x - part.right + 6, top + height - 3.4
        parts.append(f'<rect class="kept" x="{left:.1f}" y="{low:.1f}" width="{bar:.1f}" height="2.2" rx="1"/>')
    layers.parts += [*parts, "</g>"]


def draw_folded(diagram: Diagram, number: int, part: Part, x: float, y: float, layers: Layers) -> None:
    """A folded box: a card on a second card."""
    box, width, height = diagram.boxes[number], 2 * part.right - 4, part.height - 4
    left = x - part.right
    parts = [
        f'<rect class="back module" x="{left + 4:.1f}" y="{y + 4:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>',
        f'<rect class="shape module" x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>',
        titled(x - 2, y + 18, box.kind, box.name, "middle"),
    ]
    for i, line in enumerate(folded_lines(diagram, number)):
        parts.append(f'<text x="{x - 2:.1f}" y="{y + 33 + 14 * i:.1f}" text-anchor="middle">{escape(line)}</text>')
    layers.parts += parts


# ---------------------------------------------------------------- lines


def draw_links(inside: Inside, x: float, y: float, layers: Layers) -> None:
    """The lines of one box. Within a layer's height they are straight, between layers they are curves, so they run through nothing."""
    frame, parts, bands = inside.frame, inside.parts, inside.bands
    level = {entry: i for i, row in enumerate(frame.layers) for entry in row}
    entering: dict[int, set[tuple[float, int]]] = {}
    for a, b, value in frame.links:
        if frame.entries[b][0] in ("vertex", "box") and not (frame.entries[b][0] == "box" and parts[b].ins):
            entering.setdefault(b, set()).add((parts[a].x + parts[a].outs.get(value, 0.0), a))
    aside: dict[tuple[float, int, int], float] = {}
    for b, found in entering.items():  # lines from several places into one part enter side by side
        step = min(16.0, 2 * parts[b].right * 0.6 / max(len(found) - 1, 1))
        middle = next((i for i, (origin, _) in enumerate(sorted(found)) if abs(origin - parts[b].x) < 2.0), (len(found) - 1) / 2)
        for i, (origin, a) in enumerate(sorted(found)):
            aside[origin, a, b] = (i - middle) * step
    for a, b, value in frame.links:
        start, end = parts[a], parts[b]
        from_kind, to_kind = frame.entries[a][0], frame.entries[b][0]
        x0 = x + start.x + start.outs.get(value, 0.0)
        x1 = x + end.x + end.ins.get(value, 0.0) + aside.get((start.x + start.outs.get(value, 0.0), a, b), 0.0)
        y0 = y if from_kind == "in" else y + bands[level[a]][1] if from_kind == "bend" else y + start.y + start.height
        if from_kind == "vertex":
            y0 -= 0.0 if start.height <= 40.5 else (start.height - 40.0) / 2
        far = y + bands[level[a]][1]
        near = y + bands[level[b]][0]
        last = to_kind == "vertex" or (to_kind == "box" and not end.ins)
        top = end.y + ((end.height - 40.0) / 2 if to_kind == "vertex" and end.height > 40.5 else 0.0)
        y1 = y + bands[level[b]][1] if to_kind == "bend" else near + 14.0 if to_kind == "out" else y + top
        if last:
            y1 -= 5.0
        path = f'<path class="edge" d="{course(x0, y0, far, near, x1, y1)}"/>'
        if path == (layers.lines[-2] if last and len(layers.lines) > 1 else ""):
            continue  # several values from one folded box to the same part
        layers.lines.append(path)
        if last:
            layers.lines.append(f'<path class="tip" d="M{x1 - 3.6:.1f} {y1 - 1.5:.1f}h7.2L{x1:.1f} {y1 + 5:.1f}z"/>')


def course(x0: float, y0: float, far: float, near: float, x1: float, y1: float) -> str:
    """Straight down from (x0, y0) to `far`, a curve to (x1, near), straight down to y1."""
    if abs(x1 - x0) < 0.5:
        return f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"
    near = min(near, y1)
    middle = (far + near) / 2
    path = f"M{x0:.1f} {y0:.1f}" + (f"V{far:.1f}" if far - y0 > 0.1 else "")
    path += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {near:.1f}"
    return path + (f"V{y1:.1f}" if y1 - near > 0.1 else "")


# ---------------------------------------------------------------- legend


def draw_legend(diagram: Diagram, folded: set[int]) -> tuple[list[str], float]:
    """A sample of each kind that is in the picture, and the width of them all."""
    shown = {v.kind for v in diagram.vertices} | {c.kind for v in diagram.vertices for c in v.chips}
    if folded - {ROOT}:
        shown.add("module")
    parts, x = [], 0.0
    for kind, word in KINDS.items():
        if kind in shown:
            parts.append(outline(kind, x + 2, 0, 20, 12))
            parts.append(f'<text x="{x + 31:.1f}" y="10">{word}</text>')
            x += 31 + width_of(word) + SPACE
    if any(v.kept for v in diagram.vertices):
        parts.append(f'<rect class="kept" x="{x + 2:.1f}" y="5" width="20" height="2.2" rx="1"/>')
        parts.append(f'<text x="{x + 29:.1f}" y="10">kept for backward</text>')
        x += 29 + width_of("kept for backward") + SPACE
    return parts, x
