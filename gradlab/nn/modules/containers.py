"""Containers: modules and parameters in sequences and dictionaries."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

import numpy as np

from gradlab.nn.module import Module
from gradlab.nn.parameter import Parameter
from gradlab.tensor import Tensor


def _position(index: Any, size: int) -> int:
    """An index, which may be negative, as a position. IndexError where it is out of range."""
    position = operator.index(index)
    if not -size <= position < size:
        raise IndexError(f"index {position} is out of range for {size} entries")
    return position % size


class _Listed(Module):
    """What Sequential and ModuleList share: submodules named "0", "1" and so on. None keeps a place free."""

    def _place(self, modules: Iterable[Any]) -> None:
        """Make these the submodules."""
        listed = list(modules)
        for i, module in enumerate(listed):
            if not (module is None or isinstance(module, Module)):
                raise TypeError(f"{type(self).__name__}: entry {i} is a {type(module).__name__}, not a Module")
        self._modules.clear()
        for i, module in enumerate(listed):
            self.add_module(str(i), module)

    def _key(self, index: Any) -> str:
        return list(self._modules)[_position(index, len(self._modules))]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        left = list(self._modules.values())
        del left[index if isinstance(index, slice) else _position(index, len(left))]
        self._place(left)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before position `index`."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"insert: index {index} is out of range for {len(self)} entries")
        listed = list(self._modules.values())
        listed.insert(index, module)
        self._place(listed)
        return self

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"extend: expected several modules, not {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Take a module out and return it."""
        found = self[key]  # type: ignore[index]
        del self[key]
        return found


class Sequential(_Listed):
    """Modules that are called one after the other: `Sequential(a, b)`, or with names `Sequential({"first": a, "second": b})`."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self._place(args)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __delitem__(self, index: int | slice) -> None:
        if all(name.isdigit() for name in self._modules):
            super().__delitem__(index)
            return
        names = list(self._modules)
        chosen = names[index] if isinstance(index, slice) else [names[_position(index, len(names))]]
        for name in chosen:
            del self._modules[name]

    def extend(self, sequential: Iterable[Module]) -> Any:
        """Add modules at the end."""
        return super().extend(sequential)

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"a Sequential is joined to a Sequential, not to {type(other).__name__}")
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"a Sequential is joined to a Sequential, not to {type(other).__name__}")
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, (int, np.integer)):
            raise TypeError(f"a Sequential is repeated an integer number of times, not {type(times).__name__}")
        if times <= 0:
            raise ValueError(f"a Sequential is repeated at least once, not {times} times")
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__


class ModuleList(_Listed):
    """Modules in a list, registered. It has no forward."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self._place(modules or ())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._key(index)]

    def _children_as_text(self) -> list[tuple[str, str]]:
        """Equal neighbours as one entry, as in (0-5): 6 x Layer(…)."""
        found: list[tuple[str, str]] = []
        for text, group in itertools.groupby(super()._children_as_text(), operator.itemgetter(1)):
            names = [name for name, _ in group]
            found.append((names[0], text) if len(names) == 1 else (f"{names[0]}-{names[-1]}", f"{len(names)} x {text}"))
        return found

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class ModuleDict(Module):
    """Modules in a dictionary, registered. It has no forward."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out and return it."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules from a mapping or from pairs; names already there get the new module."""
        if not isinstance(modules, (Mapping, ModuleDict, Iterable)):
            raise TypeError(f"update: expected a mapping or pairs, not {type(modules).__name__}")
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for name, module in pairs:
            self[name] = module


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """Parameters in a list, registered; tensors become parameters, other values are kept as they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([getattr(self, str(i)) for i in range(*index.indices(self._size))])
        return getattr(self, str(_position(index, self._size)))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, self._size)), _as_parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return iter(getattr(self, str(i)) for i in range(self._size))

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"extend: expected several parameters, not {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    __iadd__ = extend

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def __repr__(self) -> str:
        return _listing(self, enumerate(self))


class ParameterDict(Module):
    """Parameters in a dictionary, registered; tensors become parameters, other values are kept as they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"the key of a ParameterDict is a string, not {type(key).__name__}")
        if key not in self._keys and hasattr(type(self), key):
            raise KeyError(f"a ParameterDict has a method {key!r}; choose another key")
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Iterable[str]:
        """The keys."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return (self[key] for key in self._keys)

    def items(self) -> Iterable[tuple[str, Any]]:
        """Keys and parameters."""
        return ((key, self[key]) for key in self._keys)

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of that key, or `default`."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of that key, which is set to `default` if there is none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Take a parameter out and return it."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Take the last parameter out and return it with its key."""
        key = list(self._keys)[-1]
        return key, self.pop(key)

    def clear(self) -> None:
        """Take all parameters out."""
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """Another ParameterDict of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A ParameterDict of those keys, all with the value `default`."""
        return ParameterDict(OrderedDict.fromkeys(keys, default))

    def update(self, parameters: Any) -> None:
        """Add parameters from a mapping or from pairs. Of a plain dictionary in the order of the keys, as in PyTorch, whose optimizers'
        states count parameters by that order; of an OrderedDict, a ParameterDict and pairs in their own."""
        if not isinstance(parameters, Iterable):
            raise TypeError(f"update: expected a mapping or pairs, not {type(parameters).__name__}")
        pairs = parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else parameters
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs = sorted(pairs, key=operator.itemgetter(0))
        for key, value in pairs:
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        twin = self.copy()
        twin.update(other)
        return twin

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return _listing(self, self.items())


def _listing(module: Module, items: Iterable[tuple[Any, Any]]) -> str:
    lines = [
        f"\n  ({key}): Parameter of shape {tuple(x.shape)}, {x.dtype}, {x.device}" if isinstance(x, Parameter) else f"\n  ({key}): {x!r}"
        for key, x in items
    ]
    return f"{type(module).__name__}({''.join(lines)}\n)" if lines else f"{type(module).__name__}()"
