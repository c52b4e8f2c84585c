"""Protocols that an object answers without being named, standard containers and classes, layers outside of modules, derivatives."""

import array
import contextlib
import copy
import ctypes
import dataclasses
import enum
import threading
import types
import typing
from collections import UserList

import numpy as np

import gradlab as gl
from gradlab import nn

from kinds.stale import read, settings
from kinds.stale.bound import holding
from kinds.stale.wrappers import Holder


class Sized:
    def __init__(self):
        self.n = 2

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError
        return 1.0

    def __bool__(self):
        return self.n == 2

    def __contains__(self, key):
        return self.n == key

    def __eq__(self, other):
        return self.n == other

    __hash__ = None

    def __int__(self):
        return self.n

    def __float__(self):
        return float(self.n)

    def __index__(self):
        return self.n

    def __str__(self):
        return str(self.n)


def grown(held):
    held.n = 3


holding("len_of_an_object", Sized, lambda h: float(len(h)), grown)
holding("iteration_by_getitem", Sized, sum, grown)
holding("unpacked_object", Sized, lambda h: float(len([*h])), grown)
holding("truth_of_an_object", Sized, lambda h: 2.0 if h else 3.0, grown)
holding("not_of_an_object", Sized, lambda h: 3.0 if not h else 2.0, grown)
holding("in_an_object", Sized, lambda h: 3.0 if 3 in h else 2.0, grown)
holding("equal_object", Sized, lambda h: 2.0 if h == 2 else 3.0, grown)
holding("int_of_an_object", Sized, int, grown)
holding("float_of_an_object", Sized, float, grown)
holding("index_of_an_object", Sized, lambda h: [0.0, 1.0, 2.0, 3.0][h], grown)
holding("text_of_an_object", Sized, lambda h: float(f"{h}"), grown)
holding("copy_of_an_object", Sized, lambda h: copy.copy(h).n, grown)
holding("deep_copy_of_an_object", Sized, lambda h: copy.deepcopy(h).n, grown)
holding("copy_of_a_dict", lambda: {"k": 2.0}, lambda h: h.copy()["k"], lambda h: h.update(k=3.0))
holding("dict_of_a_dict", lambda: {"k": 2.0}, lambda h: dict(h)["k"], lambda h: h.update(k=3.0))
holding("dicts_joined", lambda: {"k": 2.0}, lambda h: ({} | h)["k"], lambda h: h.update(k=3.0))
holding("dict_keys", lambda: {"k": 2.0}, lambda h: 3.0 if "j" in h.keys() else 2.0, lambda h: h.update(j=3.0))  # noqa: SIM118
holding("dict_compared", lambda: {"k": 2.0}, lambda h: 2.0 if h == {"k": 2.0} else 3.0, lambda h: h.update(k=3.0))
holding("list_compared", lambda: [2.0], lambda h: 2.0 if h == [2.0] else 3.0, lambda h: h.append(3.0))
holding("truth_of_a_list", list, lambda h: 3.0 if h else 2.0, lambda h: h.append(3.0))
holding("sorted_list", lambda: [3.0, 2.0], lambda h: sorted(h)[0], lambda h: h.append(1.0))
holding("list_in_an_object_in_a_list", lambda: [Holder([2.0])], lambda h: h[0].k[0], lambda h: h[0].k.__setitem__(0, 3.0))
holding("object_in_a_dict_in_a_dict", lambda: {"a": {"b": Holder()}}, lambda h: h["a"]["b"].k, lambda h: setattr(h["a"]["b"], "k", 3.0))
holding("objects_iterated", lambda: {"a": Holder()}, lambda h: sum(v.k for v in h.values()), lambda h: setattr(h["a"], "k", 3.0))
holding("objects_in_a_set", lambda: {Holder()}, lambda h: sum(v.k for v in h), lambda h: setattr(next(iter(h)), "k", 3.0))
holding("user_list", lambda: UserList([2.0]), lambda h: h[0], lambda h: h.__setitem__(0, 3.0))
holding("array", lambda: array.array("d", [2.0]), lambda h: h[0], lambda h: h.__setitem__(0, 3.0))
holding("memory_view", lambda: memoryview(bytearray(b"\2")), lambda h: float(h[0]), lambda h: h.__setitem__(0, 3))
holding("number_of_c", lambda: ctypes.c_double(2.0), lambda h: h.value, lambda h: setattr(h, "value", 3.0))
holding("thread_local", threading.local, lambda h: getattr(h, "k", 2.0), lambda h: setattr(h, "k", 3.0))
holding("numpy_array_of_an_object", lambda: Holder(np.full(2, 2.0)), lambda h: float(h.k[0]), lambda h: h.k.fill(3.0))
holding("numpy_array_sliced", lambda: np.full(2, 2.0), lambda h: float(h[:1].sum()), lambda h: h.fill(3.0))
holding("namespace_in_an_object", lambda: Holder(types.SimpleNamespace(k=2.0)), lambda h: h.k.k, lambda h: setattr(h.k, "k", 3.0))
holding("null_context", lambda: contextlib.nullcontext(2.0), lambda h: _entered(h), lambda h: setattr(h, "enter_result", 3.0))
holding("exit_stack", lambda: Holder(), lambda h: _stacked(h), lambda h: setattr(h, "k", 3.0))


def _entered(context):
    with context as value:
        return value


def _stacked(held):
    with contextlib.ExitStack() as stack:
        return stack.enter_context(contextlib.nullcontext(held.k))


class Table(dict):
    k = 2.0

    def __missing__(self, key):
        return self.k


holding("missing_of_a_dict", Table, lambda h: h["a"], lambda h: setattr(h, "k", 3.0))
holding("dict_of_a_class_of_its_own", lambda: Table(a=2.0), lambda h: h["a"], lambda h: h.update(a=3.0))


class Numbers(list):
    scale = 2.0


holding("list_of_a_class_of_its_own", lambda: Numbers([2.0]), lambda h: h[0], lambda h: h.__setitem__(0, 3.0))
holding("attribute_of_a_list_of_a_class_of_its_own", lambda: Numbers([2.0]), lambda h: h.scale, lambda h: setattr(h, "scale", 3.0))


@dataclasses.dataclass
class Settings:
    k: float = 2.0
    inner: Holder = dataclasses.field(default_factory=Holder)


class Named(typing.NamedTuple):
    held: Holder
    k: float = 2.0


class Flag(enum.IntFlag):
    A = 1
    B = 2


holding("dataclass_replaced_in_part", Settings, lambda h: dataclasses.replace(h, inner=None).k, lambda h: setattr(h, "k", 3.0))
holding("dataclass_fields", Settings, lambda h: sum(getattr(h, f.name) for f in dataclasses.fields(h)[:1]), lambda h: setattr(h, "k", 3.0))
holding("object_of_a_dataclass", Settings, lambda h: h.inner.k, lambda h: setattr(h.inner, "k", 3.0))
holding("object_of_a_named_tuple", lambda: Named(Holder()), lambda h: h.held.k, lambda h: setattr(h.held, "k", 3.0))
holding("flags", lambda: Holder(Flag.A), lambda h: 3.0 if Flag.B in h.k else 2.0, lambda h: setattr(h, "k", Flag.A | Flag.B))
holding("enum_by_its_name", lambda: Holder("A"), lambda h: float(Flag[h.k]), lambda h: setattr(h, "k", "B"))


# ---------------------------------------------------------------- modules as attributes of other things


@read
def layers_in_a_list():
    layers = [nn.Softplus()]

    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    return f, lambda patch: layers.append(nn.Tanh())


@read
def forward_of_a_layer_in_a_list():
    layers = [nn.Softplus()]
    return lambda x: [layer(x) for layer in layers][-1], lambda patch: setattr(layers[0], "forward", lambda x: x * 3.0)


@read
def option_of_a_layer():
    layer = nn.LeakyReLU(0.5)
    return lambda x: layer(x), lambda patch: setattr(layer, "negative_slope", 0.1)


@read
def option_of_a_loss():
    loss = nn.HuberLoss(delta=0.1)
    return lambda x: loss(x, x * 3.0), lambda patch: setattr(loss, "delta", 0.5)


@read
def backward_of_a_function_of_autograd():
    class Double(gl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return g * settings.K

    return lambda x: gl.func.grad(lambda y: Double.apply(y).sum())(x), lambda patch: patch.setattr(settings, "K", 3.0)


@read
def hook_of_a_tensor():
    box = [2.0]

    def f(x):
        def inner(y):
            z = y * 2.0
            z.register_hook(lambda g: g * box[0])
            return z.sum()

        return gl.func.grad(inner)(x)

    return f, lambda patch: box.__setitem__(0, 3.0)


@read
def default_dtype():
    return lambda x: (gl.ones(()) / 3.0).double() * x, lambda patch: (gl.set_default_dtype(gl.float16), patch.callback(_restored))


def _restored():
    gl.set_default_dtype(gl.float32)
