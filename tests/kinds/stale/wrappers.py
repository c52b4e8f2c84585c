"""Functions' attributes, evaluated text, wrappers with state, registries, matching, and modules of Python."""

import functools
import importlib
import sys
import types

import numpy as np

import gradlab as gl
from gradlab.nn import functional as F

from kinds.stale import read, settings
from kinds.stale.code import doubled, recode, tripled

REGISTRY = {}


class Holder:
    def __init__(self, k=2.0):
        self.k = k


# ---------------------------------------------------------------- functions


@read
def attribute_of_a_function():
    double = doubled()
    double.k = 2.0
    return lambda x: double(x) * double.k, lambda patch: setattr(double, "k", 3.0)


@read
def defaults_read_as_an_attribute():
    def scaled(x, k=2.0):
        return x

    return lambda x: x * scaled.__defaults__[0], lambda patch: patch.setattr(scaled, "__defaults__", (3.0,))


@read
def name_of_a_class():
    class Double:
        pass

    held = Double()
    return lambda x: x * (2.0 if type(held).__name__ == "Double" else 3.0), lambda patch: setattr(Double, "__name__", "Triple")


@read
def evaluated_text():
    return lambda x: eval("x * settings.K", {"x": x, "settings": settings}), lambda patch: patch.setattr(settings, "K", 3.0)


@read
def evaluated_text_changed():
    held = Holder("x * 2.0")
    return lambda x: eval(held.k, {"x": x}), lambda patch: setattr(held, "k", "x * 3.0")


@read
def callable_decorator():
    class Wrapper:
        def __init__(self, function):
            self.function = function

        def __call__(self, x):
            return self.function(x)

    wrapped = Wrapper(doubled())
    return lambda x: wrapped(x), lambda patch: setattr(wrapped, "function", tripled)


@read
def method_of_a_callable_decorator():
    class Wrapper:
        def __init__(self, function):
            functools.update_wrapper(self, function)

        def __call__(self, x):
            return self.__wrapped__(x)

    wrapped = Wrapper(doubled())
    return lambda x: wrapped(x), lambda patch: setattr(wrapped, "__wrapped__", tripled)


@read
def two_decorators():
    def twice(function):
        return functools.wraps(function)(lambda x: function(function(x)))

    double = doubled()
    wrapped = twice(twice(double))
    return lambda x: wrapped(x), recode(double)


@read
def keyword_arguments_unpacked():
    options = {"k": 2.0}

    def scaled(x, k=1.0, j=0.0):
        return x * k + j

    return lambda x: scaled(x, **options), lambda patch: options.update(j=1.0)


@read
def arguments_unpacked():
    options = [2.0]

    def scaled(x, *k):
        return x * sum(k)

    return lambda x: scaled(x, *options), lambda patch: options.append(1.0)


@read
def yield_from():
    inner = [doubled(), doubled()]

    def parts(x):
        yield from (one(x) for one in inner)

    return lambda x: sum(parts(x)), lambda patch: inner.append(tripled)


@read
def registry_filled_later():
    def use(x):
        return REGISTRY.get("act", doubled())(x)

    return use, lambda patch: patch.setitem(REGISTRY, "act", tripled)


@read
def library_function_by_name():
    held = Holder("softplus")
    return lambda x: getattr(F, held.k)(x), lambda patch: setattr(held, "k", "tanh")


@read
def inner_class():
    k = 2.0

    def f(x):
        class Inner:
            def double(self, y):
                return y * k

        return Inner().double(x)

    def change(patch):
        nonlocal k
        k = 3.0

    return f, change


@read
def match_statement():
    held = Holder({"kind": "double"})

    def f(x):
        match held.k:
            case {"kind": "double"}:
                return x * 2.0
            case _:
                return x * 3.0

    return f, lambda patch: held.k.update(kind="other")


@read
def match_of_a_class():
    held = Holder(2.0)

    def f(x):
        match held:
            case Holder(k=2.0):
                return x * 2.0
            case _:
                return x * 3.0

    return f, lambda patch: setattr(held, "k", 3.0)


@read
def compiled_inside_compiled():
    double = doubled()
    inner = gl.compile(lambda x: double(x))
    return lambda x: inner(x) + 1.0, recode(double)


# ---------------------------------------------------------------- modules of Python


@read
def module_by_its_name():
    def f(x):
        return x * importlib.import_module("kinds.stale.settings").K

    return f, lambda patch: patch.setattr(settings, "K", 3.0)


@read
def module_in_the_table_of_modules():
    return lambda x: x * sys.modules["kinds.stale.settings"].K, lambda patch: patch.setattr(settings, "K", 3.0)


@read
def module_replaced_in_the_table_of_modules():
    def f(x):
        from kinds.stale.settings import K

        return x * K

    other = types.ModuleType("kinds.stale.settings")
    other.K = 3.0
    return f, lambda patch: patch.setitem(sys.modules, "kinds.stale.settings", other)


@read
def getattr_of_a_module():
    made = types.ModuleType("made")

    def missing(name):
        if name != "k":
            raise AttributeError(name)
        return 2.0

    made.__getattr__ = missing
    return lambda x: x * made.k, lambda patch: setattr(made, "k", 3.0)


@read
def function_of_numpy():
    return lambda x: x * float(np.sqrt(4.0)), lambda patch: patch.setattr(np, "sqrt", lambda value: 3.0)


@read
def class_of_a_module():
    return lambda x: x * settings.Config.k, lambda patch: patch.setattr(settings.Config, "k", 3.0)


@read
def class_of_a_module_replaced():
    return lambda x: x * settings.Config().k, lambda patch: patch.setattr(settings, "Config", lambda: Holder(3.0))
