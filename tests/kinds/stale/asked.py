"""What code asks of classes, functions and modules; and what answers without being named."""

import abc
import copy
import functools
import importlib
import inspect
import sys
import types

import gradlab as gl

from kinds.stale import read


def asking(question, change):
    """A function whose result depends on a question, and the change of the answer."""
    return lambda x: x * (2.0 if question() else 3.0), lambda patch: change()


# ---------------------------------------------------------------- classes


@read
def truth_of_an_entry():
    class Part:
        pass

    parts = [Part(), Part()]
    return lambda x: x * sum(1.0 for part in parts if part), lambda patch: setattr(Part, "__bool__", lambda self: self is parts[0])


@read
def truth_of_a_result():
    class Part:
        pass

    found = functools.partial(Part)
    return lambda x: x * (2.0 if not found() else 3.0), lambda patch: setattr(Part, "__len__", lambda self: 0)


@read
def equality_of_entries():
    class Part:
        pass

    parts = {"a": Part(), "b": Part()}
    return lambda x: x * (2.0 if parts["a"] == parts["b"] else 3.0), lambda patch: setattr(Part, "__eq__", lambda self, other: True)


@read
def registered_class():
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Part:
        pass

    part = Part()
    return asking(lambda: isinstance(part, Abstract), lambda: Abstract.register(Part))


@read
def registered_class_of_what_is_made_inside():
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Part:
        pass

    return asking(lambda: isinstance(Part(), (int, Abstract)), lambda: Abstract.register(Part))


@read
def class_pattern():
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Part:
        pass

    part = Part()

    def function(x):
        match part:
            case Abstract():
                return x * 2.0
            case _:
                return x

    return function, lambda patch: Abstract.register(Part)


@read
def instance_check_of_a_metaclass():
    class Meta(type):
        def __instancecheck__(cls, value):
            return True

    class Part(metaclass=Meta):
        pass

    return asking(lambda: isinstance(3, Part), lambda: setattr(Meta, "__instancecheck__", lambda cls, value: False))


@read
def call_of_a_metaclass():
    class Meta(type):
        def __call__(cls):
            return 2.0

    class Part(metaclass=Meta):
        pass

    return lambda x: x * Part(), lambda patch: setattr(Meta, "__call__", lambda cls: 3.0)


@read
def bases():
    class One:
        pass

    class Two:
        pass

    class Part(One):
        pass

    return asking(lambda: issubclass(Part, One), lambda: setattr(Part, "__bases__", (Two,)))


@read
def new_that_appears():
    class Part:
        k = 2.0

    class Other:
        k = 3.0

    return lambda x: x * Part().k, lambda patch: setattr(Part, "__new__", lambda cls: Other())


@read
def attribute_of_the_class_of_what_is_made_inside():
    class Part:
        k = 2.0

    return lambda x: x * sum(made.k for made in [Part(), Part()]), lambda patch: setattr(Part, "k", 3.0)


@read
def attribute_of_the_base_of_a_class_made_inside():
    class Part:
        k = 2.0

        def method(self):
            return 1.0

    def function(x):
        class Made(Part):
            pass

        return x * Made.k * Made().method()

    return function, lambda patch: setattr(Part, "k", 3.0)


@read
def method_of_the_base_of_a_class_made_inside():
    class Part:
        def method(self):
            return 2.0

    return lambda x: x * type("Made", (Part,), {})().method(), lambda patch: setattr(Part, "method", lambda self: 3.0)


@read
def names_of_a_class():
    class Part:
        pass

    count = lambda: len([name for name in dir(Part) if name.startswith("on_")])
    return lambda x: x * float(count()), lambda patch: setattr(Part, "on_start", 1)


@read
def subclasses():
    class Part:
        pass

    made = []
    return lambda x: x * len(Part.__subclasses__()), lambda patch: made.append(type("Another", (Part,), {}))


@read
def method_of_a_number():
    class Number(int):
        def twice(self):
            return self * 2

    two = Number(2)
    return lambda x: x * two.twice(), lambda patch: setattr(Number, "twice", lambda self: 7)


@read
def copy_of_slots():
    class Slots:
        __slots__ = ("k",)

    made = Slots()
    made.k = 2.0
    return lambda x: x * copy.copy(made).k, lambda patch: setattr(made, "k", 3.0)


# ---------------------------------------------------------------- functions and modules


@read
def cached_method():
    class Part:
        k = 2.0

        @functools.lru_cache  # noqa: B019
        def method(self):
            return self.k

    part = Part()

    def change(patch):
        part.k = 3.0
        Part.method.cache_clear()

    return lambda x: x * part.method(), change


@read
def signature():
    def one(a):
        return a

    def two(a, b):
        return a

    return lambda x: x * len(inspect.signature(one).parameters), lambda patch: setattr(one, "__code__", two.__code__)


def _swapped(load):
    before, after = types.ModuleType("kinds_swapped"), types.ModuleType("kinds_swapped")
    before.K, after.K = 2.0, 3.0
    sys.modules["kinds_swapped"] = before
    return lambda x: x * load("kinds_swapped").K, lambda patch: patch.setitem(sys.modules, "kinds_swapped", after)


@read
def module_imported_by_importlib():
    return _swapped(importlib.import_module)


@read
def module_imported_by_the_function():
    return _swapped(__import__)


@read
def module_that_appears():
    def function(x):
        try:
            import kinds_appears
        except ImportError:
            return x
        return x * kinds_appears.K

    made = types.ModuleType("kinds_appears")
    made.K = 3.0
    return function, lambda patch: patch.setitem(sys.modules, "kinds_appears", made)


@read
def built_in_of_ones_own():
    vars(sys.modules["builtins"])["KINDS_K"] = 2.0
    return lambda x: x * KINDS_K, lambda patch: patch.setitem(vars(sys.modules["builtins"]), "KINDS_K", 3.0)  # noqa: F821


@read
def built_in_replaced():
    return lambda x: x * len(ascii("a")), lambda patch: patch.setitem(vars(sys.modules["builtins"]), "ascii", lambda text: "abcdef")


@read
def computed_attribute():
    class Part:
        def __init__(self):
            self.p = gl.ones(2)

        @property
        def w(self):
            return self.p * 2.0

        @w.setter
        def w(self, value):
            self.p = value / 2.0

    part = Part()
    return lambda x: x * part.w, lambda patch: setattr(part, "w", gl.ones(2))
