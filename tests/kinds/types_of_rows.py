"""Which types each row takes and gives: its samples with inputs of every type, all of them and one beside the others as they are.

`python -m tests.kinds.types_of_rows` writes types_of_rows.txt.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    os.environ["GRADLAB_NATIVE"] = "0"  # as tests/conftest.py has it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gradlab as gl
from gradlab.autograd.record import bind
from gradlab.ops import ROWS

from samples import SAMPLES

FILE = Path(__file__).with_name("types_of_rows.txt")
TYPES = {
    "b": gl.bool, "u": gl.uint8, "i": gl.int32, "l": gl.int64, "h": gl.float16, "g": gl.bfloat16, "f": gl.float32, "d": gl.float64,
    "c": gl.complex64,
}  # fmt: skip
LETTERS = {dtype: letter for letter, dtype in TYPES.items()}
FLOATS = (gl.float16, gl.bfloat16, gl.float32, gl.float64)
HEAD = """\
# Types that rows give, by `python -m tests.kinds.types_of_rows`: a line for each of a row's samples, each but once. The first word: all
# inputs of floating point are, one after another, bool, uint8, int32, int64, float16, bfloat16, float32, float64, complex64; the others,
# of the first sample: one input alone, beside others in float32 or of integers. A letter for each result: b u i l h g f d c (x: another
# type), with a star where it needs a gradient. Capital letters are errors: IndexError, NotImplementedError, RuntimeError, TypeError,
# ValueError, A: any other.
"""
ERRORS = {IndexError: "I", NotImplementedError: "N", RuntimeError: "R", TypeError: "T", ValueError: "V"}


def letter(row: Any, inputs: list[Any], params: dict[str, Any]) -> str:
    """The types of a row's results for these inputs, or what it raises."""
    try:
        found = bind(row)(*inputs, **params)
    except Exception as error:
        return next((word for kind, word in ERRORS.items() if isinstance(error, kind)), "A")
    parts = found if isinstance(found, tuple) else (found,)
    return "".join(LETTERS.get(p.dtype, "x") + ("*" if p.requires_grad else "") for p in parts)


def tensors(inputs: tuple[Any, ...], kinds: list[Any]) -> list[Any]:
    """A sample's inputs, each of its own type (None: as it is, float64 as float32)."""
    made: list[Any] = []
    for x, kind in zip(inputs, kinds, strict=True):
        if isinstance(x, np.ndarray):
            given = kind or (gl.float32 if x.dtype == np.float64 else None)
            t = gl.tensor(x) if given is None else gl.tensor(x).to(given)
            made.append(t.requires_grad_() if t.dtype in FLOATS else t)
        else:
            made.append(x)
    return made


def words(sample: Any, row: Any, apart: bool) -> str:
    """What a sample comes to; apart: of inputs one by one, too."""
    arrays = [i for i, x in enumerate(sample.inputs) if isinstance(x, np.ndarray)]
    floating = [i for i in arrays if sample.inputs[i].dtype.kind == "f"]
    sets = [floating, *([[i] for i in arrays] if apart and 1 < len(arrays) < 5 else [])]
    found = []
    for chosen in sets:
        kinds = [[dtype if i in chosen else None for i in range(len(sample.inputs))] for dtype in TYPES.values()]
        found.append("".join(letter(row, tensors(sample.inputs, k), sample.params) for k in (kinds if chosen else kinds[:1])))
    return " ".join(found)


def lines(name: str) -> list[str]:
    """Of a row, what its samples come to, each but once."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = dict.fromkeys(words(sample, ROWS[name], not i) for i, sample in enumerate(SAMPLES[name]))
    return [f"{name}: {word}" for word in found]


NAMES = sorted(name for name in SAMPLES if name in ROWS)

if __name__ == "__main__":
    FILE.write_text(HEAD + "".join(f"{line}\n" for name in NAMES for line in lines(name)), encoding="utf-8")
