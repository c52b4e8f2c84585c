"""A module's state as a dictionary: `state_dict`, and `load_state_dict`, which changes nothing unless all of it fits."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab.advice import warn
from gradlab.autograd.hooks import RemovableHandle, add_hook
from gradlab.autograd.mode import no_grad
from gradlab.nn.parameter import Parameter, is_lazy
from gradlab.nn.traversal import Traversal
from gradlab.tensor import Tensor

if TYPE_CHECKING:
    from gradlab.nn.module import Module

EXTRA_STATE = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """Keys that the model has and the dictionary lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class StateMethods(Traversal):
    """The part of Module that saves and loads. The tables are made by Module."""

    _version: int
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: dict[int, Callable[..., Any]]
    _state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: dict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """Override (with `set_extra_state`) to keep more than tensors in the state."""
        raise NotImplementedError("override get_extra_state and set_extra_state together")

    def set_extra_state(self, state: Any) -> None:
        """Override to take back what `get_extra_state` gave."""
        raise NotImplementedError("override get_extra_state and set_extra_state together")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateMethods.get_extra_state

    def state_dict(
        self, *old: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name, sharing the module's memory; outside the graph unless keep_vars. What is given
        by position are destination, prefix and keep_vars, with a FutureWarning. `_metadata` of the result has each module's `_version`."""
        if old:
            warn(FutureWarning, "state_dict: destination, prefix and keep_vars are given by name today")
            given: list[Any] = [*old, *(destination, prefix, keep_vars)[len(old) :]]
            destination, prefix, keep_vars = given
        found: Any = destination
        if found is None:
            found = OrderedDict()
            found._metadata = OrderedDict()
        if (known := getattr(found, "_metadata", None)) is not None:
            known[prefix.removesuffix(".")] = {"version": self._version}
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(found, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, found, prefix, {})
            found = found if changed is None else changed
        return found

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Add what this module itself has, without those below it. A class may override it, and call it."""
        for name, tensor in self._own_state():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if self._has_extra_state():
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Take what this module itself has, without those below it. A class may override it, for example to rename the keys of an older
        version in `state_dict`, and calls it then: values are written once all that was found fits.
        """
        plan = _loading.get()
        if plan is None:
            raise RuntimeError("_load_from_state_dict is called by load_state_dict")
        plan.own(self, prefix, state_dict)

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield name, buffer

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copy tensors by dotted name into this module's parameters and buffers.

        strict: RuntimeError where keys are missing or unexpected; otherwise they are returned.
        assign: make the tensors themselves the parameters, with their dtype and device, instead of copying.
        Raises RuntimeError, before anything is changed, for shapes that differ; TypeError for what is no dictionary.
        """
        if not isinstance(state_dict, Mapping):
            kind = type(state_dict).__name__
            raise TypeError(f"load_state_dict: expected a dictionary, got {kind}; a file is read by load_state_dict(gl.load(path))")
        plan = _Plan(dict(state_dict), strict, getattr(state_dict, "_metadata", None) or {})
        token = _loading.set(plan)
        try:
            plan.add(self, "")
        finally:
            _loading.reset(token)
        result = IncompatibleKeys(plan.missing, plan.unexpected())
        plan.check(type(self).__name__, result)
        with no_grad():
            plan.carry_out(assign)
        for owner in plan.owners:
            for hook in owner._load_state_dict_post_hooks.values():
                if hook(owner, result) is not None:
                    raise RuntimeError("load_state_dict: a post hook changes the incompatible keys in place and returns None")
        if strict and (result.missing_keys or result.unexpected_keys):
            plan.check(type(self).__name__, result)
        return result

    # ------------------------------------------------------------ hooks

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the state is taken."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` on the state, which it may change in place."""
        return add_hook(self._state_dict_hooks, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)` before loading.

        It may change `state_dict` (a copy of what the user gave), for example to rename old keys.
        """
        return add_hook(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may change the lists of keys in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)


class _Plan:
    """What a loading will do, found before it is done."""

    def __init__(self, given: dict[str, Any], strict: bool, metadata: Mapping[str, Any]) -> None:
        self.given, self.strict, self.metadata = given, strict, metadata
        self.known: set[str] = set()
        self.missing: list[str] = []
        self.errors: list[str] = []
        self.extra_unexpected: list[str] = []
        self.steps: list[tuple[Any, str, Any]] = []  # owner, own name, value
        self.owners: list[Module] = []
        self.asked: list[str] = []  # the prefixes of those whose own state was looked for

    def add(self, owner: Any, prefix: str) -> None:
        """The module `owner`, whose dotted name and a dot are `prefix`, and all below it."""
        local = self.metadata.get(prefix.removesuffix("."), {})
        for hook in owner._load_state_dict_pre_hooks.values():
            hook(owner, self.given, prefix, local, self.strict, self.missing, self.extra_unexpected, self.errors)
        asked = len(self.asked)
        owner._load_from_state_dict(self.given, prefix, local, self.strict, self.missing, self.extra_unexpected, self.errors)
        if len(self.asked) == asked:  # a class that loads by itself
            self.known.update(k for k in self.given if k.startswith(prefix) and k[len(prefix) :].partition(".")[0] not in owner._modules)
        for name, child in owner._modules.items():
            if child is not None:
                self.add(child, f"{prefix}{name}.")
        self.owners.append(owner)

    def own(self, owner: Any, prefix: str, given: Mapping[str, Any]) -> None:
        """What `owner` itself has."""
        self.asked.append(prefix)
        for name, tensor in owner._own_state():
            key = prefix + name
            self.known.add(key)
            if key in given:
                self._fit(owner, name, key, tensor, given[key])
            elif key not in self.missing:
                self.missing.append(key)
        if owner._has_extra_state():
            key = prefix + EXTRA_STATE
            self.known.add(key)
            if key in given:
                self.steps.append((owner, EXTRA_STATE, given[key]))
            else:
                self.missing.append(key)
        elif type(owner).set_extra_state is not StateMethods.set_extra_state:
            self.missing.append(prefix + EXTRA_STATE)

    def _fit(self, owner: Any, name: str, key: str, tensor: Any, value: Any) -> None:
        if not isinstance(value, Tensor):
            self.errors.append(f'"{key}" is a {type(value).__name__}, not a tensor')
        elif not is_lazy(tensor) and value.shape != tensor.shape:
            self.errors.append(f'size mismatch for "{key}": the state has shape {value.shape}, the model {tensor.shape}')
        else:
            self.steps.append((owner, name, value))

    def unexpected(self) -> list[str]:
        """Keys that nothing in the model has."""
        return [k for k in self.given if k not in self.known] + self.extra_unexpected

    def check(self, model: str, keys: IncompatibleKeys) -> None:
        """Raise RuntimeError with all differences, if there are any that matter."""
        lines = list(self.errors)
        if self.strict:
            lines += [f'missing key "{k}"' for k in keys.missing_keys]
            lines += [f'unexpected key "{k}"{_meant(k, keys.missing_keys)}' for k in keys.unexpected_keys]
        if not lines:
            return
        prefix = _shared_prefix(keys)
        if prefix:
            lines = [*self.errors, f'all {len(keys.missing_keys)} keys differ by a prefix, as "{keys.unexpected_keys[0]}" does:']
        shown, rest = lines[:40], len(lines) - 40
        text = "".join(f"\n  {line}" for line in shown) + (f"\n  … and {rest} more" if rest > 0 else "")
        if prefix:
            text += f"\n    load {{k.removeprefix({prefix!r}): v for k, v in state.items()}}"
        elif self.strict and not self.errors:
            text += "\n  strict=False loads what fits."
        raise RuntimeError(f"Error(s) in loading state_dict for {model}, nothing was loaded:{text}")

    def carry_out(self, assign: bool) -> None:
        """Write the values into the model."""
        for owner, name, value in self.steps:
            if name == EXTRA_STATE and name not in owner._parameters and name not in owner._buffers:
                owner.set_extra_state(value)
                continue
            table = owner._parameters if name in owner._parameters else owner._buffers
            target = table[name]
            if assign:
                if isinstance(target, Parameter) and not isinstance(value, Parameter):
                    value = Parameter(value, target.requires_grad)
                table[name] = value
            else:
                if is_lazy(target):
                    target.materialize(value.shape)
                target.copy_(value)


_loading: ContextVar[_Plan | None] = ContextVar("loading", default=None)


def _meant(key: str, missing: list[str]) -> str:
    close = difflib.get_close_matches(key, missing, 1, 0.75)
    return f' (did you mean "{close[0]}"?)' if close else ""


def _shared_prefix(keys: IncompatibleKeys) -> str:
    """The prefix that, taken from all unexpected keys, gives the missing ones; such as "module."."""
    missing, unexpected = set(keys.missing_keys), keys.unexpected_keys
    if not missing or len(missing) != len(unexpected):
        return ""
    first = next((m for m in missing if unexpected[0].endswith(m)), None)
    prefix = unexpected[0][: len(unexpected[0]) - len(first)] if first else ""
    return prefix if prefix and {k.removeprefix(prefix) for k in unexpected} == missing else ""
