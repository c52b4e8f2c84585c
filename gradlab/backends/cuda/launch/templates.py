"""The template arguments of the kernels of rows, for checks that compile every instance (`catalogue.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch import norm, residual
from gradlab.backends.cuda.launch.row_forms import HELD_ANY, Forms, forms_of, policy
from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import ALL, BOOL, FLOAT64, FLOATING

FLOATS = tuple(d.dtype for d in ALL if d.dtype in FLOATING)
NUMBERS = tuple(d.dtype for d in ALL if d.dtype != BOOL and d.dtype.kind != "c")

BOTH = ("looped", "columns")
CHANNELS = tuple((name, beside) for name in ("BatchNorm", "BatchNormBackward") for beside in (False, True))

Policies = list[tuple[str, Forms]]


def _of(dtypes: Sequence[np.dtype[Any]], *named: tuple[Any, ...], any_dtype: bool = False) -> Policies:
    """Policies of these names and further arguments, with the forms that hold their rows."""
    return [(policy(name, d, *more), HELD_ANY if any_dtype else forms_of(d)) for d in dtypes for name, *more in named]


def _entries(file: str, policies: Policies, names: Sequence[str], held: bool = True) -> Iterator[tuple[str, tuple[tuple[Any, ...], ...]]]:
    if held:
        yield f"{file} held", tuple((name, *form) for name, forms in policies for form in forms)
    for kernel in names:
        yield f"{file} {kernel}", tuple((name,) for name, _ in policies)


def special() -> dict[str, Sequence[tuple[Any, ...]]]:
    """By file and kernel."""
    long = _of(FLOATS, ("RowNorm",), ("RowNormBackward",))
    short = [p for p in long if "Backward" not in p[0]]
    sums: Policies = [(policy("SumNorm", d), residual.HELD) for d in FLOATS]
    return {
        **dict(_entries("residual.cu", sums, ("looped",))),
        **dict(_entries("softmax.cu", _of(FLOATS, ("Softmax",), ("SoftmaxBackward",)), BOTH)),
        **dict(_entries("loss.cu", _of(FLOATS, ("CrossEntropy",)), BOTH)),
        **dict(_entries("arg.cu", _of(NUMBERS, ("Extreme",), any_dtype=True), BOTH)),
        **dict(_entries("norm.cu", short, ())),
        **dict(_entries("norm.cu", long, ("looped",), held=False)),
        **dict(_entries("channel.cu", _of(FLOATS, *CHANNELS), ("channel", "columns"), held=False)),
        "norm.cu held_backward": tuple(
            (STORAGE[d.name], *form)
            for d in FLOATS
            for form in (norm.HELD_DOUBLE if d == FLOAT64 else norm.HELD)
        ),
    }
