"""`torch.compiler` and `torch._dynamo`: what PyTorch's programs say to their compiler, as far as it means something to gradlab's.

A compiled function is always the whole function here (`gl.compile`), or runs eagerly as a whole: marks that say where PyTorch's compiler
is to stop, what it need not look into, or which sizes vary, change nothing. They give back what they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from gradlab.autograd.mode import current
from gradlab.graph.calls.decorator import CompiledModule as OptimizedModule, compile
from gradlab.pytorch import compiler_settings as config

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "disallow_in_graph", "explain", "forbid_in_graph", "get_default_backend", "graph_break", "is_compiling", "is_dynamo_compiling",
    "is_exporting", "list_backends", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "nested_compile_region",
    "optimize", "reset", "run", "set_default_backend", "set_stance", "skip_frame", "substitute_in_graph",
]  # fmt: skip


def is_compiling() -> bool:
    """Whether a program is being traced: by `gl.compile`, `gl.jit`, an export."""
    return current().tracer is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: an export is a trace like another."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, **_: Any) -> Any:
    """The function as it is; as a decorator, too. Called within a compiled function it is traced with it; alone it runs eagerly."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function as it is: a trace goes through every function."""
    return fn


disallow_in_graph = forbid_in_graph = assume_constant_result = nested_compile_region = run = skip_frame = allow_in_graph


def substitute_in_graph(original_fn: Any, **_: Any) -> Callable[[Any], Any]:
    """A decorator that gives back what it is put on: there is nothing that a trace would need another function for."""
    return lambda function: function


def optimize(backend: Any = "inductor", **options: Any) -> Callable[[Any], Any]:
    """The older form of `torch.compile`: a decorator."""
    return lambda function: compile(function, backend=None if isinstance(backend, str) else backend, **options)


def graph_break(msg: str = "") -> None:
    """Nothing: outside of a compiled function there is nothing to break, and inside it is one program."""


def reset() -> None:
    """Nothing: programs go with the functions that they were compiled of."""


def cudagraph_mark_step_begin() -> None:
    """Nothing: results of a captured program are new tensors in each call."""


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """Nothing: each shape has a program of its own."""


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing: all sizes are static."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: parameters are updated where they are."""


@contextmanager
def set_stance(stance: str = "default", **_: Any) -> Iterator[None]:
    """A block in which compiled functions run compiled, whatever the stance; "force_eager" is GRADLAB_COMPILE=0."""
    yield


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The names that `compile(backend=)` takes: there is one compiler, under PyTorch's usual name."""
    return ["inductor"]


def get_default_backend() -> str:
    """The one that there is."""
    return "inductor"


def set_default_backend(backend: Any) -> None:
    """ValueError for any but the one that there is."""
    if backend != "inductor":
        raise ValueError(f"set_default_backend: there is one compiler, under the name 'inductor', and no {backend!r}")


def explain(f: Any, *_: Any, **__: Any) -> NoReturn:
    """PyTorch's report of a trace."""
    raise NotImplementedError("gradlab has no torch._dynamo.explain: use gl.compile, and the result's explain(), graph and stats()")
