"""Every public function on the device "meta" gives the shapes, dtypes and strides that the CPU gives, or says that there are no values."""

import copy

import pytest

import gradlab as gl
from gradlab import nn

from kinds.calls import CALLS, parts

# What asks for values, or whose size depends on them: as PyTorch's.
REFUSED = {
    "allclose", "equal", "is_nonzero", "ctc_loss", "__bool__", "__contains__", "__float__", "__index__", "__int__",
    "item", "tolist", "argwhere", "masked_select", "nonzero", "where-2", "__getitem__-3", "bincount", "cpu", "to-4", "type-2",
    "repeat_interleave-1", "unique", "unique_consecutive", "numpy", "tobytes", "__array__", "__dlpack__", "__dlpack_device__",
    "frexp", "histogram", "histogramdd", "nonzero_static",  # computed by NumPy, of the values
}  # fmt: skip


def on_meta(call, requires_grad=False):
    with gl.device("meta" if "making" in call.marks and call.name != "gl.frombuffer" else "cpu"):
        return call.run(gl.float32, requires_grad, "meta")


def facts(result):
    return [(tuple(t.shape), t.dtype, t.requires_grad) for t in parts(result)]


@pytest.mark.parametrize("call", [c for c in CALLS if c.name not in ("Tensor.storage", "Tensor.untyped_storage")], ids=repr)
def test_shapes_and_dtypes(call):
    gl.manual_seed(0)
    recording = not {"plain", "no_gradient"} & call.marks
    expected = call.run(gl.float32, recording)
    if REFUSED & {call.name.partition(".")[2], repr(call).partition(".")[2]}:
        with pytest.raises((RuntimeError, TypeError, BufferError, ValueError), match=r"meta|memory that another library"):
            on_meta(call, recording)
        return
    found = on_meta(call, recording)
    assert facts(found) == facts(expected)
    assert all(t.is_meta for t in parts(found)) or call.name == "gl.frombuffer"


@pytest.mark.parametrize("call", [c for c in CALLS if not {"plain", "no_gradient", "in_place", "random"} & c.marks], ids=repr)
def test_gradients_are_meta(call):
    if REFUSED & {call.name.partition(".")[2], repr(call).partition(".")[2]}:
        pytest.skip("asks for values")
    args, options = call.tensors(gl.float32, True, "meta")
    leaves = [t for t in parts([*args, *options.values()]) if t.requires_grad]
    results = [t for t in parts(call.on(args, options)) if t.requires_grad]
    if not leaves or not results:
        return
    found = gl.autograd.grad(results, leaves, [gl.ones_like(t) for t in results], allow_unused=True)
    assert all(g is None or (g.is_meta and g.shape == t.shape and g.dtype == t.dtype) for g, t in zip(found, leaves, strict=True))


# ---------------------------------------------------------------- models without memory


def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4))


def test_repr():
    assert repr(gl.ones(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
    assert repr(gl.zeros(2, dtype=gl.int64, device="meta")) == "tensor(..., device='meta', size=(2,), dtype=gradlab.int64)"
    assert "requires_grad=True" in repr(gl.ones((), device="meta", requires_grad=True))


def test_a_model_is_made_without_memory_and_filled():
    with gl.device("meta"):
        model = net()
    assert {p.device.type for p in [*model.parameters(), *model.buffers()]} == {"meta"}
    loss = model(gl.randn(2, 3, 4, 4, device="meta")).sum()
    loss.backward()
    assert loss.is_meta and all(p.grad.is_meta and p.grad.shape == p.shape for p in model.parameters())
    gl.optim.Adam(model.parameters()).step()
    with pytest.raises(NotImplementedError, match="to_empty"):
        model.to("cpu")
    source = net()
    filled = copy.deepcopy(model).to_empty(device="cpu")
    filled.load_state_dict(source.state_dict())
    model.load_state_dict(source.state_dict(), assign=True)
    x = gl.randn(2, 3, 4, 4)
    for other in (filled, model):
        assert other.eval()(x).tolist() == source.eval()(x).tolist()
    assert source.to("meta")[0].weight.is_meta


def test_what_would_not_fit_anywhere():
    with gl.device("meta"):
        model = nn.Sequential(nn.Linear(10**6, 10**6), nn.Embedding(10**8, 4096), nn.LSTM(10**5, 10**5), nn.Conv2d(10**4, 10**4, 7))
        found = gl.eye(10**6), gl.arange(10**12), gl.linspace(0, 1, 10**10), gl.tril(gl.ones(10**6, 10**6)), gl.randperm(10**10)
        model[0](gl.zeros(10**5, 10**6)).sum().backward()
    assert sum(p.numel() for p in model.parameters()) > 10**12 and model[0].weight.grad.is_meta and all(t.is_meta for t in found)


def test_a_patched_register_parameter_puts_parameters_there(monkeypatch):
    """As libraries make models of weights that are loaded later."""
    register = nn.Module.register_parameter

    def empty(self, name, param):
        register(self, name, param)
        if param is not None:
            options = {**self._parameters[name].__dict__, "requires_grad": param.requires_grad}
            self._parameters[name] = type(param)(self._parameters[name].to("meta"), **options)

    monkeypatch.setattr(nn.Module, "register_parameter", empty)
    model = nn.Sequential(nn.TransformerEncoderLayer(16, 2), nn.LSTM(4, 4), nn.Conv1d(2, 2, 3))
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_what_stands_there_and_what_does_not():
    x = gl.arange(6, device="meta")
    x[1:].add_(1)
    x[2] = 4
    assert x.view(2, 3)[1].storage_offset() == 3 and x.view(2, 3).t().stride() == (1, 3)
    assert gl.empty_like(x, device="cpu").tolist() == [0] * 6
    assert gl.zeros(3, device="cpu").to(x.device).is_meta and x.clone().is_meta and x.detach().is_meta and copy.deepcopy(x).is_meta
    state = gl.get_rng_state().tolist()
    gl.rand(4, device="meta"), gl.nn.functional.dropout(gl.ones(3, device="meta"))
    assert gl.get_rng_state().tolist() == state
    with pytest.raises(RuntimeError, match="different devices"):
        x + gl.ones(6)
    with pytest.raises(RuntimeError, match="no values to compute with"):
        gl.jit.trace(lambda x: x + 1, (x,))
