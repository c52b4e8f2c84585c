"""Hand-written kernels that may write a result over an operand: the operand is put where the result will lie.

Loops do so by themselves (`planning.py`), the planner gives them one buffer. Here the result may be part of a larger value, such as the
gradients of the gates of all steps of a recurrent network: the gates lie there from the forward on, and nothing is kept twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradlab.backends.native.place import Place, place_of
from gradlab.dtype import FLOAT32
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line

# Of rows whose kernels read all of an element before they write there: the result, and the operand that it may be written over.
OVER = {"lstm_cell_backward": (0, 2)}
MAKERS = ("lstm_cell",)  # rows whose kernels write to any contiguous place


def overwritten(line: Line, relative: Mapping[int, Place], parts: Mapping[int, Place], leaving: set[int]) -> dict[int, Place]:
    """For operands that lie where a result will lie: their places, in the result or in the whole that it is a part of."""
    calls = [c for c in line.calls if c.op.name in OVER]
    if not calls:
        return {}
    makers = {v.id: c for c in line.calls for v in c.outputs}
    readers: dict[int, list[Call]] = {}
    for c in line.calls:
        for x in c.inputs:
            if isinstance(x, Value):
                readers.setdefault(relative[x.id].base, []).append(c)
    found: dict[int, Place] = {}
    for c in calls:
        result, operand = (c.outputs[OVER[c.op.name][0]], c.inputs[OVER[c.op.name][1]])
        place = parts.get(result.id) or place_of(result.id, result.spec)
        maker = makers.get(operand.id)
        if maker is None or maker.op.name not in MAKERS or operand.spec != result.spec or operand.id in parts or operand.id in found:
            continue
        if operand.id in leaving or place.base in leaving or not place.contiguous or readers[operand.id] != [c]:
            continue
        if _has_kernel(c, relative) and _has_kernel(maker, relative):
            found[operand.id] = place
    return found


def _has_kernel(call: Call, relative: Mapping[int, Place]) -> bool:
    """Whether a cell's kernel takes its operands as they lie; NumPy would need the operand after the result has been written."""
    places = [relative[x.id] for x in call.inputs if isinstance(x, Value)]
    return all(len(p.shape) == 2 and p.dtype == FLOAT32 and (p.strides[1] == 1 or p.shape[1] == 1) for p in places)
