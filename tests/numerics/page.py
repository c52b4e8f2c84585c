"""docs/numerics.md from what was measured, and which figures are more than twice PyTorch's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gradlab.ops import ROWS

from numerics.complexes import COMPLEX
from numerics.exceptions import EXCEPTIONS, SMALL
from numerics.figures import FORMS, Figures
from numerics.larger import LARGER, SAYS
from numerics.scalars import SCALARS
from repository import ROOT

PAGE = ROOT / "docs" / "numerics.md"
LEAST = 0.5  # rounding alone: what is measured of PyTorch counts as no less
HEADS = {"numpy": "NumPy", "machine": "machine code", "compiled": "compiled", "gpu": "GPU", "torch": "PyTorch"}
PARTS = {"y": "", "d0": "∂₁ ", "d1": "∂₂ ", "d2": "∂₃ "}


class Figure(NamedTuple):
    """One figure beside PyTorch's."""

    entry: str
    dtype: str
    form: str
    part: str
    own: dict[str, Any]
    theirs: dict[str, Any]

    @property
    def ratio(self) -> float:
        """Times PyTorch's error; ∞ where more results are of another kind."""
        if self.own.get("wrong", 0) > self.theirs.get("wrong", 0):
            return math.inf
        return self.own["ulp"] / max(self.theirs["ulp"], LEAST)


def beside(figures: Figures) -> Iterator[Figure]:
    """Each of gradlab's figures that PyTorch has too."""
    for entry, dtypes in figures.items():
        for dtype, forms in dtypes.items():
            for form in FORMS[:-1]:
                for part, own in forms.get(form, {}).items():
                    if theirs := forms.get("torch", {}).get(part):
                        yield Figure(entry, dtype, form, part, own, theirs)


def worse(figures: Figures) -> list[Figure]:
    """Those that are more than twice PyTorch's."""
    return [f for f in beside(figures) if f.ratio > 2]


def pattern(figure: Figure) -> str | None:
    """The exception that stands for a figure."""
    label = f"{figure.part} {figure.entry} {figure.dtype} {figure.form}"
    small = figure.own["ulp"] <= 2 and not math.isinf(figure.ratio)
    return next((p for p in EXCEPTIONS if (p == SMALL and small) or re.fullmatch(p, label)), None)


def reason(figure: Figure) -> str | None:
    """Why a figure stays."""
    found = pattern(figure)
    return None if found is None else EXCEPTIONS[found]


def number(value: float) -> str:
    """As it stands in the table."""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}" if value < 1e5 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def cell(found: dict[str, Any] | None) -> str:
    """One figure."""
    if found is None:
        return ""
    return number(found["ulp"]) + (f" ({found['wrong']})" if found.get("wrong") else "")


def table(names: list[str], figures: Figures, dtypes: tuple[str, ...], first: str = "") -> str:
    """One row for each entry and part, for each dtype the forms and PyTorch."""
    shown = [(d, f) for d in dtypes for f in FORMS if any(f in figures.get(n, {}).get(d, {}) for n in names)]
    heads = [f"{d} {HEADS[f]}" if i == 0 or shown[i - 1][0] != d else HEADS[f] for i, (d, f) in enumerate(shown)]
    lines = [f"| {first} | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(shown) + 1) + "|")
    for name in names:
        forms = figures.get(name, {})
        for part, mark in PARTS.items():
            found = [forms.get(d, {}).get(f, {}).get(part) for d, f in shown]
            if any(v is not None for v in found):
                says = f" · {scale(name)}" if name in LARGER and part == "y" else ""
                label = name.replace("F.", "nn.functional.")
                lines.append(f"| {mark}`{label}`{says} | " + " | ".join(map(cell, found)) + " |")
    return "\n".join(lines)


def scale(name: str) -> str:
    """What an error is measured by."""
    return LARGER[name].says or SAYS[LARGER[name].scale]


def explained(figures: Figures) -> str:
    """The exceptions and what they stand for."""
    found: dict[str, list[Figure]] = {}
    for figure in worse(figures):
        found.setdefault(reason(figure) or "not explained", []).append(figure)
    lines = ["| why | where (times PyTorch's error, the largest) |", "|---|---|"]
    for why, some in found.items():
        names: dict[str, float] = {}
        for f in some:
            label = f"{PARTS[f.part]}`{f.entry}`"
            names[label] = max(names.get(label, 0), f.ratio)
        told = ", ".join(f"{label} ({'other kind' if math.isinf(r) else f'{r:.1f}'})" for label, r in names.items())
        lines.append(f"| {why} | {told} |")
    return "\n".join(lines)


TEXT = Path(__file__).with_name("page.md")


def text(figures: Figures) -> str:
    """The whole page."""
    from numerics.larger import BACKWARD
    from numerics.rows import REASONS, SAMPLED, rounds_nothing
    from numerics.scalars import ACTIVATIONS, PAIRS, PLAIN, POLYNOMIALS

    dtypes = ("float32", "float64", "float16", "bfloat16")
    many = worse(figures)

    def part(entries: Any, which: tuple[str, ...] = dtypes) -> str:
        return table([e if isinstance(e, str) else e.name for e in entries], figures, which)

    named = {"rounds nothing (`Op.exact`, or a view)": " ".join(name for name, row in ROWS.items() if rounds_nothing(row))}
    reasons = "\n".join(f"- {why}: {', '.join(f'`{name}`' for name in names.split())}" for why, names in {**named, **REASONS}.items())
    return TEXT.read_text(encoding="utf-8").format(
        count=sum(1 for _ in beside(figures)),
        worse=len(many),
        unexplained=sum(reason(f) is None for f in many),
        explained=explained(figures),
        plain=part(PLAIN),
        activations=part(ACTIVATIONS),
        pairs=part(PAIRS),
        polynomials=part(POLYNOMIALS),
        complexes=part(COMPLEX, ("float32", "float64")),
        larger=part(LARGER.values()),
        backward=part(BACKWARD, ("float32", "float64")),
        sampled=part(f"row {name}" for name in SAMPLED),
        reasons=reasons,
    )


__all__ = ["SCALARS"]
