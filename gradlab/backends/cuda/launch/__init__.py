"""Launch rules, one file per family. `RULES` by a Kernel's file and name, `BY_ROW` by the row's name where the description names no kernel."""

from __future__ import annotations

from types import ModuleType

from gradlab.backends.cuda.launch import conv, gemm, index, movement, random, rows, scan, windows
from gradlab.backends.cuda.launch.rule import Rule

FAMILIES: tuple[ModuleType, ...] = (gemm, index, movement, random, rows, scan, windows, conv)
RULES: dict[tuple[str, str], Rule] = {}
BY_ROW: dict[str, Rule] = {}
for _family in FAMILIES:
    RULES |= getattr(_family, "RULES", {})
    BY_ROW |= getattr(_family, "BY_ROW", {})
