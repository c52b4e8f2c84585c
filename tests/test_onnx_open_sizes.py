"""Loaded files with sizes left open: pads, crops, sorts and loops that follow a size, exported again and run at sizes above and below."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
make = pytest.importorskip("onnx.helper").make_node


def tensor(name, value, dtype=np.int64):
    return onnx.numpy_helper.from_array(np.asarray(value, dtype), name)


def built(nodes, stored, outputs=("y",), opset=19):
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, ["n", "m"])],
                                   [onnx.helper.make_tensor_value_info(n, k, None) for n, k in outputs], stored)  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)


SIZE = [make("Shape", ["x"], ["s"], start=1, end=2)]


def pad(mode):
    """Filled up to 8 columns, or cut to them, and three more."""
    nodes = [*SIZE, make("Sub", ["eight", "s"], ["more"]), make("Concat", ["front", "more"], ["pads"], axis=0),
             make("Pad", ["x", "pads"], ["z"]), make("Pad", ["z", "three"], ["y"], mode=mode)]  # fmt: skip
    return built(nodes, [tensor("eight", [8]), tensor("front", [0, 1, 0]), tensor("three", [0, 3, 0, 2])], [("y", 1)])


def around(mode):
    return built([make("Pad", ["x", "by"], ["y"], mode=mode)], [tensor("by", [0, 2, 0, 3])], [("y", 1)])


def crop():
    return built([make("CenterCropPad", ["x", "to"], ["y"], axes=[1])], [tensor("to", [6])], [("y", 1)])


def sort():
    return built([*SIZE, make("TopK", ["x", "s"], ["y", "at"], largest=0)], [], [("y", 1), ("at", 7)])


def loop(stacked):
    """As many turns as columns: a sum, and what it was after each turn."""
    column = [make("Gather", ["x", "i"], ["v"], axis=1), make("Add", ["a", "v"], ["b"]), make("Identity", ["c"], ["d"]),
              make("Identity", ["b"], ["each"])]  # fmt: skip
    values = [onnx.helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", 7, []), ("c", 9, []), ("a", 1, None))]
    ends = [onnx.helper.make_tensor_value_info(n, k, None) for n, k in (("d", 9), ("b", 1), ("each", 1))]
    body = onnx.helper.make_graph(column, "body", values, ends[: 2 + stacked])
    nodes = [*SIZE, make("Squeeze", ["s"], ["count"]), make("ReduceMin", ["x"], ["start"], axes=[1], keepdims=0),
             make("Loop", ["count", "", "start"], ["y", "ys"][: 1 + stacked], body=body)]  # fmt: skip
    return built(nodes, [], [("y", 1), ("ys", 1)][: 1 + stacked], 17)


MODELS = {**{f"pad {m}": lambda m=m: pad(m) for m in ("constant", "reflect", "edge", "wrap")},
          **{f"around {m}": lambda m=m: around(m) for m in ("constant", "reflect", "edge", "wrap")},
          "crop": crop, "sort": sort, "loop": lambda: loop(0), "loop stacked": lambda: loop(1)}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_what_follows_a_size(name, tmp_path):
    """Eager, compiled, and exported again with both sizes open, for less and more columns than the example has."""
    model, random = MODELS[name](), np.random.default_rng(0)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = gl.onnx.load(model)
    compiled = gl.compile(loaded)
    example = gl.tensor(random.normal(size=(2, 5)).astype(np.float32))
    gl.onnx.export(loaded, example, tmp_path / "again.onnx", dynamic={"x": ["n", "m"]}, check_sizes={"m": 11})
    again = runtime.InferenceSession(str(tmp_path / "again.onnx"), providers=["CPUExecutionProvider"])
    for n, m in ((2, 5), (1, 4), (3, 12), (5, 7)):
        x = random.normal(size=(n, m)).astype(np.float32)
        want = session.run(None, {"x": x})
        for run in (loaded, compiled, lambda x: tuple(again.run(None, {"x": x.numpy()}))):
            got = run(gl.tensor(x))
            for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mode", "how", "rounding"), [
    ("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "round_prefer_floor"), ("nearest", "align_corners", "ceil"),
    ("linear", "align_corners", "floor"), ("cubic", "align_corners", "floor"), ("linear", "pytorch_half_pixel", "floor"),
    ("linear", "half_pixel_symmetric", "floor"),
])  # fmt: skip
@pytest.mark.parametrize("scale", [0.6, 1.7, 0.3])
def test_scales_whose_results_are_no_whole_numbers(mode, how, rounding, scale):
    """Every place of every size as ONNX Runtime has it: which element is nearest follows from float32."""
    node = make("Resize", ["x", "", "by"], ["y"], mode=mode, coordinate_transformation_mode=how, nearest_mode=rounding)
    model = built([node], [tensor("by", [1, scale], np.float32)], [("y", 1)])
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = gl.onnx.load(model)
    for m in range(4, 40):
        x = np.arange(2 * m, dtype=np.float32).reshape(2, m) ** 1.5
        np.testing.assert_allclose(loaded(gl.tensor(x)).numpy(), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-3)


def test_one_tensor_as_several_arguments(tmp_path):
    """What an example passes twice is two inputs, which may differ later."""
    gl.manual_seed(0)
    model, x = nn.MultiheadAttention(4, 2, batch_first=True).eval(), gl.randn(2, 5, 4)
    gl.onnx.export(model, (x, x, x), tmp_path / "m.onnx", dynamic={"query": {1: "n"}})
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    q, k, v = gl.randn(2, 3, 4), gl.randn(2, 5, 4), gl.randn(2, 5, 4)
    got = session.run(None, {"query": q.numpy(), "key": k.numpy(), "value": v.numpy()})
    for a, b in zip(got, model(q, k, v), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-6)
    y = gl.tensor([10.0, 20.0])
    ones = gl.ones(2)
    assert gl.graph.trace(lambda a, b: a * 2 + b, ones, ones)(ones, y).tolist() == [12, 22]


def test_a_number_of_results_that_follows_a_size_is_said(tmp_path):
    with pytest.raises(gl.onnx.ExportError, match="the file has 2 results, and with n=1 the model gives 1"):
        gl.onnx.export(lambda x: x.chunk(2, 1), gl.ones(3, 4), tmp_path / "m.onnx", dynamic={0: {1: "n"}}, check_sizes={"n": 1})


def test_a_sequence_among_the_results_has_numbers_behind_its_name(tmp_path):
    nodes = [make("SequenceConstruct", ["x", "x"], ["s"]), make("Neg", ["x"], ["y"])]
    ends = [onnx.helper.make_tensor_sequence_value_info("s", 1, None), onnx.helper.make_tensor_value_info("y", 1, None)]
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, [2])], ends)
    loaded = gl.onnx.load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))
    assert list(gl.onnx.export(loaded, gl.ones(2), tmp_path / "m.onnx").outputs) == ["s_0", "s_1", "y"]
