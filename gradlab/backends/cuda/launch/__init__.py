"""Launch rules, one file per family. `RULES` by a Kernel's file and name, `BY_ROW` by the row's name where the description names no
kernel."""

from __future__ import annotations

from types import ModuleType

from gradlab.backends.cuda.launch import (
    argmax,
    attention,
    collective,
    control_flow,
    conv,
    fourier,
    gemm,
    indexing,
    layout,
    linalg,
    loss,
    movement,
    norm,
    optim,
    random,
    recurrent,
    resample,
    residual,
    sampling,
    scan,
    softmax,
    sort,
    sparse,
    special,
    unpool,
    windows,
)
from gradlab.backends.cuda.launch.dynamic_sizes import DYNAMIC as DYNAMIC
from gradlab.backends.cuda.launch.replay import plan as plan
from gradlab.backends.cuda.launch.rule import Rule

FAMILIES: tuple[ModuleType, ...] = (
    fourier, argmax, loss, norm, gemm, indexing, movement, optim, random, softmax, scan, windows, conv, unpool, resample, sampling,
    layout, sort, recurrent, sparse, special, linalg, attention, residual, control_flow, collective,
)  # fmt: skip
RULES: dict[tuple[str, str], Rule] = {}
BY_ROW: dict[str, Rule] = {}
_CHOOSING = (conv, attention)
_REPEATED = (argmax, loss, norm, softmax, random, scan, windows, unpool, indexing, movement, layout, residual, sparse, *_CHOOSING)
for _family in FAMILIES:
    for _table, _rules in ((RULES, getattr(_family, "RULES", {})), (BY_ROW, getattr(_family, "BY_ROW", {}))):
        _table |= {
            key: rule._replace(repeats=_family in _REPEATED or rule.repeats, chooses=_family in _CHOOSING) for key, rule in _rules.items()
        }
