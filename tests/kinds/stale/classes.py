"""Attributes and methods of an object of a class: replaced in the class, above it and on the object, absent and appearing."""

import operator
import types

import gradlab as gl

from kinds.stale import read, settings


def triple(self, x):
    return x * 3.0


def three(self):
    return 3.0


def doubling():
    """A class and one above it, made anew."""

    class Base:
        k = 2.0

        def above(self, x):
            return x * 2.0

    class Doubling(Base):
        def __init__(self):
            self.factor = 2.0

        def __call__(self, x):
            return self.double(x)

        def double(self, x):
            return x * 2.0

        def through_super(self, x):
            return super().above(x)

        def k_through_super(self):
            return super().k

        def k_by_name_through_super(self):
            return getattr(super(), "k")  # noqa: B009

        @property
        def value(self):
            return 2.0

        @staticmethod
        def static(x):
            return x * 2.0

        @classmethod
        def of_class(cls, x):
            return x * cls.k

        def __mul__(self, x):
            return x * 2.0

        def __getitem__(self, key):
            return 2.0

    return Doubling


def on_class(name, use, change):
    """A way over an object of a class: `change(patch, object, its class, the class above)`."""

    def way():
        kind = doubling()
        held = kind()
        return lambda x: use(held, x), lambda patch: change(patch, held, kind, kind.__mro__[1])

    way.__name__ = name
    read(way)


USES = {
    "method": (lambda h, x: h.double(x), "double", triple),
    "bound_method": (lambda h, x: _call(h.double, x), "double", triple),
    "method_by_name": (lambda h, x: getattr(h, "dou" + "ble")(x), "double", triple),
    "method_caller": (lambda h, x: operator.methodcaller("double", x)(h), "double", triple),
    "method_of_the_class": (lambda h, x: type(h).double(h, x), "double", triple),
    "call": (lambda h, x: h(x), "__call__", triple),
    "operator": (lambda h, x: h * x, "__mul__", triple),
    "subscript": (lambda h, x: x * h[0], "__getitem__", lambda self, key: 3.0),
    "property": (lambda h, x: x * h.value, "value", property(three)),
    "static_method": (lambda h, x: h.static(x), "static", staticmethod(lambda x: x * 3.0)),
    "class_method": (lambda h, x: h.of_class(x), "of_class", classmethod(triple)),
    "method_above": (lambda h, x: h.above(x), "above", triple),
    "method_through_super": (lambda h, x: h.through_super(x), "above", triple),
}
for what, (use, name, new) in USES.items():
    if what == "method_through_super":
        on_class(f"{what}_replaced", use, lambda patch, held, kind, above, name=name, new=new: patch.setattr(above, name, new))
        continue
    on_class(f"{what}_replaced", use, lambda patch, held, kind, above, name=name, new=new: patch.setattr(kind, name, new))
    on_class(f"{what}_of_a_new_class", use,
             lambda patch, held, kind, above, new={name: new}: setattr(held, "__class__", type("New", (kind,), new)))  # fmt: skip


def _call(function, x):
    return function(x)


for how in ("k_through_super", "k_by_name_through_super"):
    on_class(how, lambda h, x, how=how: x * getattr(h, how)(), lambda patch, held, kind, above: patch.setattr(above, "k", 3.0))
    on_class(f"{how}_of_a_new_base", lambda h, x, how=how: x * getattr(h, how)(),
             lambda patch, held, kind, above: setattr(kind, "__bases__", (type("Between", (above,), {"k": 3.0}),)))  # fmt: skip
on_class("method_above_replaced_there", USES["method_above"][0], lambda patch, held, kind, above: patch.setattr(above, "above", triple))
on_class("method_code", USES["method"][0], lambda patch, held, kind, above: patch.setattr(kind.double, "__code__", triple.__code__))
on_class("static_method_code", lambda h, x: h.static(x),
         lambda patch, held, kind, above: patch.setattr(kind.static, "__code__", _three.__code__))  # fmt: skip
on_class("property_code", USES["property"][0], lambda patch, held, kind, above: patch.setattr(kind.value.fget, "__code__", three.__code__))
on_class("method_on_the_instance", USES["method"][0], lambda patch, held, kind, above: setattr(held, "double", lambda x: x * 3.0))
on_class("bound_method_on_the_instance", USES["method"][0],
         lambda patch, held, kind, above: setattr(held, "double", types.MethodType(triple, held)))  # fmt: skip
on_class("method_in_the_dict", USES["method_above"][0], lambda patch, held, kind, above: held.__dict__.update(above=lambda x: x * 3.0))
on_class("another_dict", lambda h, x: x * h.factor, lambda patch, held, kind, above: setattr(held, "__dict__", {"factor": 3.0}))
on_class("method_in_another_dict", USES["method"][0],
         lambda patch, held, kind, above: setattr(held, "__dict__", {"double": lambda x: x * 3.0}))  # fmt: skip
on_class("class_attribute", lambda h, x: x * h.k, lambda patch, held, kind, above: setattr(above, "k", 3.0))
on_class("class_attribute_overridden", lambda h, x: x * h.k, lambda patch, held, kind, above: setattr(kind, "k", 3.0))
on_class("class_attribute_on_the_instance", lambda h, x: x * h.k, lambda patch, held, kind, above: setattr(held, "k", 3.0))
on_class("class_attribute_of_the_class", lambda h, x: x * type(h).k, lambda patch, held, kind, above: setattr(above, "k", 3.0))
on_class("attribute", lambda h, x: x * h.factor, lambda patch, held, kind, above: setattr(held, "factor", 3.0))
on_class("attribute_hidden_by_a_property", lambda h, x: x * h.factor,
         lambda patch, held, kind, above: setattr(kind, "factor", property(three, lambda self, value: None)))  # fmt: skip
on_class("attribute_by_vars", lambda h, x: x * vars(h)["factor"], lambda patch, held, kind, above: setattr(held, "factor", 3.0))
on_class("attribute_by_dict", lambda h, x: x * h.__dict__["factor"], lambda patch, held, kind, above: setattr(held, "factor", 3.0))
on_class("attribute_by_getattribute", lambda h, x: x * object.__getattribute__(h, "factor"),
         lambda patch, held, kind, above: setattr(held, "factor", 3.0))  # fmt: skip
on_class("attribute_by_attrgetter", lambda h, x: x * operator.attrgetter("factor")(h),
         lambda patch, held, kind, above: setattr(held, "factor", 3.0))  # fmt: skip
on_class("getattr_with_a_default", lambda h, x: x * getattr(h, "later", 2.0), lambda patch, held, kind, above: setattr(held, "later", 3.0))
on_class("getattr_with_a_default_in_the_class", lambda h, x: x * getattr(h, "later", 2.0),
         lambda patch, held, kind, above: setattr(above, "later", 3.0))  # fmt: skip
on_class("getattr_with_a_default_by_getattr_of_the_class", lambda h, x: x * getattr(h, "later", 2.0),
         lambda patch, held, kind, above: setattr(kind, "__getattr__", lambda self, name: 3.0))  # fmt: skip
on_class("hasattr", lambda h, x: x * (3.0 if hasattr(h, "later") else 2.0), lambda patch, held, kind, above: setattr(held, "later", 3.0))
on_class("hasattr_of_the_class", lambda h, x: x * (3.0 if hasattr(type(h), "later") else 2.0),
         lambda patch, held, kind, above: setattr(above, "later", 3.0))  # fmt: skip
on_class("attribute_error", lambda h, x: x * _or_two(h), lambda patch, held, kind, above: setattr(held, "later", 3.0))
on_class("attribute_error_later", lambda h, x: x * _or_three(h), lambda patch, held, kind, above: delattr(held, "factor"))
on_class("in_vars", lambda h, x: x * (3.0 if "later" in vars(h) else 2.0), lambda patch, held, kind, above: setattr(held, "later", 3.0))
on_class("isinstance", lambda h, x: x * (3.0 if isinstance(h, settings.Config) else 2.0),
         lambda patch, held, kind, above: setattr(held, "__class__", type("New", (kind, settings.Config), {})))  # fmt: skip
on_class("truth_that_appears", lambda h, x: x * (2.0 if h else 3.0),
         lambda patch, held, kind, above: setattr(kind, "__bool__", lambda self: False))  # fmt: skip
on_class("getattribute_that_appears", lambda h, x: x * h.factor,
         lambda patch, held, kind, above: setattr(kind, "__getattribute__", lambda self, name: 3.0))  # fmt: skip
on_class("bases", USES["method_above"][0],
         lambda patch, held, kind, above: setattr(kind, "__bases__", (type("New", (above,), {"above": triple}),)))  # fmt: skip


def _three(x):
    return x * 3.0


def _or_two(held):
    try:
        return held.later
    except AttributeError:
        return 2.0


def _or_three(held):
    try:
        return held.factor
    except AttributeError:
        return 3.0


class Calling:
    """An object that is called, and whose `__call__` is no function of the user's."""

    __call__ = staticmethod(gl.exp)


@read
def call_of_the_librarys():
    class Own(Calling):
        pass

    held = Own()
    return lambda x: held(x), lambda patch: setattr(Own, "__call__", staticmethod(gl.neg))


@read
def call_of_a_base_of_the_librarys():
    class Own(Calling):
        pass

    held = Own()
    return lambda x: held(x), lambda patch: patch.setattr(Calling, "__call__", staticmethod(gl.neg))


@read
def class_of_a_called_object():
    class Own(Calling):
        pass

    class Other(Calling):
        __call__ = staticmethod(gl.neg)

    held = Own()
    return lambda x: held(x), lambda patch: setattr(held, "__class__", Other)


@read
def class_of_a_called_object_in_a_map():
    class Own(Calling):
        pass

    class Other(Calling):
        __call__ = staticmethod(gl.neg)

    held = Own()
    return lambda x: next(iter(map(held, [x]))), lambda patch: setattr(held, "__class__", Other)
