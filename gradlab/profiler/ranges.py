"""Ranges: parts of a program that have a name of their own, in a profile or for NVIDIA's profilers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from typing import Any

from gradlab.autograd.mode import current
from gradlab.cuda import nvtx
from gradlab.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from gradlab.op import Op
from gradlab.profiler.timing import Watcher, observing


class record_function(ContextDecorator):
    """A range of one's own in the profile or `emit_nvtx` that is on, with `with` or as a decorator; nothing where none is on.

    >>> import gradlab as gl
    >>> @gl.profiler.record_function("double")
    ... def double(x):
    ...     return x * 2
    >>> with gl.profiler.profile() as prof:
    ...     with gl.profiler.record_function("both"):
    ...         y = double(double(gl.ones(3)))
    >>> [(e.key, e.count) for e in prof.key_averages() if e.key.startswith("range")]
    [('range double', 2), ('range both', 1)]
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._watchers: list[Any] = []  # of the entries that are open: a decorated function may call itself

    def __enter__(self) -> record_function:
        watcher = current().observer
        self._watchers.append(watcher if isinstance(watcher, Watcher) else None)
        if self._watchers[-1] is not None:
            watcher.push(f"range {self.name}" if self.args is None else f"range {self.name} {self.args}")
        return self

    def __exit__(self, *_: object) -> None:
        watcher = self._watchers.pop()
        if watcher is not None:
            watcher.pop()


class Emitter(Watcher):
    """Tells NVIDIA's profilers what runs."""

    def begin(self, op: Op, backend: Any, arrays: list[Any]) -> Any:
        nvtx.range_push(f"{self.node.name()}: {op.name}" if self.node is not None else op.name)

    def end(self, begun: Any, result: Any) -> None:
        nvtx.range_pop()

    def push(self, name: str, kind: str = "range") -> None:
        nvtx.range_push(name)

    def pop(self) -> None:
        nvtx.range_pop()


@contextmanager
def emit_nvtx(enabled: bool = True, record_shapes: bool = False, *, with_modules: bool = True) -> Iterator[None]:
    """Within the block each operation is an NVTX range, and with_modules each module's forward, for Nsight Systems (`gl.cuda.nvtx`).

    record_shapes: taken as PyTorch's scripts give it; names carry no shapes.
    """
    if not enabled:
        yield
        return
    if isinstance(current().observer, Watcher):
        raise RuntimeError("emit_nvtx: a profile, or another emit_nvtx, is on already; leave it first")
    with ExitStack() as stack:
        stack.enter_context(observing(Emitter()))
        if with_modules:
            stack.enter_context(modules_as_ranges(lambda name, kind: nvtx.range_push(name), nvtx.range_pop))
        yield


@contextmanager
def modules_as_ranges(push: Any, pop: Any) -> Iterator[None]:
    """Ranges of the forward of all modules, through their global hooks."""

    def enter_module(module: Any, args: Any) -> None:  # what a hook returns would take the arguments' place
        push(f"module {module._name or type(module).__name__}", "module")

    def leave_module(module: Any, args: Any, output: Any) -> None:
        pop()

    before = register_module_forward_pre_hook(enter_module)
    after = register_module_forward_hook(leave_module, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
