"""`compile`, the decorator, and the module that it makes of a module."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, TypeVar, overload

import numpy as np

from gradlab.graph.calls.compiled import Compiled
from gradlab.graph.staging.signatures import check_callable
from gradlab.named_errors import describe
from gradlab.nn.module import Module

F = TypeVar("F", bound=Callable[..., Any])
_eager_default = False  # whether what cannot be traced runs eagerly, unless fullgraph= says so
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # of torch.compile


@overload
def compile(
    function: F, *, check: bool = ..., explain: bool = ..., passes: Mapping[str, bool] | None = ..., fullgraph: bool | None = ...,
    dynamic: bool | None = ..., backend: Any = ..., mode: str | None = ..., options: Mapping[str, Any] | None = ..., disable: bool = ...,
) -> F: ...  # fmt: skip


@overload
def compile(
    function: None = ..., *, check: bool = ..., explain: bool = ..., passes: Mapping[str, bool] | None = ..., fullgraph: bool | None = ...,
    dynamic: bool | None = ..., backend: Any = ..., mode: str | None = ..., options: Mapping[str, Any] | None = ..., disable: bool = ...,
) -> Callable[[F], F]: ...  # fmt: skip


def compile(
    function: Any = None, *, check: bool = False, explain: bool = False, passes: Mapping[str, bool] | None = None,
    fullgraph: bool | None = None,
    dynamic: bool | None = None, backend: Any = None, mode: str | None = None, options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:  # fmt: skip
    """Let a function run as a static program: a forward, a loss, or a whole training step.

    The first call runs eagerly, the second traces the function and runs the program; further calls run the program while the
    conditions of its trace hold: the arguments' shapes, dtypes and Python values, modules and their modes, the globals and attributes
    that the function reads. Where one fails, the function is traced again. Hyper-parameters of optimizers are read at each run, so a
    learning rate schedule needs no new trace. Use it as a decorator or on a function, a method, a module (see also `Module.compile`), or
    anything else that can be called.

    check: compare the first run of each program with the eager run from the same state.
    explain: print why the function is traced again (otherwise it goes to the log `gradlab.compile`).
    passes: switches some of the passes over the graph off, by name: {"assemble": False}; see `gradlab.graph.passes`.
    disable: return the function as it is, as GRADLAB_COMPILE=0 in the environment does for all.
    fullgraph: a program is always the whole function. False: where it cannot be traced its calls run eagerly, with a warning that names
    the line. By default True, and False in PyTorch's programs (`gradlab.as_torch`), as there.
    dynamic, backend, mode, options: taken for PyTorch's scripts. A program is always as fast as it can be made, and there is one for each
    shape: dynamic=True raises NotImplementedError (but in PyTorch's programs), and so does a backend that is a function.
    Raises TraceError in the call that traces, naming the line, where the function reads a value (`item()`, `if` on a tensor, print).

    >>> double = gl.compile(lambda x: x * 2, mode="reduce-overhead")
    >>> [double(gl.tensor([i])).item() for i in range(3)]
    [0, 2, 4]
    """
    flags = {"check": check, "explain": explain, "disable": disable, "fullgraph": fullgraph, "dynamic": dynamic}
    for name, flag in flags.items():
        if not isinstance(flag, (bool, int, np.bool_, NoneType)):
            raise TypeError(f"compile: {name} is True or False, not {describe(flag)}")
    if not isinstance(mode, (str, NoneType)) or mode not in MODES:
        raise ValueError(f"compile: mode is one of {', '.join(map(repr, MODES))}, not {mode!r}; all of them mean the same here")
    whole = not _eager_default if fullgraph is None else bool(fullgraph)
    if dynamic and not _eager_default:
        raise NotImplementedError(
            "compile: dynamic=True, one program for all shapes, is not there; each shape has a program of its own. Pad to a few shapes, "
            "use gl.scan over a dimension that varies, or a gl.Session, which knows unknown sizes"
        )
    if callable(backend):
        raise NotImplementedError("compile: a backend of one's own is not there; a pass over the graph or a custom operation may do")
    again = functools.partial(compile, check=check, explain=explain, passes=passes, fullgraph=whole, disable=disable)
    if function is None:
        return again
    if isinstance(function, (staticmethod, classmethod)):  # the decorators in another order
        return type(function)(again(function.__func__))
    check_callable(function)
    if disable or os.environ.get("GRADLAB_COMPILE") == "0":
        return function
    if isinstance(function, Module):
        return CompiledModule(function, check, explain, passes, whole)
    return Compiled(function, check, explain, passes, whole)


def let_refused_run_eagerly(default: bool) -> None:
    """Whether `fullgraph` is False by default, for PyTorch's programs."""
    global _eager_default
    _eager_default = default


class CompiledModule(Module):
    """A module whose call is compiled. Parameters, buffers and attributes are those of the module it wraps, `_orig_mod` (also `module`);
    in `state_dict` their names begin with "_orig_mod.", as in PyTorch."""

    _orig_mod: Module

    def __init__(
        self, module: Module, check: bool, explain: bool, passes: Mapping[str, bool] | None, fullgraph: bool = True
    ) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled"] = Compiled(functools.partial(operator.call, module), check, explain, passes, fullgraph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Hooks of all modules are hooks of the wrapped one, and not of this one as well."""
        return super().__call__(*args, **kwargs) if self._hooked else self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's call, compiled."""
        return self.__dict__["_compiled"](*args, **kwargs)

    @property
    def module(self) -> Module:
        """The module that was compiled."""
        return self._orig_mod

    @property
    def compiled(self) -> Compiled:
        """The compiled call: its `graph`, `stats()`, `kernels()` and `explain()`."""
        return self.__dict__["_compiled"]

    def __setattr__(self, name: str, value: Any) -> None:
        inside = self.__dict__.get("_modules", {}).get("_orig_mod")
        if inside is None or name == "training" or name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(inside, name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)
