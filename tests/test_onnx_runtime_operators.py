"""Operators of ONNX Runtime's own domain beside ONNX Runtime, and operators of the oldest opsets beside their formulas."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
make = pytest.importorskip("onnx.helper").make_node
MICROSOFT = "com.microsoft"
U8, I8 = np.uint8, np.int8


def rng(seed=0):
    return np.random.default_rng(seed)


def floats(*shape, seed=0):
    return rng(seed).normal(size=shape).astype(np.float32)


def small(*shape, kind=U8, seed=0):
    return rng(seed).integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)


def f(value):
    return np.array(value, np.float32)


def u(value):
    return np.array(value, U8)


def model_of(kind, inputs, outputs=1, domain=MICROSOFT, version=17, first=0, **attributes):
    """A node whose first input (from number `first` on) is the model's and all others are stored."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    results = [f"y{k}" for k in range(outputs)]
    at = next(k for k, v in enumerate(inputs) if v is not None and v.ndim > 0 and k >= first)
    node = make(kind, names, results, domain=domain, **attributes)
    value = onnx.helper.make_tensor_value_info(names[at], onnx.helper.np_dtype_to_tensor_dtype(inputs[at].dtype), inputs[at].shape)
    tensors = [onnx.numpy_helper.from_array(v, n) for k, (v, n) in enumerate(zip(inputs, names, strict=True)) if v is not None and k != at]
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name=n) for n in results], tensors)
    opsets = [onnx.helper.make_opsetid("", version), *([onnx.helper.make_opsetid(MICROSOFT, 1)] if domain else [])]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), names[at], inputs[at]


def i32(value):
    return np.array(value, np.int32)


S, Z = f(0.02), u(128)
IMAGE, FILTER = floats(2, 3, 6, 6), floats(4, 3, 3, 3, seed=1)
A, B = floats(3, 4), floats(4, 5, seed=1)
Q = small(2, 3, 4, 4)
WEIGHT = small(8, 5, kind=I8) // 4  # of 7 bits: where a processor adds pairs in 16 bits, ONNX Runtime's sums of larger ones saturate
# operator: inputs and attributes
CASES = {
    "FusedConv relu": ([IMAGE, FILTER, floats(4, seed=2)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "FusedConv leaky": ([IMAGE, FILTER, floats(4, seed=2)], {"activation": "LeakyRelu", "activation_params": [0.2]}),
    "FusedConv clip": ([IMAGE, FILTER], {"activation": "Clip", "activation_params": [0.0, 1.0]}),
    "FusedConv hard": ([IMAGE, FILTER], {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]}),
    "FusedConv tanh": ([IMAGE, FILTER], {"activation": "Tanh", "strides": [2, 2]}),
    "FusedConv sum": ([IMAGE, FILTER, floats(4, seed=2), floats(2, 4, 4, 4, seed=3)], {"activation": "Relu"}),
    "FusedGemm": ([A, B, floats(5)], {"activation": "Relu", "alpha": 0.5}),
    "FusedGemm leaky": ([A, B.T.copy(), floats(5)], {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1}),
    "FusedMatMul": ([floats(2, 4, 3), floats(2, 4, 5)], {"transA": 1, "alpha": 0.25}),
    "FusedMatMul batch": ([floats(3, 2, 4), floats(2, 4, 5)], {"transBatchA": 1}),
    "FusedMatMul batches": ([floats(3, 2, 4), floats(4, 2, 5)], {"transBatchA": 1, "transBatchB": 1}),
    "Gelu": ([A], {}), "BiasGelu": ([A, floats(4)], {}), "FastGelu": ([A], {}), "FastGelu bias": ([A, floats(4)], {}),
    "QuickGelu": ([A], {"alpha": 1.5}),
    "SkipLayerNormalization": ([floats(2, 3, 4), floats(2, 3, 4, seed=1), floats(4), floats(4, seed=2), floats(4, seed=3)], {}),
    "SkipSimplifiedLayerNormalization": ([floats(2, 3, 4), floats(2, 3, 4, seed=1), floats(4)], {"epsilon": 1e-5}),
    "QuantizeLinear": ([A, f(0.05), u(100)], {}), "DequantizeLinear": ([Q, S, Z], {}),
    "QLinearAdd": ([Q, S, Z, small(2, 3, 4, 4, seed=1), f(0.03), u(120), f(0.05), u(130)], {}),
    "QLinearMul": ([Q, S, Z, small(2, 3, 4, 4, seed=1), f(0.03), u(120), f(0.05), u(130)], {}),
    "QLinearSigmoid": ([Q, f(0.05), Z, f(1 / 256), u(0)], {}),
    "QLinearLeakyRelu": ([Q, f(0.05), Z, f(0.03), u(20)], {"alpha": 0.1}),
    "QLinearSoftmax": ([small(3, 7), f(0.05), u(100), f(1 / 256), u(0)], {"axis": 1, "opset": 13}),
    "QLinearGlobalAveragePool": ([Q, f(0.05), Z, f(0.03), u(100)], {"channels_last": 0}),
    "QLinearGlobalAveragePool last": ([Q, f(0.05), Z, f(0.03), u(100)], {"channels_last": 1}),
    "QLinearAveragePool": ([Q, f(0.05), Z, f(0.037), Z], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearConcat": ([f(0.03), u(110), Q, S, Z, small(2, 3, 4, 4, seed=1), f(0.04), u(100)], {"axis": 1}),
    "QGemm": ([small(3, 8), f(0.02), u(120), WEIGHT, f(0.03), np.array(0, I8), small(5).astype(np.int32), f(0.1), u(128)], {"alpha": 0.5}),
    "QGemm float": ([small(3, 8), f(0.02), u(120), WEIGHT.T.copy(), f(0.03), np.array(0, I8), small(5).astype(np.int32)], {"transB": 1}),
    "MatMulIntegerToFloat": ([small(3, 8), WEIGHT, f(0.02), f(0.03), u(120), np.array(3, I8), floats(5)], {}),
    "DynamicQuantizeMatMul": ([floats(3, 8), WEIGHT, f(0.03), np.array(0, I8), floats(5)], {}),
    "Attention": ([floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2)], {"num_heads": 2}),
    "Attention causal": ([floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2)], {"num_heads": 2, "unidirectional": 1}),
    "Attention mask": ([floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2), i32([[1, 1, 1, 0], [1, 1, 0, 0]])], {"num_heads": 2}),
    "Attention lengths": ([floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2), i32([3, 2])], {"num_heads": 4, "scale": 0.3}),
    "Attention span": ([floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2), i32([3, 4, 1, 0])], {"num_heads": 2}),
    "Attention square": (
        [floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2), np.tril(np.ones((2, 4, 4), np.int32))], {"num_heads": 2}
    ),
    "Attention sizes": ([floats(2, 4, 8), floats(8, 20, seed=1), floats(20, seed=2)], {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}),
    "Attention bias": (
        [floats(2, 4, 8), floats(8, 24, seed=1), floats(24, seed=2), None, None, floats(2, 2, 4, 4, seed=3)], {"num_heads": 2}
    ),
    "Attention past": (
        [floats(2, 3, 8), floats(8, 24, seed=1), floats(24, seed=2), None, floats(2, 2, 2, 5, 4, seed=3)],
        {"num_heads": 2, "unidirectional": 1, "outputs": 2},
    ),
    "QAttention": (
        [small(2, 4, 8), small(8, 24, kind=I8) // 4, floats(24, seed=2), f(0.02), f(0.03), i32([3, 2]), u(120), np.array(0, I8)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention": ([floats(2, 4, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2), floats(24, seed=3)], {"num_heads": 2}),
    "MultiHeadAttention mask": (
        [floats(2, 4, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2), None, i32([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])], {"num_heads": 2}
    ),
    "MultiHeadAttention past": (
        [floats(2, 4, 8), floats(2, 4, 8, seed=1), floats(2, 4, 8, seed=2), None, None, None, floats(2, 2, 3, 4),
         floats(2, 2, 3, 4, seed=3)],
        {"num_heads": 2, "unidirectional": 1, "outputs": 3},
    ),
    "MultiHeadAttention heads": ([floats(2, 4, 8), floats(2, 2, 5, 4, seed=1), floats(2, 2, 5, 4, seed=2)], {"num_heads": 2}),
    "MultiHeadAttention bias": (
        [floats(2, 4, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2), None, None, floats(1, 2, 4, 5)], {"num_heads": 2}
    ),
    "RotaryEmbedding": ([floats(2, 4, 16), np.arange(8).reshape(2, 4) % 5, floats(6, 4), floats(6, 4, seed=1)], {"num_heads": 2}),
    "RotaryEmbedding pairs": ([floats(2, 2, 4, 8), np.array([1]), floats(6, 4), floats(6, 4, seed=1)], {"interleaved": 1}),
    "EmbedLayerNormalization": (
        [i32([[1, 2, 0], [3, 1, 1]]), i32([[0, 1, 0], [0, 0, 1]]), floats(5, 8), floats(4, 8, seed=1), floats(2, 8, seed=2),
         floats(8, seed=3), floats(8, seed=4), i32([[1, 1, 0], [1, 1, 1]])], {"outputs": 2},
    ),
    "EmbedLayerNormalization plain": (
        [i32([[1, 2, 0], [3, 1, 1]]), None, floats(5, 8), floats(4, 8, seed=1), None, floats(8, seed=3), floats(8, seed=4)], {"outputs": 2}
    ),
    "QEmbedLayerNormalization": (
        [i32([[1, 2, 0], [3, 1, 1]]), i32([[0, 1, 0], [0, 0, 1]]), small(5, 8), small(4, 8, seed=1), small(2, 8, seed=2), small(8, seed=3),
         small(8, seed=4), i32([[1, 1, 0], [1, 1, 1]]), f(0.02), f(0.03), f(0.01), f(0.02), f(0.02), u(120), u(130), u(100), u(90), u(110)],
        {"outputs": 2},
    ),
    "MatMulNBits": ([floats(3, 40), small(6, 2, 16), np.abs(floats(12))], {"K": 40, "N": 6, "bits": 4, "block_size": 32}),
    "MatMulNBits zeros": (
        [floats(3, 40), small(6, 2, 16), np.abs(floats(12)), small(6, 1, seed=3)], {"K": 40, "N": 6, "bits": 4, "block_size": 32}
    ),
    "MatMulNBits bytes": ([floats(3, 40), small(6, 2, 32), np.abs(floats(12))], {"K": 40, "N": 6, "bits": 8, "block_size": 32}),
    "MatMulNBits bias": (
        [floats(3, 40), small(6, 2, 16), np.abs(floats(12)), None, None, floats(6)], {"K": 40, "N": 6, "bits": 4, "block_size": 32}
    ),
    "GatherBlockQuantized": (
        [small(5, 16), np.array([[0, 4], [2, 1]]), np.abs(floats(5, 2))], {"bits": 4, "block_size": 16, "quantize_axis": 1, "first": 1}
    ),
    "Pad": ([A, np.array([1, 0, 0, 2], np.int64), f([0.5])], {}), "Trilu": ([A, np.array(1, np.int64)], {"upper": 0}),
    "GatherND": ([A, np.array([[0, 1], [2, 3]], np.int64)], {}), "TransposeMatMul": ([A.T.copy(), B], {"transA": 1, "alpha": 0.5}),
    "GridSample": ([IMAGE, rng().uniform(-1, 1, (2, 4, 5, 2)).astype(np.float32)], {"padding_mode": "border", "align_corners": 1}),
    "ExpandDims": ([A, i32(-1)], {}), "Inverse": ([floats(2, 3, 3)], {}), "UnfoldTensor": ([A], {"dim": 1, "size": 2, "step": 2}),
    "CDist": ([A, floats(5, 4, seed=1)], {"metric": "euclidean"}), "CDist squares": ([A, floats(5, 4, seed=1)], {"metric": "sqeuclidean"}),
    "MatMulInteger16": ([np.arange(-6, 6, dtype=np.int16).reshape(3, 4) * 99, np.arange(8, dtype=np.int16).reshape(4, 2) * 77], {}),
    "NhwcMaxPool": ([small(1, 5, 5, 3)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearConv": ([Q, S, Z, small(2, 3, 2, 2, seed=1), f(0.01), u(120), f(0.05), u(128)], {}),
    "QLinearConv last": ([Q.transpose(0, 2, 3, 1).copy(), S, Z, small(2, 3, 2, 2, seed=1), f(0.01), u(120), f(0.05), u(128)],
                         {"channels_last": 1}),
    "QLinearWhere": ([A > 0, small(3, 4), S, Z, small(3, 4, seed=1), f(0.03), u(120), f(0.05), u(130)], {}),
    "ConvTransposeWithDynamicPads": ([IMAGE, floats(3, 2, 3, 3), np.array([1, 0, 1, 1], np.int64), floats(2)], {"strides": [2, 2]}),
    "GatedRMSNorm": ([floats(2, 3, 8), floats(4), floats(2, 3, 8, seed=1)], {"activation": "sigmoid"}),
    "GatedRMSNorm silu": ([floats(2, 3, 8), floats(8), floats(2, 3, 8, seed=1)], {"epsilon": 1e-3}), "ScaledSiLU": ([A], {"alpha": 1.5}),
    "LinearAttention": ([floats(2, 5, 8), floats(2, 5, 4, seed=1), floats(2, 5, 6, seed=2), None,
                         -abs(floats(2, 5, 2, seed=3)), f(rng(4).uniform(size=(2, 5, 2)))],
                        {"q_num_heads": 4, "kv_num_heads": 2, "outputs": 2}),
    "CausalConvWithState": ([floats(2, 3, 6), floats(3, 1, 4), floats(3), floats(2, 3, 3)], {"activation": "silu", "outputs": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators_of_onnx_runtime(name):
    inputs, attributes = CASES[name]
    model, at, x = model_of(name.split()[0], inputs, **attributes)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {at: x})
    loaded = gl.onnx.load(model)
    compiled = gl.compile(loaded)
    for run in (loaded, compiled, compiled):
        with gl.no_grad():
            found = run(gl.tensor(x))
        found = found if isinstance(found, tuple) else (found,)
        for got, want in zip(found, wanted, strict=True):
            close(got.numpy(), want)


CACHED = {  # steps, keys of before, lengths less one, attributes
    "prompt": (4, 0, [3, 3], {}), "shorter prompt": (4, 0, [3, 1], {}), "packed": (4, 0, [3, 3], {"packed": True}),
    "step": (1, 5, [5, 5], {}),
    "shorter past": (1, 5, [5, 2], {}), "room left": (1, 9, [5, 3], {}), "turned": (4, 0, [3, 3], {"do_rotary": 1}),
    "neighbours turned": (1, 5, [5, 3], {"do_rotary": 1, "rotary_interleaved": 1}), "window": (6, 0, [5, 5], {"local_window_size": 3}),
    "capped": (4, 0, [3, 3], {"softcap": 2.0, "scale": 0.3}), "smooth": (4, 0, [3, 3], {"smooth_softmax": 1}),
    "sink": (1, 5, [5, 4], {"sink": True}),
    "bias": (4, 0, [3, 3], {"bias": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CACHED)
def test_grouped_queries_with_a_cache(name):
    """Beside ONNX Runtime, where a result is specified: rows of queries and keys that there are."""
    steps, past, lengths, attributes = CACHED[name]
    heads, shared, width, batch = 4, 2, 16, 2
    attributes = dict(attributes)
    packed, bias, sink = (attributes.pop(k, False) for k in ("packed", "bias", "sink"))
    own = [floats(batch, steps, shared * width, seed=k) for k in (1, 2)]
    q = floats(batch, steps, (heads + 2 * shared if packed else heads) * width)
    before = [floats(batch, shared, past, width, seed=k) for k in (3, 4)] if past else [None, None]
    total = max(lengths) + 1
    inputs = [q, *([None, None] if packed else own), *before, i32(lengths), i32(total)]
    inputs += [np.cos(floats(32, width // 2)), np.sin(floats(32, width // 2))] if "do_rotary" in attributes else [None, None]
    inputs += [None, floats(batch, heads, steps, total, seed=5) if bias else None, floats(heads, seed=6) if sink else None]
    model, at, x = model_of("GroupQueryAttention", inputs, outputs=3, num_heads=heads, kv_num_heads=shared, **attributes)
    wanted = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {at: x})
    loaded = gl.onnx.load(model)
    compiled = gl.compile(loaded) if name in ("turned", "shorter past") else loaded
    for run in (loaded, compiled, compiled):
        with gl.no_grad():
            found = run(gl.tensor(x))
        assert [tuple(f.shape) for f in found] == [w.shape for w in wanted]
        for entry, last in enumerate(lengths):
            close(found[0].numpy()[entry, : last + 1], wanted[0][entry, : last + 1])
            for got, want in zip(found[1:], wanted[1:], strict=True):
                close(got.numpy()[entry, :, : last + 1], want[entry, :, : last + 1])


def alone(kind, inputs, outputs=1, **attributes):
    model, _, x = model_of(kind, inputs, outputs=outputs, **attributes)
    found = gl.onnx.load(model)(gl.tensor(x))
    return [v.detach().numpy() for v in (found if isinstance(found, tuple) else (found,))]


LATER = {"Unique", "Range", "GroupNorm", "SkipGroupNorm", "BiasAdd", "BiasSplitGelu"}


def test_operators_that_onnx_runtime_has_on_other_processors():
    """Parts of diffusion models, beside their formulas; and two that have nothing of their inputs' sizes."""
    x, scale, shift, skip = floats(2, 3, 3, 4), floats(4, seed=1), floats(4, seed=2), floats(2, 3, 3, 4, seed=3)
    rows = (x + skip).reshape(2, 9, 2, 2)
    normal = (rows - rows.mean((1, 3), keepdims=True)) / np.sqrt(rows.var((1, 3), keepdims=True) + 1e-5)
    want = normal.reshape(x.shape) * scale + shift
    y, total = alone("SkipGroupNorm", [x, scale, shift, skip], 2, groups=2, activation=1)
    np.testing.assert_allclose(y, want / (1 + np.exp(-want)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(total, x + skip)
    (y,) = alone("GroupNorm", [x + skip, scale, shift], groups=2, activation=0)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone("BiasAdd", [x, scale, skip])[0], x + scale + skip, rtol=1e-6)
    value, gate = np.split(x + scale, 2, -1)
    np.testing.assert_allclose(alone("BiasSplitGelu", [x, scale])[0], value * gl.nn.functional.gelu(gl.tensor(gate)).numpy(), rtol=1e-5)
    values, back, counts = alone("Unique", [f([3.0, 1.0, 3.0, 2.0])], 3)
    assert (values.tolist(), back.tolist(), counts.tolist()) == ([3, 1, 2], [0, 1, 0, 2], [2, 1, 1])
    node = make("Range", ["a", "b", "c"], ["y"], domain=MICROSOFT)
    stored = [onnx.numpy_helper.from_array(f(v), n) for v, n in ((1, "a"), (3, "b"), (0.5, "c"))]
    value, result = onnx.helper.make_tensor_value_info("x", 1, [4]), onnx.ValueInfoProto(name="z")
    graph = onnx.helper.make_graph([node, make("Add", ["y", "x"], ["z"])], "g", [value], [result], stored)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(MICROSOFT, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    np.testing.assert_allclose(gl.onnx.load(model)(gl.zeros(4)).detach().numpy(), [1, 1.5, 2, 2.5])


def close(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind in "iu":  # one step of the quantised numbers, where a sum lies in the middle of two
        gap = np.abs(got.astype(int) - want.astype(int))
        assert gap.max() <= 1 and (gap != 0).mean() < 0.05, gap.max()
    else:
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_every_operator_of_onnx_runtimes_domain_is_compared():
    from gradlab.onnx.importing import OPERATORS
    from gradlab.onnx.operators import ready

    ready()
    compared = {name.split()[0] for name in CASES} | {"DynamicQuantizeLSTM", "GroupQueryAttention", *LATER}  # below
    assert {name.removeprefix(f"{MICROSOFT}:") for name in OPERATORS if name.startswith(MICROSOFT)} <= compared


def test_a_quantised_lstm():
    """Both round inputs and states to 8 bits in each step; sums in another order may round another way."""
    size, w, r = 4, small(1, 3, 16, kind=I8), small(1, 4, 16, kind=I8, seed=1)
    w, r = w // 4, r // 4
    inputs = [floats(5, 2, 3), w, r, floats(1, 32) * f(0.1), None, None, None, None, f([0.01]), np.zeros(1, I8), f([0.01]), np.zeros(1, I8)]
    model, at, x = model_of("DynamicQuantizeLSTM", inputs, outputs=3, hidden_size=size)
    want = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {at: x})
    with gl.no_grad():
        for got, expected in zip(gl.onnx.load(model)(gl.tensor(x)), want, strict=True):
            np.testing.assert_allclose(got.numpy(), expected, atol=2e-2)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_long_quantised_lstm_is_a_loop_in_a_trace(direction):
    size, steps = 4, 80
    w, r = small(1, 3, 16, kind=I8) // 4, small(1, 4, 16, kind=I8, seed=1) // 4
    scales = [f([0.01]), np.zeros(1, I8)] * 2
    inputs = [floats(steps, 2, 3), w, r, floats(1, 32) * f(0.1), None, None, None, None, *scales]
    model, _, x = model_of("DynamicQuantizeLSTM", inputs, outputs=3, hidden_size=size, direction=direction)
    loaded, x = gl.onnx.load(model), gl.tensor(x)
    with gl.no_grad():
        traced = gl.jit.trace(loaded, (x,))
        for got, expected in zip(traced(x), loaded(x), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=2e-2)
    assert len(traced.graph.calls) < steps and any(call.op.name == "scan" for call in traced.graph.calls)


def test_sums_of_many_whole_numbers_are_exact():
    """Beyond 2^24, where float32 has no odd numbers."""
    x, w = U8(254) + small(2, 70, 4, 4) % U8(2), I8(-128) + small(3, 70, 3, 3, kind=I8) % I8(2)
    model, *_ = model_of("ConvInteger", [x, w], domain="")
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3), (2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))
    found = gl.onnx.load(model)(gl.tensor(x))
    assert found.dtype == gl.int32 and abs(want).min() > 1 << 24 and (want % 2).any()
    np.testing.assert_array_equal(found.numpy(), want)


# ---------------------------------------------------------------- the oldest opsets


def run_old(kind, inputs, opset, **attributes):
    model, _, x = model_of(kind, inputs, domain="", version=opset, **attributes)
    return gl.onnx.load(model)(gl.tensor(x)).detach().numpy()


def test_prelu_before_opset_7():
    slope = f([0.1, 0.2, 0.3])
    want = np.where(IMAGE < 0, IMAGE * slope[None, :, None, None], IMAGE)
    for opset in (1, 6):
        np.testing.assert_array_equal(run_old("PRelu", [IMAGE, slope], opset), want)
    np.testing.assert_array_equal(run_old("PRelu", [A, f([0.5])], 6), np.where(A < 0, A * f(0.5), A))


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 14, 15])
def test_batch_normalisation_of_all_opsets(opset):
    scale, bias, mean, var = floats(3), floats(3, seed=1), floats(3, seed=2), np.abs(floats(3, seed=3)) + 0.5
    test = {"is_test": 1} if opset < 7 else {}
    old = {"consumed_inputs": [0, 0, 0, 1, 1]} if opset == 1 else {}
    found = run_old("BatchNormalization", [IMAGE, scale, bias, mean, var], opset, epsilon=1e-3, **test, **old)
    s, b, m, v = (a[None, :, None, None] for a in (scale, bias, mean, var))
    np.testing.assert_allclose(found, (IMAGE - m) / np.sqrt(v + np.float32(1e-3)) * s + b, rtol=1e-5, atol=1e-5)


def test_casts_to_a_type_by_name():
    x = f([1.7, -2.2, 0.0])
    for name, dtype in (("INT64", np.int64), ("FLOAT", np.float32), ("DOUBLE", np.float64), ("BOOL", bool), ("INT32", np.int32)):
        found = run_old("Cast", [x], 1, to=name)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x.astype(dtype))


@pytest.mark.parametrize(("kind", "opset"), [("Add", 1), ("Sub", 6), ("Mul", 6), ("Div", 1)])
def test_broadcasting_by_an_axis(kind, opset):
    b = np.abs(floats(3)) + 1
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[kind]
    found = run_old(kind, [IMAGE, b], opset, broadcast=1, axis=1)
    np.testing.assert_allclose(found, function(IMAGE, b[None, :, None, None]), rtol=1e-6)
