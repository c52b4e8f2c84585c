"""Names of PyTorch's that begin with an underscore, and that libraries read, call and set all the same: of modules and of optimizers."""

import copy
import pickle

import pytest

import gradlab as gl
from gradlab import nn, optim


class TestModules:
    def test_tables_of_hooks_hold_the_hooks_themselves(self):
        module, seen = nn.Linear(2, 2), []

        def after(module, args, kwargs, output):
            seen.append(kwargs)

        def before(module, args):
            seen.append(len(args))

        handles = module.register_forward_hook(after, with_kwargs=True, always_call=True), module.register_forward_pre_hook(before)
        assert list(module._forward_hooks.values()) == [after]
        assert list(module._forward_pre_hooks.items()) == [(handles[1].id, before)]
        assert module._forward_hooks_with_kwargs == module._forward_hooks_always_called == {handles[0].id: True}
        assert module._forward_pre_hooks_with_kwargs == {}
        for twin in (module, copy.deepcopy(module)):
            twin(gl.ones(1, 2))
        assert seen == [1, {}, 1, {}]
        for handle in handles:
            handle.remove()
        assert not (module._forward_hooks or module._forward_pre_hooks or module._forward_hooks_with_kwargs)

    def test_backward_hooks(self):
        module = nn.Linear(1, 1)
        assert module._get_backward_hooks() == ([], [])
        assert module._is_full_backward_hook is None
        module.register_full_backward_hook(print)
        assert module._get_backward_hooks() == ([print], [])
        assert module._is_full_backward_hook
        assert module._get_backward_pre_hooks() == []

    def test_calls(self):
        module, x = nn.Sequential(nn.Linear(2, 2)), gl.ones(1, 2)
        for call in (module._call_impl, module._wrapped_call_impl, module._slow_forward):
            assert gl.equal(call(x), module(x))
        assert module._compiled_call_impl is None
        assert (module._version, module.dump_patches, module.call_super_init) == (1, False, False)

    def test_a_replica_has_tables_of_its_own(self):
        module = nn.BatchNorm1d(2)
        replica = module._replicate_for_data_parallel()
        assert replica._is_replica
        assert replica._parameters == {}
        assert replica._buffers == module._buffers
        assert replica._buffers is not module._buffers
        assert list(module._parameters) == ["weight", "bias"]

    @pytest.mark.parametrize("with_module", [False, True])
    def test_a_hook_before_loading(self, with_module):
        module, seen = nn.Linear(1, 1), []
        module._register_load_state_dict_pre_hook(lambda *arguments: seen.append(arguments), with_module)
        module.load_state_dict(module.state_dict())
        (arguments,) = seen
        assert len(arguments) == 7 + with_module
        assert (arguments[0] is module) is with_module
        with pytest.raises(TypeError, match="function"):
            module._register_load_state_dict_pre_hook(3)

    def test_state_by_position(self):
        module, found = nn.Linear(1, 1), {}
        with pytest.warns(FutureWarning, match="by name"):
            module.state_dict(found, "p.")
        assert list(found) == ["p.weight", "p.bias"]


class TestOptimizers:
    def made(self):
        weight = gl.ones(2, requires_grad=True)
        weight.grad = gl.ones(2)
        return optim.SGD([weight], lr=0.5)

    def test_steps_are_counted_and_may_be_set(self):
        optimizer = self.made()
        assert (optimizer._step_count, optimizer._opt_called) == (0, False)
        optimizer.step()
        assert (optimizer._step_count, optimizer._opt_called) == (1, True)
        other = self.made()
        other._step_count = 1
        optim.lr_scheduler.StepLR(other, 1).step()  # without a warning that the optimizer has made none
        other._opt_called = False
        assert not other._opt_called

    def test_hooks(self):
        optimizer, seen = self.made(), []
        optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
        assert len(optimizer._optimizer_step_pre_hooks) == 1
        assert optimizer._optimizer_step_post_hooks == {}
        optimizer.step()
        assert seen == ["before"]

    def test_hooks_around_the_state(self):
        optimizer, seen = self.made(), []
        optimizer.register_state_dict_pre_hook(lambda o: seen.append("before saving"))
        optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": 1})
        optimizer.register_state_dict_post_hook(lambda o, state: seen.append(sorted(state)), prepend=True)
        optimizer.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "note"})
        optimizer.register_load_state_dict_post_hook(lambda o: seen.append("after loading"))
        state = optimizer.state_dict()
        assert state["note"] == 1
        optimizer.load_state_dict(state)
        assert seen == ["before saving", ["param_groups", "state"], "after loading"]
        twin = pickle.loads(pickle.dumps(copy.deepcopy(optimizer)))
        assert "note" not in twin.state_dict()
        with pytest.raises(TypeError, match="function"):
            optimizer.register_state_dict_pre_hook(3)

    def test_what_needs_nothing(self):
        optimizer = self.made()
        assert optimizer.profile_hook_step(len) is len
        assert optimizer._cuda_graph_capture_health_check() is None


def test_a_compiled_module_names_the_one_it_was_made_of():
    module = nn.Linear(2, 2)
    compiled = gl.compile(module)
    assert compiled._orig_mod is module
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert compiled.in_features == 2


class Versioned(nn.Linear):
    _version = 3
    seen = None

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        self.seen = local_metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_a_state_knows_the_versions_of_modules():
    model = nn.Sequential(Versioned(1, 1))
    state = model.state_dict()
    assert state._metadata == {"": {"version": 1}, "0": {"version": 3}}
    model.load_state_dict(state)
    assert model[0].seen == 3
    model.load_state_dict(dict(state))
    assert model[0].seen is None
    state.move_to_end("0.weight")
    assert list(copy.deepcopy(state)) == ["0.bias", "0.weight"]


class TestNodes:
    def test_what_they_keep(self):
        x, w = gl.tensor([[1.0, 2.0, 3.0]], requires_grad=True), gl.ones(2, 3, requires_grad=True)
        for made, kept in (
            (x.exp(), {"result": x.exp()}), (x.sin(), {"self": x}), (x * 2, {"self": None, "other": 2}), (x * x, {"self": x, "other": x}),
            (x.pow(2), {"self": x, "exponent": 2}), (x**x, {"self": x, "exponent": x, "result": x**x}), (x @ w.T, {"self": x, "mat2": w.T}),
            (gl.nn.functional.linear(x, w), {"input": x, "weight": w}), (gl.softmax(x, 1), {"dim": 1, "result": gl.softmax(x, 1)}),
            (x.clamp(0, 2), {"self": x, "min": 0, "max": 2}), (gl.cat([x, x]), {"dim": 0}),
            (x.sort(1).values, {"dim": 1, "descending": False, "indices": gl.tensor([[0, 1, 2]])}),
            (gl.nn.functional.mse_loss(x, x + 1), {"self": x, "target": x + 1, "mean": True}),
        ):  # fmt: skip
            node = made.grad_fn
            names = [name for name in dir(node) if name.startswith("_saved_")]
            assert sorted(names) == sorted(f"_saved_{name}" for name in kept), node
            for name, want in kept.items():
                found = getattr(node, f"_saved_{name}")
                assert gl.equal(found, want) if isinstance(want, gl.Tensor) else found == want, (node, name)
        y = x.sin()
        assert y.grad_fn._saved_self is x and x.exp().grad_fn._saved_result.grad_fn is not None
        y.sum().backward()
        with pytest.raises(RuntimeError, match="freed"):
            _ = y.grad_fn._saved_self
        with pytest.raises(AttributeError, match="_saved_other"):
            _ = y.grad_fn._saved_other
        with gl.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), gl.tensor):
            assert gl.equal(x.sin().grad_fn._saved_self, x)

    def test_what_was_written_since_is_refused(self):
        x = gl.ones(2, requires_grad=True) * 1
        y = x.sin()
        x.mul_(2)
        with pytest.raises(RuntimeError, match="modified"):
            _ = y.grad_fn._saved_self


def test_an_optimizer_that_wraps_another_one():
    class Wrapper(gl.optim.Optimizer):
        """Leaves out __init__, as PyTorch lets it: hooks by their private names, or no groups at all."""

        def __init__(self, inner, hooks):
            if hooks:
                self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

        def zero_grad(self, set_to_none=True):
            self.inner.zero_grad(set_to_none)

    for hooks in (True, False):
        w = gl.nn.Parameter(gl.ones(2))
        wrapper = Wrapper(gl.optim.SGD([w], lr=0.5), hooks)
        for _ in range(3):
            wrapper.zero_grad()
            w.sum().backward()
            wrapper.step()
        assert w.tolist() == [-0.5, -0.5] and wrapper._optimizer_step_pre_hooks == {}
