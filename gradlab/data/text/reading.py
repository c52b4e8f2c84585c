"""Text files as people keep them: one or a folder of them, compressed or not, with any line ends, a byte order mark, or damaged bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from gradlab.data.errors import DataError
from gradlab.data.files import content_of, marked, text_of, with_newlines

REFERENCE = "pydoc_data.topics"  # the name of the corpus that comes with Python: its reference, about 465,000 characters
ENDINGS = (".txt", ".txt.gz")  # files of a folder that are read
_UNDECODED = "\ufffd"


class TextError(DataError):
    """A text that cannot be read or is too short to learn from; the message names the file, the lengths and the way out."""


@dataclass
class Corpus:
    """A text, where it is from, and what was found in it."""

    text: str
    source: str = "the text"
    notes: list[str] = field(default_factory=list)


def read_text(source: Any = None, *, encoding: str | None = None) -> Corpus:
    """The text of a file (also .gz), of all .txt files of a folder in the order of their names, or of Python's own reference.

    source: a path, a Corpus (given back), a list of texts (joined line by line), or None or "pydoc_data.topics" for the reference that
    comes with Python. encoding: of the files; None takes UTF-8, or what a byte order mark says. Line ends become newlines. Bytes that the
    encoding does not know become U+FFFD, which the notes say. TextError where there is nothing to read.

    >>> gl.data.read_text(["one line", "and another"]).text
    'one line\\nand another\\n'
    """
    if isinstance(source, Corpus):
        found = source
    elif source is None or (isinstance(source, str) and source == REFERENCE):  # a column answers == cell by cell
        found = _reference()
    elif isinstance(source, (str, os.PathLike)):
        found = _of_path(Path(source), encoding)
    else:
        found = _of_texts(source)
    if not found.text.strip():
        raise TextError(f"{found.source}: there is no text in it")
    return found


def _reference() -> Corpus:
    """The topics in the order of their names, which not every Python has them in."""
    try:
        topics: dict[str, str] = import_module(REFERENCE).topics
    except ImportError as error:
        raise TextError(f"this Python comes without {REFERENCE} ({error}); name a text file of yours") from error
    return Corpus("\n".join(topics[name] for name in sorted(topics)), REFERENCE)


def _of_path(path: Path, encoding: str | None) -> Corpus:
    try:
        if not path.is_dir():
            notes: list[str] = []
            return Corpus(_decoded(path, encoding, notes), str(path), notes)
        files = text_files(path)
        if not files:
            raise TextError(f"{path}: a folder without {' or '.join(ENDINGS)} files")
        notes = [f"{len(files)} files are read in the order of their names"]
        texts = [_decoded(file, encoding, notes) for file in files]
    except OSError as error:
        raise TextError(f"{_short(error.filename or path)}: cannot be read ({error.strerror or error}){_hint(str(path))}") from error
    notes += [f"{file}: there is no text in it" for file, text in zip(files, texts, strict=True) if not text.strip()]
    return Corpus(_joined(texts), str(path), notes)


def _short(name: Any) -> str:
    shown = str(name).replace("\n", " ")
    return shown if len(shown) < 200 else f"{shown[:60]}…"


def _hint(name: str) -> str:
    """For who gave a text where a path was meant."""
    return "; a text itself is given in a list: [text]" if "\n" in name or len(name) > 255 else ""


def text_files(folder: Path) -> list[Path]:
    """The files of a folder that are read, in the order of their names."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and _is_text(p, folder))


def _is_text(file: Path, folder: Path) -> bool:
    """Whether the name ends as a text's, and no part of it is hidden."""
    return file.name.lower().endswith(ENDINGS) and not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _of_texts(source: Any) -> Corpus:
    texts = list(source) if isinstance(source, Iterable) and not isinstance(source, (bytes, dict)) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise TextError(f"a text is a path, a Corpus or a list of texts, not {type(source).__name__}")
    return Corpus(_joined([with_newlines(text) for text in texts]), "the texts")


def _joined(texts: Iterable[str]) -> str:
    """One after another, each ending with its line."""
    return "".join(text if text.endswith("\n") else text + "\n" for text in texts if text)


def _decoded(path: Path, encoding: str | None, notes: list[str]) -> str:
    """What a file says, with newlines as line ends."""
    content = content_of(path, TextError)
    chosen = encoding or marked(content)
    try:
        text = content.decode(chosen, errors="replace")
    except LookupError as error:
        raise TextError(f"{path}: there is no encoding {chosen!r} (--encoding, encoding=)") from error
    text = text_of(text, path, TextError, "if it is one, say its encoding (--encoding utf-16)")
    lost = text.count(_UNDECODED)
    if lost and (lost := lost - content.count(_UNDECODED.encode()) if chosen.startswith("utf-8") else lost):
        line = text[: text.index(_UNDECODED)].count("\n") + 1
        notes.append(f"{path}: {lost:,} places are not {chosen}, the first in line {line}, and became {_UNDECODED}; "
                     "if it is another encoding, say so (--encoding latin-1)")  # fmt: skip
    return text
