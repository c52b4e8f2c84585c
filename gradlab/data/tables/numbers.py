"""Numbers as people write them: with decimal points or commas, digits in groups, percent signs and currencies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

_SPACES = re.compile(r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3}(?!\d))")  # between groups of three digits
_DIGITS = re.compile(r"[-+]?[\d.,]*\d[\d.,]*")
_GROUPED = {mark: re.compile(rf"[-+]?[1-9]\d{{0,2}}(\{group}\d{{3}})+(\{mark}\d*)?") for mark, group in ((".", ","), (",", "."))}


def decimal_mark(words: Iterable[str]) -> str:
    """A point, or a comma where a column's numbers cannot be read otherwise: of 1,5 and 1,234 the second is no thousand."""
    texts = [text for text in map(_bare, words) if _DIGITS.fullmatch(text)]
    both = next((text for text in texts if "," in text and "." in text), None)
    if both is not None:
        return "," if both.rfind(",") > both.rfind(".") else "."
    commas = [text for text in texts if "," in text]
    if commas:
        return "." if all(_GROUPED["."].fullmatch(text) for text in commas) else ","
    return "," if any(text.count(".") > 1 and _GROUPED[","].fullmatch(text) for text in texts) else "."


def number_of(word: str, mark: str = ".") -> float | None:
    """A word as a number, or None."""
    text = _bare(word)
    if "_" in text:
        return None
    scale = 0.01 if word.rstrip().endswith("%") else 1.0
    if _GROUPED[mark].fullmatch(text):
        text = text.replace("," if mark == "." else ".", "")
    if mark == "," and text.count(",") == 1 and "." not in text:
        text = text.replace(",", ".")
    try:
        return float(text) * scale
    except ValueError:
        return None


def numbers_of(words: Any) -> np.ndarray[Any, Any] | None:
    """A column's words (None where missing) as float64, or None where one of them is no number."""
    there = [word for word in words if word is not None]
    try:
        if not any("_" in word for word in there):
            return np.array([np.nan if word is None else float(word) for word in words])
    except ValueError:
        pass
    mark = decimal_mark(there)
    known = {word: number_of(word, mark) for word in set(there)}
    if any(number is None for number in known.values()):
        return None
    return np.array([np.nan if word is None else known[word] for word in words], np.float64)


def _bare(word: str) -> str:
    """Without spaces between digits, a sign of percent, or a currency."""
    text = _SPACES.sub("", word.replace("\u2212", "-").strip())
    text = text.removesuffix("%").rstrip()
    sign = text[:1] if text[:1] in ("-", "+") else ""
    return sign + text.removeprefix(sign).strip("$€£¥ \u00a0\u202f")
