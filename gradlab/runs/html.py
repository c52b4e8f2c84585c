"""Pieces of a report's page as HTML: tables, lists, confusions, residuals."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradlab.utils.png import png
from gradlab.viz.axis_ticks import label, linear_axis
from gradlab.viz.chart import Panel, line_chart

NAMES = {
    "r2": "R²", "mae": "mean absolute error", "rmse": "root mean squared error", "mase": "MASE", "f1": "F1 (macro)", "roc_auc": "ROC AUC",
}  # fmt: skip


def section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def metric_name(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " "))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(shown(value))}</td>" for value in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def shown(value: Any) -> str:
    """A cell's text: numbers with four digits, and those that a file writes with very many with six."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    text = str(value)
    try:
        return f"{float(text):.6g}" if len(text) > 10 and "." in text else text
    except ValueError:
        return text


def charts(panels: Sequence[Panel], subtitle: str = "") -> str:
    """A picture for each panel, side by side where there is room for it."""
    found = [line_chart([replace(panel, title="")], panel.title, subtitle) for panel in panels]
    return f'<div class="charts">{"".join(found)}</div>'


def confusions(classes: Sequence[str], true: Any, found: Any) -> str:
    """Counts of true classes (rows) and predictions (columns), both int arrays (n,); the more, the darker."""
    many = len(classes)
    if many > 30:
        return f"<p>{many} classes are too many to show.</p>"
    counts = np.bincount(true * many + found, minlength=many * many).reshape(many, many)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    head = "".join(f"<th>{escape(name)}</th>" for name in classes)
    body = "".join(
        f"<tr><td>{escape(classes[i])}</td>"
        + "".join(f'<td style="background:rgba(var(--hue),{share[i, j] * 0.7:.2f})">{counts[i, j]}</td>' for j in range(many))
        + "</tr>"
        for i in range(many)
    )
    counted = f'<div class="wide"><table class="counts"><tr><th></th>{head}</tr>{body}</table></div>'
    return f'<p class="soft">Rows are true classes, columns predictions.</p>{counted}'


def gallery(cards: Iterable[tuple[NDArray[np.uint8], str, str]]) -> str:
    """Images, uint8 (height, width, channels), each with its name and what is said of it."""
    found = (
        f'<figure><img alt="{escape(name)}" src="data:image/png;base64,{b64encode(png(image)).decode()}">'
        f"<figcaption>{escape(said)}<br><span class=soft>{escape(name)}</span></figcaption></figure>"
        for image, name, said in cards
    )
    return f'<div class="gallery">{"".join(found)}</div>'


def residuals(found: Any, true: Any) -> str:
    """Predictions over true values, arrays (n,), as points."""
    axis = linear_axis([float(f(a)) for a in (found, true) for f in (np.min, np.max)])
    size, left, top = 320, 56, 12

    def across(value: float) -> float:
        return left + axis.place(value) * size

    def down(value: float) -> float:
        return top + (1 - axis.place(value)) * size

    keep = np.linspace(0, len(true) - 1, min(len(true), 600)).astype(int)
    dots = "".join(f'<circle cx="{across(true[i]):.1f}" cy="{down(found[i]):.1f}" r="3"/>' for i in keep)
    step = axis.ticks[1] - axis.ticks[0] if len(axis.ticks) > 1 else None
    marks = "".join(
        f'<text x="{left - 8}" y="{down(tick) + 4:.1f}" text-anchor="end">{label(tick, step)}</text>'
        f'<text x="{across(tick):.1f}" y="{top + size + 18}" text-anchor="middle">{label(tick, step)}</text>'
        for tick in axis.ticks
    )
    heights = [f"{down(tick):.1f}" for tick in axis.ticks]
    lines = "".join(f'<line x1="{left}" x2="{left + size}" y1="{y}" y2="{y}" stroke="var(--line)"/>' for y in heights)
    wide, high = left + size + 24, top + size + 42
    return (
        f'<svg width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img" fill="rgba(var(--hue),.55)">'
        f"<title>Predictions over true values</title>{lines}"
        f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="var(--soft)" stroke-dasharray="5 4"/>{dots}'
        f'<g fill="var(--soft)" font-size="11">{marks}'
        f'<text x="{left + size / 2}" y="{high - 6}" text-anchor="middle">true value</text></g></svg>'
        '<p class="soft">Predictions over true values; on the dashed line they are equal.</p>'
    )
