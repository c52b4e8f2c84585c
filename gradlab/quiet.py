"""NumPy without its RuntimeWarnings: IEEE arithmetic is quiet in gradlab as in PyTorch (1/0 is inf), whatever filters a program has set.

NumPy 2 keeps what `np.errstate` sets in a context variable. So rows are computed in a context of their own, in which all of it is ignored:
entering one costs 30 ns where `np.errstate` costs 500, and the user's warning filters and errstate are neither asked nor touched.
Code of users' runs in their own context, as they may have variables there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any

import numpy as np

calm = Context()
calm.run(np.seterr, all="ignore")
run = calm.run  # RuntimeError while another thread, or this one, is in there: `busy` tells that from an error of the function


def busy(error: RuntimeError) -> bool:
    """Whether `run` has not begun."""
    return str(error).startswith("cannot enter context")


def quietly(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function that computes with NumPy."""
    try:
        return run(function, *args, **options)
    except RuntimeError as error:
        if not busy(error):
            raise
    return calm.copy().run(function, *args, **options)


def quieted(function: Callable[..., Any], foreign: bool = False) -> Callable[..., Any]:
    """The function, called so; foreign: it calls code of users', which runs in their context."""
    return np.errstate(all="ignore")(function) if foreign else partial(quietly, function)
