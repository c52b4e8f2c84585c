"""Launch rules, one file per family. `RULES` by a Kernel's file and name, `BY_ROW` by the row's name where the description names no
kernel."""

from __future__ import annotations

from types import ModuleType

from gradlab.backends.cuda.launch import (
    attention,
    choice,
    conv,
    extreme,
    flow,
    gemm,
    index,
    layout,
    linalg,
    losses,
    movement,
    norms,
    optim,
    planes,
    random,
    recurrent,
    resample,
    residual,
    rows,
    scan,
    sort,
    sparse,
    special,
    windows,
)
from gradlab.backends.cuda.launch.dynamic import DYNAMIC as DYNAMIC
from gradlab.backends.cuda.launch.replay import plan as plan
from gradlab.backends.cuda.launch.rule import Rule

FAMILIES: tuple[ModuleType, ...] = (
    extreme, losses, norms, gemm, index, movement, optim, random, rows, scan, windows, conv, planes, resample, choice, layout, sort,
    recurrent, sparse, special, linalg, attention, residual, flow,
)  # fmt: skip
RULES: dict[tuple[str, str], Rule] = {}
BY_ROW: dict[str, Rule] = {}
_CHOOSING = (conv, attention)
_REPEATED = (extreme, losses, norms, rows, random, scan, windows, planes, index, movement, layout, residual, sparse, *_CHOOSING)
for _family in FAMILIES:
    for _table, _rules in ((RULES, getattr(_family, "RULES", {})), (BY_ROW, getattr(_family, "BY_ROW", {}))):
        _table |= {
            key: rule._replace(repeats=_family in _REPEATED or rule.repeats, chooses=_family in _CHOOSING) for key, rule in _rules.items()
        }
