"""The kernels that lowerings make of templates, for every dtype: what `gradlab.testing.prebuilt` compiles ahead beside the sources.

They are found by lowering a call of each row and dtype, as a machine without a compiler would, and keeping the texts.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.generate import reads
from gradlab.backends.cuda.types import STORAGE
from gradlab.backends.native.lowering import LOWER, Lowering, Unsupported, named
from gradlab.backends.native.lowerings.movements import WORDS
from gradlab.backends.native.lowerings.vector_functions import HALVES, Function, converting, copying, function
from gradlab.backends.native.place import place_of
from gradlab.call import Call, Value
from gradlab.dtype import BOOL, HALF, INT64
from gradlab.graph.executables.native import families as families
from gradlab.graph.executables.native.half_casts import computes_in_half
from gradlab.graph.executables.native.unrolling import resampling
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import ROWS, complex as complex_rows
from gradlab.spec import Spec

LONG = (1 << 17, 8)  # so many rows that their sum is made in pieces
IMAGE = {"kernel": (2, 2), "outputs": (3, 3), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}


# Parameters for which a row's rule is asked what it makes of each dtype; functions get them when they are called.
ASKED = {
    "lo": 0, "hi": 1, "alpha": 1.0, "scale": 1.0, "slope": 0.5, "beta": 1.0, "threshold": 20.0, "keep": 0.5, "take": 0.5, "exponent": 2,
    "n": 1, "divisor": 1,
}  # fmt: skip
PLAIN = [name for name in STORAGE if name not in HALVES and not name.startswith("complex")]
MASKED = {"where": 0}  # rows of which one input is a mask beside others


class _Recording(Lowering):
    """Keeps texts."""

    def __init__(self) -> None:
        super().__init__()
        self.generates = False

    def generate(self, body: str) -> str:
        name, text = named(body)
        self.texts[name] = text
        return name


def _samples(own: np.dtype[Any]) -> Iterator[tuple[str, list[Spec], dict[str, Any], list[Spec] | None]]:
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
    for to in map(np.dtype, ("float32", "float64", "bool")):
        yield "bernoulli", [x, state], {"offset": 0}, [Spec((4, 8), to)]
    yield "bernoulli", [x, state], {"offset": 0}, [x]
    for name in ("tril", "triu"):
        yield name, [x], {"diagonal": 0}, [x]
    image, columns = Spec((1, 1, 4, 4), own), Spec((1, 4, 9), own)
    yield "im2col", [image], IMAGE, [columns]
    yield "col2im", [columns], IMAGE, [image]


def all_texts() -> dict[str, str]:
    """Texts by the names of their kernels."""
    ctx = _Recording()
    dtypes = [*map(np.dtype, PLAIN), *HALF]
    for own in dtypes:
        for name, inputs, params, outputs in _samples(own):
            op = ROWS[name]
            values = [Value(i, spec) for i, spec in enumerate(inputs)]
            with contextlib.suppress(Unsupported, TypeError, ValueError, NotImplementedError):
                made = outputs if outputs is not None else op.rule(*inputs, **params)
                made = [made] if isinstance(made, Spec) else list(made)
                results = tuple(Value(len(values) + i, spec) for i, spec in enumerate(made))
                for v in (*values, *results):
                    ctx.places[v.id] = place_of(v.id + 8, v.spec)
                call = Call(op, tuple(values), params, results)
                if not computes_in_half(call, False):
                    LOWER[name](call, ctx)
    for kind in WORDS.values():
        resampling(ctx, kind, False)
    for kind in ("float", "double"):
        resampling(ctx, kind, True)
    return ctx.texts


def all_functions() -> Iterator[Function]:
    """Every vector function, for `gradlab.testing.prebuilt`."""
    dtypes = [np.dtype(name) for name in PLAIN]
    found: dict[str, Function] = {}
    for kind, name in itertools.product(("widen", "round", "narrow"), HALVES):
        found.setdefault((made := converting(kind, _half(name))).name, made)
    found.setdefault((made := converting("double", _half("float16"))).name, made)
    for own in dtypes:
        found.setdefault((made := copying(own)).name, made)
    for op in ROWS.values():
        if op in vars(complex_rows).values():
            continue
        if not isinstance(op.cuda, Elementwise) or op.outputs[1:] or op.variadic or reads(op.cuda.expression, "index"):
            continue
        for own in dtypes:
            inputs = [BOOL if MASKED.get(op.name) == i else own for i in range(len(op.inputs))]
            for out in _results(op, inputs, own, dtypes):
                found.setdefault((made := function(op, inputs, out)).name, made)
    yield from found.values()


def _half(name: str) -> np.dtype[Any]:
    return next(dtype for dtype in HALF if dtype.name == name)


def _results(op: Op, inputs: Sequence[np.dtype[Any]], own: np.dtype[Any], dtypes: Sequence[np.dtype[Any]]) -> list[np.dtype[Any]]:
    """The dtypes that a row makes of these."""
    if op.name in ("cast", "full"):
        return list(dtypes) if op.inputs else [own]
    if (op.promote == "float" and own.kind != "f") or (own.kind == "b" and op.name == "pow"):
        return []
    try:
        spec = op.rule(*(Spec((2,), dtype) for dtype in inputs), **{name: ASKED[name] for name in op.params if name in ASKED})
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return []
    return [spec.dtype] if spec.dtype.name in PLAIN else []


__all__ = ["all_functions", "all_texts"]
