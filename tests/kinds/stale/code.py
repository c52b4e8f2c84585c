"""Functions: their code, their defaults, and the closures of functions inside."""

import contextlib
import functools
import operator

import gradlab as gl
from gradlab.utils.checkpoint import checkpoint

from kinds.stale import read, settings

HELPERS = {"double": lambda x: x * 2.0}


def tripled(x):
    return x * 3.0


def doubled():
    def double(x):
        return x * 2.0

    return double


def recode(function, other=tripled):
    return lambda patch: patch.setattr(function, "__code__", other.__code__)


# ---------------------------------------------------------------- code and defaults


@read
def own_code():
    double = doubled()
    return double, recode(double)


@read
def own_defaults():
    def scaled(x, k=2.0):
        return x * k

    return scaled, lambda patch: patch.setattr(scaled, "__defaults__", (3.0,))


@read
def own_kwdefaults():
    def scaled(x, *, k=2.0):
        return x * k

    return scaled, lambda patch: patch.setattr(scaled, "__kwdefaults__", {"k": 3.0})


@read
def own_kwdefaults_in_place():
    def scaled(x, *, k=2.0):
        return x * k

    return scaled, lambda patch: scaled.__kwdefaults__.update(k=3.0)


@read
def own_mutable_default():
    def scaled(x, k=[2.0]):  # noqa: B006
        return x * k[0]

    return scaled, lambda patch: scaled.__defaults__[0].__setitem__(0, 3.0)


@read
def helper_code():
    double = doubled()
    return lambda x: double(x), recode(double)


@read
def helper_rebound_in_its_cell():
    double = doubled()

    def rebind(patch):
        nonlocal double
        double = tripled

    return lambda x: double(x), rebind


@read
def helper_of_a_helper():
    double = doubled()

    def between(x):
        return double(x)

    return lambda x: between(x), recode(double)


@read
def helper_defaults():
    def scaled(x, k=2.0):
        return x * k

    return lambda x: scaled(x), lambda patch: patch.setattr(scaled, "__defaults__", (3.0,))


@read
def helper_default_where_it_had_none():
    def scaled(x, **options):
        return x * options.get("k", 2.0)

    def other(x, *, k=3.0, **options):
        return x * k

    return lambda x: scaled(x), lambda patch: (recode(scaled, other)(patch), patch.setattr(scaled, "__kwdefaults__", {"k": 3.0}))


@read
def helper_kwdefaults():
    def scaled(x, *, k=2.0):
        return x * k

    return lambda x: scaled(x), lambda patch: patch.setattr(scaled, "__kwdefaults__", {"k": 3.0})


@read
def helper_mutable_default():
    def scaled(x, k={"k": 2.0}):  # noqa: B006
        return x * k["k"]

    return lambda x: scaled(x), lambda patch: scaled.__defaults__[0].update(k=3.0)


@read
def helper_in_a_list():
    steps = [doubled(), doubled()]

    def f(x):
        for one in steps:
            x = one(x)
        return x

    return f, recode(steps[1])


@read
def helper_in_a_list_replaced():
    steps = [doubled(), doubled()]

    def f(x):
        for one in steps:
            x = one(x)
        return x

    return f, lambda patch: steps.__setitem__(1, tripled)


@read
def helper_in_a_table():
    return lambda x: HELPERS["double"](x), lambda patch: patch.setitem(HELPERS, "double", tripled)


@read
def decorator():
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) + 1.0

        return wrapper

    double = doubled()
    decorated = decorate(double)
    return lambda x: decorated(x), recode(double)


@read
def decorators_code():
    def decorate(function):
        def wrapper(x):
            return function(x) + 1.0

        return wrapper

    def other(function):
        def wrapper(x):
            return function(x) + 2.0

        return wrapper

    decorated = decorate(doubled())
    return lambda x: decorated(x), lambda patch: recode(decorated, other(tripled))(patch)


@read
def generator_code():
    def parts(x):
        yield x
        yield x

    def more(x):
        yield x
        yield x * 2.0

    return lambda x: sum(parts(x)), recode(parts, more)


@read
def context_manager():
    @contextlib.contextmanager
    def scope():
        yield settings.K

    def f(x):
        with scope() as k:
            return x * k

    return f, lambda patch: patch.setattr(settings, "K", 3.0)


# ---------------------------------------------------------------- closures and functions inside


@read
def cell():
    k = 2.0

    def rebind(patch):
        nonlocal k
        k = 3.0

    return lambda x: x * k, rebind


@read
def cell_of_an_inner_function():
    config = {"scale": 2.0}

    def f(x):
        def closure():
            return x * config["scale"]

        return closure()

    return f, lambda patch: config.update(scale=3.0)


@read
def cell_of_a_lambda_in_a_helper():
    k = 2.0

    def apply(function, x):
        return function(x)

    def rebind(patch):
        nonlocal k
        k = 3.0

    return lambda x: apply(lambda y: y * k, x), rebind


@read
def cell_of_a_generator():
    k = 2.0

    def rebind(patch):
        nonlocal k
        k = 3.0

    return lambda x: sum(x * k for _ in range(2)), rebind


@read
def cell_of_a_comprehension():
    k = 2.0

    def rebind(patch):
        nonlocal k
        k = 3.0

    return lambda x: [x * k for _ in range(2)][-1], rebind


@read
def two_closures_of_one_code():
    def scaled(k):
        def f(x):
            return x * k

        def change(value):
            nonlocal k
            k = value

        return f, change

    (a, _), (b, change) = scaled(1.0), scaled(2.0)
    kept = [scaled(5.0), scaled(6.0)]
    return lambda x: a(x) + b(x) if kept else x, lambda patch: change(3.0)


@read
def a_closure_among_many_of_one_code():
    def scaled(box):
        return lambda x: x * box[0]

    boxes = [[float(k)] for k in range(5)]
    table = {f"number {k}": scaled(box) for k, box in enumerate(boxes)}
    key = "number "
    return lambda x: table[key + "2"](x), lambda patch: boxes[2].__setitem__(0, 7.0)


@read
def cell_of_a_function_given_to_grad():
    k = 2.0

    def rebind(patch):
        nonlocal k
        k = 3.0

    return lambda x: gl.func.grad(lambda y: (y * y * k).sum())(x), rebind


@read
def cell_of_a_function_given_to_vmap():
    k = 2.0

    def rebind(patch):
        nonlocal k
        k = 3.0

    return lambda x: gl.vmap(lambda y: y * k)(x), rebind


@read
def cell_of_a_function_given_to_checkpoint():
    box = {"k": 2.0}
    return lambda x: checkpoint(lambda y: y * box["k"], x, use_reentrant=False), lambda patch: box.update(k=3.0)


@read
def cell_of_a_function_given_to_cond():
    box = {"k": 2.0}
    return lambda x: gl.cond(x.sum() > -1e9, lambda: x * box["k"], lambda: x), lambda patch: box.update(k=3.0)


@read
def code_of_a_function_given_to_vmap():
    double = doubled()
    return lambda x: gl.vmap(double)(x), recode(double)


@read
def callback_given_to_map():
    double = doubled()
    return lambda x: list(map(double, [x, x]))[1], recode(double)


@read
def key_given_to_max():
    class Item:
        def __init__(self, rank, k):
            self.rank, self.k = rank, k

    items = [Item(1, 2.0), Item(2, 3.0)]
    return lambda x: x * max(items, key=lambda item: item.rank).k, lambda patch: setattr(items[0], "rank", 5)


@read
def attrgetter_given_to_max():
    class Item:
        def __init__(self, rank, k):
            self.rank, self.k = rank, k

    items = [Item(1, 2.0), Item(2, 3.0)]
    return lambda x: x * max(items, key=operator.attrgetter("rank")).k, lambda patch: setattr(items[0], "rank", 5)


@read
def function_given_to_reduce():
    double = doubled()
    return lambda x: functools.reduce(lambda a, _: double(a), range(2), x), recode(double)


