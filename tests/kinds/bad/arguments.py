"""Values that are wrong in nearly every place: of other types, of other sizes, beyond every bound. Each is made anew for each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradlab as gl

HUGE = 10**30
WRONG: dict[str, Callable[[], Any]] = {
    "()": lambda: (), "(1, 2)": lambda: (1, 2), "[]": list, "[0.5, 'a']": lambda: [0.5, "a"], "'a'": lambda: "a", "b'a'": lambda: b"a",
    "None": lambda: None, "object": object, "{}": dict, "{'a': 1}": lambda: {"a": 1}, "set": lambda: {1, 2},
    "lambda": lambda: lambda *a: None,
    "slice": lambda: slice(0, 2), "...": lambda: ..., "type": lambda: gl.Tensor, "dtype": lambda: gl.int8,
    "array": lambda: np.ones((3, 4)), "objects": lambda: np.array([1, None], object), "words": lambda: np.array(["a", "b"]),
    "-1": lambda: -1, "0": lambda: 0, "1": lambda: 1, "2": lambda: 2, "7": lambda: 7, "-97": lambda: -97, "97": lambda: 97,
    "True": lambda: True, "False": lambda: False, "0.5": lambda: 0.5, "-2.5": lambda: -2.5, "nan": lambda: float("nan"),
    "inf": lambda: float("inf"), "-inf": lambda: float("-inf"), "1j": lambda: 1j, "int64": lambda: np.int64(2),
    "float32": lambda: np.float32(0.5),
    "1 << 31": lambda: 1 << 31, "1 << 40": lambda: 1 << 40, "(1 << 63) - 1": lambda: (1 << 63) - 1, "1 << 63": lambda: 1 << 63,
    "-(1 << 63)": lambda: -(1 << 63), "10**30": lambda: HUGE, "-10**30": lambda: -HUGE, "1e300": lambda: 1e300,
    "(-1,)": lambda: (-1,), "(0, 0)": lambda: (0, 0), "(1 << 62, 4)": lambda: (1 << 62, 4), "(1 << 63,)": lambda: (1 << 63,),
    "(10**30, 1)": lambda: (HUGE, 1), "(0.5,)": lambda: (0.5,), "('a',)": lambda: ("a",), "(None, None)": lambda: (None, None),
    "((1,),)": lambda: ((1,),), "[-1] * 9": lambda: [-1] * 9,
    "empty": lambda: gl.zeros(0), "empty rows": lambda: gl.zeros(0, 4), "empty columns": lambda: gl.zeros(3, 0),
    "0-d": lambda: gl.tensor(0.5),
    "vector": lambda: gl.linspace(-1, 1, 97), "deep": lambda: gl.ones(1, 2, 1, 2, 1, 2), "(4, 3)": lambda: gl.ones(4, 3),
    "turned": lambda: gl.ones(4, 3).T, "int64 tensor": lambda: gl.ones(3, 4, dtype=gl.int64), "bool tensor": lambda: gl.ones(3, 4) > 0,
    "uint8 tensor": lambda: gl.ones(3, 4, dtype=gl.uint8), "float16 tensor": lambda: gl.ones(3, 4, dtype=gl.float16),
    "bfloat16 tensor": lambda: gl.ones(3, 4, dtype=gl.bfloat16), "float64 tensor": lambda: gl.ones(3, 4, dtype=gl.float64),
    "complex tensor": lambda: gl.ones(3, 4, dtype=gl.complex64), "NaN tensor": lambda: gl.full((3, 4), float("nan")),
    "inf tensor": lambda: gl.full((3, 4), float("inf")), "-97 tensor": lambda: gl.full((3, 4), -97),
    "1 << 40 tensor": lambda: gl.tensor([1 << 40]),
    "0-d int": lambda: gl.tensor(2), "meta tensor": lambda: gl.ones(3, 4, device="meta"), "sparse": lambda: gl.eye(3).to_sparse(),
    "[tensor]": lambda: [gl.ones(3, 4)], "[tensor, None]": lambda: [gl.ones(3, 4), None], "spread": lambda: gl.ones(1, 1).expand(3, 4),
}  # fmt: skip

# Those that are tensors, and None: what a method can be called on.
TENSORS = frozenset(word for word in WRONG if word.split()[-1] in ("tensor", "sparse") or isinstance(WRONG[word](), gl.Tensor))
