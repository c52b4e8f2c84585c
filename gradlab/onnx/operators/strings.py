"""Operators on strings, which stay on the host as NumPy arrays, and counts of words, which are tensors."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.onnx.hosts import hosted
from gradlab.onnx.importing import Node, imports, read, texts

Array = np.ndarray[Any, Any]


def concatenated(node: Node, a: Any, b: Any) -> Array:
    """Each string with its partner behind it; shapes are broadcast."""
    return np.char.add(texts(a), texts(b))


def split(node: Node, x: Any) -> tuple[Array, Array]:
    """The parts of each string, filled up with empty ones, and how many there are. Without a delimiter runs of blanks part words."""
    limit = node.get("maxsplit", -1)
    array = texts(x)
    parts = [v.split(node.get("delimiter") or None, -1 if limit is None else limit) if v else [] for v in array.reshape(-1).tolist()]
    most = max(map(len, parts), default=0)
    found = np.array([[*p, *[""] * (most - len(p))] for p in parts], str).reshape(*array.shape, most)
    return found, np.array([len(p) for p in parts], np.int64).reshape(array.shape)


def matched(node: Node, x: Any) -> Any:
    """Whether a whole string is what the pattern describes; patterns are Python's, which those of RE2 are nearly all."""
    array, pattern = texts(x), re.compile(node.get("pattern"))
    found = [pattern.fullmatch(v) is not None for v in array.reshape(-1).tolist()]
    return gl.tensor(np.array(found, bool).reshape(array.shape), device=node.device)


def normalized(node: Node, x: Any) -> Array:
    """Words but the stop words, in capitals or small letters; one empty string where nothing is left."""
    array, case = texts(x), node.get("case_change_action", "NONE")
    sensitive, stop = bool(node.get("is_case_sensitive", 0)), list(node.get("stopwords", ()))
    known = set(stop if sensitive else map(str.lower, stop))
    words = [v for v in array.reshape(-1).tolist() if (v if sensitive else v.lower()) not in known]
    changed = [v.lower() if case == "LOWER" else v.upper() if case == "UPPER" else v for v in words]
    found = np.array(changed or [""], str)
    return found.reshape(1, -1) if array.ndim == 2 else found


def grams(node: Node) -> dict[tuple[Any, ...], int]:
    """The sequences of the pool, with their numbers."""
    pool = list(node.get("pool_strings", ()) or node.get("pool_int64s", ()))
    starts = [*node.get("ngram_counts"), len(pool)]
    found: dict[tuple[Any, ...], int] = {}
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for at in range(start, end, length):
            found[tuple(pool[at : at + length])] = len(found)
    return found


def counted(node: Node, x: Any) -> Any:
    """How often each sequence of the pool stands in a row, also with gaps; or that times a weight, or the weight."""
    values = np.asarray(read(node, x, "a word that is counted"))
    rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    known, columns = grams(node), list(node.get("ngram_indexes"))
    weights, mode = list(node.get("weights", ())) or [1.0] * len(known), node.get("mode", "TF")
    found = np.zeros((len(rows), max(columns) + 1), np.float32)
    for row, words in enumerate(rows.tolist()):
        for length in range(node.get("min_gram_length"), node.get("max_gram_length") + 1):
            for step in range(1, 2 if length == 1 else node.get("max_skip_count") + 2):
                for start in range(len(words) - (length - 1) * step):
                    number = known.get(tuple(words[start : start + (length - 1) * step + 1 : step]))
                    if number is None:
                        continue
                    column = columns[number]
                    if mode == "IDF":
                        found[row, column] = weights[number]
                    else:
                        found[row, column] += weights[number] if mode == "TFIDF" else 1.0
    return gl.tensor(found.reshape(*values.shape[:-1], -1), device=node.device)


for _name, _function, _host in (
    ("StringConcat", concatenated, (0, 1)), ("StringSplit", split, (0,)), ("RegexFullMatch", matched, (0,)),
    ("StringNormalizer", normalized, (0,)), ("TfIdfVectorizer", counted, (0,)),
):  # fmt: skip
    hosted(_name, open_sizes=False)(_function)
    imports(_name, host=_host)(_function)
