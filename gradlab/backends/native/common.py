"""The generated kernels that eager programs commonly need: what `gradlab warm` compiles beside those written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress

from gradlab.backends.cuda.generate import reads
from gradlab.backends.cuda.types import STORAGE
from gradlab.backends.native.general import elementwise
from gradlab.backends.native.lowering import Unsupported
from gradlab.backends.native.thresholds import LEFT
from gradlab.dtype import BOOL, FLOAT32, FLOAT64
from gradlab.kernel import Elementwise, is_dear
from gradlab.op import Op
from gradlab.spec import Spec

# Values of parameters: only their types are in the texts.
PARAMETERS = {
    "lo": 0.0, "hi": 1.0, "slope": 0.5, "alpha": 0.5, "scale": 0.5, "beta": 0.5, "threshold": 0.5, "negative_slope": 0.5, "n": 3,
    "divisor": 2.0, "keep": 0.5, "take": 0.5, "exponent": 3.0, "eps": 0.5,
}  # fmt: skip


def texts(rows: Iterable[Op]) -> list[str]:
    """The texts of all of them."""
    found: dict[str, None] = {}
    for op in rows:
        if isinstance(op.cuda, Elementwise) and len(op.outputs) == 1 and not op.variadic and op.name not in LEFT:
            found.update(dict.fromkeys(_loops(op)))
    return list(found)


def _loops(op: Op) -> Iterator[str]:
    """The loops of an elementwise row: each operand goes along or repeats."""
    names = [name for name in op.params if reads(op.cuda.expression, name)]
    if any(name not in PARAMETERS for name in names) or reads(op.cuda.expression, "index"):
        return
    count = len(op.inputs)
    for dtype in (FLOAT32, FLOAT64):
        dtypes = [BOOL if name in ("condition", "mask") else dtype for name in op.inputs]
        params = {name: PARAMETERS.get(name, 0.5) for name in op.params}
        kinds = [params, *([params | {"exponent": 3}] if "exponent" in params else [])]  # x**3 and x**3.0
        try:
            out = op.specs(*[Spec((4,), d) for d in dtypes], **params)[0].dtype
        except (TypeError, ValueError, RuntimeError, KeyError):
            continue
        if out.name not in STORAGE:
            continue
        few = is_dear(op.cuda.expression) and dtype == FLOAT64
        for inner in itertools.product((1, 0), repeat=count):
            if not any(inner) or (few and not all(inner)):
                continue
            for chosen in kinds:
                with suppress(Unsupported):
                    yield elementwise.kernel_text(op, dtypes, out, inner, chosen)[0]

