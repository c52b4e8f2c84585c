"""What was measured, as a file: `figures.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("figures.json")
ROWS_FILE = Path(__file__).with_name("rows.json")  # which rows each entry runs
FORMS = ("numpy", "machine", "compiled", "gpu", "torch")
Figures = dict[str, Any]


def read() -> Figures:
    """{entry: {dtype: {form: {part: {ulp, at, wrong, where, is}}}}}."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def merge(found: Figures, names: list[str]) -> None:
    """Puts what was found in the place of what is there for these entries, dtypes and forms."""
    kept = read()
    for name in names:
        for dtype, forms in found.get(name, {}).items():
            kept.setdefault(name, {}).setdefault(dtype, {}).update(forms)
    _write(FILE, kept)


def _write(file: Path, found: dict[str, Any]) -> None:
    """A line for each entry."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(found.items()))
    file.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def rows() -> dict[str, list[str]]:
    """Which rows each entry runs, forward and backward."""
    return json.loads(ROWS_FILE.read_text(encoding="utf-8"))


def write_rows(found: dict[str, list[str]]) -> None:
    """Keeps them."""
    _write(ROWS_FILE, found)
