"""Hooks of optimizers, around steps and around their state; and private names of PyTorch's optimizers that libraries read or call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.autograd.hooks import RemovableHandle, next_key

STATE_HOOKS = ("_state_dict_pre_hooks", "_state_dict_post_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def _put(table: dict[int, Any], hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    if not callable(hook):
        raise TypeError(f"a hook is a function, not {type(hook).__name__}")
    others, key = dict(table) if prepend else {}, next_key()
    if prepend:
        table.clear()
    table[key] = hook
    table.update(others)
    return RemovableHandle(table, key)


GLOBAL_PRE_HOOKS: dict[int, Any] = {}
GLOBAL_POST_HOOKS: dict[int, Any] = {}


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer, and before its own; it may return new (args, kwargs)."""
    return _put(GLOBAL_PRE_HOOKS, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer, and after its own."""
    return _put(GLOBAL_POST_HOOKS, hook)


class OptimizerHooks:
    """The part of Optimizer that keeps hooks. The tables are made by Optimizer."""

    _steps: int
    _stepped: bool
    _pre_hooks: dict[int, Any]
    _post_hooks: dict[int, Any]
    _state_dict_pre_hooks: dict[int, Any]
    _state_dict_post_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_post_hooks: dict[int, Any]

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new (args, kwargs)."""
        return _put(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _put(self._post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return _put(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` on what `state_dict` found; what it returns, unless None, takes its place."""
        return _put(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; what it returns, unless None, is loaded instead."""
        return _put(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return _put(self._load_state_dict_post_hooks, hook, prepend)

    # ------------------------------------------------------------ PyTorch's private names

    @property
    def _optimizer_step_pre_hooks(self) -> dict[int, Any]:
        return self._pre_hooks

    @_optimizer_step_pre_hooks.setter
    def _optimizer_step_pre_hooks(self, hooks: dict[int, Any]) -> None:  # of wrappers that leave out __init__
        self._pre_hooks = hooks

    @property
    def _optimizer_step_post_hooks(self) -> dict[int, Any]:
        return self._post_hooks

    @_optimizer_step_post_hooks.setter
    def _optimizer_step_post_hooks(self, hooks: dict[int, Any]) -> None:
        self._post_hooks = hooks

    @property
    def _step_count(self) -> int:
        """How many steps were made; scripts set it, so that a scheduler does not miss the first one."""
        return self._steps

    @_step_count.setter
    def _step_count(self, value: int) -> None:
        self._steps, self._stepped = value, value > 0

    @property
    def _opt_called(self) -> bool:
        """Whether a step was made."""
        return self._stepped

    @_opt_called.setter
    def _opt_called(self, value: bool) -> None:
        self._stepped = bool(value)

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself: a class's `step` gets its hooks when the class is made."""
        return func

    def _cuda_graph_capture_health_check(self) -> None:
        """Nothing to check: an optimizer's steps can be captured as they are."""

    _accelerator_graph_capture_health_check = _patch_step_function = _cuda_graph_capture_health_check
