"""Samples of the rows of `ops/collective.py`, for a group of one process; `tests/test_mpi.py` has several."""

from __future__ import annotations

import numpy as np

from gradlab.distributed.transport import Alone

from samples.base import normal, sample

ALONE = Alone()
ITSELF = [normal(3), normal(2, 3), normal(), normal(0, 2)]


def itself(x, **_):
    return np.array(x)


def of(values, **params):
    return [sample(x, by=ALONE, reference=itself, **params) for x in values]


SAMPLES = {
    "all_reduce": [*of(ITSELF, op="sum"), *of(ITSELF[:1], op="mean")],
    "reduce": of(ITSELF, op="sum", root=0),
    "broadcast": of(ITSELF, root=0),
    "all_gather": [sample(x, by=ALONE, reference=lambda x, **_: x[None]) for x in ITSELF],
    "reduce_scatter": [sample(x[None], by=ALONE, op="sum", reference=lambda x, **_: x[0]) for x in ITSELF],
    "all_to_all": [sample(x, by=ALONE, give=(len(x),), take=(len(x),), reference=itself) for x in (normal(3), normal(2, 3), normal(0, 2))],
    "all_reduce_begin": of(ITSELF[:2], op="sum", slot=0),
    "all_reduce_end": of(ITSELF[:2], op="sum", slot=0),
}
for name in ("all_reduce_begin", "all_reduce_end"):
    for each in SAMPLES[name]:
        each.gradients = 0
