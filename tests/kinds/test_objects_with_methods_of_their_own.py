"""Compiled functions that read objects and containers of users' classes, whose methods are nobody's but the user's.

A trace and its guards look at what such objects hold. What a class has in place of a built-in type's methods, or a `__getattr__` that knows
no unknown names, is not called for that (a registry whose `get` takes the key alone, a dict whose `items` counts, were), and changes of
the objects are seen.
"""

from collections import Counter, OrderedDict, defaultdict, deque

import pytest

import gradlab as gl
from gradlab.autograd.mode import current

OF_DICTS = "get items keys values __getitem__ __iter__ __len__ __contains__ __eq__ __ne__ __bool__ __repr__ copy __reversed__ __reduce_ex__ __or__ clear update __setitem__ pop"  # noqa: E501
OF_OTHERS = "__getitem__ __iter__ __len__ __contains__ __eq__ __ne__ __bool__ __repr__ copy index count __reversed__ __reduce_ex__ clear update extend append __setitem__"  # noqa: E501
KINDS = [dict, OrderedDict, defaultdict, Counter, list, deque, tuple, set, frozenset, str, int, float]


class Called(Exception):
    """By somebody other than the user."""


def raises(*args, **named):
    raise Called


def ways(use, thing):
    """Functions of a tensor that find a thing in every place where one can be."""

    class Holder:
        pass

    class Holding(gl.nn.Module):
        def __init__(self):
            super().__init__()
            self.thing = thing

        def forward(self, x):
            return use(self.thing) * x

    holder, listed, names = Holder(), [thing], {"thing": thing, "use": use}
    holder.thing = Holder.shared = thing
    exec("def of_global(x):\n    return use(thing) * x\n", names)

    def default(x, thing=thing):
        return use(thing) * x

    yield from [
        names["of_global"], lambda x: use(thing) * x, lambda x: use(holder.thing) * x, lambda x: use(Holder.shared) * x,
        lambda x: use(listed[0]) * x, default, Holding(),
    ]  # fmt: skip


def entry(kind):
    """A value's contents, how it is read, and how it is changed to three."""
    if issubclass(kind, dict):
        return {"a": 2.0}, lambda v: kind.__getitem__(v, "a"), lambda v, to: kind.__setitem__(v, "a", to)
    if kind in (list, deque):
        return [2.0], lambda v: kind.__getitem__(v, 0), lambda v, to: kind.__setitem__(v, 0, to)
    if kind is tuple:
        return (2.0,), lambda v: tuple.__getitem__(v, 0), None
    return ("ab" if kind is str else 2 if kind in (int, float) else [2.0]), lambda v: 2.0, None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_methods_of_containers(kind):
    contents, use, change = entry(kind)
    x = gl.ones(2)
    for number, name in enumerate((OF_DICTS if issubclass(kind, dict) else OF_OTHERS).split()):
        if not hasattr(kind, name):
            continue
        own = type("Own", (kind,), {name: raises, "__hash__": getattr(kind, "__hash__", None)})
        made = kind.__new__(own) if kind in (dict, OrderedDict, defaultdict, Counter, list, deque, set) else own(contents)
        if issubclass(kind, dict):
            kind.__setitem__(made, "a", 2.0)
        elif kind in (list, deque):
            kind.append(made, 2.0)
        every = [*ways(use, made)]
        for function in (every[number % 7], every[(number + 3) % 7]):
            compiled = gl.compile(function)
            assert compiled(x)[0] == compiled(x)[0] == 2, name
            if change:
                change(made, 3.0)
                assert compiled(x)[0] == 3, name
                change(made, 2.0)


def test_numbers_that_show_less_than_they_are():
    class Money(float):
        def __repr__(self):
            return f"{self:.2f}"

    class Holder:
        price = Money(1.001)

    holder = Holder()
    for function in (lambda x: holder.price * x, lambda x: [holder.price][0] * x):
        holder.price = Money(1.001)
        compiled = gl.compile(function)
        assert compiled(gl.ones(1)).item() == pytest.approx(1.001)
        holder.price = Money(1.004)
        assert compiled(gl.ones(1)).item() == pytest.approx(1.004)
    compiled = gl.compile(lambda x, price: x * price)
    assert [compiled(gl.ones(1), Money(v)).item() for v in (1.001, 1.004)] == [pytest.approx(1.001), pytest.approx(1.004)]


class Metaclass(type):
    def __getattr__(cls, name):
        raise KeyError(name)


class Entries:
    def __init__(self):
        self.__dict__["entries"] = {"a": 2.0}

    def __getattr__(self, name):
        return self.entries[name]

    def __setattr__(self, name, value):
        self.entries[name] = value


class Refusing:
    def __init__(self):
        self.a = 2.0

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


class OfMetaclass(metaclass=Metaclass):
    def __init__(self):
        self.a = 2.0


class Slotted:
    __slots__ = ("a", "empty")

    def __init__(self):
        self.a = 2.0

    def __getattr__(self, name):
        raise KeyError(name)


class Record(dict):
    def __init__(self):
        self.a = 2.0

    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


class Everything:
    def __init__(self):
        self.a = 2.0

    __bool__ = __len__ = __eq__ = __hash__ = __iter__ = __repr__ = __array__ = __torch_function__ = property(raises)
    __wrapped__ = __dataclass_fields__ = shape = expr = property(raises)


@pytest.mark.parametrize("kind", [Entries, Refusing, OfMetaclass, Slotted, Record, Everything])
def test_names_that_an_object_has_not(kind):
    x = gl.ones(2)
    for number in range(9):
        thing = kind()
        every = [*ways(lambda v: v.a, thing), lambda x, thing: thing.a * x, lambda x, thing: thing.a * x]
        compiled = gl.compile(every[number])
        args, named = ((x, thing), {}) if number == 7 else ((x,), {"thing": thing} if number == 8 else {})
        assert compiled(*args, **named)[0] == compiled(*args, **named)[0] == 2
        thing.a = 3.0
        assert compiled(*args, **named)[0] == 3
        assert current().tracer is None
