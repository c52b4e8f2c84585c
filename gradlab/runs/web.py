"""A run's page: one HTML file with the model as WebAssembly and a face that fits the run, to be used with no server and no network."""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradlab._version import __version__
from gradlab.runs.digits import DigitsTask
from gradlab.runs.images import ImagesTask
from gradlab.runs.interface import Interface
from gradlab.runs.series import SeriesTask
from gradlab.runs.table import TableTask
from gradlab.runs.text import TextTask

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun

ASSETS = Path(__file__).resolve().parent / "page"
# Nothing is loaded from anywhere, whatever a browser is told.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<header><h1>{title}</h1><p>{said}</p></header>
<main><section id="question"></section><section id="answer" aria-live="polite"></section></main>
<footer>Computed in this page, which sends nothing anywhere. Made by gradlab {version}.</footer>
<script type="application/json" id="about">{about}</script>
<script type="text/plain" id="wasm">{wasm}</script>
<script type="text/plain" id="weights">{weights}</script>
<script>
"use strict";
{script}
</script>
</body>
</html>
"""


def page(trained: TrainedRun, interface: Interface, wasm: bytes, weights: bytes, module: str) -> str:
    """The page's HTML. module: the JavaScript that loads the model, whose `export`s become plain names."""
    about = _about(trained, interface)
    script = "\n".join([module.replace("export ", ""), *((ASSETS / f"{file}.js").read_text() for file in ("page", about["face"]))])
    # The page's own start comes last, when the face is there.
    head, start, tail = script.partition('if (typeof document !== "undefined") start();\n')
    score = trained.description["score"].replace("_", " ")
    best = trained.description.get("result", {}).get("best")
    said = f"A run of kind {trained.task.kind}" + ("" if best is None else f"; {score} {best:.4g} on data that it was not trained on")
    return PAGE.format(
        policy=POLICY, title=escape(_title(trained)), css=(ASSETS / "page.css").read_text().strip(), said=escape(said), version=__version__,
        about=json.dumps(about).replace("<", "\\u003c"), wasm=b64encode(wasm).decode(), weights=b64encode(weights).decode(),
        script=head + tail + start,
    )  # fmt: skip


def _title(trained: TrainedRun) -> str:
    task, source = trained.task, Path(trained.description["source"] or "").name
    source = "" if source == "memory" else source
    if isinstance(task, DigitsTask):
        return "Which digit is it?"
    if isinstance(task, TextTask):
        return f"Writes on like {source or 'a text'}"
    return f"{task.goal} of {source}" if source and isinstance(task, (TableTask, ImagesTask)) else task.goal


def _about(trained: TrainedRun, interface: Interface) -> dict[str, Any]:
    """What a face has to know."""
    task: Any = trained.task
    if isinstance(task, ImagesTask):
        return {
            "face": "images", "classes": list(map(str, task.classes)), "size": list(task.size), "channels": task.channels, "fit": task.fit,
            "digits": isinstance(task, DigitsTask),
        }  # fmt: skip
    if isinstance(task, TableTask):
        columns = [_column(task.coding, name, kind) for name, kind in task.coding.kinds.items()]
        target = {"classes": task.classes} if task.classes else {"mean": task.target.mean, "deviation": task.target.deviation}
        return {"face": "table", "goal": task.goal, "columns": columns, **target}
    if isinstance(task, TextTask):
        return {"face": "text", "tokenizer": task.tokenizer.state(), "tokens": task.tokenizer.size, "context": task.sizes["context"]}
    if isinstance(task, SeriesTask):
        coding = task.coding
        scales = {"means": coding.means, "deviations": coding.deviations}
        return {"face": "series", "names": task.names, "columns": coding.layout.columns, "window": coding.window, **scales}
    return {"face": "arrays", "inputs": list(interface.example), "outputs": list(interface.outputs)}


def _column(coding: Any, name: str, kind: str) -> dict[str, Any]:
    if kind == "category":
        return {"name": name, "kind": kind, "words": coding.words[name]}
    parts = {
        part: {
            "mean": c.mean, "deviation": c.deviation, "empty": c.empty,
            "low": c.mean - 3 * c.deviation if c.low is None else c.low, "high": c.mean + 3 * c.deviation if c.high is None else c.high,
        }
        for part, c in coding.numbers[name].items()
    }  # fmt: skip
    return {"name": name, "kind": kind, "parts": parts}
