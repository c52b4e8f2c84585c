"""Objects behind loops, results and names, dataclasses, slots, enumerations, descriptors and classes of special kinds."""

import collections
import dataclasses
import enum
import functools

from kinds.stale import read, settings
from kinds.stale.classes import doubling, three, triple


class Holder:
    def __init__(self, k):
        self.k = k


@read
def attribute_of_a_loops_variable():
    held = [Holder(1.0), Holder(2.0)]

    def f(x):
        for one in held:
            x = x * one.k
        return x

    return f, lambda patch: setattr(held[0], "k", 3.0)


@read
def attribute_of_a_name():
    outer = Holder(Holder(2.0))

    def f(x):
        inner = outer.k
        return x * inner.k

    return f, lambda patch: setattr(outer.k, "k", 3.0)


@read
def attribute_of_a_result():
    held = {"a": Holder(2.0)}

    def of(name):
        return held[name]

    return lambda x: x * of("a").k, lambda patch: setattr(held["a"], "k", 3.0)


@read
def attribute_of_an_entry_by_a_name():
    held, key = {"a": Holder(2.0)}, "a"
    return lambda x: x * held[key].k, lambda patch: setattr(held["a"], "k", 3.0)


@read
def object_replaced_behind_a_name():
    outer = Holder(Holder(2.0))
    return lambda x: x * outer.k.k, lambda patch: setattr(outer, "k", Holder(3.0))


@read
def list_of_an_object_by_a_name():
    outer = Holder([2.0])

    def f(x):
        inner = outer
        return x * sum(inner.k)

    return f, lambda patch: outer.k.append(1.0)


@read
def slots():
    class Slotted:
        __slots__ = ("k",)

    held = Slotted()
    held.k = 2.0
    return lambda x: x * held.k, lambda patch: setattr(held, "k", 3.0)


@read
def slot_that_is_set_later():
    class Slotted:
        __slots__ = ("k",)

    held = Slotted()
    return lambda x: x * getattr(held, "k", 2.0), lambda patch: setattr(held, "k", 3.0)


@read
def dataclass():
    @dataclasses.dataclass
    class Config:
        k: float = 2.0

    config = Config()
    return lambda x: x * config.k, lambda patch: setattr(config, "k", 3.0)


@read
def dataclass_with_slots():
    @dataclasses.dataclass(slots=True)
    class Config:
        k: float = 2.0

    config = Config()
    return lambda x: x * config.k, lambda patch: setattr(config, "k", 3.0)


@read
def dataclass_as_a_dict():
    @dataclasses.dataclass
    class Config:
        k: float = 2.0

    config = Config()
    return lambda x: x * dataclasses.asdict(config)["k"], lambda patch: setattr(config, "k", 3.0)


@read
def named_tuple_replaced():
    Pair = collections.namedtuple("Pair", "k")
    held = [Pair(2.0)]
    return lambda x: x * held[0].k, lambda patch: held.__setitem__(0, Pair(3.0))


@read
def enum_value():
    class Mode(enum.Enum):
        A = 2.0
        B = 3.0

    held = Holder(Mode.A)
    return lambda x: x * held.k.value, lambda patch: setattr(held, "k", Mode.B)


@read
def enum_attribute():
    class Mode(enum.Enum):
        A = 1
        B = 2

        @property
        def k(self):
            return 2.0

    return lambda x: x * Mode.A.k, lambda patch: setattr(Mode, "k", property(three))


@read
def descriptor():
    class Reading:
        def __init__(self):
            self.k = 2.0

        def __get__(self, owner, kind=None):
            return self.k

    class Owner:
        value = Reading()

    owner = Owner()
    return lambda x: x * owner.value, lambda patch: setattr(Owner.__dict__["value"], "k", 3.0)


@read
def descriptor_replaced():
    class Owner:
        value = property(lambda self: 2.0)

    owner = Owner()
    return lambda x: x * owner.value, lambda patch: setattr(Owner, "value", 3.0)


@read
def getattr_of_a_class():
    class Owner:
        def __init__(self):
            self.table = {"k": 2.0}

        def __getattr__(self, name):
            return self.table[name]

    owner = Owner()
    return lambda x: x * owner.k, lambda patch: owner.table.update(k=3.0)


@read
def getattr_of_a_class_passed_by():
    class Owner:
        def __getattr__(self, name):
            return 2.0

    owner = Owner()
    return lambda x: x * owner.k, lambda patch: setattr(owner, "k", 3.0)


@read
def cached_property():
    class Owner:
        @functools.cached_property
        def k(self):
            return settings.K

    owner = Owner()
    return lambda x: x * owner.k, lambda patch: (patch.setattr(settings, "K", 3.0), owner.__dict__.pop("k"))


@read
def partial_method():
    class Owner:
        def scaled(self, k, x):
            return x * k

        double = functools.partialmethod(scaled, 2.0)

    owner = Owner()
    return lambda x: owner.double(x), lambda patch: setattr(Owner, "double", functools.partialmethod(Owner.scaled, 3.0))


@read
def class_given_as_a_setting():
    class Config(settings.Config):
        pass

    return lambda x: x * Config.k, lambda patch: setattr(Config, "k", 3.0)


@read
def metaclass_attribute():
    class Meta(type):
        k = property(lambda cls: 2.0)

    class Config(metaclass=Meta):
        pass

    return lambda x: x * Config.k, lambda patch: setattr(Meta, "k", property(lambda cls: 3.0))


@read
def class_made_inside():
    class Config:
        k = 2.0

    def f(x):
        class Inner(Config):
            j = Config.k

        return x * Inner.j

    return f, lambda patch: setattr(Config, "k", 3.0)


@read
def own_callable_object():
    held = doubling()()
    return held, lambda patch: setattr(type(held), "double", triple)


@read
def own_bound_method():
    held = doubling()()
    return held.double, lambda patch: patch.setattr(type(held).double, "__code__", triple.__code__)


@read
def iterator_class():
    class Numbers:
        def __init__(self):
            self.numbers = [2.0]

        def __iter__(self):
            return iter(self.numbers)

    held = Numbers()
    return lambda x: x * sum(held), lambda patch: held.numbers.append(1.0)


@read
def context_class():
    class Scope:
        k = 2.0

        def __enter__(self):
            return self.k

        def __exit__(self, *_):
            return None

    scope = Scope()

    def f(x):
        with scope as k:
            return x * k

    return f, lambda patch: setattr(Scope, "__enter__", three)
