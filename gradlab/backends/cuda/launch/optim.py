"""Update rows of the optimizers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.work import Work
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING
from gradlab.spec import Spec

KINDS = ("SGD", "MOMENTUM", "ADAM", "AMSGRAD", "RMSPROP", "ADAGRAD", "ADADELTA", "ADAMAX", "NADAM", "RADAM", "ASGD", "RPROP")


def update(kind: str, places: Sequence[int], extras: int = 0, step: bool = True) -> Rule:
    """A rule for inputs (p, grad, buffers…, extras…, step, h) and outputs (p, buffers…, extras…, step).

    places: which of the kernel's buffers each of the row's is.
    """

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        p, g, *rest = (None if x is None else work.contiguous(x) for x in inputs)
        new_p, *news = outputs
        h = work.converted(rest.pop(), FLOAT64)
        count, new_count = (rest.pop(), news.pop()) if step else (None, None)
        taken, given = [None] * 4, [None] * 4
        for place, old, new in zip(places, rest, news):
            taken[place], given[place] = old, new
        more, new_more = [None, None], [None, None]
        for i in range(extras):
            more[i], new_more[i] = rest[len(places) + i], news[len(places) + i]
        pointer = work.pointer

        def addresses(*arrays: Any) -> bytes:
            return struct.pack(f"{len(arrays)}Q", *(0 if a is None else pointer(a) for a in arrays))

        counter = FLOAT32 if count is None else count.dtype
        function = work.kernel("optim.cu", "update", p.dtype, counter, f"gradlab::{kind}")
        flag = int(params.get("nesterov", params.get("decoupled", False)))
        values = (p, g, new_p, addresses(*taken, *given), addresses(h, count, new_count, *more, *new_more), flag, int(params["maximize"]))
        # A parameter without elements still counts its steps.
        work.launch(function, max(-(-p.size // 256), 1), 256, *values, p.size)

    def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        counters = {s.dtype for s in (specs[len(specs) - 2 - extras : len(specs) - 1] if step else ()) if s is not None}
        h = specs[-1]
        return outs[0].dtype in FLOATING and h is not None and h.dtype in FLOATING and len(counters) <= 1 and counters <= FLOATING

    return Rule(run, takes)


RULES = {
    ("optim.cu", "sgd_update"): update("SGD", (), step=False),
    ("optim.cu", "sgd_momentum_update"): update("MOMENTUM", (0,), step=False),
    ("optim.cu", "adam_update"): update("ADAM", (0, 1)),
    ("optim.cu", "amsgrad_update"): update("AMSGRAD", (0, 1, 2)),
    ("optim.cu", "rmsprop_update"): update("RMSPROP", (0,)),
    ("optim.cu", "rmsprop_centered_update"): update("RMSPROP", (0, 1)),
    ("optim.cu", "rmsprop_momentum_update"): update("RMSPROP", (0, 2)),
    ("optim.cu", "rmsprop_centered_momentum_update"): update("RMSPROP", (0, 1, 2)),
    ("optim.cu", "adagrad_update"): update("ADAGRAD", (0,)),
    ("optim.cu", "adadelta_update"): update("ADADELTA", (0, 1)),
    ("optim.cu", "adamax_update"): update("ADAMAX", (0, 1)),
    ("optim.cu", "nadam_update"): update("NADAM", (0, 1), extras=1),
    ("optim.cu", "radam_update"): update("RADAM", (0, 1)),
    ("optim.cu", "asgd_update"): update("ASGD", (0,), extras=2),
    ("optim.cu", "rprop_update"): update("RPROP", (0, 1)),
}
