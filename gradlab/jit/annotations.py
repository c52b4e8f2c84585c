"""Names of `torch.jit` that scripts carry and that need nothing here: marks on functions, and steps that `gl.jit` takes by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from gradlab.autograd.mode import current
from gradlab.jit.module import ScriptModule
from gradlab.jit.trace import trace
from gradlab.nn.module import Module

__all__ = [
    "Final", "annotate", "export", "freeze", "ignore", "is_scripting", "is_tracing", "optimize_for_inference", "script_if_tracing",
    "trace_module", "unused",
]  # fmt: skip

F = TypeVar("F")


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A mark: `script` leaves functions that are called as they are anyway. As a decorator, with or without arguments."""
    return drop if callable(drop) else lambda function: function


def unused(fn: F) -> F:
    """A mark without effect, as `ignore`."""
    return fn


def export(fn: F) -> F:
    """A mark without effect: methods other than `forward` are scripted where they are called."""
    return fn


def script_if_tracing(fn: F) -> F:
    """A mark without effect: what depends on values inside of a trace has to be written with `gl.cond` or `gl.while_loop` here."""
    return fn


_overload = _overload_method = _script_if_tracing = export  # as libraries write them


def annotate(the_type: Any, the_value: F) -> F:
    """The value: `script` needs no types."""
    return the_value


def is_scripting() -> bool:
    """False: a script is Python here, also while it is traced (`is_tracing`)."""
    return False


def is_tracing() -> bool:
    """Whether operations are being traced in this thread, by `jit.trace`, `gl.compile` or an export."""
    return current().tracer is not None


def freeze(mod: Any, preserved_attrs: Sequence[str] | None = None, optimize_numerics: bool = True) -> Any:
    """The module: what runs a program treats tensors that nothing writes as constants anyway. RuntimeError in training mode."""
    if isinstance(mod, Module) and mod.training and not isinstance(mod, ScriptModule):
        raise RuntimeError("jit.freeze: the module is in training mode; call eval() first")
    return mod


def optimize_for_inference(mod: Any, other_methods: Sequence[str] | None = None) -> Any:
    """The module: a program is fused and planned when it first runs."""
    return mod


def trace_module(mod: Module, inputs: Mapping[str, Any], **kwargs: Any) -> ScriptModule:
    """`trace` of a module's forward: `inputs` is {"forward": example}. NotImplementedError for other methods: trace them by themselves."""
    if list(inputs) != ["forward"]:
        raise NotImplementedError(f"trace_module: traces forward alone, not {', '.join(inputs)}; use gl.jit.trace(module.method, example)")
    return trace(mod, inputs["forward"], **kwargs)
