"""The generated kernels that eager programs commonly need: what `gradlab warm` compiles beside those written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from contextlib import suppress

from gradlab.backends.cuda.generate import reads
from gradlab.backends.cuda.types import STORAGE
from gradlab.backends.native.general import elementwise
from gradlab.backends.native.lowering import LOWER, Unsupported
from gradlab.backends.native.lowerings import families as families
from gradlab.backends.native.place import place_of
from gradlab.backends.native.template_samples import Recording, samples
from gradlab.backends.native.thresholds import LEFT, threshold
from gradlab.call import Call, Value
from gradlab.dtype import BOOL, FLOAT32, FLOAT64, HALF, INT64
from gradlab.kernel import Elementwise, is_dear
from gradlab.op import NEVER, Op
from gradlab.spec import Spec

# Values of parameters: only their types are in the texts.
PARAMETERS = {
    "lo": 0.0, "hi": 1.0, "slope": 0.5, "alpha": 0.5, "scale": 0.5, "beta": 0.5, "threshold": 0.5, "negative_slope": 0.5, "n": 3,
    "divisor": 2.0, "keep": 0.5, "take": 0.5, "exponent": 3.0, "eps": 0.5, "kind": 0, "derivative": 0,
}  # fmt: skip


def texts(rows: Collection[Op]) -> list[str]:
    """The texts of all of them."""
    found: dict[str, None] = {}
    for op in rows:
        if isinstance(op.cuda, Elementwise) and len(op.outputs) == 1 and not op.variadic and op.name not in LEFT | {"cast", "clone"}:
            found.update(dict.fromkeys(_loops(op)))
    return [*found, *_templates({op.name: op for op in rows})]


def _templates(rows: dict[str, Op]) -> Iterator[str]:
    """The kernels of templates, as `eager.lowered` asks for them."""
    ctx = Recording(general=True)
    for own in (FLOAT32, FLOAT64, INT64, BOOL):
        for name, inputs, params, outputs in samples(own):
            op = rows[name]
            if threshold(op) == NEVER or (own == BOOL and name not in ("any", "all")):
                continue
            values = [Value(i, spec) for i, spec in enumerate(inputs)]
            with suppress(Unsupported, TypeError, ValueError, NotImplementedError):
                made = outputs if outputs is not None else op.specs(*inputs, **params)
                results = tuple(Value(len(values) + i, spec) for i, spec in enumerate(made))
                for v in (*values, *results):
                    ctx.places[v.id] = place_of(v.id + 8, v.spec)
                LOWER[name](Call(op, tuple(values), params, results), ctx)
    yield from (body for body in ctx.bodies)


def _loops(op: Op) -> Iterator[str]:
    """The loops of an elementwise row: each operand goes along or repeats."""
    names = [name for name in op.params if reads(op.cuda.expression, name)]
    if any(name not in PARAMETERS for name in names) or reads(op.cuda.expression, "index"):
        return
    count = len(op.inputs)
    for dtype in (FLOAT32, FLOAT64, *HALF):
        dtypes = [BOOL if name in ("condition", "mask") else dtype for name in op.inputs]
        params = {name: PARAMETERS.get(name, 0.5) for name in op.params}
        powers = [n for k in (1, 2, 3, -1, 4) for n in (k, float(k))] if "exponent" in params else []  # their types are in the texts
        kinds = [params | {"exponent": n} for n in powers] or [params]
        try:
            out = op.specs(*[Spec((4,), d) for d in dtypes], **params)[0].dtype
        except (TypeError, ValueError, RuntimeError, KeyError):
            continue
        if out.name not in STORAGE:
            continue
        few = is_dear(op.cuda.expression) and dtype != FLOAT32
        for inner in itertools.product((1, 0), repeat=count):
            if not any(inner) or (few and not all(inner)):
                continue
            own = [d if along or d == BOOL else op.number_dtype(d) for d, along in zip(dtypes, inner)]
            for chosen in kinds:
                with suppress(Unsupported):
                    yield elementwise.kernel_text(op, own, out, inner, chosen)[0]

