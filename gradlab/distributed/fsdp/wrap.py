"""Policies that say which modules of a model become units of `FullyShardedDataParallel`: `torch.distributed.fsdp.wrap`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module is a unit."""
    return True


def size_based_auto_wrap_policy(
    module: Any, recurse: bool = False, nonwrapped_numel: int = 0, min_num_params: int = 100_000_000,
    force_leaf_modules: Iterable[type] | None = None, exclude_wrap_modules: Iterable[type] | None = None,
) -> bool:  # fmt: skip
    """Modules with that many parameters that are in no unit within them; give it by functools.partial(…, min_num_params=…)."""
    excluded = tuple(exclude_wrap_modules) if exclude_wrap_modules is not None else ()
    if recurse:
        return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(force_leaf_modules or ()))
    return nonwrapped_numel >= min_num_params and not isinstance(module, excluded)


def transformer_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type]) -> bool:
    """Modules of those classes; give it by functools.partial(…, transformer_layer_cls={Block})."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def lambda_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Any], bool]) -> bool:
    """Modules for which a function says so."""
    return recurse or bool(lambda_fn(module))


class ModuleWrapPolicy:
    """Modules of some classes."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        self.classes = tuple(module_classes)

    def __call__(self, module: Any, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        """Whether it is one."""
        return recurse or isinstance(module, self.classes)


class CustomPolicy:
    """Modules for which a function says so; a dict of arguments of their own is refused."""

    def __init__(self, lambda_fn: Callable[[Any], Any]) -> None:
        self.function = lambda_fn

    def __call__(self, module: Any, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        """What the function says."""
        found = self.function(module)
        if isinstance(found, dict) and found:
            raise NotImplementedError(f"CustomPolicy: arguments of a unit's own are not offered, got {found}")
        return recurse or found is True or found == {}


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Within it `wrap(module)` wraps."""
    before = dict(_within)
    _within.clear()
    _within.update(wrapper_kwargs, wrapper_cls=wrapper_cls)
    try:
        yield
    finally:
        _within.clear()
        _within.update(before)


def wrap(module: Any, **wrap_overrides: Any) -> Any:
    """The module, within `enable_wrap` wrapped."""
    if not _within:
        return module
    options = {**_within, **wrap_overrides}
    return options.pop("wrapper_cls")(module, **options)


_within: dict[str, Any] = {}
