"""What `--json` prints: one document on stdout, whatever else a command says. Loads no engine."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

ALOUD = ("train", "export", "kernels")  # what these say on the way goes to stderr: they may take long


def reported(name: str, options: argparse.Namespace, function: Callable[[argparse.Namespace], int]) -> int:
    """Runs a command whose result, which it leaves in `options.result`, is asked for as JSON; its exit code."""
    place: Any = (sys.stderr if name in ALOUD else None) or io.StringIO()
    options.result = None
    with contextlib.redirect_stdout(place):
        code = function(options)
    print(json.dumps(plain(options.result), indent=1, ensure_ascii=False))
    return code


def plain(value: Any) -> Any:
    """As JSON knows it: numbers that are none (NaN, infinities) are null, arrays lists, paths and everything else text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if not isinstance(value, PurePath) and hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
