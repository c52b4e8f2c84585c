"""Rows whose kernels are made of templates, with a call of each dtype: by lowering these, all texts of the templates are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab.backends.native.lowering import Lowering, named
from gradlab.dtype import INT64
from gradlab.spec import Spec

LONG = (1 << 17, 8)  # so many rows that their sum is made in pieces
IMAGE = {"kernel": (2, 2), "outputs": (3, 3), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}


class Recording(Lowering):
    """Keeps texts."""

    def __init__(self, general: bool = False) -> None:
        super().__init__()
        self.generates, self.general = False, general
        self.bodies: dict[str, None] = {}

    def generate(self, body: str) -> str:
        name, text = named(body)
        self.texts[name] = text
        self.bodies[body] = None
        return name


def samples(own: np.dtype[Any]) -> Iterator[tuple[str, list[Spec], dict[str, Any], list[Spec] | None]]:
    """Rows, inputs and parameters for a dtype. The outputs where they are not for the rule to say."""
    x, state = Spec((4, 8), own), Spec((2,), np.dtype(np.uint64))
    for name in ("sum", "mean", "amax", "amin", "prod", "any", "all"):
        for shape, dim in (((4, 8), (1,)), ((4, 8), (0,)), (LONG, (0,))):
            yield name, [Spec(shape, own)], {"dim": dim, "keepdim": False}, None
    for name in ("argmax", "argmin", "max", "min"):
        yield name, [x], {"dim": 1, "keepdim": False}, None
    for name in ("cumsum", "cumprod"):
        yield name, [x], {"dim": 1}, None
    for down in (False, True):
        yield "sort", [x], {"dim": 1, "descending": down}, None
        yield "topk", [x], {"k": 2, "dim": 1, "largest": down}, None
    for name in ("cummax", "cummin", "mode"):
        yield name, [x], {"dim": 1}, None
    yield "median", [x], {"dim": 1, "keepdim": False, "pass_nan": False}, None
    yield "median_of_all", [x], {"pass_nan": False}, None
    yield "isin", [x, x], {"invert": False}, None
    for made in (np.dtype(np.int32), INT64):
        yield "searchsorted", [Spec((8,), own), x], {"right": False, "dtype": made}, None
    at, picked, grid = Spec((1, 3), INT64), Spec((3, 8), own), Spec((4, 3), INT64)
    for wrap in (False, True):
        yield "index", [x, at], {"dims": (0,), "wrap": wrap}, [picked]
        for add in (False, True):
            yield "index_put", [x, at, picked], {"dims": (0,), "accumulate": add, "wrap": wrap}, [x]
    yield "index_backward", [picked, at], {"dims": (0,), "shape": (4, 8)}, [x]
    yield "gather", [x, grid], {"dim": 1}, [Spec((4, 3), own)]
    yield "gather_backward", [Spec((4, 3), own), grid], {"dim": 1, "shape": (4, 8)}, [x]
    yield "scatter", [x, grid, Spec((4, 3), own)], {"dim": 1}, [x]
    yield "scatter_add", [x, grid, Spec((4, 3), own)], {"dim": 1}, [x]
    for reduce in ("sum", "prod", "amax", "amin"):
        yield "scatter_reduce", [x, grid, Spec((4, 3), own)], {"dim": 1, "reduce": reduce, "include_self": True}, [x]
    yield "nll", [x, Spec((4,), INT64)], {"ignore_index": -100}, [Spec((4,), own)]
    yield "nll_backward", [Spec((4,), own), Spec((4,), INT64)], {"ignore_index": -100, "classes": 8}, [x]
    yield "dropout", [x, state], {"p": 0.5, "offset": 0}, [x]
    yield "random_uniform", [state], {"low": 0.0, "high": 1.0, "offset": 0, "dtype": own, "shape": (4, 8)}, [x]
    yield "random_normal", [state], {"mean": 0.0, "std": 1.0, "offset": 0, "dtype": own, "shape": (4, 8)}, [x]
    yield "random_integers", [state], {"low": 0, "high": 9, "offset": 0, "dtype": own, "shape": (4, 8)}, [x]
    for to in map(np.dtype, ("float32", "float64", "bool")):
        yield "bernoulli", [x, state], {"offset": 0}, [Spec((4, 8), to)]
    yield "bernoulli", [x, state], {"offset": 0}, [x]
    for name in ("tril", "triu"):
        yield name, [x], {"diagonal": 0}, [x]
    for table in (("nearest", 8, 4, 2.0), ("linear", 8, 4, 2.0, False)):
        yield "resample", [x], {"dim": 1, "table": table}, None
    image, columns = Spec((1, 1, 4, 4), own), Spec((1, 4, 9), own)
    yield "im2col", [image], IMAGE, [columns]
    yield "col2im", [columns], IMAGE, [image]
