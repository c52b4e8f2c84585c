"""The mode, tensors that a function holds, and arguments."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import gradlab as gl
from guard_cases import Holder, Keywords, case, given, numbered

# ------------------------------------------------------------------------------------------------ the mode


@case("'grad mode'")
def recording():
    w = gl.ones(2, requires_grad=True)
    return lambda x: w * x, (numbered(2),), gl.no_grad


@case("'autocast'")
def autocast():
    return lambda x: x @ x, (numbered(2, 2),), lambda: gl.autocast("cpu", gl.bfloat16)


@case("'the default dtype'")
def default_dtype():
    @contextmanager
    def double():
        gl.set_default_dtype(gl.float64)
        yield
        gl.set_default_dtype(gl.float32)

    return lambda x: gl.ones(2), (numbered(2),), double


# ------------------------------------------------------------------------------------------------ tensors that the function holds


@case("the memory of a tensor")
def memory():
    w = numbered(2)
    return lambda x: w * x, (numbered(2),), lambda: setattr(w, "data", numbered(2) * 5)


@case("'whether it requires grad')")
def edge_asked():
    w = numbered(2)
    return lambda x: x * (2 if w.requires_grad else 3), (numbered(2),), lambda: (w.requires_grad_(), None)[1]


@case("whether a tensor of shape {array.shape} requires grad")
def held_edge():
    w = numbered(2)
    return lambda x: w * x, (numbered(2),), lambda: (w.requires_grad_(), None)[1]


@case("the .grad of a parameter")
def gradient_there():
    w = gl.ones(2, requires_grad=True)

    def added():
        (w * 3).sum().backward()
        return w

    def seen():
        added()
        return [w, w.grad]

    return seen, lambda: setattr(w, "grad", None) or (), lambda: setattr(w, "grad", numbered(2))


@case("'whether it requires grad')")
def gradient_asked():
    w = gl.ones(2, requires_grad=True)
    return lambda x: x if w.grad is None else x * w.grad, (numbered(2),), lambda: setattr(w, "grad", numbered(2) * 3)


@case("a gradient's shape")
def gradient_shape():
    w = gl.ones(2, requires_grad=True)
    w.grad = numbered(2)

    def longer():
        w.grad = None
        w.data, w.grad = numbered(3), numbered(3)

    return lambda: w.grad.sum() * w.grad.numel(), (), longer


@case("whether a gradient has a graph")
def gradient_graph():
    w, k = gl.ones(2, requires_grad=True), gl.ones(2, requires_grad=True)
    w.grad = numbered(2)
    return lambda: w.grad * 2, (), lambda: setattr(w, "grad", k * 3)


@case("a gradient that the function finds elsewhere")
def gradient_twice():
    w = gl.ones(2, requires_grad=True)
    kept = w.grad = numbered(2)
    return lambda: w.grad + kept, (), lambda: setattr(w, "grad", numbered(2) * 4)


@case("how a gradient lies in memory")
def gradient_lies():
    w = gl.ones(3, 3, requires_grad=True)
    w.grad = numbered(3, 3)
    return lambda x: x * w.grad.stride()[0] + w.grad, (numbered(1),), lambda: setattr(w, "grad", numbered(3, 3).t())


@case("guards.test(test, label)")
def leaf_hooks():
    w = gl.ones(2, requires_grad=True)

    def gradient(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    return gradient, (numbered(2),), lambda: w.register_hook(lambda g: g * 2) and None


@case("t._meta.post_hooks), label")
def leaf_hooks_more():
    w = gl.ones(2, requires_grad=True)
    w.register_hook(lambda g: g * 2)

    def gradient(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    return gradient, (numbered(2),), lambda: w.register_hook(lambda g: g * 5) and None


@case("is a view of")
def used_view():
    view = numbered(4).view(2, 2)
    return lambda x: view * x, (numbered(2),), lambda: view.t_() is None


@case("follows")
def rebased_view():
    base = numbered(3, 2)
    view = base[1]

    def write(x):
        view.mul_(2)
        return base * x

    return write, (numbered(2),), lambda: setattr(view, "data", numbered(2))


# ------------------------------------------------------------------------------------------------ arguments


@case("'s shape', f'{array}.shape'")
def shapes():
    return given(lambda x: x * x.shape[0], (numbered(2, 3),), (numbered(3, 3),))


@case("'s dtype'")
def dtypes():
    return given(lambda x: x * 2, (numbered(2),), (numbered(2).double(),))


@case("whether {label} requires grad")
def edges():
    return given(lambda x: x * 2, (numbered(2),), (numbered(2).requires_grad_(),))


@case("how {label} lies in memory")
def lies():
    return given(lambda x: x * x.stride()[0], (numbered(3, 3),), (numbered(3, 3).t(),))


@case("begins in its memory")
def begins():
    return given(lambda x: x * x.storage_offset(), (numbered(4)[:2],), (numbered(4)[2:],))


@case("whether {label} can be written")
def writable():
    locked = np.ones(2, np.float32)
    locked.flags.writeable = False
    return given(lambda x: x.add_(1), (numbered(2),), (gl.from_numpy(locked),))


class Named(gl.Tensor):
    """A user's class of tensors."""


@case("f'type({expression}) is {kind}'")
def tensor_types():
    return given(lambda x: type(x).__name__, (numbered(2),), (numbered(2).as_subclass(Named),))


@case("type({array}) is", "device.index ==")
def meta_device():
    return given(lambda x: x * 2, (numbered(2),), (gl.ones(2, device="meta"),))


@case("{label}'s .grad")
def argument_graded():
    def after():
        x = numbered(2).requires_grad_()
        x.grad = numbered(2)
        return (x,)

    return lambda x: x * (2 if x.grad is None else 3), (numbered(2).requires_grad_(),), after


@case("{label} being {seen")
def no_longer_one():
    x = numbered(2)
    return given(lambda a, b: [a.add_(1), b * 1], (x, x), (numbered(2), numbered(2)))


@case("being one tensor")
def now_one():
    x = numbered(2)
    return given(lambda a, b: a * (2 if a is b else 3), (numbered(2), numbered(2)), (x, x))


@case("{array} is {other}._array")
def no_longer_sharing():
    x = numbered(2)
    return given(lambda a, b: [a.add_(1), b * 1], (x, x.detach()), (numbered(2), numbered(2)))


@case("not overlap({array}")
def now_sharing():
    x = numbered(4)
    return given(lambda a, b: [a.add_(1), b * 1], (numbered(3), numbered(3)), (x[:3], x[1:]))


@case("finds elsewhere")
def elsewhere():
    w = numbered(2)
    return given(lambda x: [x * 2, w.add_(1), x * 3], (w,), (numbered(2),))


@case("in memory that the function writes")
def written_memory():
    w = numbered(3)
    return given(lambda x: [w.copy_(w.flip(0)), x * 2], (numbered(2),), (w[:2],))


@case("type({expression}) is {guards.name(type(value))}")
def list_types():
    return given(lambda xs: xs[0] * (2 if isinstance(xs, list) else 3), ([numbered(2)],), ((numbered(2),),))


@case("type({expression}) is {guards.name(type(value))}")
def dict_types():
    return given(lambda xs: xs["a"] * (2 if type(xs) is dict else 3), ({"a": numbered(2)},), (OrderedDict(a=numbered(2)),))


@dataclass
class One:
    x: Any
    scale: float = 2.0


@dataclass
class Other(One):
    scale: float = 3.0


@case("type({expression}) is {guards.name(type(value))}")
def dataclass_types():
    return given(lambda o: o.x * (2 if type(o) is One else 3), (One(numbered(2), 2.0),), (Other(numbered(2), 2.0),))


@case("'s length'")
def lengths():
    return given(lambda xs: xs[0] * len(xs), ([numbered(2)],), ([numbered(2), 2.0],))


@case("'s keys'")
def keys():
    return given(lambda xs: sum(xs.values()) * len(xs), ({"a": numbered(2)},), ({"a": numbered(2), "b": numbered(2)},))


@case("the number of arguments")
def count():
    return given(lambda *xs: xs[0] * len(xs), (numbered(2),), (numbered(2), numbered(2)))


@case("guards.equal(expression, value, label)")
def plain_values():
    return given(lambda x, k: x * k, (numbered(2), 2), (numbered(2), 3))


@case("guards.same(expression, value, label)")
def opaque_values():
    return given(lambda x, h: x * h.k, (numbered(2), Holder(2.0)), (numbered(2), Holder(3.0)))


@case("[*kwargs] ==")
def keywords():
    function = lambda x, **more: x * (1 + len(more))
    return function, (numbered(2),), lambda: Keywords(k=1.0)
