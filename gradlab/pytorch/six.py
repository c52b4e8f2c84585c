"""What `torch._six` was: names that were the same in Python 2 and 3; old programs still import it."""

from __future__ import annotations

import collections.abc as container_abcs
from math import inf as inf, nan as nan

PY3 = PY37 = True
string_classes = (str, bytes)
int_classes = int

__all__ = ["PY3", "PY37", "container_abcs", "inf", "int_classes", "nan", "string_classes"]
