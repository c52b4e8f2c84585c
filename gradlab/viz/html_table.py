"""Tables of a notebook: what modules, statistics, profiles and runs show there instead of their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_CELL = "text-align:{};padding:2px 10px;vertical-align:top"


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """An HTML table; numbers stand to the right. A cell that begins with spaces is indented by as many."""
    parts = [f'<div style="overflow-x:auto"><p><b>{escape(title)}</b></p><table>'] if title else ['<div style="overflow-x:auto"><table>']
    if any(head):
        parts.append("<thead><tr>" + "".join(f'<th style="{_CELL.format("left")}">{escape(h)}</th>' for h in head) + "</tr></thead>")
    parts.append("<tbody>")
    parts += ["<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows]
    parts.append(f"</tbody></table>{f'<p>{escape(note)}</p>' if note else ''}</div>")
    return "".join(parts)


def _cell(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = "" if value is None else f"{value:,}" if isinstance(value, int) and number else f"{value:.4g}" if number else str(value)
    plain = escape(text.lstrip(" "))
    indent = "&nbsp;" * (len(text) - len(text.lstrip(" ")))
    return f'<td style="{_CELL.format("right" if number else "left")}">{indent}{plain}</td>'


def of_module(module: Any) -> str:
    """A module: each submodule, indented by its depth, with what it is made of and how many numbers it trains."""
    rows: list[tuple[Any, ...]] = []
    for path, part in module.named_modules():
        own = sum(p.numel() for p in part.parameters(recurse=False))
        shapes = ", ".join(f"{name} {'×'.join(map(str, p.shape))}" for name, p in part.named_parameters(recurse=False))
        depth = path.count(".") + 1 if path else 0
        name = "  " * depth + (path.rpartition(".")[2] or "(whole)")
        rows.append((name, f"{type(part).__name__}({part.extra_repr()})", shapes, own or None))
    every = list(module.parameters())
    frozen = sum(p.numel() for p in every if not p.requires_grad)
    note = f"{sum(p.numel() for p in every):,} parameters" + (f", {frozen:,} of them frozen" if frozen else "")
    return html_table(type(module).__name__, ("name", "module", "parameters", "numbers"), rows, note)


def of_text(text: str, title: str) -> str:
    """Lines of a word, two spaces or more, and the rest: two columns."""
    rows = []
    for line in text.splitlines():
        name, _, rest = line.partition("  ") if not line.startswith(" ") else ("", "", line)
        rows.append((name, rest.strip() if name else "  " + rest.strip()))
    return html_table(title, ("", ""), rows)
