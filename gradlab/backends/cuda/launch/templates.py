"""The template arguments of the kernels of rows, for checks that compile every instance (`catalogue.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch import norms
from gradlab.backends.cuda.launch.forms import HELD_ANY, Forms, forms_of, policy
from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import ALL, FLOAT64, FLOATING

FLOATS = tuple(d.dtype for d in ALL if d.dtype in FLOATING)
EVERY = tuple(d.dtype for d in ALL)

BOTH = ("looped", "columns")

Policies = list[tuple[str, Forms]]


def _of(dtypes: Sequence[np.dtype[Any]], *named: tuple[Any, ...], any_dtype: bool = False) -> Policies:
    """Policies of these names and further arguments, with the forms that hold their rows."""
    return [(policy(name, d, *more), HELD_ANY if any_dtype else forms_of(d)) for d in dtypes for name, *more in named]


def _softmax() -> Policies:
    """Plain or masked, and logarithmic; the derivatives."""
    return _of(FLOATS, *((name, logarithm) for name in ("Softmax", "SoftmaxBackward") for logarithm in (False, True)))


def _entries(file: str, policies: Policies, names: Sequence[str], held: bool = True) -> Iterator[tuple[str, tuple[tuple[Any, ...], ...]]]:
    if held:
        yield f"{file} held", tuple((name, *form) for name, forms in policies for form in forms)
    for kernel in names:
        yield f"{file} {kernel}", tuple((name,) for name, _ in policies)


def special() -> dict[str, Sequence[tuple[Any, ...]]]:
    """By file and kernel."""
    long = _of(FLOATS, ("RowNorm", False), ("RowNorm", True), ("RowNormBackward", False), ("RowNormBackward", True))
    short = [p for p in long if "Backward" not in p[0]]
    return {
        **dict(_entries("softmax.cu", _softmax(), BOTH)),
        **dict(_entries("loss.cu", _of(FLOATS, ("CrossEntropy",)), BOTH)),
        **dict(_entries("arg.cu", _of(EVERY, ("Extreme", False), ("Extreme", True), any_dtype=True), BOTH)),
        **dict(_entries("norm.cu", short, ())),
        **dict(_entries("norm.cu", long, ("looped",), held=False)),
        **dict(_entries("channel.cu", _of(FLOATS, ("BatchNorm",), ("BatchNormBackward",)), ("channel", "columns"), held=False)),
        "norm.cu held_backward": tuple(
            (STORAGE[d.name], centred, *form)
            for d, centred in itertools.product(FLOATS, ("false", "true"))
            for form in (norms.HELD_DOUBLE if d == FLOAT64 else norms.HELD)
        ),
    }
