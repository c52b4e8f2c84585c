"""nn.Module: registration, traversal, state, conversion, hooks, text."""

from __future__ import annotations

import copy
import pickle
from typing import get_type_hints

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn


class Scale(nn.Module):
    """y = scale x, with a buffer that counts calls."""

    def __init__(self, size=3):
        super().__init__()
        self.scale = nn.Parameter(gl.full((size,), 2.0))
        self.register_buffer("calls", gl.zeros(()))
        self.register_buffer("hidden", gl.ones(1), persistent=False)

    def forward(self, x):
        self.calls += 1
        return x * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.second = nn.Sequential(Scale(), nn.Identity())
        self.shift = nn.Parameter(gl.zeros(3))

    def forward(self, x):
        return self.second(self.first(x)) + self.shift


def test_registration_and_traversal():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["shift", "first.scale", "second.0.scale"]
    assert [n for n, _ in net.named_parameters(recurse=False)] == ["shift"]
    assert [n for n, _ in net.named_buffers()] == ["first.calls", "first.hidden", "second.0.calls", "second.0.hidden"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "second", "second.0", "second.1"]
    assert [n for n, _ in net.named_children()] == ["first", "second"]
    assert net.get_submodule("second.0") is net.second[0]
    assert net.get_parameter("first.scale") is net.first.scale
    assert net.get_buffer("first.calls") is net.first.calls
    for wrong in (lambda: net.get_submodule("third"), lambda: net.get_parameter("first.x"), lambda: net.get_buffer("first.scale")):
        with pytest.raises(AttributeError):
            wrong()
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Scale", "Scale", "Identity", "Sequential", "Net"]


def test_shared_modules_and_parameters_count_once():
    a = nn.Linear(2, 2)
    net = nn.Sequential(a, a)
    assert len(list(net.parameters())) == 2
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4


def test_assignment():
    net = Net()
    with pytest.raises(TypeError, match="as parameter 'shift'"):
        net.shift = gl.zeros(3)
    with pytest.raises(TypeError, match="child module 'first'"):
        net.first = 3
    net.shift = None
    assert net.shift is None and "shift" not in dict(net.named_parameters())
    net.first = nn.Parameter(gl.zeros(1))  # a module's place is taken by a parameter
    assert [n for n, _ in net.named_children()] == ["second"]
    net.second[0].calls = gl.ones(())
    assert float(net.second[0].calls) == 1
    with pytest.raises(TypeError, match="as buffer 'calls'"):
        net.second[0].calls = 1
    del net.first
    assert not hasattr(net, "first")
    net.note = nn.Buffer(gl.zeros(2), persistent=False)
    assert "note" in dict(net.named_buffers()) and "note" not in net.state_dict()
    order = nn.Linear(2, 2)
    order.weight = nn.Parameter(gl.zeros(2, 2))
    assert list(order.state_dict()) == ["weight", "bias"]


def test_registration_errors():
    net = nn.Module()
    for name, error in (("a.b", KeyError), ("", KeyError), (3, TypeError), ("forward", KeyError)):
        with pytest.raises(error):
            net.register_parameter(name, nn.Parameter(gl.zeros(1)))
        with pytest.raises(error):
            net.register_buffer(name, gl.zeros(1))
        with pytest.raises(error):
            net.add_module(name, nn.Identity())
    with pytest.raises(TypeError):
        net.register_parameter("p", gl.zeros(1))
    with pytest.raises(TypeError):
        net.register_buffer("b", 3)
    with pytest.raises(TypeError):
        net.add_module("m", 3)
    with pytest.raises(NotImplementedError, match="no forward"):
        net(1)


def test_before_super_init():
    class Early(nn.Module):
        def __init__(self, value):
            self.part = value
            super().__init__()

    for value in (nn.Identity(), nn.Parameter(gl.zeros(1)), nn.Buffer(gl.zeros(1))):
        with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
            Early(value)


def test_missing_attribute_names_close_ones():
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'wieght'; did you mean 'weight'"):
        nn.Linear(2, 2).wieght


def test_parameter():
    p = nn.Parameter(gl.zeros(2))
    assert p.requires_grad and p.is_leaf and isinstance(p, gl.Tensor)
    assert not nn.Parameter(gl.zeros(2), requires_grad=False).requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(gl.zeros(2, dtype=gl.int64))
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is nn.Parameter and twin.requires_grad and twin is not p
    assert repr(p).startswith("Parameter containing:\ntensor(")
    assert type(p * 2) is gl.Tensor and type(p.detach()) is gl.Tensor


def test_deepcopy_and_pickle():
    net = Net()
    net(gl.ones(3)).sum().backward()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert list(twin.state_dict()) == list(net.state_dict())
        assert twin.first.scale is not net.first.scale and type(twin.first.scale) is nn.Parameter
        np.testing.assert_array_equal(twin(gl.ones(3)).detach().numpy(), net(gl.ones(3)).detach().numpy())


def test_modes_and_gradients():
    net = Net()
    assert net.training and net.eval() is net
    assert not any(m.training for m in net.modules())
    assert net.train().training
    with pytest.raises(ValueError):
        net.train(1)
    net(gl.ones(3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(float(p.grad.abs().sum()) == 0 for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_conversion_keeps_parameters():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = list(net.parameters())
    net[0].weight.grad = gl.ones(2, 2)
    assert net.double() is net
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.dtype == gl.float64 for p in net.parameters()) and net[0].weight.grad.dtype == gl.float64
    assert net[1].running_mean.dtype == gl.float64 and net[1].num_batches_tracked.dtype == gl.int64
    assert net.to(gl.float16)[0].weight.dtype == gl.float16
    assert net.bfloat16()[0].weight.dtype == gl.bfloat16
    assert net.to("cpu", gl.float32)[0].weight.dtype == gl.float32
    assert net.cpu().float()[0].weight.requires_grad
    with pytest.raises(TypeError):
        net.to(gl.int64)


def test_text():
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    assert text.splitlines() == [
        "Sequential(",
        "  (0): Linear(in_features=2, out_features=3, bias=True)  # weight (3, 2), bias (3,): 9 parameters",
        "  (1): ReLU()",
        ")  # 9 parameters",
    ]
    assert repr(nn.Identity()) == "Identity()"
    assert repr(Net()).splitlines()[0] == "Net(  # shift (3,): 3 parameters"
    assert "weight" in dir(nn.Linear(1, 1))


# ---------------------------------------------------------------- state


def test_state_dict_shares_memory():
    net = Net()
    state = net.state_dict()
    assert list(state) == ["shift", "first.scale", "first.calls", "second.0.scale", "second.0.calls"]
    assert not state["shift"].requires_grad and net.state_dict(keep_vars=True)["shift"] is net.shift
    state["shift"].fill_(5)
    assert net.shift.tolist() == [5.0] * 3


def test_load_state_dict():
    net, other = Net(), Net()
    other.shift.data = gl.ones(3)
    other.first.calls = gl.full((), 7.0)
    kept = net.shift
    assert str(net.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    assert net.shift is kept and net.shift.tolist() == [1.0] * 3 and float(net.first.calls) == 7
    other.shift.data = gl.zeros(3)
    assert net.shift.tolist() == [1.0] * 3  # a copy


def test_load_state_dict_differences():
    net = Net()
    state = Net().state_dict()
    state["first.scael"] = state.pop("first.scale")
    state["shift"] = gl.ones(4)
    state["other"] = gl.ones(1)
    before = net.second[0].scale.tolist()
    state["second.0.scale"] = gl.zeros(3)
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert 'missing key "first.scale"' in text
    assert 'unexpected key "first.scael" (did you mean "first.scale"?)' in text and 'unexpected key "other"' in text
    assert 'size mismatch for "shift": the state has shape (4,), the model (3,)' in text
    assert net.second[0].scale.tolist() == before  # nothing was loaded
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict(state, strict=False)
    del state["shift"]
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["shift", "first.scale"] and result.unexpected_keys == ["first.scael", "other"]
    assert net.second[0].scale.tolist() == [0.0] * 3


def test_load_state_dict_prefix():
    net = Net()
    with pytest.raises(RuntimeError, match=r"removeprefix\('module.'\)"):
        net.load_state_dict({f"module.{k}": v for k, v in net.state_dict().items()})
    with pytest.raises(TypeError, match="expected a dictionary"):
        net.load_state_dict([1])
    with pytest.raises(RuntimeError, match="not a tensor"):
        net.load_state_dict({**net.state_dict(), "shift": 3})


def test_load_state_dict_assign():
    net = nn.Linear(2, 2)
    state = nn.Linear(2, 2).double().state_dict()
    net.load_state_dict(state, assign=True)
    assert type(net.weight) is nn.Parameter and net.weight.dtype == gl.float64
    state["weight"].fill_(3)
    assert net.weight.tolist() == [[3.0, 3.0]] * 2


def test_state_hooks_and_extra_state():
    class Extra(nn.Module):
        def __init__(self):
            super().__init__()
            self.note = "a"

        def get_extra_state(self):
            return self.note

        def set_extra_state(self, state):
            self.note = state

    one, two = nn.Sequential(Extra()), nn.Sequential(Extra())
    one[0].note = "b"
    assert one.state_dict() == {"0._extra_state": "b"}
    two.load_state_dict(one.state_dict())
    assert two[0].note == "b"

    net, calls = nn.Linear(1, 1), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(("pre", prefix, keep)))
    net.register_state_dict_post_hook(lambda m, state, prefix, meta: state.__setitem__("more", gl.zeros(1)))
    assert list(net.state_dict()) == ["weight", "bias", "more"] and calls == [("pre", "", False)]
    net.register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: state.__setitem__("weight", state.pop("old")))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    given = {"old": gl.ones(1, 1), "bias": gl.zeros(1)}
    net.load_state_dict(given)
    assert net.weight.tolist() == [[1.0]] and list(given) == ["old", "bias"]


# ---------------------------------------------------------------- hooks


def test_forward_hooks():
    net = Scale()
    x = gl.ones(3)
    handle = net.register_forward_pre_hook(lambda m, args: args[0] * 10)
    assert net(x).tolist() == [20.0] * 3
    with net.register_forward_hook(lambda m, args, out: out + args[0]):
        assert net(x).tolist() == [30.0] * 3
    handle.remove()
    assert net(x).tolist() == [2.0] * 3

    order = []
    net.register_forward_hook(lambda *a: order.append("a"))
    net.register_forward_hook(lambda *a: order.append("b"), prepend=True)
    net(x)
    assert order == ["b", "a"]


def test_forward_hooks_with_kwargs():
    class Add(nn.Module):
        def forward(self, x, *, y):
            return x + y

    net, seen = Add(), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"y": kwargs["y"] * 2}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: seen.append((args, kwargs, out)), with_kwargs=True)
    assert net(1, y=2) == 5 and seen == [((1,), {"y": 4}, 5)]

    class Fails(nn.Module):
        def forward(self):
            raise ValueError("no")

    net = Fails()
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(ValueError, match="no"):
        net()
    assert seen[-1] is None


def test_backward_hooks():
    net, seen = Scale(), []
    net.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 3,))
    handle = net.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    x = gl.ones(3, requires_grad=True)
    net(x).sum().backward()
    assert seen == [([6.0] * 3, [3.0] * 3)]
    assert x.grad.tolist() == [6.0] * 3 and net.scale.grad.tolist() == [3.0] * 3
    handle.remove()
    net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    x.grad = None
    net(x).sum().backward()
    assert x.grad.tolist() == [60.0] * 3 and len(seen) == 1
    net.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="2 gradients"):
        net(x).sum().backward()


def test_backward_hooks_of_several_tensors():
    class Both(nn.Module):
        def forward(self, a, b, c):
            return a * b, a + b

    net, seen = Both(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    a, b = gl.full((2,), 3.0, requires_grad=True), gl.full((2,), 4.0, requires_grad=True)
    product, total = net(a, b, 5)
    (product * 2 + total).sum().backward()
    (gi, go), = seen
    assert [g if g is None else g.tolist() for g in gi] == [[9.0, 9.0], [7.0, 7.0], None]
    assert [g.tolist() for g in go] == [[2.0, 2.0], [1.0, 1.0]]
    product, total = net(gl.ones(2), gl.ones(2), 5)  # nothing requires grad: no gate
    assert not product.requires_grad and len(seen) == 1


def test_backward_hook_without_input_gradient():
    net, seen = Scale(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    net(gl.ones(3)).sum().backward()
    assert seen == [((None,), [1.0] * 3)]


def test_scope_names_the_line_of_the_call():
    net = nn.Sequential(nn.Linear(2, 2))
    y = net(gl.ones(1, 2))
    scopes = y.grad_fn.scope.path()
    assert [(s.module, s.name) for s in scopes] == [("Sequential", ""), ("Linear", "0")]
    assert y.grad_fn.forward_position.text == "y = net(gl.ones(1, 2))"
    with pytest.raises(TypeError):
        net(1, 2)
    assert gl.autograd.mode.current().scope is None


def test_annotations_of_public_classes_can_be_read():
    rooms = [gl, nn, gl.optim, gl.optim.lr_scheduler, gl.utils.data, gl.distributions, gl.cuda, gl.jit, gl.amp, gl.autograd]
    kinds = {c for room in rooms for c in vars(room).values() if isinstance(c, type)}
    assert len(kinds) > 300
    for kind in kinds:
        assert isinstance(get_type_hints(kind), dict)
