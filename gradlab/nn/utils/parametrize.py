"""Parametrizations: a module's tensor computed from others, which are what is trained. Names and meanings follow PyTorch.

A module whose `weight` is parametrized becomes one of a subclass made for it, whose `weight` is a property: reading it computes the weight,
assigning it goes back through the parametrizations' `right_inverse`. The tensors behind it live in `module.parametrizations.weight`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.named_errors import named_functions
from gradlab.nn.module import Module
from gradlab.nn.modules.containers import ModuleDict, ModuleList
from gradlab.nn.parameter import Parameter
from gradlab.tensor import Tensor

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_cache: ContextVar[dict[tuple[int, str], Any] | None] = ContextVar("parametrizations", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once, when it is first read.

    >>> from gradlab import nn
    >>> from gradlab.nn.utils import parametrize
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    >>> with parametrize.cached():
    ...     print(layer.weight is layer.weight)
    True
    """
    if _cache.get() is not None:
        yield
        return
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and what they start from: `original`, or `original0`, `original1`, …

    Made by `register_parametrization`.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        value: Any = original
        with no_grad():
            for module in reversed(list(modules)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        if not self.is_tensor:
            for i, part in enumerate(value):
                if not isinstance(part, Tensor):
                    raise ValueError(f"register_parametrization: right_inverse gives tensors, not {type(part).__name__} at place {i}")
                trained = isinstance(original, Parameter)
                self._keep(f"original{i}", Parameter(part.detach(), requires_grad=original.requires_grad) if trained else part)
        else:
            if not unsafe and value.dtype != original.dtype:
                raise ValueError(f"register_parametrization: right_inverse changes the dtype from {original.dtype} to {value.dtype}")
            original.data = value.detach()  # the same object, so that an optimizer which has it keeps it
            self._keep("original", original)
        if not unsafe:
            self._check(self(), original.shape if not self.is_tensor else self.original.shape, original.dtype)

    def _keep(self, name: str, tensor: Tensor) -> None:
        if isinstance(tensor, Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)

    def _check(self, made: Any, shape: tuple[int, ...], dtype: Any) -> None:
        if not isinstance(made, Tensor):
            raise ValueError(f"register_parametrization: a parametrization gives a tensor, not {type(made).__name__}")
        if made.dtype != dtype:
            raise ValueError(f"register_parametrization: the dtype becomes {made.dtype} where it was {dtype}; unsafe=True lets it")
        if self.is_tensor and tuple(made.shape) != tuple(shape):
            raise ValueError(f"register_parametrization: the shape becomes {made.shape} where it was {tuple(shape)}; unsafe=True lets it")

    def originals(self) -> list[Tensor]:
        """The tensors that the first parametrization starts from."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def forward(self) -> Any:
        """The tensor that comes out."""
        value = self[0](*self.originals())
        for module in list(self)[1:]:
            value = module(value)
        return value

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Make the originals such that `value` comes out, or what is nearest to it. RuntimeError where a parametrization cannot tell."""
        found: Any = value
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(f"{type(module).__name__} has no right_inverse, so its tensor cannot be assigned; assign the originals")
            found = module.right_inverse(found)
        parts = [found] if self.is_tensor else list(found)
        if len(parts) != self.ntensors:
            raise ValueError(f"right_inverse: {self.ntensors} tensors are expected, not {len(parts)}")
        for original, part in zip(self.originals(), parts, strict=True):
            if tuple(part.shape) != tuple(original.shape) or part.dtype != original.dtype:
                raise ValueError(f"right_inverse: {part.dtype} {part.shape} does not fit into {original.dtype} {original.shape}")
            original.copy_(part)


def _subclass(module: Module) -> None:
    """Give the module a class of its own, on which properties may stand."""
    kind = type(module)

    def deepcopied(self: Module, memo: dict[int, Any]) -> Module:
        twin = self.__new__(kind)
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        _subclass(twin)
        for name in twin.parametrizations:
            _property(twin, name)
        return twin

    def refused(self: Module, protocol: Any = None) -> Any:
        raise RuntimeError(
            f"a parametrized {kind.__name__} cannot be pickled, its class being made while the program runs; save its state_dict(), or "
            "remove_parametrizations first"
        )

    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), {"__deepcopy__": deepcopied, "__reduce_ex__": refused})


def _property(module: Module, name: str) -> None:
    def read(self: Any) -> Any:
        store = _cache.get()
        if store is None:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in store:
            store[key] = self.parametrizations[name]()
        return store[key]

    def assign(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, assign))


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Let `module`'s tensor of that name be `parametrization(original)`; where it is parametrized already, of what came out so far.

    The tensor that was there becomes the trained `module.parametrizations.<name>.original`, through the parametrization's method
    `right_inverse` if it has one, which may give several (`original0`, …). Shape and dtype stay the same, ValueError otherwise, unless
    `unsafe=True`. ValueError for a name that is no parameter or buffer. Returns the module.

    >>> from gradlab import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = nn.Linear(3, 3)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.mT).all())
    True
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'parametrizations.weight.original']
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain: Any = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            if not isinstance(after, Tensor) or after.shape != before.shape or after.dtype != before.dtype:
                raise ValueError("register_parametrization: shape and dtype change; unsafe=True lets them")
            if hasattr(parametrization, "right_inverse"):
                with no_grad():
                    back = parametrization.right_inverse(after)
                if not isinstance(back, Tensor) or back.shape != before.shape or back.dtype != before.dtype:
                    raise ValueError("register_parametrization: only the first parametrization of a tensor may have several originals")
        chain.append(parametrization)
        chain.unsafe |= unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        if original is None:
            raise ValueError(f"register_parametrization: {tensor_name!r} of {type(module).__name__} is None")
        chain = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _subclass(module)
            module.parametrizations = ModuleDict()
        _property(module, tensor_name)
        module.parametrizations[tensor_name] = chain
    else:
        raise ValueError(f"register_parametrization: {type(module).__name__} has no parameter or buffer {tensor_name!r}")
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether that tensor of the module is parametrized, or any.

    >>> from gradlab import nn
    >>> nn.utils.parametrize.is_parametrized(nn.Linear(2, 2))
    False
    """
    found = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Take the parametrizations of a tensor off: it is a parameter (or buffer) again. Returns the module.

    leave_parametrized: with the value that it had; False: that of `original`, ValueError where there are several.

    >>> from gradlab import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    >>> sorted(nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: {tensor_name!r} of {type(module).__name__} is not parametrized")
    chain: Any = module.parametrizations[tensor_name]
    first = chain.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach().clone()
        if chain.is_tensor:
            first.data = value
        else:
            first = Parameter(value, requires_grad=first.requires_grad) if isinstance(first, Parameter) else value
    elif not chain.is_tensor:
        raise ValueError("remove_parametrizations: leave_parametrized=False needs a single original; this tensor has several")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if len(module.parametrizations) == 0:
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, first)
    else:
        module.register_buffer(tensor_name, first)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before it was parametrized.

    >>> from gradlab import nn
    >>> nn.utils.parametrize.type_before_parametrizations(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))).__name__
    'Linear'
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Give `to_module` the parametrizations of `from_module` (of one tensor, or all) and copies of their originals. Returns it.

    >>> from gradlab import nn
    >>> a, b = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), nn.Linear(2, 2)
    >>> b = nn.utils.parametrize.transfer_parametrizations_and_params(a, b)
    >>> bool((a.weight == b.weight).all())
    True
    """
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        if not is_parametrized(from_module, name):
            raise ValueError(f"transfer_parametrizations_and_params: {name!r} of {type(from_module).__name__} is not parametrized")
        source: Any = from_module.parametrizations[name]
        if name not in to_module._parameters and name not in to_module._buffers:
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for module in source:
            register_parametrization(to_module, name, copy.deepcopy(module), unsafe=source.unsafe)
        target: Any = to_module.parametrizations[name]
        with no_grad():
            for old, new in zip(source.originals(), target.originals(), strict=True):
                new.copy_(old)
    return to_module


named_functions(__name__)
