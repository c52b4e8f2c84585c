"""Names of PyTorch's modules that begin with an underscore, and that libraries read or call all the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from gradlab.autograd.hooks import RemovableHandle, add_hook

T_destination = TypeVar("T_destination", bound=dict[str, Any])


class _WithoutModule:
    """A hook that is not told the module; its copies are those of the hook, a method of the copied module."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, module: Any, *arguments: Any) -> None:
        self.hook(*arguments)


class PrivateNames:
    """The part of Module that answers to them."""

    _version = 1  # of what `state_dict` holds; a class may count it up
    dump_patches = False
    call_super_init = False
    T_destination = T_destination
    forward: Callable[..., Any]
    _plain_call: Callable[..., Any]
    _call_hooked: Callable[..., Any]
    _compiled_call: Any
    _backward_hooks: dict[int, Any]
    _backward_pre_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` between the hooks."""
        return self._plain_call(*args, **kwargs)

    def _wrapped_call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """What a call of the module runs: `_call_impl`, or what `compile` made of it."""
        return self._call_hooked(args, kwargs)

    def _slow_forward(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`."""
        return self.forward(*args, **kwargs)

    @property
    def _compiled_call_impl(self) -> Any:
        return self._compiled_call

    @property
    def _is_full_backward_hook(self) -> bool | None:
        """True with backward hooks, which are all full; None without."""
        return True if self._backward_hooks else None

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        """The backward hooks: full ones, and others, which there are none of."""
        return list(self._backward_hooks.values()), []

    def _get_backward_pre_hooks(self) -> list[Any]:
        return list(self._backward_pre_hooks.values())

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> RemovableHandle:
        """`register_load_state_dict_pre_hook` of a function that takes no module in front, unless with_module."""
        return add_hook(self._load_state_dict_pre_hooks, hook if with_module or not callable(hook) else _WithoutModule(hook))

    def _replicate_for_data_parallel(self) -> Any:
        """A shallow copy with tables of its own: no parameters, the same buffers and submodules."""
        replica = copy.copy(self)
        replica.__dict__.update(
            _parameters={}, _buffers=dict(self._buffers), _modules=dict(self._modules), _is_replica=True
        )  # fmt: skip
        return replica
