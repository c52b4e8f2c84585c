"""What the documentation site needs beside its pages: pages of the API, one for each room, and links that lead out of `docs/`.

The pages of the API are made of the names that the rooms offer, so that a new one is on the site without anybody's doing.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed

WIDE = 700  # pixels from which on a picture keeps its size on a phone, too
# Title, modules whose public names stand there, how the names are written, what stands above.
ROOMS = (
    ("Functions on tensors", "gradlab", "gl", "By the family they belong to. Most are methods of a tensor too: `x.sum()`."),
    ("nn", "gradlab.nn", "nn", "`from gradlab import nn`"),
    ("nn.functional", "gradlab.nn.functional", "F", "`import gradlab.nn.functional as F`"),
    ("nn.utils and nn.init", "gradlab.nn.utils gradlab.nn.init", "", ""),
    ("optim", "gradlab.optim gradlab.optim.lr_scheduler gradlab.optim.swa_utils", "", ""),
    ("autograd", "gradlab.autograd gradlab.autograd.functional", "", ""),
    ("func", "gradlab.func", "gl.func", ""),
    ("graph", "gradlab.graph", "gl.graph", "What `gl.compile` makes of a function: [Compiled steps](../compile.md)."),
    ("amp", "gradlab.amp", "gl.amp", ""),
    ("data", "gradlab.data gradlab.utils.data", "", ""),
    ("train and runs", "gradlab.train gradlab.runs", "", ""),
    ("metrics", "gradlab.metrics", "gl.metrics", ""),
    ("models", "gradlab.models", "gl.models", ""),
    ("transforms", "gradlab.transforms", "gl.transforms", ""),
    ("distributions", "gradlab.distributions", "gl.distributions", ""),
    ("linalg and special", "gradlab.linalg gradlab.special", "", ""),
    ("library and testing", "gradlab.library gradlab.testing", "", ""),
    ("viz", "gradlab.viz", "gl.viz", ""),
    ("profiler", "gradlab.profiler", "gl.profiler", ""),
    ("cuda", "gradlab.cuda", "gl.cuda", ""),
    ("sparse", "gradlab.sparse", "gl.sparse", ""),
    ("session", "gradlab.session", "gl", ""),
    ("fx", "gradlab.fx", "gl.fx", ""),
    ("jit", "gradlab.jit", "gl.jit", ""),
    ("onnx and deploy", "gradlab.onnx gradlab.deploy", "", ""),
)


@functools.cache
def defined(module: str) -> frozenset[str]:
    """The functions and classes that a module's text defines."""
    path = getattr(importlib.import_module(module), "__file__", None)
    tree = ast.parse(Path(path).read_text(encoding="utf-8")) if path else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))


def public(room: str) -> dict[str, list[tuple[str, str]]]:
    """What a room offers: (name, where it is defined) by the module that defines it."""
    module = importlib.import_module(room)
    found: dict[str, list[tuple[str, str]]] = {}
    seen = set()
    for name in getattr(module, "__all__", None) or dir(module):
        value = None if name.startswith("_") else inspect.getattr_static(module, name, None) or getattr(module, name, None)
        home, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
        if not isinstance(home, str) or not home.startswith("gradlab.") or own not in defined(home) or not inspect.getdoc(value):
            continue
        if (home, own) not in seen:
            seen.add((home, own))
            found.setdefault(home, []).append((name, f"{home}.{own}"))
    return dict(sorted(found.items())) if room == "gradlab" else found


def page_of(title: str, rooms: str, prefix: str, words: str) -> str:
    """The text of a page."""
    parts = [f"# {title}", words]
    for room in rooms.split():
        for home, names in public(room).items():
            family = (importlib.import_module(home).__doc__ or home).strip().splitlines()[0]
            parts.append(f"## {home.removeprefix('gradlab.')}\n\n{family}")
            for name, place in names:
                shown = f"{prefix or room.replace('gradlab', 'gl', 1)}.{name}"
                options = {"heading": shown, "toc_label": name, "heading_level": 3}
                parts.append("\n".join([f"::: {place}", "    options:", *(f"      {key}: {value}" for key, value in options.items())]))
    return "\n\n".join(filter(None, parts)) + "\n"


TENSOR = """# Tensor

The attributes and methods of `gl.Tensor`. Functions of the same names are on [Functions on tensors](functions-on-tensors.md).

::: gradlab.tensor.tensor.Tensor
    options:
      heading: gl.Tensor
      heading_level: 2
      inherited_members: true
      members_order: alphabetical
      show_bases: false
"""


def slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def on_config(config: Any) -> Any:
    """The API's pages, last in the navigation."""
    config.nav.append({"API": [{"Tensor": "api/tensor.md"}, *({title: f"api/{slug(title)}.md"} for title, *_ in ROOMS)]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """The API's pages as files."""
    files.append(File.generated(config, "api/tensor.md", content=TENSOR))
    for room in ROOMS:
        files.append(File.generated(config, f"api/{slug(room[0])}.md", content=page_of(*room)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A link to a file of the repository outside of `docs/` is its path; a picture gets a frame (extra.css)."""

    def path(match: re.Match[str]) -> str:
        place = match[2].removeprefix("../")
        return f"`{place}`" if match[1].strip("`") in place else f"{match[1]} (`{place}`)"

    def framed(match: re.Match[str]) -> str:
        picture = Path(config.docs_dir, match[1])
        width = re.search(r'width="(\d+)"', picture.read_text(encoding="utf-8")[:400]) if picture.is_file() else None
        kind = "picture wide" if width and int(width[1]) > WIDE else "picture"
        return f'<div class="{kind}" markdown="1">\n\n{match[0]}\n\n</div>'

    markdown = re.sub(r"^!\[[^\]\n]*\]\(([^)\s]+\.svg)\)$", framed, markdown, flags=re.MULTILINE)
    return re.sub(r"\[([^\]\n]*)\]\((\.\./[^)\s]+)\)", path, markdown)
