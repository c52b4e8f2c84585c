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
from gradlab.backends.native.lowering import LOWER, Unsupported
from gradlab.backends.native.lowerings import families as families
from gradlab.backends.native.lowerings.vector_functions import HALVES, POWERS, Function, converting, copying, function
from gradlab.backends.native.place import place_of
from gradlab.backends.native.template_samples import Recording, samples
from gradlab.call import Call, Value
from gradlab.dtype import BOOL, HALF
from gradlab.graph.executables.native.half_casts import computes_in_half
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import ROWS, complex as complex_rows
from gradlab.spec import Spec

# Parameters for which a row's rule is asked what it makes of each dtype; functions get them when they are called.
ASKED = {
    "lo": 0, "hi": 1, "alpha": 1.0, "scale": 1.0, "slope": 0.5, "beta": 1.0, "threshold": 20.0, "keep": 0.5, "take": 0.5, "exponent": 2,
    "n": 1, "divisor": 1,
}  # fmt: skip
PLAIN = [name for name in STORAGE if name not in HALVES and not name.startswith("complex")]
MASKED = {"where": 0}  # rows of which one input is a mask beside others


def all_texts() -> dict[str, str]:
    """Texts by the names of their kernels."""
    ctx = Recording()
    dtypes = [*map(np.dtype, PLAIN), *HALF]
    for own in dtypes:
        for name, inputs, params, outputs in samples(own):
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
                for params in ({}, *({"exponent": n} for n in POWERS if op.name == "pow")):
                    found.setdefault((made := function(op, inputs, out, params)).name, made)
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
