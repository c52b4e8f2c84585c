"""Rows whose export follows from their own description, so that nobody writes it: elementwise rows, by their expression, and reductions, by
what they load, combine and finish."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from gradlab.dtype import BOOL, FLOAT64
from gradlab.kernel import Elementwise, Reduction
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.expression import FUNCTIONS, translate
from gradlab.onnx.registry import CONVERTERS, exports
from gradlab.op import Op

COMBINED = {"a + b": "ReduceSum", "a * b": "ReduceProd", "maximum(a, b)": "ReduceMax", "minimum(a, b)": "ReduceMin"}
KNOWN = {"T", "bool", "int", "where", "true", "false", *FUNCTIONS}  # what expressions may name besides inputs and parameters


def said(row: Op, expression: str, *more: str) -> bool:
    """Whether ONNX has all that an expression names."""
    return set(re.findall(r"\b[A-Za-z_]\w*", expression)) <= {*KNOWN, *row.inputs, *row.params, *more}


def by_expression(row: Op) -> Callable[..., Any]:
    """A converter that translates the row's own expression."""

    def converter(e: Emitter, *xs: Wire, **params: Any) -> Any:
        dtype = next((x.dtype for x in xs if x.dtype != BOOL), BOOL)
        return translate(e, row.cuda.expression, {**dict(zip(row.inputs, xs, strict=True)), **params}, dtype)

    return converter


def by_reduction(row: Op) -> Callable[..., Any]:
    """A converter that maps the elements, reduces over `dim` (over all, without that parameter) and makes the result of the total."""
    description = row.cuda

    def converter(e: Emitter, *xs: Wire, **params: Any) -> Any:
        dtype = FLOAT64 if description.wide and xs[0].dtype.kind == "f" else xs[0].dtype
        loaded = translate(e, description.load, {**dict(zip(row.inputs, [e.cast(x, dtype) for x in xs], strict=True)), **params}, dtype)
        shape = xs[0].shape
        dims = params.get("dim", range(xs[0].rank))
        sizes = [shape[d] if shape is not None else None for d in dims]
        kind, finish = COMBINED[description.combine], description.finish
        if kind == "ReduceSum" and finish == "a / T(n)":
            kind, finish = "ReduceMean", "a"
        total = e.reduce(kind, loaded, dims, params.get("keepdim", False)) if sizes else loaded
        names = {"a": total, **params}
        if re.search(r"\bn\b", finish):
            if any(s is None or is_dynamic(s) for s in sizes):
                raise Unsupported("its result depends on the number of elements, which is not known when the file is written")
            names["n"] = math.prod(sizes)
        return translate(e, finish, names, dtype)

    return converter


def derive(row: Op) -> None:
    """Register a row that has no converter, if its description says all."""
    if row.name in CONVERTERS:
        return
    description = row.cuda
    if isinstance(description, Elementwise) and row.inputs and said(row, description.expression):
        exports(row.name)(by_expression(row))
    elif isinstance(description, Reduction) and said(row, description.load) and said(row, description.finish, "a", "n"):
        if description.combine not in COMBINED:
            return
        exports(row.name, truths=True)(by_reduction(row))
