"""Dynamic sizes: checked on a second size, expressions of sizes, every module with a dynamic first dimension."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import nn
from gradlab.graph.ir.dims import unknown
from gradlab.onnx import ExportError, ExportWarning, UnsupportedError, export

from onnx_modules import cases

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def run(path, **inputs):
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)


def sizes(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def test_a_choice_by_sizes_is_told(tmp_path):
    def by_size(x):
        return x * 2 if x.shape[0] > 3 else x * 3

    path = tmp_path / "m.onnx"
    with pytest.warns(ExportWarning, match="with batch=1 the file does something else than the model"):
        found = export(by_size, gl.rand(5, 2) + 1, path, dynamic={0: {0: "batch"}})
    assert found.sizes == ("batch=6",)
    size, condition = onnx.helper.make_node("Size", ["x"], ["n"]), onnx.helper.make_node("Greater", ["n", "six"], ["more"])
    branches = [
        onnx.helper.make_graph(
            [onnx.helper.make_node(op, ["x", "x"], ["r"])], op, [], [onnx.helper.make_tensor_value_info("r", 1, ["b", 2])]
        )
        for op in ("Add", "Mul")
    ]
    chosen = onnx.helper.make_node("If", ["more"], ["y"], then_branch=branches[0], else_branch=branches[1])
    graph = onnx.helper.make_graph(
        [size, condition, chosen], "g", [onnx.helper.make_tensor_value_info("x", 1, ["b", 2])],
        [onnx.helper.make_tensor_value_info("y", 1, ["b", 2])], [onnx.helper.make_tensor("six", 7, [], [6])],
    )  # fmt: skip
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9), str(path))
    with pytest.warns(ExportWarning, match="with batch=1 the file does something else"):
        export(gl.onnx.load(path), gl.rand(5, 2) + 3, tmp_path / "again.onnx", dynamic={0: {0: "batch"}})


@pytest.mark.parametrize("dynamic", [{"x": {0: "batch"}}, {0: {0: "batch"}}, {"x": ["batch", None]}, {"x": {-2: "batch"}}, [{0: "batch"}]])
def test_ways_to_say_it(tmp_path, dynamic):
    def function(x):
        return x @ x.t(), x.mean(), x.sum(0)

    found = export(function, gl.randn(2, 4), tmp_path / "m.onnx", dynamic=dynamic)
    graph = onnx.load(str(tmp_path / "m.onnx")).graph
    assert sizes(graph.input[0]) == ["batch", 4] and sizes(graph.output[0]) == ["batch", "batch"] and found.sizes == ("batch=3",)
    for n in (1, 5, 9):
        x = np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
        for got, want in zip(run(tmp_path / "m.onnx", x=x), function(gl.tensor(x)), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)


def test_wrong_dynamic_sizes(tmp_path):
    x, path = gl.randn(2, 4), tmp_path / "m.onnx"
    for wrong, match in (
        ({"y": {0: "n"}}, "names the input 'y'; there are x"),
        ({1: {0: "n"}}, "names the input 1"),
        ({"x": {2: "n"}}, "dimension 2 of input x, which has 2"),
        ({"x": ["n"]}, "1 sizes for input x, which has 2"),
        ({"x": {0: "n", 1: "n"}}, "2 and 4 where the dynamic size 'n'"),
    ):
        with pytest.raises(ValueError, match=match):
            export(lambda x: x + 1, x, path, dynamic=wrong)
    for wrong in (3, {"x": 3}, {"x": {0: 7}}):
        with pytest.raises(TypeError, match="dynamic"):
            export(lambda x: x + 1, x, path, dynamic=wrong)
    with pytest.raises(ValueError, match="check_sizes names m; the dynamic sizes are n"):
        export(lambda x: x + 1, x, path, dynamic={0: {0: "n"}}, check_sizes={"m": 3})
    assert not path.exists()


def test_the_second_size(tmp_path):
    def even(x):
        return x.reshape(x.shape[0] // 4, 4).sum(1)

    path = tmp_path / "m.onnx"
    assert export(even, gl.randn(8), path, dynamic={0: {0: "n"}}).sizes == ("n=16",)
    assert export(even, gl.randn(8), path, dynamic={0: {0: "n"}}, check_sizes={"n": 20}).sizes == ("n=20",)
    with pytest.raises(ExportError, match="no other sizes than the example's"):
        export(nn.Linear(4, 2), gl.randn(3, 4), path, dynamic={0: {1: "n"}})


def test_sizes_in_numbers_shapes_and_parameters(tmp_path):
    def function(x):
        n, m = x.shape
        padded = F.pad(x, (n, 1))
        parts = (x / n + m * 0.5, x.reshape(m * n, 1), padded, gl.zeros(n + 1, m - 1), gl.arange(n), x[1:, : m // 2], x.narrow(0, 0, n - 1))
        return (*parts, x.expand(3, n, m), x.mean(0), x.var(1), F.interpolate(x[None], size=2 * m))

    found = export(function, gl.randn(4, 6), tmp_path / "m.onnx", dynamic={0: ["n", "m"]}, check_sizes={"n": 3, "m": 10})
    assert found.outputs["output_1"][0].expr is not None
    for n, m in ((2, 2), (5, 8)):
        x = np.random.default_rng(n).normal(size=(n, m)).astype(np.float32)
        for got, want in zip(run(tmp_path / "m.onnx", x=x), function(gl.tensor(x)), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)


def test_a_size_that_was_lost_is_found(tmp_path):
    with pytest.raises(UnsupportedError, match=r"full: .* was computed from a dynamic size: .*x.new_full"):
        export(lambda x: x.new_full((3,), 1.0 / x.shape[0]), gl.randn(4), tmp_path / "m.onnx", dynamic={0: {0: "n"}})


def test_a_hint_where_comparisons_matter(tmp_path):
    def function(x):
        return x[:, :8] * 2 if x.shape[1] > 8 else x

    size = unknown("time", 5)
    found = export(function, gl.randn(2, 5), tmp_path / "m.onnx", dynamic={0: {1: size}}, check_sizes={"time": 7})
    assert found.sizes == ("time=7",)
    with pytest.raises(ExportError, match="time=11"):
        export(function, gl.randn(2, 5), tmp_path / "m.onnx", dynamic={0: {1: size}}, check_sizes={"time": 11})


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_stay_layers(tmp_path, kind, bidirectional):
    gl.manual_seed(0)
    model, path = kind(3, 4, 2, batch_first=True, bidirectional=bidirectional).eval(), tmp_path / "m.onnx"
    for steps in (5, 300):
        found = export(model, gl.randn(2, steps, 3), path, dynamic={0: ["batch", "time", None]})
        graph = onnx.load(str(path)).graph
        assert [n.op_type for n in graph.node].count(kind.__name__) == 2 and found.nodes < 30
        assert {"weight_ih_l0", "weight_hh_l1"} <= {i.name for i in graph.initializer}
    loaded, again = gl.onnx.load(path), tmp_path / "again.onnx"
    assert export(loaded, gl.randn(2, 5, 3), again, dynamic={0: ["batch", "time", None]}).nodes <= found.nodes
    second = onnx.load(str(again)).graph
    for name in ("weight_ih_l0", "weight_hh_l1", "bias_ih_l0"):
        first, other = (next(onnx.numpy_helper.to_array(i) for i in g.initializer if i.name == name) for g in (graph, second))
        np.testing.assert_array_equal(first, other)
    for n, steps in ((3, 4), (1, 11)):
        x = gl.randn(n, steps, 3)
        want = model(x)[0].detach().numpy()
        for got in (run(path, input=x.numpy())[0], run(again, input=x.numpy())[0], loaded(x)[0].detach().numpy()):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_needs_known_sizes_is_named(tmp_path):
    with pytest.raises(UnsupportedError, match=r"adaptive_max_pool: .*dynamic sizes"):
        export(nn.AdaptiveMaxPool2d(2), gl.randn(1, 2, 5, 5), tmp_path / "m.onnx", dynamic={0: {2: "height", 3: "width"}})


CASES = [c for c in cases() if all(isinstance(a, gl.Tensor) for a in c[2]) and c[2][0].ndim > 1]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def test_every_module_with_a_dynamic_first_size(tmp_path, number):
    name, make, arguments = CASES[number]
    model = make()
    if isinstance(model, nn.RNNBase) and not model.batch_first:
        pytest.skip("its first size is the number of steps")
    gl.manual_seed(1)
    first = arguments[0].shape[0]
    dynamic = {i: {0: "n"} for i, a in enumerate(arguments) if a.ndim and a.shape[0] == first}
    for opset in (20, (11, 13, 15, 17)[number % 4]):
        found = export(model.eval(), arguments, tmp_path / "m.onnx", dynamic=dynamic, opset=opset)
        assert found.opset == opset and found.deviation < 1e-4 and len(found.sizes) == 1, name


SPATIAL = ("Conv", "BatchNorm", "InstanceNorm", "GroupNorm", "MaxPool", "AvgPool", "Pad", "Upsample", "PixelShuffle", "ChannelShuffle")
IMAGES = [c for c in CASES if any(k in c[0] for k in SPATIAL) and c[2][0].ndim > 2 and "AdaptiveMax" not in c[0]]


@pytest.mark.parametrize("number", range(len(IMAGES)), ids=lambda i: f"{IMAGES[i][0]}-{i}")
def test_image_modules_with_dynamic_spatial_sizes(tmp_path, number):
    name, make, (x,) = IMAGES[number]
    dynamic = {0: {d: f"size{d}" for d in range(2, x.ndim)}}
    gl.manual_seed(1)
    try:
        found = export(make().eval(), x, tmp_path / "m.onnx", dynamic=dynamic)
    except UnsupportedError as error:
        assert "ceil_mode" in str(error) and name.startswith("AvgPool")
        return
    assert found.deviation < 1e-4 and len(found.sizes) == 1
