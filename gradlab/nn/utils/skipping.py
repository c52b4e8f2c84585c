"""Modules that are to be loaded or initialised by other means."""

from __future__ import annotations

from typing import Any, TypeVar

from gradlab.nn.module import Module
from gradlab.tensor.generator import fork_rng

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """A module whose initial values do not matter: it is made as usual, but uses up no random numbers. TypeError for no Module.

    >>> from gradlab import nn
    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    (3, 2)
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise TypeError(f"skip_init: a subclass of nn.Module is expected, not {module_cls!r}")
    with fork_rng():
        return module_cls(*args, **kwargs)
