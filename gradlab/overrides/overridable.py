"""The functions and methods that ask before they compute, and how they take the places of the plain ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache, reduce, update_wrapper
from importlib import import_module
from inspect import signature
from types import FunctionType, MethodType, ModuleType
from typing import Any

from gradlab.autograd.base import foreign
from gradlab.op import Op
from gradlab.overrides.protocol import Answer, ask, asked, modes
from gradlab.tensor import Tensor
from gradlab.tensor.comparison import comparable

# Methods by which Python's operators are known to a `__torch_function__`, as in PyTorch.
OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "__mul__": "mul", "__rmul__": "mul",
    "__imul__": "mul_", "__truediv__": "div", "__itruediv__": "div_", "__matmul__": "matmul", "__neg__": "neg", "__abs__": "abs",
    "__pow__": "pow", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
}  # fmt: skip
_MODULES = (
    "gradlab", "gradlab.nn.functional", "gradlab.linalg", "gradlab.special", "gradlab.nn.init", "gradlab.fft", "gradlab.masked",
    "gradlab.signal.windows",
)  # fmt: skip
_OWN = ("gradlab.tensor.", "gradlab.nn.", "gradlab.linalg", "gradlab.special", "gradlab.fft", "gradlab.masked", "gradlab.signal.")
_LATE = ("gradlab.tensor.", "gradlab.nn.functional.")  # of the functions that a module imports when they are first asked for
_PLAIN = frozenset({  # what asks nobody: Python's own, and what tells or makes a class
    "__new__", "__init__", "__init_subclass__", "__getattribute__", "__setattr__", "__delattr__", "__dir__", "__hash__", "__class__",
    "__apply__", "__iter__",
    "__torch_function__", "__array_ufunc__", "as_subclass",
})  # fmt: skip
_SETTINGS = frozenset({"is_tensor", "printoptions", "set_printoptions", "set_default_tensor_type"})
# What PyTorch has in Python, of public functions that ask: here they were imported by name, and are replaced where they stand.
_ROOMS = ("gradlab.distributions.", "gradlab.nn.modules.", "gradlab.nn.utils.")
_LAYERS = (("RNNBase", "_run"), ("RNNCellBase", "forward"))  # of `gradlab.nn.modules.recurrent` and `cells`: one function in PyTorch
_NO_TENSORS = frozenset({  # names of arguments that are none, or that are only written to
    "axis", "chunks", "copy", "correction", "decimals", "descending", "device", "diagonal", "dim", "dim0", "dim1", "dim2", "dimension",
    "dims", "dtype", "high", "implicit", "inplace", "k", "keepdim", "keepdims", "largest", "low", "memo", "memory_format", "more",
    "non_blocking", "offset", "order", "out", "p", "protocol", "requires_grad", "rounding_mode", "shape", "size", "sorted", "split_size",
    "stable", "step", "unbiased",
})  # fmt: skip
_MIRRORED = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__", "__eq__": "__eq__", "__ne__": "__ne__"}
_counted = 0  # modes that are on, in all threads
_classes = False  # whether a class of tensors that answers was defined


class Overridable:
    """A function or a method that asks. It equals the plain one, so that either is found where the other is the key."""

    __qualname__: str

    def __init__(self, plain: Answer, name: Answer | None = None) -> None:
        update_wrapper(self, plain)
        self.plain = plain
        self.name: Any = self if name is None else name  # what a `__torch_function__` is told

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = asked((*args, *kwargs.values()))
        return ask(self.name, args, kwargs, found) if found or modes.get() else self.plain(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return self is other or self.plain is getattr(other, "plain", other)

    def __hash__(self) -> int:
        return hash(self.plain)

    def __repr__(self) -> str:
        return repr(self.plain)

    def __reduce__(self) -> tuple[Any, ...]:
        return standing, (self.__module__, self.__qualname__)


def plain_of(function: Any) -> Any:
    """A function as it is where no class answers for it."""
    return function.plain if isinstance(function, Overridable) else function


def standing(module: str, name: str) -> Any:
    """The function or method of that name as it stands now: what copies and pickles of one that asks are."""
    plain = plain_of(reduce(getattr, name.split("."), import_module(module)))
    found = (vars(sys.modules[path]).get(name) for path in _MODULES if path in sys.modules)
    return next((function for function in found if function == plain), plain)


class Einsum(Overridable):
    """`einsum`, of which a class is told the operands one by one, also where they are given in a list, as in PyTorch."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and type(args[1]) in (list, tuple):
            args = (args[0], *args[1])
        return super().__call__(*args, **kwargs)


class Operator(Overridable):
    """A method with two underscores. It equals no other: Python asks a subclass's first only where it is not that of the base. Where the
    other side's class has the operator `reflected`, that is asked before the tensor's class."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, plain: Answer, name: Answer, reflected: str) -> None:
        super().__init__(plain, name)
        self.reflected = reflected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and type(args[1]) is not type(args[0]):
            equality = self.reflected == "__eq__" or self.reflected == "__ne__"
            if not comparable(args[1]) if equality else foreign(args[1], self.reflected):
                return NotImplemented
        return super().__call__(*args, **kwargs)


@cache
def places() -> dict[ModuleType, dict[str, Overridable]]:
    """The modules with functions that may ask, and in each these by name."""
    made: dict[Answer, Overridable] = {}
    found: dict[ModuleType, dict[str, Overridable]] = {}
    for path in _MODULES:
        module = import_module(path)
        table = found[module] = {}
        listed = getattr(module, "__all__", None)  # what a room imports for its own work is not its own
        late = [name for name, place in getattr(module, "_ELSEWHERE", {}).items() if place.startswith(_LATE)]
        late += getattr(module, "_NATIVE", ())
        for name, value in {**vars(module), **{name: getattr(module, name) for name in late}}.items():
            ours = isinstance(value, FunctionType) and value.__module__.startswith(_OWN)
            ours = ours and not name.startswith("_") and name not in _SETTINGS and (listed is None or name in listed)
            if ours and value.__module__ != "gradlab.tensor.missing_names":
                table[name] = made.setdefault(value, (Einsum if name == "einsum" else Overridable)(value))
    return found


@cache
def methods() -> dict[str, Any]:
    """Tensor's methods and properties that may ask, by name, as they are on Tensor."""
    found: dict[str, Any] = {}
    for kind in Tensor.__mro__[:-1]:
        for name, value in vars(kind).items():
            public = not name.startswith("_") or (name.startswith("__") and name.endswith("__"))
            if public and name not in _PLAIN and isinstance(value, (FunctionType, property)):
                found.setdefault(name, value)
    return found


@cache
def given() -> dict[str, Any]:
    """Of `methods`, those that a plain tensor is asked with others: an operator asks the class of its right side by itself."""
    return {
        name: plain
        for name, plain in methods().items()
        if isinstance(plain, FunctionType) and _takes_more(plain) and not (name.startswith("__") and hasattr(Tensor, f"__r{name[2:]}"))
    }


def _takes_more(function: FunctionType) -> bool:
    return bool(set(list(signature(function).parameters)[1:]) - _NO_TENSORS)


@cache
def _of_tensor(name: str) -> Any:
    """What stands on Tensor in place of a method of its own, and is what a `__torch_function__` is told then."""
    plain = methods()[name]
    return _asking(name, plain) if isinstance(plain, property) or name.startswith("__") else Overridable(plain)


def _asking(name: str, plain: Any) -> Any:
    if not isinstance(plain, property):
        if not name.startswith("__"):
            return Overridable(plain, vars(Tensor).get(name, plain))
        reflected = _MIRRORED.get(name, f"__r{name[2:].removeprefix('i')}")
        return Operator(plain, getattr(Tensor, OPERATORS.get(name, name)), reflected)
    return property(Overridable(plain.__get__, plain.__get__), Overridable(plain.__set__, plain.__set__))


def activate() -> None:
    """Public functions ask from now on, those too that were replaced and put back since it was said before."""
    for module, table in places().items():
        twin = sys.modules.get("torch") if module.__name__ == "gradlab" else None  # see gradlab/pytorch/
        for name, function in table.items():
            for known in (vars(module), *([vars(twin)] if twin is not None else [])):
                if known.get(name, function.plain if known is vars(module) else None) is function.plain:
                    known[name] = function
    made = {function.plain: function for table in places().values() for function in table.values()}
    for path, module in list(sys.modules.items()):
        if path.startswith(_ROOMS):
            known = vars(module)
            known.update({name: made[value] for name, value in known.items() if isinstance(value, FunctionType) and value in made})
            for layer, name in _LAYERS:
                if isinstance(kind := known.get(layer), type) and isinstance(plain := vars(kind).get(name), FunctionType):
                    setattr(kind, name, Overridable(plain))


def in_use() -> bool:
    """Whether something asks: a class of tensors that answers was defined, or a mode is on."""
    return _classes or _counted > 0


@cache
def prepare(kind: type) -> None:
    """Let a subclass's methods ask, those that it inherits from Tensor, and public functions and what takes instances of it, too."""
    global _classes
    activate()
    if not _classes:
        _classes = True
        _settle(given())
    theirs = {name for base in kind.__mro__[: kind.__mro__.index(Tensor)] for name in vars(base)}
    for name, plain in methods().items():
        if name not in theirs:
            setattr(kind, name, _asking(name, plain))


def ask_of_tensors() -> None:
    """Tensor's own methods ask, too, for a mode that is being entered."""
    global _counted
    _counted += 1
    if _counted == 1:
        _settle(methods())


def _settle(names: Iterable[str]) -> None:
    """Those of Tensor's own methods ask."""
    for name in names:
        setattr(Tensor, name, _of_tensor(name))


def ask_no_more() -> None:
    """A mode is left; with the last one Tensor's methods are plain again."""
    global _counted
    _counted -= 1
    if not _counted:
        for name, plain in methods().items():
            if name in vars(Tensor):
                setattr(Tensor, name, plain)
        if _classes:
            _settle(given())


def row(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """What the classes of a row's inputs answer, of which one is no tensor: it is asked of the method of the row's name."""
    func: Callable[..., Any] = getattr(Tensor, op.name, None) or op.call  # type: ignore[assignment]
    return ask(func, args, params, asked(args))
