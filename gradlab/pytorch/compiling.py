"""`gradlab run --compile`: models in training run compiled, without a word of the script's.

What is compiled is the outermost call of a module that has parameters, while it is in training and operations are recorded; evaluation and
generation run eagerly, since their shapes often change from call to call. A model that cannot be compiled runs eagerly from then on, and
one line says why.
"""

from __future__ import annotations

import sys
from typing import Any

from gradlab.autograd.mode import current
from gradlab.nn import hooks
from gradlab.nn.module import Module

_MARK = -1  # the key of an entry among the hooks of all modules: with one every call comes through `_call_hooked`


def start() -> None:
    """From here on modules in training are compiled. A second call does nothing."""
    hooks.everywhere[_MARK] = ("", None)
    hooks.HookMethods._call_hooked = _call  # type: ignore[assignment, method-assign]


def _call(self: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mode = current()
    outermost = mode.scope is not None and mode.scope.outer is None and mode.tracer is None and mode.vmap is None
    if not (outermost and self.training and mode.recording and _trained(self)):
        return self._plain_call(*args, **kwargs)
    if self._compiled_call is None:
        self.compile(fullgraph=True)
    compiled = self._compiled_call
    if compiled is None:  # GRADLAB_COMPILE=0
        return self._plain_call(*args, **kwargs)
    try:
        return compiled(*args, **kwargs)
    except Exception as error:
        result = self._plain_call(*args, **kwargs)  # if this fails, too, it was not for being compiled
        _give_up(self, error)
        return result


def _trained(module: Module) -> bool:
    return "_runs_eagerly" not in module.__dict__ and any(p.requires_grad for p in module.parameters())


def _give_up(module: Module, error: Exception) -> None:
    module.__dict__["_runs_eagerly"] = True
    module.compile(disable=True)
    reason = str(error).strip().partition("\n")[0]
    print(f"gradlab run --compile: {type(module).__name__} runs eagerly: {reason}", file=sys.stderr)
