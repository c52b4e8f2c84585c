"""Pieces of a report's page as HTML: tables, lists, confusions, residuals."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = {"r2": "R²", "mae": "mean absolute error", "rmse": "root mean squared error", "f1": "F1 (macro)", "roc_auc": "ROC AUC"}


def section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def metric_name(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " "))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cell(value: Any) -> str:
        return f"{value:,.4g}" if isinstance(value, float) else escape(str(value))

    top = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def gallery(cards: Iterable[tuple[NDArray[np.uint8], str, str]]) -> str:
    """Images, uint8 (height, width, channels), each with its name and what is said of it."""
    found = (
        f'<figure><img alt="{escape(name)}" src="data:image/png;base64,{b64encode(png(image)).decode()}">'
        f"<figcaption>{escape(said)}<br><span class=soft>{escape(name)}</span></figcaption></figure>"
        for image, name, said in cards
    )
    return f'<div class="gallery">{"".join(found)}</div>'


def png(image: NDArray[np.uint8]) -> bytes:
    """A PNG file of an image, uint8 (height, width, 1 or 3): the format's three chunks, rows without a filter (ISO/IEC 15948)."""
    height, width, channels = image.shape

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")


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
    return f'<p class="soft">Rows are true classes, columns predictions.</p><table><tr><th></th>{head}</tr>{body}</table>'


def residuals(found: Any, true: Any) -> str:
    """Predictions over true values, arrays (n,), as points."""
    low, high = float(min(found.min(), true.min())), float(max(found.max(), true.max()))
    size, edge = 320, 34

    def place(value: float) -> float:
        return edge + (value - low) / ((high - low) or 1) * size

    keep = np.linspace(0, len(true) - 1, min(len(true), 600)).astype(int)
    dots = "".join(f'<circle cx="{place(true[i]):.1f}" cy="{2 * edge + size - place(found[i]):.1f}" r="3"/>' for i in keep)
    whole = size + 2 * edge
    return (
        f'<svg width="{whole}" height="{whole}" viewBox="0 0 {whole} {whole}" role="img" fill="rgba(var(--hue),.55)">'
        f"<title>Predictions over true values</title>"
        f'<line x1="{edge}" y1="{edge + size}" x2="{edge + size}" y2="{edge}" stroke="var(--soft)" stroke-dasharray="5 4"/>{dots}'
        f'<g fill="var(--soft)" font-size="11"><text x="{edge}" y="{whole - 12}">true: {low:.4g}</text>'
        f'<text x="{edge + size}" y="{whole - 12}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{edge}" y="{edge - 14}">predicted: {high:.4g}</text></g></svg>'
    )
