"""Layers: containers, what layers compute and how they answer to wrong use; all of them against PyTorch where it is installed."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn


@pytest.fixture(autouse=True)
def seed():
    gl.manual_seed(0)


def array(t):
    return t.detach().numpy()


# ---------------------------------------------------------------- containers


def test_sequential():
    a, b, c = nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)
    net = nn.Sequential(a, b, c)
    x = gl.randn(4, 2)
    np.testing.assert_array_equal(array(net(x)), array(c(b(a(x)))))
    assert len(net) == 3 and net[0] is a and net[-1] is c and list(net) == [a, b, c]
    assert list(net[1:]) == [b, c] and list(net[1:].state_dict()) == ["2.weight", "2.bias"]
    net.append(nn.Tanh()).insert(0, nn.Identity())
    assert [type(m).__name__ for m in net] == ["Identity", "Linear", "ReLU", "Linear", "Tanh"]
    assert isinstance(net.pop(0), nn.Identity) and next(iter(net.state_dict())) == "0.weight"
    del net[1:]
    assert list(net) == [a]
    net.extend([b, c])
    net[1] = nn.Sigmoid()
    assert isinstance(net[1], nn.Sigmoid)
    named = nn.Sequential({"one": a, "two": b})
    assert named.one is a and list(named.state_dict()) == ["one.weight", "one.bias"]
    assert list(nn.Sequential(a) + nn.Sequential(b)) == [a, b] and list(nn.Sequential(a) * 2) == [a, a]
    for wrong, error in ((lambda: nn.Sequential(1), TypeError), (lambda: net[7], IndexError), (lambda: net.insert(9, a), IndexError)):
        with pytest.raises(error):
            wrong()


def test_module_list_and_dict():
    layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))
    layers += [nn.ReLU()]
    assert len(layers) == 3 and isinstance(layers[-1], nn.ReLU) and list(layers.state_dict())[-1] == "1.bias"
    assert isinstance(layers[:2], nn.ModuleList) and len(layers + list(nn.Sequential(nn.ReLU()))) == 4
    with pytest.raises(NotImplementedError):
        layers(1)
    table = nn.ModuleDict({"a": nn.Linear(1, 1)})
    table["b"] = nn.ReLU()
    assert list(table) == ["a", "b"] and "a" in table and list(table.keys()) == ["a", "b"]
    assert list(table.state_dict()) == ["a.weight", "a.bias"]
    assert isinstance(table.pop("b"), nn.ReLU) and len(table) == 1
    with pytest.raises(TypeError):
        table["c"] = 1


def test_parameter_list_and_dict():
    listed = nn.ParameterList([gl.zeros(2), nn.Parameter(gl.ones(3))])
    listed.append(gl.zeros(1))
    assert [p.shape for p in listed.parameters()] == [(2,), (3,), (1,)] and list(listed.state_dict()) == ["0", "1", "2"]
    assert isinstance(listed[0], nn.Parameter) and len(listed[1:]) == 2
    assert repr(listed).splitlines()[1] == "  (0): Parameter of shape (2,), gradlab.float32, cpu"
    named = nn.ParameterDict({"a": gl.zeros(2)})
    named["b"] = gl.ones(1)
    assert list(named) == ["a", "b"] and list(named.state_dict()) == ["a", "b"] and named.get("c") is None
    assert named.pop("a").shape == (2,) and "a" not in named
    with pytest.raises(KeyError):
        named["a"]
    assert copy.deepcopy(named)["b"] is not named["b"]


# ---------------------------------------------------------------- layers


def test_linear_by_hand():
    layer = nn.Linear(2, 1)
    layer.weight.data = gl.tensor([[2.0, 3.0]])
    layer.bias.data = gl.tensor([1.0])
    y = layer(gl.tensor([[10.0, 100.0]]))
    assert y.tolist() == [[321.0]]
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[10.0, 100.0]] and layer.bias.grad.tolist() == [1.0]


def test_dropout_and_batch_norm_follow_the_mode():
    x = gl.randn(64, 5)
    drop, norm = nn.Dropout(0.5), nn.BatchNorm1d(5)
    dropped = array(drop(x))
    kept = dropped != 0
    assert 0.3 < kept.mean() < 0.7
    np.testing.assert_allclose(dropped[kept], 2 * array(x)[kept], rtol=1e-6)
    np.testing.assert_array_equal(array(drop.eval()(x)), array(x))
    y = array(norm(x))
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(y.var(0), 1, atol=1e-3)
    np.testing.assert_allclose(array(norm.running_mean), 0.1 * array(x).mean(0), atol=1e-6)
    np.testing.assert_allclose(array(norm.running_var), 0.9 + 0.1 * array(x).var(0, ddof=1), atol=1e-5)
    assert int(norm.num_batches_tracked) == 1
    again = array(norm.eval()(x))
    scale = np.sqrt(array(norm.running_var) + 1e-5)
    np.testing.assert_allclose(again, (array(x) - array(norm.running_mean)) / scale, atol=1e-5)
    average = nn.BatchNorm1d(5, momentum=None)
    average(x)
    average(3 * x)
    np.testing.assert_allclose(array(average.running_mean), 2 * array(x).mean(0), atol=1e-6)


def test_embedding():
    table = nn.Embedding(5, 2, padding_idx=0)
    table(gl.tensor([[0, 1], [1, 4]])).sum().backward()
    assert table.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [1, 1]]
    given = nn.Embedding.from_pretrained(gl.eye(3))
    assert not given.weight.requires_grad and given(gl.tensor(2)).tolist() == [0, 0, 1]
    bag = nn.EmbeddingBag.from_pretrained(gl.eye(3), mode="sum")
    assert bag(gl.tensor([0, 0, 2]), gl.tensor([0, 2, 2])).tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_lazy_layers():
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    assert "LazyLinear" in repr(net)
    y = net(gl.randn(2, 3, 5, 5))
    assert y.shape == (2, 2) and [type(m) for m in net] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]
    assert net[0].weight.shape == (4, 3, 3, 3) and net[3].in_features == 36 and type(net[3].weight) is nn.Parameter
    fresh = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    fresh.load_state_dict(net.state_dict())
    x = gl.randn(1, 3, 5, 5)
    np.testing.assert_allclose(array(fresh.eval()(x)), array(net.eval()(x)), atol=1e-6)


def test_attention_weights():
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    x = gl.randn(3, 5, 4)
    out, weights = layer(x, x, x)
    assert out.shape == (3, 5, 4) and weights.shape == (3, 5, 5)
    np.testing.assert_allclose(array(weights).sum(-1), 1, atol=1e-6)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    masked, weights = layer(x, x, x, attn_mask=causal, average_attn_weights=False)
    assert weights.shape == (3, 2, 5, 5) and np.triu(array(weights)[0, 0], 1).max() == 0
    fast, none = layer(x, x, x, attn_mask=causal, need_weights=False, is_causal=True)
    np.testing.assert_allclose(array(fast), array(masked), atol=1e-6)
    assert none is None
    with pytest.raises(RuntimeError, match="is_causal"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(ValueError, match="divisible"):
        nn.MultiheadAttention(5, 2)


def test_clipping():
    ps = [nn.Parameter(gl.zeros(2)), nn.Parameter(gl.zeros(1)), nn.Parameter(gl.zeros(1))]
    ps[0].grad, ps[1].grad = gl.tensor([3.0, 0.0]), gl.tensor([4.0])
    assert float(nn.utils.get_total_norm([p.grad for p in ps[:2]], math.inf)) == 4
    assert float(nn.utils.clip_grad_norm_(ps, 1.0)) == 5
    np.testing.assert_allclose(ps[0].grad.tolist() + ps[1].grad.tolist(), [0.6, 0, 0.8], rtol=1e-5)
    nn.utils.clip_grad_norm_(ps, 10.0)
    np.testing.assert_allclose(ps[1].grad.tolist(), [0.8], rtol=1e-5)
    nn.utils.clip_grad_value_(ps, 0.5)
    assert ps[1].grad.tolist() == [0.5]
    ps[1].grad = gl.tensor([math.nan])
    with pytest.raises(RuntimeError, match="cannot be clipped"):
        nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    assert float(nn.utils.clip_grad_norm_([ps[2]], 1.0)) == 0


def test_parameters_as_vector():
    net = nn.Linear(2, 2)
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (6,)
    nn.utils.vector_to_parameters(gl.arange(6.0), net.parameters())
    assert net.weight.tolist() == [[0, 1], [2, 3]] and net.bias.tolist() == [4, 5] and net.weight.requires_grad
    with pytest.raises(ValueError, match="5 elements"):
        nn.utils.vector_to_parameters(gl.arange(5.0), net.parameters())


def test_summary():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))
    net[2].requires_grad_(False)
    found = nn.summary(net, gl.zeros(5, 3))
    assert [x.output for x in found.layers] == ["(5, 2)", "(5, 4)", "(5, 4)", "(5, 2)"]
    assert (found.parameters, found.trainable, found.parameter_bytes) == (26, 16, 104)
    text = str(found)
    assert "  0 (Linear)" in text and "26, 10 of them frozen" in text
    assert net.training and not net[0]._forward_hooks
    assert nn.summary(net, input_size=(1, 3)).layers[0].output == "(1, 2)"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: nn.Dropout(1.5),
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(2, 2, 3, padding_mode="mirror"),
        lambda: nn.Conv2d(2, 2, 3, padding="same", stride=2),
        lambda: nn.ConvTranspose2d(2, 2, 3, padding_mode="reflect"),
        lambda: nn.GroupNorm(2, 3),
        lambda: nn.Embedding(3, 2, padding_idx=3),
        lambda: nn.Hardtanh(1, 1),
        lambda: nn.BatchNorm2d(3)(gl.zeros(2, 3)),
        lambda: nn.ReflectionPad2d((1, 2, 3)),
        lambda: nn.Bilinear(0, 1, 1),
        lambda: nn.TripletMarginLoss(margin=0),
    ],
)
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError):
        wrong()


# ---------------------------------------------------------------- against PyTorch

MODULES = {
    "Linear": [((3, 4), {}, [(2, 3)])],
    "Bilinear": [((2, 3, 4), {}, [(5, 2), (5, 3)])],
    "Conv1d": [((4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 4, 9)])],
    "Conv2d": [((2, 3, (3, 2)), {"dilation": 2, "padding": "same", "padding_mode": "reflect"}, [(2, 2, 7, 8)])],
    "Conv3d": [((2, 3, 2), {}, [(1, 2, 4, 5, 3)])],
    "ConvTranspose1d": [((2, 4, 3), {"stride": 2, "output_padding": 1}, [(2, 2, 5)])],
    "ConvTranspose2d": [((2, 4, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 2, 5, 4)])],
    "ConvTranspose3d": [((2, 1, 2), {}, [(1, 2, 3, 3, 2)])],
    "MaxPool2d": [((3, 2), {"padding": 1}, [(2, 3, 7, 6)])],
    "AvgPool2d": [((3, 2), {"padding": 1, "ceil_mode": True}, [(2, 3, 7, 6)])],
    "AdaptiveAvgPool2d": [(((3, None),), {}, [(2, 3, 7, 5)])],
    "BatchNorm1d": [((3,), {}, [(5, 3)]), ((3,), {"momentum": None}, [(5, 3, 2)])],
    "BatchNorm2d": [((3,), {"affine": False}, [(4, 3, 2, 2)])],
    "BatchNorm3d": [((3,), {"track_running_stats": False}, [(4, 3, 2, 2, 2)])],
    "LayerNorm": [(((2, 3),), {}, [(4, 2, 3)])],
    "GroupNorm": [((2, 4), {}, [(3, 4, 5)])],
    "RMSNorm": [((5,), {}, [(3, 5)])],
    "InstanceNorm2d": [((3,), {"affine": True, "track_running_stats": True}, [(2, 3, 4, 4)])],
    "LocalResponseNorm": [((3,), {}, [(2, 5, 3)])],
    "PReLU": [((3,), {}, [(2, 3, 2)])],
    "GELU": [((), {"approximate": "tanh"}, [(4, 5)])],
    "Softmax": [((1,), {}, [(4, 5)])],
    "ReplicationPad2d": [(((1, 2, 3, 0),), {}, [(2, 3, 4, 4)])],
    "Upsample": [((), {"scale_factor": 2, "mode": "bilinear"}, [(1, 2, 3, 4)])],
    "PixelShuffle": [((2,), {}, [(1, 8, 2, 3)])],
    "CosineSimilarity": [((), {}, [(4, 5), (4, 5)])],
    "RNN": [((3, 4, 2), {"nonlinearity": "relu"}, [(5, 2, 3)])],
    "LSTM": [
        ((3, 4, 2), {"bidirectional": True, "proj_size": 2}, [(5, 2, 3)]),
        ((3, 4), {"bias": False, "batch_first": True}, [(2, 5, 3)]),
    ],
    "GRU": [((3, 4, 2), {"bidirectional": True}, [(5, 2, 3)])],
    "RNNCell": [((3, 4), {}, [(2, 3)])],
    "LSTMCell": [((3, 4), {}, [(2, 3)])],
    "GRUCell": [((3, 4), {}, [(3,)])],
    "MultiheadAttention": [
        ((4, 2), {"kdim": 3, "vdim": 5}, [(6, 2, 4), (7, 2, 3), (7, 2, 5)]),
        ((4, 2), {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}, [(2, 6, 4)] * 3),
    ],
    "TransformerEncoderLayer": [((4, 2, 8, 0.0), {"norm_first": True, "activation": "gelu"}, [(5, 2, 4)])],
    "TransformerDecoderLayer": [((4, 2, 8, 0.0), {"batch_first": True}, [(2, 5, 4), (2, 6, 4)])],
    "Transformer": [((4, 2, 1, 2, 8, 0.0), {"batch_first": True}, [(2, 5, 4), (2, 3, 4)])],
}
CASES = [(name, i) for name, cases in MODULES.items() for i in range(len(cases))]


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, (tuple, list)) else [] if value is None else [value]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "number"), CASES, ids=str)
def test_same_as_torch(name, number):
    torch = pytest.importorskip("torch")
    args, kwargs, shapes = MODULES[name][number]
    theirs, ours = getattr(torch.nn, name)(*args, **kwargs).double(), getattr(nn, name)(*args, **kwargs).double()
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    ours.load_state_dict({k: gl.tensor(v.numpy()) for k, v in state.items()})
    values = [np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate(shapes)]
    if name == "MultiheadAttention" and len(set(shapes)) == 1:
        values = values[:1] * 3
    for training in (True, False):
        inputs = [torch.tensor(v, requires_grad=True) for v in values], [gl.tensor(v, requires_grad=True) for v in values]
        theirs.zero_grad()
        ours.zero_grad()
        results = flat(theirs.train(training)(*inputs[0])), flat(ours.train(training)(*inputs[1]))
        assert len(results[0]) == len(results[1])
        for want, got in zip(*results, strict=True):
            np.testing.assert_allclose(array(got), want.detach().numpy(), atol=1e-10)
        for found in results:
            sum((x * x * x).sum() for x in found).backward()
        for want, got in zip(*inputs, strict=True):
            np.testing.assert_allclose(array(got.grad), want.grad.numpy(), atol=1e-8)
        for (key, want), (_, got) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
            np.testing.assert_allclose(array(got.grad), want.grad.numpy(), atol=1e-8, err_msg=key)
        for key, want in theirs.state_dict().items():
            np.testing.assert_allclose(array(ours.state_dict()[key]), want.numpy(), atol=1e-10, err_msg=key)


@pytest.mark.torch
def test_text_as_torch():
    """Without its notes on parameters, the text of a module is PyTorch's."""
    torch = pytest.importorskip("torch")
    for name, number in CASES:
        args, kwargs, _ = MODULES[name][number]
        ours = repr(getattr(nn, name)(*args, **kwargs))
        assert [line.split("  #")[0] for line in ours.splitlines()] == repr(getattr(torch.nn, name)(*args, **kwargs)).splitlines(), name
