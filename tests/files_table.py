"""What docs/architecture.md shows of the code, made of it: `python -m tests.files_table` writes docs/files-of-the-code.md (the first
sentences of the files' own docstrings and comments) and docs/pictures/layers.svg (the floors in pyproject.toml). `test_architecture.py`
sees to it that both are up to date."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/files-of-the-code.md"
PICTURE = ROOT / "docs/pictures/layers.svg"
COMMENTED = (".cpp", ".h", ".cu", ".cuh", ".c", ".js")
HEAD = """# The files of the code

One line for each file, by room, made by `python -m tests.files_table` of what the files say themselves.
[architecture.md](architecture.md) says how they work together.
"""


def said(path: Path) -> str:
    """A file's docstring, or the comment at its head; "" where there is none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    lines = [line.strip() for line in text.splitlines()]
    lines = lines[1:] if lines and lines[0].startswith("#pragma") else lines
    if lines and lines[0].startswith("/*"):
        return text[text.index("/*") + 2 : text.index("*/")].replace("\n * ", "\n").strip()
    return "\n".join(line.removeprefix("//").strip() for line in takewhile(lambda line: line.startswith("//"), lines))


def sentence(text: str) -> str:
    """The first sentence of a text, on one line."""
    paragraph = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-ZÀ-Þ`\"“(0-9])", paragraph)[0] if paragraph else ""


def escaped(text: str) -> str:
    """As a cell of a table: bars outside of code would end it."""
    return text.replace("|", "\\|")


def files() -> list[str]:
    """Paths of all that has a line in the table."""
    sys.path.insert(0, str(ROOT / "tests"))
    from repository import project_files

    return sorted(n for n in project_files("gradlab", "kernels") if n.endswith((".py", *COMMENTED)) and (ROOT / n).stat().st_size)


def table() -> str:
    """The page."""
    rooms: dict[str, list[str]] = {}
    for name in files():
        rooms.setdefault(name.rpartition("/")[0], []).append(name)
    parts = [HEAD]
    for room, names in sorted(rooms.items()):
        parts.append(f"\n## {room}/\n")
        first = f"{room}/__init__.py"
        if first in names:
            parts.append(f"\n{' '.join(said(ROOT / first).split())}\n")
        rest = [n for n in names if n != first]
        if rest:
            parts.append("\n| file | |\n|---|---|\n")
        parts += [f"| [{n.rpartition('/')[2]}](../{n}) | {escaped(sentence(said(ROOT / n)))} |\n" for n in rest]
    return "".join(parts)


def floors() -> list[list[str]]:
    """The rooms of each floor, the highest first, as `lint-imports` reads them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["id"] == "layers")
    return [re.findall(r"\w+", layer) for layer in layers]


def picture() -> str:
    """The floors as SVG: a band for each, its rooms in boxes; imports go downwards."""
    width, row, band, y = 860, 30, [], 10
    for i, rooms in enumerate(floors()):
        boxes, x, top = [], 20, y + 8
        for room in rooms:
            size = 16 + 8 * len(room)
            if x + size > width - 20:
                x, top = 20, top + row
            boxes.append(f'<rect x="{x}" y="{top}" width="{size}" height="22" rx="4" class="r"/>'
                         f'<text x="{x + size / 2}" y="{top + 15}" class="t">{room}</text>')
            x += size + 8
        height = top + row - y
        band.append(f'<rect x="8" y="{y}" width="{width - 16}" height="{height}" rx="6" class="{"ab"[i % 2]}"/>{"".join(boxes)}')
        y += height + 6
    style = ".t{font:13px ui-monospace,monospace;text-anchor:middle;fill:#1d2740}"
    style += ".r{fill:#fff;stroke:#9aa7c4}.a{fill:#e8edf8}.b{fill:#f3efe4}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 4}" width="{width}" height="{y + 4}">'
    return f"{head}<style>{style}</style>{''.join(band)}</svg>\n"


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
