"""A diagram as one HTML page without any other file: search, zoom, folding, and for each operation what it keeps and its line."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from gradlab.viz import diagram_layout
from gradlab.viz.diagram import Diagram, size
from gradlab.viz.diagram_svg import STYLE_SHEET
from gradlab.viz.layers import frames

HERE = Path(__file__).parent
HELP = "Click a part for its shape, its line and what it keeps; + and − fold a module. Drag to move, wheel to zoom."


def html(diagram: Diagram, folded: set[int]) -> str:
    """The page, which opens with these boxes folded."""
    data = json.dumps(content(diagram, folded), separators=(",", ":")).replace("<", "\\u003c")
    style, script = (HERE / "page.css").read_text(encoding="utf-8"), (HERE / "page.js").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(diagram.title)}</title>
<style>{STYLE_SHEET}{style}</style>
</head>
<body>
<header>
<h1>{escape(diagram.title)}</h1>
<p>{escape(diagram.note)}</p>
<input id="search" type="search" placeholder="Search (/): names, shapes, lines" size="30" aria-label="Search">
<button id="fit">Fit</button>
<button id="less">Fold all</button>
<button id="first">As at first</button>
<button id="all">Unfold all</button>
</header>
<main id="stage"></main>
<aside>
<div id="details"><p class="soft">{HELP}</p></div>
<div id="found"></div>
<div id="keepers"></div>
</aside>
<script id="graph" type="application/json">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def content(diagram: Diagram, folded: set[int]) -> dict[str, Any]:
    """All that the page's program needs."""
    vertices = []
    for v in diagram.vertices:
        part = diagram_layout.vertex_part(v)
        vertices.append(
            {
                "id": v.id, "kind": v.kind, "title": v.title, "name": v.name, "shape": v.shape, "box": v.box, "kept": v.kept,
                "keptText": size(v.kept), "place": v.place, "facts": v.facts, "left": part.left, "right": part.right, "height": part.height,
                "chips": [{"kind": c.kind, "name": c.name, "shape": c.shape} for c in v.chips],
            }
        )  # fmt: skip
    boxes = []
    for b in diagram.boxes:
        card = diagram_layout.folded_part(diagram, b.id)
        boxes.append(
            {
                "id": b.id, "kind": b.kind, "name": b.name, "parent": b.parent, "place": b.place, "half": card.right, "height": card.height,
                "lines": diagram_layout.folded_lines(diagram, b.id),
                "title": diagram_layout.title_width(b.kind, b.name) + diagram_layout.MORE,
                "depth": len(diagram.path(b.id)) - 1,
            }
        )  # fmt: skip
    arranged = {
        number: {"entries": frame.entries, "layers": frame.layers, "links": frame.links, "data": sorted(frame.data)}
        for number, frame in frames(diagram).items()
    }
    names = ("PAD", "STRIP", "GAP", "ROW", "PULLS", "DATA", "SWEEPS", "CHIP", "CHIP_GAP", "STEM")
    return {
        "title": diagram.title, "vertices": vertices, "boxes": boxes, "frames": arranged, "folded": sorted(folded),
        "most": max((v.kept for v in diagram.vertices), default=0) or 1, "sizes": {name: getattr(diagram_layout, name) for name in names},
    }  # fmt: skip
