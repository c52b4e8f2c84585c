"""Names, classes and what else code reads; modules and optimizers."""

from __future__ import annotations

from abc import ABCMeta
from contextlib import contextmanager
from typing import Any

import gradlab as gl
from gradlab import nn, optim
from guard_cases import Holder, case, numbered

# ------------------------------------------------------------------------------------------------ names and classes


@case("the code of {title}")
def codes():
    def helper(x):
        return x * 2

    def other(x):
        return x * 3

    return lambda x: helper(x), (numbered(2),), lambda: setattr(helper, "__code__", other.__code__)


@case("{title}: {key}", "._defaults")
def defaults():
    def helper(x, k=2.0):
        return x * k

    return lambda x: helper(x), (numbered(2),), lambda: setattr(helper, "__defaults__", (3.0,))


def scaled(k):
    class Scale:
        def __call__(self, x):
            return self.by(x) * 1

        def by(self, x):
            return x * k

    return Scale()


@case("what the class")
def class_entries():
    scale = scaled(2.0)
    return lambda x: scale(x), (numbered(2),), lambda: setattr(type(scale), "by", lambda self, x: x * 7)


@case("the class of")
def classes():
    scale = scaled(2.0)
    return lambda x: scale(x), (numbered(2),), lambda: setattr(scale, "__class__", type(scaled(5.0)))


@case("in place of")
def hidden():
    scale = scaled(2.0)
    return lambda x: scale(x), (numbered(2),), lambda: setattr(scale, "by", lambda x: x * 7)


@case("says")
def questions():
    Base, kind = ABCMeta("Base", (), {}), Holder(1.0)
    return lambda x: x * (2 if isinstance(kind, Base) else 3), (numbered(2),), lambda: Base.register(Holder) and None


@case("the shape and dtype of a tensor")
def held_shape():
    w = numbered(2)
    return lambda x: x * w.shape[0], (numbered(2),), lambda: setattr(w, "data", numbered(5))


# ------------------------------------------------------------------------------------------------ what code reads


@case("is {guards.name(GONE)}")
def absent():
    names: dict[str, Any] = {}
    exec("def scaled(x):\n    return x * abs(-2.0)", names)
    return names["scaled"], (numbered(2),), lambda: names.update(abs=lambda value: 7.0)


@case("guards.equal(place, value, label, self._held)")
def read_values():
    holder = Holder(2.0)
    return lambda x: x * holder.k, (numbered(2),), lambda: setattr(holder, "k", 4.0)


@case("guards.same(place, value, label)")
def read_objects():
    holder = Holder(Holder(2.0))
    return lambda x: x * holder.k.k, (numbered(2),), lambda: setattr(holder, "k", Holder(4.0))


@case("hooks of all modules")
def hooks_of_all():
    layer = nn.Linear(2, 2)
    with gl.no_grad():
        layer.weight.fill_(1.0), layer.bias.fill_(0.0)
    handle = nn.modules.module.register_module_forward_hook

    @contextmanager
    def hooked():
        removed = handle(lambda module, given, result: result * 2)
        yield
        removed.remove()

    return lambda x: layer(x), (numbered(2),), hooked


# ------------------------------------------------------------------------------------------------ modules


def layer():
    made = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))
    with gl.no_grad():
        made[0].weight.copy_(numbered(2, 2)), made[0].bias.fill_(0.5)
    return made


def on_layer(change):
    made = layer()
    return lambda x: made(x), (numbered(2),), lambda: change(made)


@case("{own}[{key!r}]", "{title}: {key}")
def module_values():
    made = nn.LayerNorm(2)
    return lambda x: made(x), (numbered(2),), lambda: setattr(made, "eps", 4.0)


@case("{own}['_hooked']", "{title}: hooks")
def module_hooks():
    return on_layer(lambda m: m[0].register_forward_hook(lambda module, given, result: result * 2) and None)


@case("guards.size(place")
def module_more():
    return on_layer(lambda m: m.append(nn.Tanh()) and None)


@case("guards.same(f'{place}[{key!r}]'")
def module_other():
    def change(m):
        m[0].weight = nn.Parameter(numbered(2, 2) * 3)

    return on_layer(change)


# ------------------------------------------------------------------------------------------------ optimizers


def training(make, change):
    w, v = nn.Parameter(numbered(2)), nn.Parameter(numbered(2))
    optimizer = make([w])

    def step(x):
        optimizer.zero_grad()
        v.grad = None
        (w * x * v).sum().backward()
        optimizer.step()
        optimizer.step()
        return [w.detach() * 1, v.detach() * 1]

    return step, (numbered(2),), lambda: change(optimizer, w, v)


@case("the number of groups")
def groups():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.add_param_group({"params": [v]}))


@case("hooks before a step")
def before_step():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.register_step_pre_hook(lambda *_: w.grad.mul_(2) and None) and None)


@case("hooks after a step")
def after_step():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.register_step_post_hook(lambda *_: w.data.mul_(2) and None) and None)


@case("{name}: group {i}")
def other_group():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.param_groups.__setitem__(0, {**o.param_groups[0], "lr": 9.0}))


@case("the parameters of group")
def other_parameters():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.param_groups[0].__setitem__("params", [v]))


@case("whether {key} is 0")
def decisive():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.param_groups[0].__setitem__("momentum", 0.5))


@case("guards.equal(f'{group}[{key!r}]'")
def group_values():
    return training(lambda ps: optim.SGD(ps, 0.1), lambda o, w, v: o.param_groups[0].__setitem__("maximize", True))


@case("optimizer.state, f'{name}: state'")
def other_state():
    return training(lambda ps: optim.Adam(ps, 0.1), lambda o, w, v: setattr(o, "state", type(o.state)(dict)) or (-numbered(2),))


@case("guards.equal(f'{place}[{key!r}]'")
def state_values():
    return training(lambda ps: optim.Adam(ps, 0.1), lambda o, w, v: o.state[w].__setitem__("step", o.state[w]["step"] + 7))
