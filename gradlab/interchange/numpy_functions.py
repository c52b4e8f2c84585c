"""NumPy's functions on tensors, by `__array_function__`: tensors' own functions, which are recorded, with NumPy's arguments.

A table has those that gradlab computes itself. What only moves elements (`np.pad`, `np.delete`, `np.block`) is done by letting NumPy move
the elements' numbers (`carried.py`). Of all else NumPy computes the values, if no tensor requires grad.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.interchange.carried import CARRIED, carried
from gradlab.interchange.numpy_forms import FORMS, LINALG
from gradlab.interchange.values import Declined, by_values, recorded, replaced, written

# Whose results are integers, truth values, types, texts or whether something is so: nothing of them has a gradient.
WITHOUT_GRADIENT = frozenset("""
    all allclose any argmax argmin argpartition argsort argwhere array2string array_equal array_equiv array_repr array_str can_cast
    common_type count_nonzero digitize diag_indices_from flatnonzero isclose iscomplex iscomplexobj isfortran isin isneginf isposinf
    isreal isrealobj lexsort matrix_rank may_share_memory min_scalar_type nanargmax nanargmin ndim nonzero result_type searchsorted shape
    shares_memory size tril_indices_from triu_indices_from zeros_like ones_like empty_like unravel_index ravel_multi_index
""".split())  # noqa: SIM905
# What writes into its first argument.
_WRITING = frozenset(("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"))

_table: dict[Any, tuple[Callable[..., Any], inspect.Signature]] = {}


def _made() -> dict[Any, tuple[Callable[..., Any], inspect.Signature]]:
    for room, forms in ((np, FORMS), (np.linalg, LINALG)):
        for name, form in forms.items():
            if (function := getattr(room, name, None)) is not None:
                _table[function] = form, inspect.signature(form)
    return _table


def _write(function: Any, args: Any, kwargs: Any) -> None:
    """On a copy of the values of a tensor, which it takes over."""
    target = args[0]
    if recorded((args, kwargs)):
        raise RuntimeError(f"numpy.{function.__name__}: a tensor here requires grad; write with x[...] = y, which is recorded")
    values = target.detach().cpu().numpy().copy()
    rest, named = replaced((args[1:], kwargs), lambda x: x.detach().cpu().numpy())
    function(values, *rest, **named)
    written(target, values)


def run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What `__array_function__` answers."""
    name = function.__name__
    if name in _WRITING and args and isinstance(args[0], Differentiable):
        return _write(function, args, kwargs)
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    own = (_table or _made()).get(function)
    why = ""
    try:
        if own is not None:
            form, signature = own
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                raise Declined(f"gradlab has no form of it with these arguments ({', '.join(kwargs) or 'that many'})") from None
            found = form(*args, **kwargs)
        elif function in CARRIED:
            found = carried(function, args, kwargs)
        else:
            raise Declined("")
    except Declined as error:
        why = str(error)
        found = by_values(_called(function), function, args, kwargs, why, name not in WITHOUT_GRADIENT)
    return found if out is None else written(out, found)


def _called(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
