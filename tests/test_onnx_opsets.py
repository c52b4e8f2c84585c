"""Every operator that a file may hold, in every opset that ever changed it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import gradlab as gl
from gradlab.onnx.importing import OPERATORS

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper
from onnx_opsets import HISTORY, node_tests, verdict, versions


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(*values):
    return np.array(values, np.int64)


def run(kind, version, inputs, outputs=1, stored=(), **attributes):
    """One node's results. stored: which of its inputs lie in the file."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    node = helper.make_node(kind, names, [f"y{k}" for k in range(outputs)], **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for k, (n, v) in enumerate(zip(names, inputs, strict=True)) if n and k not in stored]  # fmt: skip
    tensors = [numpy_helper.from_array(inputs[k], names[k]) for k in stored]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(f"y{k}") for k in range(outputs)], tensors)
    model = gl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8))
    found = model(*(gl.tensor(v) for k, v in enumerate(inputs) if v is not None and k not in stored))
    return [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]


X, IMAGE = floats(2, 3, 4), floats(2, 3, 4, 5, seed=1)
SCALE, BIAS, MEAN, VAR = (floats(3, seed=k) for k in (2, 3, 4, 5))
VAR = VAR**2 + 0.5
COLUMN = (1, 3, 1, 1)


def normal(x, mean, var, scale=SCALE, bias=BIAS, shape=COLUMN, eps=1e-5):
    mean, var, scale, bias = (v.reshape(shape) for v in (mean, var, scale, bias))
    return (x - mean) / np.sqrt(var + eps) * scale + bias


def batch_trained():
    own, spread = IMAGE.mean((0, 2, 3)), IMAGE.var((0, 2, 3))
    return [normal(IMAGE, own, spread), MEAN * 0.9 + own * 0.1, VAR * 0.9 + spread * 0.1]


def softmaxed(x, axis):
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    e = np.exp(rows - rows.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).reshape(x.shape)


def hardmaxed(x, axis):
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return (np.arange(rows.shape[1]) == rows.argmax(1)[:, None]).astype(np.float32).reshape(x.shape)


def rolled(x, w, r, kind=np.tanh):
    h, found = np.zeros((x.shape[1], r.shape[-1]), np.float32), []
    for step in x:
        h = kind(step @ w[0].T + h @ r[0].T)
        found.append(h)
    return np.stack(found)[:, None]


ELEMENTS = floats(3, 4, 5, seed=6) ** 2 + 1
PLACES = [*(floats(3, 4, seed=k) for k in (7, 8, 9)), floats(3, 4, seed=10) ** 2 + 0.5]
REGION = np.array([[0.4, 0.2, 3.1, 2.9]], np.float32)
WEIGHTS = floats(1, 5, 4, seed=10), floats(1, 5, 5, seed=11)
# what changed between opsets: operator and version, inputs, attributes (with `outputs` and `stored` as `run` takes them), results
CASES = [
    ("Add", 6, [X, floats(3)], {"broadcast": 1, "axis": 1}, lambda: X + floats(3)[:, None]),
    ("Sub", 1, [X, floats(2, 3)], {"broadcast": 1, "axis": 0}, lambda: X - floats(2, 3)[:, :, None]),
    ("Mul", 6, [X, floats(4)], {"broadcast": 1}, lambda: X * floats(4)),
    ("Div", 1, [X, ELEMENTS[:2, :3, 0]], {"broadcast": 1, "axis": 0}, lambda: X / ELEMENTS[:2, :3, 0, None]),
    ("Pow", 1, [ELEMENTS, floats(4)], {"broadcast": 1, "axis": 1}, lambda: ELEMENTS ** floats(4)[:, None]),
    *[(kind, 1, [X > 0, floats(3) > 0], {"broadcast": 1, "axis": 1}, lambda f=f: f(X > 0, (floats(3) > 0)[:, None]))
      for kind, f in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor))],
    *[(kind, 1, [X, floats(3)], {"broadcast": 1, "axis": 1}, lambda f=f: f(X, floats(3)[:, None]))
      for kind, f in (("Less", np.less), ("Greater", np.greater))],
    ("Equal", 1, [integers(1, 2, 3).reshape(3, 1), integers(1, 3, 3)], {"broadcast": 1, "axis": 0},
     lambda: np.array([[True], [False], [True]])),
    ("Gemm", 1, [floats(2, 3), floats(3, 4), floats(4)], {"broadcast": 1, "alpha": 0.5, "beta": 2.0},
     lambda: floats(2, 3) @ floats(3, 4) * 0.5 + 2 * floats(4)),
    ("Gemm", 6, [floats(3, 2), floats(4, 3), floats(2, 4)], {"transA": 1, "transB": 1},
     lambda: floats(3, 2).T @ floats(4, 3).T + floats(2, 4)),
    ("BatchNormalization", 1, [IMAGE, SCALE, BIAS, MEAN, VAR], {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]},
     lambda: normal(IMAGE, MEAN, VAR)),
    ("BatchNormalization", 6, [IMAGE, SCALE, BIAS, MEAN, VAR], {"outputs": 3}, batch_trained),
    ("BatchNormalization", 7, [IMAGE, SCALE, BIAS, MEAN, VAR], {}, lambda: normal(IMAGE, MEAN, VAR)),
    ("BatchNormalization", 6, [X, *PLACES], {"spatial": 0, "is_test": 1}, lambda: normal(X, *PLACES[2:], *PLACES[:2], (1, 3, 4))),
    ("BatchNormalization", 7, [X, *PLACES], {"spatial": 0}, lambda: normal(X, *PLACES[2:], *PLACES[:2], (1, 3, 4))),
    ("BatchNormalization", 14, [IMAGE, SCALE, BIAS, MEAN, VAR], {"outputs": 3, "training_mode": 1}, batch_trained),
    ("Clip", 1, [X], {"min": -0.5, "max": 0.25, "consumed_inputs": [0]}, lambda: X.clip(-0.5, 0.25)),
    ("Clip", 6, [X], {"max": 0.25}, lambda: X.clip(None, 0.25)),
    ("Clip", 11, [X, None, np.float32(0.25).reshape(())], {"stored": (2,)}, lambda: X.clip(None, 0.25)),
    ("Dropout", 1, [X], {"is_test": 1, "ratio": 0.9}, lambda: X),
    ("Dropout", 6, [X], {"is_test": 1, "outputs": 2}, lambda: [X, np.ones_like(X)]),
    ("Dropout", 7, [X], {"outputs": 2}, lambda: [X, np.ones_like(X)]),
    ("Dropout", 10, [X], {"outputs": 2}, lambda: [X, np.ones_like(X, bool)]),
    ("DepthToSpace", 1, [floats(1, 8, 2, 3)], {"blocksize": 2},
     lambda: floats(1, 8, 2, 3).reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6)),
    *[("GlobalLpPool", v, [IMAGE], {"p": p(3)}, lambda: (np.abs(IMAGE) ** 3).sum((2, 3), keepdims=True) ** (1 / 3))
      for v, p in ((1, float), (2, int), (22, int))],
    ("LpPool", 1, [IMAGE], {"p": 1.0, "kernel_shape": [2, 2]},
     lambda: sum(np.abs(IMAGE)[:, :, i : i + 3, j : j + 4] for i in range(2) for j in range(2))),
    *[("MaxRoiPool", v, [IMAGE, np.array([[1, 0, 0, 3, 3]], np.float32)], {"pooled_shape": [2, 2]},
       lambda: IMAGE[1:2, :, :, :4].reshape(1, 3, 2, 2, 2, 2).max((3, 5))) for v in (1, 22)],
    ("Pad", 1, [X], {"paddings": [0, 1, 0, 0, 0, 2], "value": 1.5}, lambda: np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=1.5)),
    ("Pad", 2, [X], {"pads": [0, 1, 0, 0, 0, -2], "mode": "edge"}, lambda: np.pad(X[:, :, :2], [(0, 0), (1, 0), (0, 0)], mode="edge")),
    ("PRelu", 6, [IMAGE, SCALE], {}, lambda: np.where(IMAGE < 0, IMAGE * SCALE.reshape(COLUMN), IMAGE)),
    ("PRelu", 7, [IMAGE, floats(5)], {}, lambda: np.where(IMAGE < 0, IMAGE * floats(5), IMAGE)),
    ("Reshape", 1, [X], {"shape": [0, -1], "consumed_inputs": [0]}, lambda: X.reshape(2, 12)),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 2], np.float32)], {"stored": (1,)}, lambda: IMAGE.repeat(2, 2).repeat(2, 3)),
    ("RoiAlign", 10, [IMAGE, REGION, integers(1)], {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
     lambda: run("RoiAlign", 16, [IMAGE, REGION, integers(1)], output_height=2, output_width=2, sampling_ratio=2,
                 coordinate_transformation_mode="output_half_pixel")[0]),
    ("Selu", 1, [X], {}, lambda: 1.0507 * np.where(X > 0, X, 1.6732 * np.expm1(np.minimum(X, 0)))),
    ("Selu", 6, [X], {}, lambda: 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(np.minimum(X, 0)))),
    *[("Softmax", v, [X], {}, lambda: softmaxed(X, 1)) for v in (1, 11)], ("Softmax", 11, [X], {"axis": 0}, lambda: softmaxed(X, 0)),
    ("Softmax", 13, [X], {}, lambda: softmaxed(X, 2)), ("LogSoftmax", 11, [X], {}, lambda: np.log(softmaxed(X, 1))),
    ("Hardmax", 11, [X], {}, lambda: hardmaxed(X, 1)), ("Hardmax", 13, [X], {}, lambda: hardmaxed(X, 2)),
    ("Split", 1, [X, integers(1, 3)], {"axis": 2, "outputs": 2, "stored": (1,)}, lambda: [X[:, :, :1], X[:, :, 1:]]),
    ("Split", 1, [X], {"axis": 2, "split": [3, 1], "outputs": 2}, lambda: [X[:, :, :3], X[:, :, 3:]]),
    ("Split", 2, [X], {"outputs": 2}, lambda: [X[:1], X[1:]]),
    ("Split", 18, [floats(5, 2)], {"num_outputs": 3, "outputs": 3}, lambda: [floats(5, 2)[:2], floats(5, 2)[2:4], floats(5, 2)[4:]]),
    ("Tile", 1, [X, np.array(3, np.float32), np.array(1, np.float32)], {"stored": (1, 2)}, lambda: np.tile(X, (1, 3, 1))),
    ("TopK", 1, [X], {"k": 2, "axis": 1, "outputs": 2}, lambda: [-np.sort(-X, 1)[:, :2], np.argsort(-X, 1, kind="stable")[:, :2]]),
    ("Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}, lambda: IMAGE.repeat(2, 2).repeat(3, 3)),
    ("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 1.0]}, lambda: IMAGE.repeat(2, 2)),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 1, 2], np.float32)], {"stored": (1,)}, lambda: IMAGE.repeat(2, 3)),
    ("RNN", 1, [floats(3, 2, 4), *WEIGHTS], {"hidden_size": 5, "stored": (1, 2), "output_sequence": 1},
     lambda: rolled(floats(3, 2, 4), *WEIGHTS)),
    ("Cast", 1, [X * 3], {"to": "INT32"}, lambda: (X * 3).astype(np.int32)),
    ("Cast", 6, [X], {"to": TensorProto.DOUBLE}, lambda: X.astype(np.float64)),
    ("Concat", 1, [X, X], {}, lambda: np.concatenate([X, X], 1)),
    ("Slice", 1, [X], {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]}, lambda: X[:, 1:, -3:-1]),
    ("Slice", 10, [X, integers(3), integers(-9), integers(2), integers(-2)], {"stored": (1, 2, 3, 4)}, lambda: X[:, :, 3::-2]),
    ("Squeeze", 1, [X[:, None]], {"axes": [1]}, lambda: X), ("Unsqueeze", 11, [X], {"axes": [-1, 0]}, lambda: X[None, ..., None]),
    *[(kind, v, [X], {"axes": axes, "keepdims": 0}, lambda f=f, axes=axes: f(X, tuple(axes)))
      for kind, f in (("ReduceSum", np.sum), ("ReduceMean", np.mean), ("ReduceMax", np.max)) for v, axes in ((1, [1]), (11, [-1, 0]))],
    ("ReduceSum", 13, [X, integers()], {"noop_with_empty_axes": 1, "stored": (1,)}, lambda: X),
    ("ReduceSum", 13, [X, integers()], {"stored": (1,), "keepdims": 0}, lambda: X.sum()),
    ("ReduceMean", 18, [X, integers(-1, 0)], {"stored": (1,)}, lambda: X.mean((0, 2), keepdims=True)),
    ("GroupNormalization", 18, [floats(2, 4, 3), floats(2), floats(2, seed=1)], {"num_groups": 2},
     lambda: normal(grouped(floats(2, 4, 3)), np.zeros(2), np.ones(2), floats(2), floats(2, seed=1), (1, 2, 1), 0).reshape(2, 4, 3)),
    ("GroupNormalization", 21, [floats(2, 4, 3), floats(4), floats(4, seed=1)], {"num_groups": 2},
     lambda: grouped(floats(2, 4, 3)).reshape(2, 4, 3) * floats(4)[:, None] + floats(4, seed=1)[:, None]),
]  # fmt: skip


def grouped(x, eps=1e-5):
    rows = x.reshape(2, 2, -1)
    return (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + eps)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}")
def test_what_changed_between_opsets(case):
    kind, version, inputs, attributes, wanted = case
    got, want = run(kind, version, inputs, **attributes), wanted()
    for a, b in zip(got, want if isinstance(want, list) else [want], strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape and (a.dtype == b.dtype or b.dtype == np.float64)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def chain(version, nodes, inputs, outputs):
    """Several nodes' results."""
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(n) for n in outputs])
    model = gl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8))
    found = model(*map(gl.tensor, inputs.values()))
    return [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]


def test_sequences_and_optional_values_of_all_opsets():
    make = helper.make_node
    at = {"x": X, "z": np.array(0, np.int64), "o": np.array(-1, np.int64)}
    nodes = [
        make("SequenceEmpty", [], ["none"]), make("SequenceConstruct", ["x", "x"], ["pair"]), make("Neg", ["x"], ["n"]),
        make("SequenceInsert", ["none", "n"], ["one"]), make("SequenceInsert", ["pair", "n", "z"], ["three"]),
        make("SequenceErase", ["three", "o"], ["two"]), make("SequenceLength", ["two"], ["count"]),
        make("SequenceAt", ["two", "z"], ["first"]),
        make("ConcatFromSequence", ["two"], ["wide"], axis=-1), make("ConcatFromSequence", ["two"], ["deep"], axis=1, new_axis=1),
    ]  # fmt: skip
    for version in (11, 14, 22):
        count, first, wide, deep = chain(version, nodes, at, ["count", "first", "wide", "deep"])
        assert count == 2
        np.testing.assert_array_equal(first, -X)
        np.testing.assert_array_equal(wide, np.concatenate([-X, X], -1))
        np.testing.assert_array_equal(deep, np.stack([-X, X], 1))
    nodes = [make("Optional", ["x"], ["maybe"]), make("OptionalHasElement", ["maybe"], ["is"]),
             make("OptionalGetElement", ["maybe"], ["y"])]  # fmt: skip
    for version in (15, 18, 28):
        there, y = chain(version, nodes, {"x": X}, ["is", "y"])
        assert there
        np.testing.assert_array_equal(y, X)


def test_loops_of_all_opsets():
    make, value = helper.make_node, helper.make_tensor_value_info
    for version in sorted(HISTORY["Loop"]):
        body = helper.make_graph(
            [make("Add", ["v", "v"], ["w"]), make("Identity", ["c"], ["d"]), make("Identity", ["w"], ["each"])], "b",
            [value("i", 7, []), value("c", 9, []), value("v", 1, [2, 3, 4])], [value(n, t, None) for n, t in (("d", 9), ("w", 1),
            ("each", 1))],
        )  # fmt: skip
        nodes = [make("Loop", ["n", "", "x"], ["end", "all"], body=body)]
        end, each = chain(version, nodes, {"n": np.array(3, np.int64), "x": X}, ["end", "all"])
        np.testing.assert_allclose(end, X * 8)
        np.testing.assert_allclose(each, np.stack([X * 2, X * 4, X * 8]))


def test_scans_of_opset_8_with_lengths():
    """Each entry of a batch by itself, over its own steps; the rest of its results are zeros."""
    make, value = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph([make("Add", ["s", "e"], ["t"]), make("Identity", ["t"], ["o"])], "b",
                             [value("s", 1, [4]), value("e", 1, [4])], [value("t", 1, [4]), value("o", 1, [4])])  # fmt: skip
    nodes = [make("Scan", ["n", "s0", "x"], ["end", "all"], body=body, num_scan_inputs=1)]
    end, each = chain(8, nodes, {"n": integers(3, 2), "s0": floats(2, 4), "x": X}, ["end", "all"])
    want = floats(2, 4)[:, None] + X.cumsum(1)
    np.testing.assert_allclose(end, np.stack([want[0, 2], want[1, 1]]), rtol=1e-5)
    want[1, 2] = 0
    np.testing.assert_allclose(each, want, rtol=1e-5, atol=1e-6)
    nodes = [make("Scan", ["", "s0", "x"], ["end", "all"], body=body, num_scan_inputs=1, directions=[1])]
    end, each = chain(8, nodes, {"s0": floats(2, 4), "x": X}, ["end", "all"])
    np.testing.assert_allclose(each, floats(2, 4)[:, None] + X[:, ::-1].cumsum(1), rtol=1e-5, atol=1e-6)


RANDOM = {
    "Bernoulli": ([np.full((200, 50), 0.3, np.float32)], {}, 0.3),
    "Multinomial": ([np.log(np.tile([0.2, 0.8], (4, 1))).astype(np.float32)], {"sample_size": 3000}, 0.8),
    "RandomNormal": ([], {"shape": [100, 100], "mean": 2.0, "scale": 0.5}, 2.0),
    "RandomUniform": ([], {"shape": [100, 100], "low": 1.0, "high": 2.0}, 1.5),
    "RandomNormalLike": ([np.zeros((100, 100), np.float32)], {"mean": 2.0}, 2.0),
    "RandomUniformLike": ([np.zeros((100, 100), np.float32)], {"high": 3.0}, 1.5),
}  # fmt: skip


@pytest.mark.parametrize("kind", RANDOM)
def test_random_numbers_of_all_opsets(kind):
    inputs, attributes, mean = RANDOM[kind]
    for version in HISTORY[kind]:
        gl.manual_seed(0)
        (found,) = run(kind, version, inputs, **attributes)
        assert abs(found.mean() - mean) < 0.05 and found.std() > 0.1


# Cases of the node tests that no version fits: operators, and why.
OPEN = {
    "Attention": "half types, added up in float32 here",
    "LinearAttention": "float16, likewise", "Bernoulli": "random", "Dropout": "random, in training",
}  # fmt: skip
# Written for one opset, and no file of another one: graphs inside with operators of their own opset, lengths of Scan 8, PRelu's old slopes,
# pools of opset 1 of which the reference knows nothing else than the later attribute.
MISFITS = {"Loop", "If", "Scan", "PRelu", "AveragePool"}
TESTED_ABOVE = {
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceLength", "SequenceInsert", "ConcatFromSequence",
    "Optional",
    "OptionalGetElement", "OptionalHasElement", "Loop", *RANDOM,
}  # fmt: skip


@pytest.mark.slow
def test_every_operator_of_every_opset():
    """ONNX's node tests in all opsets that they can be written in, beside ONNX Runtime and ONNX's reference, with sizes and axes as inputs
    and as stored arrays."""
    agreed, wrong = defaultdict(int), []
    for kind, version, *_ in CASES:
        agreed[kind, version] += 1
    for test in node_tests():
        for case in versions(test):
            for fixed in (False, True)[: 1 + bool(OPERATORS[case.kind].host)]:
                found = verdict(case, fixed)
                if found == "":
                    agreed[case.kind, case.version] += 1
                elif found and case.kind not in OPEN and (case.kind not in MISFITS):
                    wrong.append(f"{case.name} in opset {case.version}, fixed={fixed}: {found}")
    assert not wrong, "\n".join(wrong)
    every = {(k, v) for k, versions_ in HISTORY.items() for v, s in versions_.items() if not s.deprecated}
    assert len(every) > 600
    assert not sorted(p for p in every - set(agreed) if p[0] not in TESTED_ABOVE)


def test_powers_of_two_and_bits_of_unsigned_numbers():
    """E8M0 by each way of rounding; unsigned types, held in wider ones, keep their own bits."""
    x = np.array([0.0, 0.124, 1.1, 1.5, 1.6, 3e38, np.inf, np.nan], np.float32)
    for mode, saturate, want in (
        ("up", 1, [2.0**-127, 0.125, 2, 2, 2, 2.0**127, 2.0**127, np.nan]),
        ("down", 1, [2.0**-127, 0.0625, 1, 1, 1, 2.0**127, 2.0**127, np.nan]),
        ("nearest", 0, [np.nan, 0.125, 1, 2, 2, np.nan, np.nan, np.nan]),
    ):  # fmt: skip
        (got,) = run("Cast", 25, [x], to=24, round_mode=mode, saturate=saturate)
        np.testing.assert_array_equal(got, np.array(want, np.float32))
    make = helper.make_node
    for kind, bits in ((TensorProto.UINT16, 16), (TensorProto.UINT32, 32)):
        signed, back = {16: (np.int16, TensorProto.INT16), 32: (np.int32, TensorProto.INT32)}[bits]
        nodes = [make("BitCast", ["x"], ["u"], to=kind), make("BitwiseNot", ["u"], ["n"]), make("BitCast", ["u"], ["same"], to=back)]
        values = np.array([-1, 0, 5, -(2 ** (bits - 1))], signed)
        n, again = chain(26, nodes, {"x": values}, ["n", "same"])
        assert n.tolist() == (2**bits - 1 - (values.astype(np.int64) & (2**bits - 1))).tolist()
        np.testing.assert_array_equal(again, values)
