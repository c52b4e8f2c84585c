"""What is bound to functions, globals, imports and the environment, and containers."""

import contextvars
import functools
import itertools
import operator
import os
import types
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple

import numpy as np

from kinds.stale import read, settings
from kinds.stale.code import doubled, recode, tripled

SCALE = 2.0


def helper(x):
    return x * SCALE


# ---------------------------------------------------------------- what is bound to functions


@read
def partial_keywords():
    bound = functools.partial(lambda x, k: x * k, k=2.0)
    return lambda x: bound(x), lambda patch: bound.keywords.update(k=3.0)


@read
def own_partial_keywords():
    bound = functools.partial(lambda x, k: x * k, k=2.0)
    return bound, lambda patch: bound.keywords.update(k=3.0)


@read
def partial_argument():
    bound = functools.partial(lambda box, x: x * box[0], [2.0])
    return lambda x: bound(x), lambda patch: bound.args[0].__setitem__(0, 3.0)


@read
def partial_object():
    class Holder:
        k = 2.0

    holder = Holder()
    bound = functools.partial(lambda held, x: x * held.k, holder)
    return lambda x: bound(x), lambda patch: setattr(holder, "k", 3.0)


@read
def partial_function():
    double = doubled()
    bound = functools.partial(functools.partial(double))
    return lambda x: bound(x), recode(double)


@read
def partial_in_a_list():
    steps = [functools.partial(lambda x, k: x * k, k=2.0)]
    return lambda x: [one(x) for one in steps][-1], lambda patch: steps[0].keywords.update(k=3.0)


@read
def partial_state():
    bound = functools.partial(lambda x, k: x * k, k=2.0)
    return lambda x: bound(x), lambda patch: bound.__setstate__((tripled, (), {}, None))


@read
def bound_method():
    class Holder:
        k = 2.0

        def scaled(self, x):
            return x * self.k

    holder = Holder()
    bound = holder.scaled
    return lambda x: bound(x), lambda patch: setattr(holder, "k", 3.0)


@read
def cached_helper():
    @functools.lru_cache
    def factor():
        return settings.K

    return lambda x: x * factor(), lambda patch: (patch.setattr(settings, "K", 3.0), factor.cache_clear())


@read
def cached_helper_of_a_helper():
    @functools.cache
    def factor(n):
        return n * other()

    def other():
        return settings.TABLE["k"]

    return lambda x: x * factor(1), lambda patch: (patch.setitem(settings.TABLE, "k", 3.0), factor.cache_clear())


@read
def cached_helpers_code():
    @functools.lru_cache
    def factor():
        return 2.0

    def other():
        return 3.0

    return lambda x: x * factor(), lambda patch: (recode(factor.__wrapped__, other)(patch), factor.cache_clear())


@read
def single_dispatch():
    @functools.singledispatch
    def factor(value):
        return 2.0

    return lambda x: x * factor(1), lambda patch: factor.register(int)(lambda value: 3.0)


# ---------------------------------------------------------------- globals and imports


@read
def own_global():
    return lambda x: x * SCALE, lambda patch: patch.setitem(globals(), "SCALE", 3.0)


@read
def global_of_a_helper():
    return lambda x: helper(x), lambda patch: patch.setitem(globals(), "SCALE", 3.0)


@read
def global_helper_replaced():
    return lambda x: helper(x), lambda patch: patch.setitem(globals(), "helper", tripled)


@read
def built_in_hidden_by_a_global():
    return lambda x: x * float(max(1, 2)), lambda patch: patch.setitem(globals(), "max", lambda a, b: 3)


@read
def global_that_appears():
    return lambda x: x * globals().get("APPEARS", 2.0), lambda patch: patch.setitem(globals(), "APPEARS", 3.0)


@read
def attribute_of_a_module():
    return lambda x: x * settings.K, lambda patch: patch.setattr(settings, "K", 3.0)


@read
def attribute_of_a_module_that_appears():
    return lambda x: x * getattr(settings, "LATER", 2.0), lambda patch: patch.setattr(settings, "LATER", 3.0, raising=False)


@read
def function_of_a_module():
    return lambda x: settings.helper(x), lambda patch: patch.setattr(settings, "helper", settings.triple)


@read
def global_of_a_function_of_a_module():
    return lambda x: settings.helper(x), lambda patch: patch.setattr(settings, "K", 3.0)


@read
def import_from_inside():
    def f(x):
        from kinds.stale.settings import K

        return x * K

    return f, lambda patch: patch.setattr(settings, "K", 3.0)


@read
def import_function_inside():
    def f(x):
        from kinds.stale.settings import helper as scaled

        return scaled(x)

    return f, lambda patch: patch.setattr(settings, "helper", settings.triple)


@read
def import_module_inside():
    def f(x):
        import kinds.stale.settings as module

        return x * module.TABLE["deep"]["k"]

    return f, lambda patch: patch.setitem(settings.TABLE["deep"], "k", 3.0)


@read
def environment():
    return lambda x: x * float(os.environ.get("STALE_K", "2")), lambda patch: patch.setenv("STALE_K", "3")


@read
def environment_by_getenv():
    getenv = os.getenv
    return lambda x: x * float(getenv("STALE_K", "2")), lambda patch: patch.setenv("STALE_K", "3")


@read
def environment_bound_to_a_name():
    environ = os.environ
    return lambda x: x * (3.0 if "STALE_K" in environ else 2.0), lambda patch: patch.setenv("STALE_K", "3")


# ---------------------------------------------------------------- containers


def holding(name, make, take, put):
    """A way over something that holds a number."""

    def way():
        held = make()
        return lambda x: x * take(held), lambda patch: put(held)

    way.__name__ = name
    read(way)


Pair = namedtuple("Pair", "k other")
holding("list_entry", lambda: [2.0], lambda h: h[0], lambda h: h.__setitem__(0, 3.0))
holding("list_length", lambda: [2.0], lambda h: len(h) + 1.0, lambda h: h.append(1.0))
holding("list_entry_by_a_name", lambda: [[2.0], 0], lambda h: h[0][h[1]], lambda h: h[0].__setitem__(0, 3.0))
holding("dict_entry", lambda: {"k": 2.0}, lambda h: h["k"], lambda h: h.update(k=3.0))
holding("dict_get", dict, lambda h: h.get("k", 2.0), lambda h: h.update(k=3.0))
holding("dict_in", dict, lambda h: 3.0 if "k" in h else 2.0, lambda h: h.update(k=3.0))
holding("dict_values", lambda: {"k": 2.0}, lambda h: sum(h.values()), lambda h: h.update(j=3.0))
holding("dict_setdefault", lambda: {"k": 2.0}, lambda h: h.setdefault("k", 5.0), lambda h: h.update(k=3.0))
holding("dict_missing_key", dict, lambda h: _or_two(h), lambda h: h.update(k=3.0))
holding("dict_in_a_dict", lambda: {"a": {"k": 2.0}}, lambda h: h["a"]["k"], lambda h: h["a"].update(k=3.0))
holding("dicts_bound_to_names", lambda: {"a": {"k": 2.0}}, lambda h: _inner(h), lambda h: h["a"].update(k=3.0))
for outer in (dict, OrderedDict, lambda **k: defaultdict(dict, **k)):  # two steps to a number, through each kind of container
    for inner in (dict, OrderedDict, lambda **k: defaultdict(float, **k)):
        for take, named in ((lambda h: h["a"]["k"], "steps"), (lambda h: _inner(h), "names"), (lambda h: h.get("a", {}).get("k"), "get")):
            name = f"{named}_to_an_entry_of_{type(inner()).__name__}_in_{type(outer()).__name__}"
            holding(name, lambda o=outer, i=inner: o(a=i(k=2.0)), take, lambda h: h["a"].update(k=3.0))
holding("set", lambda: {2.0}, lambda h: 3.0 if 3.0 in h else 2.0, lambda h: h.add(3.0))
holding("deque", lambda: deque([2.0]), lambda h: h[0], lambda h: h.appendleft(3.0))
holding("ordered_dict", lambda: OrderedDict(k=2.0), lambda h: h["k"], lambda h: h.update(k=3.0))
holding("default_dict", lambda: defaultdict(float, k=2.0), lambda h: h["k"], lambda h: h.update(k=3.0))
holding("counter", lambda: Counter(k=2), lambda h: h["k"], lambda h: h.update(k=1))
holding("chain_map", lambda: ChainMap({}, {"k": 2.0}), lambda h: h["k"], lambda h: h.update(k=3.0))
holding("chain_map_get", lambda: ChainMap({}, {"j": 2.0}), lambda h: h.get("k", 2.0), lambda h: h.maps[1].update(k=3.0))
holding("user_dict", lambda: UserDict(k=2.0), lambda h: h["k"], lambda h: h.update(k=3.0))
holding("byte_array", lambda: bytearray(b"\2"), lambda h: float(h[0]), lambda h: h.__setitem__(0, 3))
holding("numpy_array", lambda: np.full(2, 2.0), lambda h: float(h[0]), lambda h: h.fill(3.0))
holding("numpy_array_in_a_tuple", lambda: (np.full(2, 2.0),), lambda h: float(h[0].sum()), lambda h: h[0].fill(3.0))
holding("list_in_a_named_tuple", lambda: Pair([2.0], 1), lambda h: h.k[0], lambda h: h.k.__setitem__(0, 3.0))
holding("namespace", lambda: types.SimpleNamespace(k=2.0), lambda h: h.k, lambda h: setattr(h, "k", 3.0))
holding("item_getter", lambda: {"k": 2.0}, operator.itemgetter("k"), lambda h: h.update(k=3.0))
holding("zip_of_lists", lambda: ([1.0], [2.0]), lambda h: sum(a * b for a, b in zip(*h, strict=True)), lambda h: h[1].__setitem__(0, 3.0))
holding("chain_of_lists", lambda: ([1.0], [2.0]), lambda h: sum(itertools.chain(*h)), lambda h: h[1].__setitem__(0, 3.0))


def _or_two(held):
    try:
        return held["k"]
    except KeyError:
        return 2.0


def _inner(held):
    inner = held["a"]
    return inner["k"]


@read
def mapping_proxy():
    table = {"k": 2.0}
    proxy = types.MappingProxyType(table)
    return lambda x: x * proxy["k"], lambda patch: table.update(k=3.0)


@read
def weak_reference():
    class Holder:
        k = 2.0

    holder = Holder()
    reference = weakref.ref(holder)
    return lambda x: x * reference().k, lambda patch: setattr(holder, "k", 3.0)


@read
def weak_proxy():
    class Holder:
        k = 2.0

    holder = Holder()
    proxy = weakref.proxy(holder)
    return lambda x: x * proxy.k, lambda patch: setattr(holder, "k", 3.0)


@read
def weak_dictionary():
    class Holder:
        k = 2.0

    holder = Holder()
    table = weakref.WeakValueDictionary(a=holder)
    return lambda x: x * table["a"].k, lambda patch: setattr(holder, "k", 3.0)


@read
def context_variable():
    variable = contextvars.ContextVar("k", default=2.0)
    return lambda x: x * variable.get(), lambda patch: variable.set(3.0)
