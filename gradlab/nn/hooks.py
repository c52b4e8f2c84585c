"""Hooks of modules: before and after forward, before and after backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.autograd.base import meta_of, version_of
from gradlab.autograd.hooks import RemovableHandle, next_key, replaced
from gradlab.autograd.mode import current, users_code
from gradlab.nn.multi_output_node import joined
from gradlab.tensor import Tensor

Hook = Callable[..., Any]

everywhere: dict[int, tuple[str, Any]] = {}  # hooks of all modules: which table of a module they stand before, and the hook
everywhere_with_kwargs: dict[int, bool] = {}
everywhere_always_called: dict[int, bool] = {}


def ahead(table: str, own: dict[int, Any]) -> list[tuple[int, Any]]:
    """The hooks of all modules, then the module's own, with their keys."""
    shared = [(key, entry) for key, (name, entry) in everywhere.items() if name == table]
    return [*shared, *own.items()]


def placed(table: dict[int, Any], hook: Any, entry: Any, prepend: bool) -> RemovableHandle:
    """Put an entry for a hook at the end or the beginning of a table. TypeError for what cannot be called."""
    if not callable(hook):
        raise TypeError(f"a hook is a function, not {type(hook).__name__}")
    key = next_key()
    others = dict(table) if prepend else {}
    if prepend:
        table.clear()
    table[key] = entry
    table.update(others)
    return RemovableHandle(table, key)


class HookMethods:
    """The part of Module that registers and runs hooks. The tables are made by Module."""

    _hooked: bool  # whether a hook that __call__ runs was ever registered
    _forward_hooks: dict[int, Hook]
    _forward_hooks_with_kwargs: dict[int, bool]  # the keys of those that take keyword arguments, too
    _forward_hooks_always_called: dict[int, bool]
    _forward_pre_hooks: dict[int, Hook]
    _forward_pre_hooks_with_kwargs: dict[int, bool]
    _backward_hooks: dict[int, Hook]
    _backward_pre_hooks: dict[int, Hook]
    forward: Callable[..., Any]
    _compiled_call: Any = None  # what `Module.compile` made: it runs in place of `_plain_call`

    def _add_hook(self, table: dict[int, Any], hook: Any, prepend: bool, *marks: tuple[dict[int, bool], bool]) -> RemovableHandle:
        self._hooked = True
        handle = placed(table, hook, hook, prepend)
        for marked, mark in marks:
            if mark:
                marked[handle.id] = True
        handle.others = [RemovableHandle(marked, handle.id) for marked, mark in marks if mark]
        return handle

    def register_forward_pre_hook(self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns, unless None, takes the arguments' place.

        with_kwargs: call `hook(module, args, kwargs)`, which returns None or (args, kwargs).
        """
        return self._add_hook(self._forward_pre_hooks, hook, prepend, (self._forward_pre_hooks_with_kwargs, with_kwargs))

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns, unless None, takes the output's place.

        with_kwargs: call `hook(module, args, kwargs, output)`. always_call: also when forward raised (output is then None).
        """
        return self._add_hook(
            self._forward_hooks, hook, prepend, (self._forward_hooks_with_kwargs, with_kwargs),
            (self._forward_hooks_always_called, always_call),
        )  # fmt: skip

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the module's backward; a tuple it returns takes grad_output's place."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the module's inputs are known.

        Both are tuples, with None for what is no tensor or has no gradient; a tuple that the hook returns takes grad_input's place.
        """
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """PyTorch's older name for `register_full_backward_hook`, with the same meaning here."""
        return self.register_full_backward_hook(hook)

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is more than `forward`: with hooks, or compiled."""
        return self._plain_call(*args, **kwargs) if self._compiled_call is None else self._compiled_call(*args, **kwargs)

    def _plain_call(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` between the hooks."""
        done: set[int] = set()
        result = None
        try:
            for key, hook in ahead("_forward_pre_hooks", self._forward_pre_hooks):
                args, kwargs = _replaced(hook, key in self._forward_pre_hooks_with_kwargs, self, args, kwargs)
            boundary = None
            after = [hook for _, hook in ahead("_backward_hooks", self._backward_hooks)]
            before = [hook for _, hook in ahead("_backward_pre_hooks", self._backward_pre_hooks)]
            if after or before:
                boundary = _Boundary(self, after, before)
                args = boundary.inputs(args)
            result = self.forward(*args, **kwargs)
            for key, hook in ahead("_forward_hooks", self._forward_hooks):
                done.add(key)
                changed = hook(self, args, kwargs, result) if self._takes_kwargs(key) else hook(self, args, result)
                result = result if changed is None else changed
            return result if boundary is None else boundary.outputs(result)
        except Exception:
            for key, hook in ahead("_forward_hooks", self._forward_hooks):
                if key not in done and (key in self._forward_hooks_always_called or key in everywhere_always_called):
                    _ = hook(self, args, kwargs, result) if self._takes_kwargs(key) else hook(self, args, result)
            raise

    def _takes_kwargs(self, key: int) -> bool:
        return key in self._forward_hooks_with_kwargs or key in everywhere_with_kwargs


def _replaced(hook: Hook, with_kwargs: bool, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
    if changed is None:
        return args, kwargs
    if with_kwargs:
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(f"a forward pre-hook with kwargs returns None or a tuple (args, kwargs), not {type(changed).__name__}")
        return changed
    return (changed if isinstance(changed, tuple) else (changed,)), kwargs


# ---------------------------------------------------------------- hooks of all modules


def _register(table: str, hook: Hook) -> RemovableHandle:
    return placed(everywhere, hook, (table, hook), False)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """`register_forward_pre_hook` on every module there is or will be. Such hooks run before a module's own; meant for debugging."""
    return _register("_forward_pre_hooks", hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`register_forward_hook` on every module."""
    handle = _register("_forward_hooks", hook)
    for marked, mark in ((everywhere_with_kwargs, with_kwargs), (everywhere_always_called, always_call)):
        if mark:
            marked[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """`register_full_backward_pre_hook` on every module."""
    return _register("_backward_pre_hooks", hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """`register_full_backward_hook` on every module."""
    return _register("_backward_hooks", hook)


# ---------------------------------------------------------------- backward


def _through_gate(tensors: list[Any], inspect: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The same arrays as new tensors behind a node that calls `inspect` on their gradients, once all are known."""
    found = joined("BackwardHookFunctionBackward", tensors, [t._array for t in tensors], inspect)
    for source, t in zip(tensors, found):
        meta_of(t).version = version_of(source)  # one memory: a write through either is noticed by what was kept of the other
    return found


class _Boundary:
    """The two gates of one module call whose backward has hooks."""

    def __init__(self, module: Any, hooks: list[Hook], pre_hooks: list[Hook]) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_output: tuple[Any, ...] | None = None
        self.arity = 0
        self.gated = False  # whether an input requires grad

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, their tensors behind a gate."""
        self.arity = len(args)
        places = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        if not places or not current().recording:
            return args
        self.gated = True

        def inspect(gradients: list[Any]) -> list[Any]:
            full: list[Any] = [None] * self.arity
            for i, g in zip(places, gradients):
                full[i] = g
            changed = self._run(tuple(full))
            return [changed[i] for i in places]

        passed = dict(zip(places, _through_gate([args[i] for i in places], inspect)))
        return tuple(passed.get(i, x) for i, x in enumerate(args))

    def _run(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_output is None:  # the output took no part in this backward
            return grad_input
        with users_code():
            for hook in self.hooks:
                changed = hook(self.module, grad_input, self.grad_output)
                if changed is not None:
                    grad_input = replaced(changed, grad_input, f"backward hook of {type(self.module).__name__}")
        self.grad_output = None
        return grad_input

    def outputs(self, result: Any) -> Any:
        """The result, its tensors (if it is a tensor or a tuple of them) behind a gate."""
        single = isinstance(result, Tensor)
        values = [result] if single else list(result) if isinstance(result, (tuple, list)) else []
        places = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
        if not places or not current().recording:
            return result

        width = len(values)  # the closure must not hold `values`: they lead to the node that holds it

        def inspect(gradients: list[Any]) -> list[Any]:
            full: list[Any] = [None] * width
            for i, g in zip(places, gradients):
                full[i] = g
            grad_output = tuple(full)
            with users_code():
                for hook in self.pre_hooks:
                    changed = hook(self.module, grad_output)
                    if changed is not None:
                        grad_output = replaced(changed, grad_output, f"backward pre-hook of {type(self.module).__name__}")
            self.grad_output = grad_output
            if not self.gated:
                self._run((None,) * self.arity)
            return [grad_output[i] for i in places]

        for i, x in zip(places, _through_gate([values[i] for i in places], inspect)):
            values[i] = x
        if single:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)
