"""What a compiled function writes and gives, beyond tensors: refused with a way out where a replay would not do it, and put back."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import itertools
import pickle
import time
from types import SimpleNamespace

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError, trace
from gradlab.graph.staging.effects import _holds_symbols

from compiled_steps import follows, refused

F = nn.functional
KEPT = None


@dataclasses.dataclass
class Batch:
    x: object
    y: object = None
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Settings:
    gain: float = 2.0


def test_what_is_written_besides_tensors_is_refused_and_put_back():
    class Trainer:
        def __init__(self):
            self.steps, self.losses = 0, []

        def count(self, x):
            self.steps += 1
            return x

        def remember(self, x):
            self.losses.append(x * 2)
            return x

        def replace(self, x):
            self.losses = [*self.losses, "now"]
            return x

    trainer, seen = Trainer(), 0

    def outer(x):
        nonlocal seen
        seen = seen + 1
        return x

    def everywhere(x):
        global KEPT
        KEPT = 1.0 if KEPT is None else KEPT + 1
        return x

    refused(trainer.count, gl.ones(2), match=r"changes Trainer\.steps")
    refused(trainer.remember, gl.ones(2), match=r"changes Trainer\.losses")
    refused(trainer.replace, gl.ones(2), match=r"changes Trainer\.losses")
    refused(outer, gl.ones(2), match="changes seen")
    refused(everywhere, gl.ones(2), match="changes KEPT")
    assert (trainer.steps, len(trainer.losses), seen, KEPT) == (1, 2, 1, 1.0)  # of the eager runs
    for function, fresh in ((lambda x, found: found.append(x * 2), list), (lambda x, found: found.update(y=x), dict)):
        run = gl.compile(function)
        run(gl.ones(2), fresh())
        with pytest.raises(TraceError, match="changes argument 1"):
            run(gl.ones(2), fresh())
    seen_by = collections.deque()
    refused(lambda x: seen_by.append(x), gl.ones(2), match="changes seen_by ")


def test_objects_made_inside_may_be_written():
    class Stack:
        def __init__(self):
            self.items, self.count = [], 0

        def push(self, x):
            self.items.append(x)
            self.count += 1

    def function(x):
        stack = Stack()
        for i in range(3):
            stack.push(x * i)
        return sum(stack.items) * stack.count

    follows(function, [lambda: None])


def test_dataclasses_and_other_dicts_as_arguments_and_results():
    def function(batch):
        return Batch(batch.x * batch.scale, [batch.y + 1], 3.0), collections.OrderedDict(a=batch.x)

    run = gl.compile(function)
    for scale in (1.0, 1.0, 1.0, 2.0, 2.0):
        x, y = gl.randn(2), gl.randn(2)
        made, table = run(Batch(x, y, scale))
        assert type(made) is Batch and type(table) is collections.OrderedDict and table["a"] is x
        assert made.x.tolist() == (x * scale).tolist() and made.y[0].tolist() == (y + 1).tolist() and made.scale == 3.0
    assert len(run.programs) == 2
    by_value = gl.compile(lambda x, settings: x * settings.gain)
    for gain in (2.0, 2.0, 2.0, 4.0, 4.0):
        assert by_value(gl.ones(1), Settings(gain)).item() == gain
    assert len(by_value.programs) == 2


class Layer:
    def __init__(self, keys):
        self.keys = keys


class Cache:
    """As those of language models: objects in a list in an object, with the arguments and the weights among what they hold."""

    def __init__(self, x, weight):
        self.layers, self.length, self.x, self.weight, self.settings = [], 3, x, weight, SETTINGS

    @property
    def keys(self):
        return [layer.keys for layer in self.layers]


SETTINGS = Settings()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_objects_made_in_the_function_are_made_anew(device, cuda):
    model = nn.Linear(3, 3).to(device)

    def function(x):
        cache = Cache(x, model.weight)
        cache.layers += [Layer(model(x) * i) for i in range(2)]
        return x * 2, {"cache": cache, "shape": SimpleNamespace(sum=x.sum(), rows=x.size(0))}

    run, before = gl.compile(function), None
    for _ in range(4):
        x = gl.randn(2, 3, device=device, requires_grad=True)
        _, made = run(x)
        cache, expected = made["cache"], function(x)[1]["cache"]
        assert type(cache) is Cache and cache is not before and cache.length == 3 and cache.settings is SETTINGS
        assert cache.x is x and cache.weight is model.weight and made["shape"].rows == 2 and made["shape"].sum.item() == x.sum().item()
        for found, other in zip(cache.keys, expected.keys, strict=True):
            gl.testing.assert_close(found, other)
        gradients = [gl.autograd.grad(keys.sum(), [x, model.weight]) for keys in (cache.keys[1], expected.keys[1])]
        gl.testing.assert_close(*gradients)
        before = cache
    assert len(run.programs) == 1
    (gradient,) = gl.autograd.grad(run(x)[1]["cache"].keys[1].pow(3).sum(), x, create_graph=True)
    (expected,) = gl.autograd.grad(function(x)[1]["cache"].keys[1].pow(3).sum(), x, create_graph=True)
    gl.testing.assert_close(gl.autograd.grad(gradient.sum(), x), gl.autograd.grad(expected.sum(), x))


def test_tensors_in_other_objects_cannot_be_given():
    class Slotted:
        __slots__ = ("y",)

        def __init__(self, y):
            self.y = y

    class Closing(Layer):
        def __del__(self):
            pass

    class Numbers(array.array):
        pass

    def itself(x):
        layer = Layer(x * 2)
        layer.parent = layer
        return layer

    def twice(x):
        layer = Layer(x * 2)
        return layer, [layer]

    def numbered(x):
        numbers = Numbers("d")
        numbers.y = x * 2
        return numbers

    for function in (lambda x: Slotted(x * 2), lambda x: Closing(x * 2), itself, twice, numbered):
        refused(function, gl.ones(2), match=r"object of type (Slotted|Closing|Layer|Numbers)[\s\S]*dataclasses")
    kept = Layer(None)

    def keeps(x):
        kept.keys = x * 2
        return kept

    refused(keeps, gl.ones(2), match="object of type Layer")  # it was there before: another one would not be it
    assert kept.keys.tolist() == [2.0, 2.0]
    refused(lambda x: {x * 2}, gl.ones(2), match="object of type set")
    refused(lambda x: (x * i for i in range(3)), gl.ones(2), match="returns a generator")


def test_what_is_another_thing_at_each_call_is_refused():
    def cycle():
        while True:
            yield gl.ones(2)

    stream, numbers = cycle(), itertools.count()
    batches = iter(gl.utils.data.DataLoader(gl.utils.data.TensorDataset(gl.arange(8.0)), batch_size=2))
    refused(lambda: next(stream), match=r"next value of a generator[\s\S]*cycle")
    refused(lambda: next(batches)[0], match="batches from a DataLoader")
    refused(lambda x: x * next(numbers), gl.ones(2), match="changes numbers")
    refused(lambda x: x * time.perf_counter(), gl.ones(2), match=r"reads the clock \(time.perf_counter\)")


def test_random_generators_are_seeded_outside():
    def seeded(x):
        gl.manual_seed(3)
        return gl.rand(2)

    refused(seeded, gl.ones(2), match=r"generator \(manual_seed\)")
    refused(lambda x: gl.rand(2, generator=gl.Generator()), gl.ones(2), match="makes, sets or reads a random generator")


def test_the_grad_mode_is_left_as_it_was():
    def switches(x):
        gl.set_grad_enabled(not gl.is_grad_enabled())
        return x

    run = gl.compile(switches)
    try:
        for _ in range(2):  # recording, and not
            run(gl.ones(2))
        with pytest.raises(TraceError, match="with block"):
            run(gl.ones(2))
    finally:
        gl.set_grad_enabled(True)
    w = gl.ones(2, requires_grad=True)

    def inside(x):
        with gl.enable_grad():
            return w * x

    run = gl.compile(inside)
    for _ in range(3):
        with gl.no_grad():
            found = run(gl.ones(2))
        assert found.requires_grad


def test_printing_is_an_error_that_names_the_line(capsys):
    def shows(x):
        print("loss", x)
        return x

    refused(shows, gl.ones(2), match=r"a value was read while tracing[\s\S]*shows")
    refused(lambda x: f"{x}" and x, gl.ones(2), match="a value was read while tracing")
    refused(lambda x: x[x > 0], gl.ones(2), match=r"depends on values[\s\S]*at: File[\s\S]*x > 0")
    capsys.readouterr()


def test_what_cannot_be_compiled_is_refused_at_once():
    def stream(x):
        yield x

    async def later(x):
        return x

    for wrong, match in ((stream, "generator"), (later, "coroutine"), (nn.Linear, "not the class Linear"), (3, "not int")):
        with pytest.raises(TypeError, match=match):
            gl.compile(wrong)


def test_arguments_that_are_new_at_each_call_warn():
    run = gl.compile(lambda x, i: x * i)
    with pytest.warns(UserWarning, match=r"8 kinds of arguments and runs eagerly[\s\S]*argument 1 changes"):
        for i in range(9):
            run(gl.ones(1), i)


# ---------------------------------------------------------------- copies


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.fast = gl.compile(self.slow)

    def slow(self, x):
        return self.linear(x)

    def forward(self, x):
        return self.fast(x)


@gl.compile
def doubled(x):
    return x * 2


@pytest.mark.parametrize("make", [lambda: gl.compile(nn.Linear(3, 2)), Model], ids=["module", "method"])
@pytest.mark.parametrize("twin", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_of_compiled_models_have_weights_of_their_own(make, twin):
    model, x = make(), gl.randn(4, 3)
    before = [model(x) for _ in range(3)][-1].tolist()
    other = twin(model)
    with gl.no_grad():
        for p in other.parameters():
            p.zero_()
    for _ in range(3):
        assert other(x).abs().sum() == 0 and model(x).tolist() == before
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_what_holds_itself_is_looked_into_so_deep():
    circle = []
    circle += [circle, (circle, {"again": circle})]
    assert not _holds_symbols(circle, 4)
    found = []
    trace(lambda x: (found.extend(_holds_symbols([[x]], depth) for depth in (1, 2, 3)), x)[1], gl.ones(1))
    assert found == [False, True, True]
