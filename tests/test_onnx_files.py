"""What real ONNX files do: host values in programs, constants as weights, inputs that are fixed, control flow, files exported again."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
make = pytest.importorskip("onnx.helper").make_node
FLOAT, INT64 = 1, 7


def typed(name, kind=FLOAT, shape=None):
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def tensor(name, value, dtype=np.float32):
    return onnx.numpy_helper.from_array(np.asarray(value, dtype), name)


def constant(name, value, dtype=np.float32):
    return make("Constant", [], [name], value=tensor("", value, dtype))


def built(nodes, inputs, outputs, initializers=(), opset=17):
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def both(model, **inputs):
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)


def everywhere(model, x, tmp_path, dynamic=None, second=None):
    """Eager, compiled (a second call and second sizes), traced, exported again: all as ONNX Runtime has it."""
    loaded = gl.onnx.load(model)
    name = loaded.input_names[0]
    compiled = gl.compile(loaded)
    cases = [x] if second is None else [x, second]
    with gl.no_grad():
        for v in cases:
            want = both(model, **{name: v})[0]
            t = gl.tensor(v)
            for got in (loaded(t), compiled(t), compiled(t), gl.jit.trace(loaded, t)(t)):
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
    gl.onnx.export(loaded, gl.tensor(x), tmp_path / "again.onnx", dynamic=dynamic)
    again = onnx.load(str(tmp_path / "again.onnx"))
    assert [v.name for v in again.graph.output] == [v.name for v in model.graph.output]
    assert [v.name for v in again.graph.input] == [name]
    for v in cases if dynamic else [x]:
        np.testing.assert_allclose(both(again, **{name: v})[0], both(model, **{name: v})[0], rtol=1e-5, atol=1e-6)
    return loaded, again


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_pads_that_begin_as_a_constant_of_a_shape(tmp_path):
    """PyTorch's exporter: a pad of two numbers, filled up with as many zeros as the rank asks for, turned round."""
    nodes = [
        constant("two", [1, 2], np.int64), constant("four", [2], np.int64),
        make("ConstantOfShape", ["four"], ["zeros"], value=tensor("", [0], np.int64)),
        make("Concat", ["two", "zeros"], ["flat"], axis=0), constant("shape", [-1, 2], np.int64),
        make("Reshape", ["flat", "shape"], ["pairs"]),
        constant("m1", [-1], np.int64), constant("low", [-(2**63) + 1], np.int64), constant("zero", [0], np.int64),
        make("Slice", ["pairs", "m1", "low", "zero", "m1"], ["back"]), make("Transpose", ["back"], ["turned"], perm=[1, 0]),
        make("Reshape", ["turned", "m1"], ["pads_"]), make("Cast", ["pads_"], ["pads"], to=INT64), constant("value", 0.5),
        make("Pad", ["x", "pads", "value"], ["padded"]), make("Mul", ["padded", "value"], ["y"]),
    ]  # fmt: skip
    model = built(nodes, [typed("x", shape=["n", 3])], [typed("y")])
    everywhere(model, numbers(2, 3), tmp_path, {"x": {0: "n"}}, numbers(4, 3))


def test_sizes_computed_from_sizes(tmp_path):
    """Shape, Gather, arithmetic, Cast to float and back, Where, Expand, Range, Reshape."""
    nodes = [
        make("Shape", ["x"], ["s"]), constant("i0", 0, np.int64), constant("i1", 1, np.int64),
        make("Gather", ["s", "i0"], ["n"]), make("Gather", ["s", "i1"], ["m"]), make("Mul", ["n", "m"], ["nm"]),
        constant("two", 2, np.int64), make("Div", ["nm", "two"], ["half"]), constant("front", [0], np.int64),
        make("Unsqueeze", ["half", "front"], ["halves"]), make("Unsqueeze", ["two", "front"], ["twos"]),
        make("Concat", ["halves", "twos"], ["wanted"], axis=0), make("Reshape", ["x", "wanted"], ["flat"]),
        make("Cast", ["n"], ["nf"], to=FLOAT), constant("scale", 1.5), make("Mul", ["nf", "scale"], ["wide"]),
        make("Floor", ["wide"], ["down"]),
        make("Cast", ["down"], ["k"], to=INT64), make("Range", ["i0", "k", "i1"], ["steps"]), make("Cast", ["steps"], ["stepsf"], to=FLOAT),
        make("ReduceSum", ["stepsf"], ["total"], keepdims=0), make("Add", ["flat", "total"], ["sum"]),
        make("Equal", ["wanted", "m1"], ["asks"]), make("ConstantOfShape", ["twos"], ["ones"], value=tensor("", [1], np.int64)),
        make("Where", ["asks", "ones", "wanted"], ["sizes"]), make("Expand", ["total", "sizes"], ["grid"]),
        make("Add", ["sum", "grid"], ["y"]),
    ]  # fmt: skip
    model = built(nodes, [typed("x", shape=["n", 4])], [typed("y")], [tensor("m1", [-1, -1], np.int64)])
    everywhere(model, numbers(2, 4), tmp_path, {"x": {0: "n"}}, numbers(5, 4))


def test_constants_are_weights_and_stay_by_name(tmp_path):
    """Paddle's exports: weights in Constant nodes."""
    weight = numbers(3, 4)
    nodes = [
        constant("fc.w", weight), constant("fc.b", [1.0, 2.0, 3.0, 4.0]), make("MatMul", ["x", "fc.w"], ["p"]),
        make("Add", ["p", "fc.b"], ["q"]), make("Mul", ["q", "win"], ["y"]),
    ]  # fmt: skip
    model = built(nodes, [typed("x", shape=["n", 3])], [typed("y")], [tensor("win", np.hanning(4))])
    loaded, again = everywhere(model, numbers(2, 3), tmp_path, {"x": {0: "n"}}, numbers(5, 3))
    assert sorted(n for n, _ in loaded.named_parameters()) == ["fc.b", "fc.w", "win"]
    assert {i.name for i in again.graph.initializer} >= {"fc.b", "fc.w", "win"}
    for trainable in ("^fc", ["fc.w", "fc.b"], lambda name, array: array.shape != (4,) or name == "fc.b"):
        kept = gl.onnx.load(model, trainable=trainable)
        assert sorted(n for n, _ in kept.named_parameters()) == ["fc.b", "fc.w"] and "win" in dict(kept.named_buffers())
        kept(gl.ones(2, 3)).sum().backward()
        assert all(p.grad is not None for p in kept.parameters())
    assert not list(gl.onnx.load(model, trainable=False).parameters())


def rated(total=True):
    """Two filters, by a rate that is an input; a branch of each has weights of its own. total: both give a number."""
    branches = []
    for size in (3, 5):
        body = [constant(f"w{size}", np.ones((1, 1, size))), make("Conv", ["x", f"w{size}"], [f"c{size}"])]
        body += [make("ReduceSum", [f"c{size}"], [f"y{size}"], keepdims=0)] if total else []
        branches.append(onnx.helper.make_graph(body, "b", [], [typed(f"{'y' if total else 'c'}{size}")]))
    nodes = [constant("sixteen", 16000, np.int64), make("Equal", ["sr", "sixteen"], ["is"]),
             make("If", ["is"], ["y"], then_branch=branches[0], else_branch=branches[1])]  # fmt: skip
    return built(nodes, [typed("x", shape=[1, 1, "n"]), typed("sr", INT64, [])], [typed("y")])


def test_an_input_that_is_fixed():
    model, x = rated(), numbers(1, 1, 9)
    for rate in (16000, 8000):
        want = both(model, x=x, sr=np.array(rate))[0]
        fixed = gl.onnx.load(model, constants={"sr": rate})
        assert fixed.input_names == ["x"] and [n for n, _ in fixed.named_parameters()] == ["w3" if rate == 16000 else "w5"]
        compiled = gl.compile(fixed)
        for got in (fixed(gl.tensor(x)), compiled(gl.tensor(x)), compiled(gl.tensor(x))):
            np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-5)
        free = gl.onnx.load(model)
        with gl.no_grad():
            compiled = gl.compile(free)
            for _ in range(2):  # both branches give a number, so both are parts of the program
                np.testing.assert_allclose(compiled(gl.tensor(x), gl.tensor(rate)).numpy(), want, rtol=1e-5)
    with pytest.raises(ValueError, match="constants names 'rate'; the model's inputs are 'x', 'sr'"):
        gl.onnx.load(model, constants={"rate": 1})


def test_branches_that_do_not_fit_say_how_to_fix_the_input():
    free, x = gl.onnx.load(rated(total=False)), gl.tensor(numbers(1, 1, 9))
    assert free(x, gl.tensor(16000)).shape == (1, 1, 7)
    with pytest.raises(gl.onnx.OnnxLoadError, match=r"constants=\{name: value\}\) with one of 'x', 'sr'"):
        gl.jit.trace(free, (x, gl.tensor(16000)))


def loop_model(trip, stacked):
    """x is doubled while it is below 100, at most so many times."""
    body = [make("Add", ["v", "v"], ["w"]), make("ReduceMax", ["w"], ["top"], keepdims=0), make("Less", ["top", "hundred"], ["more"]),
            make("Identity", ["w"], ["each"])]  # fmt: skip
    ends = [typed("more", 9), typed("w"), *([typed("each")] if stacked else [])]
    graph = onnx.helper.make_graph(body, "b", [typed("i", INT64, []), typed("going", 9, []), typed("v")], ends)
    nodes = [make("Loop", [trip, "", "x"], ["last", *(["every"] if stacked else [])], body=graph)]
    limits = [tensor("hundred", 100.0), tensor("most", 9, np.int64)]
    return built(nodes, [typed("x", shape=[2])], [typed("every" if stacked else "last")], limits)


def test_loops_and_scans_in_programs():
    x = np.array([1.0, 3.0], np.float32)
    model = loop_model("most", False)
    loaded = gl.onnx.load(model)
    compiled = gl.compile(loaded)
    with gl.no_grad():
        for v in (x, x, x * 7):
            np.testing.assert_array_equal(compiled(gl.tensor(v)).numpy(), both(model, x=v)[0])
            np.testing.assert_array_equal(loaded(gl.tensor(v)).numpy(), both(model, x=v)[0])
    np.testing.assert_array_equal(gl.onnx.load(loop_model("most", True))(gl.tensor(x)).numpy(), both(loop_model("most", True), x=x)[0])
    body = onnx.helper.make_graph([make("Add", ["s", "e"], ["t"]), make("Mul", ["t", "e"], ["o"])], "b", [typed("s"), typed("e")],
                                  [typed("t"), typed("o")])  # fmt: skip
    nodes = [make("Scan", ["zero", "x"], ["end", "y"], body=body, num_scan_inputs=1, scan_input_directions=[1])]
    model = built(nodes, [typed("x", shape=["n", 2])], [typed("y")], [tensor("zero", [0.0, 0.0])])
    loaded = gl.onnx.load(model)
    compiled = gl.compile(loaded)
    with gl.no_grad():
        for v in (numbers(5, 2), numbers(100, 2)):
            for _ in range(2):
                np.testing.assert_allclose(compiled(gl.tensor(v)).numpy(), both(model, x=v)[0], rtol=1e-5, atol=1e-5)


def test_recurrent_layers_with_lengths_both_ways(tmp_path):
    x, size = numbers(6, 3, 4), 5
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        extra = {"linear_before_reset": 1} if kind == "GRU" else {}
        nodes = [make(kind, ["x", "w", "r", "b", "lens"], ["y"], hidden_size=size, direction="bidirectional", **extra)]
        tensors = [tensor("w", numbers(2, gates * size, 4)), tensor("r", numbers(2, gates * size, size, seed=1)),
                   tensor("b", numbers(2, 2 * gates * size, seed=2)), tensor("lens", [6, 2, 4], np.int32)]  # fmt: skip
        loaded, again = everywhere(built(nodes, [typed("x", shape=["t", 3, 4])], [typed("y")], tensors), x, tmp_path)
        assert [n.op_type for n in again.graph.node] == [kind]
        assert sorted(n for n, _ in loaded.named_parameters()) == ["b", "r", "w"]


@pytest.mark.usefixtures("cuda")
def test_host_values_on_a_gpu():
    model, x = rated(), numbers(1, 1, 9)
    loaded = gl.onnx.load(model, device="cuda", constants={"sr": 8000})
    np.testing.assert_allclose(loaded(gl.tensor(x).cuda()).detach().cpu().numpy(), both(model, x=x, sr=np.array(8000))[0], rtol=1e-5)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("kind", "value"), [
    ("Reshape", [3, 2]), ("Tile", [2, 1]), ("Expand", [2, 2, 3]), ("Unsqueeze", [1]), ("Pad", [0, 1, 1, 0]), ("Trilu", 1),
])  # fmt: skip
def test_sizes_that_are_inputs_on_a_gpu(kind, value):
    """What is a plain number is brought to the host, wherever the input lies."""
    model = built([make(kind, ["x", "n"], ["y"])], [typed("x", shape=[2, 3]), typed("n", INT64, list(np.shape(value)))], [typed("y")])
    x, n = numbers(2, 3), np.array(value, np.int64)
    got = gl.onnx.load(model, device="cuda")(gl.tensor(x).cuda(), gl.tensor(n).cuda())
    np.testing.assert_allclose(got.cpu().numpy(), both(model, x=x, n=n)[0])


@pytest.mark.parametrize(("mode", "how", "by"), [
    ("nearest", "asymmetric", "scales"), ("linear", "half_pixel", "scales"), ("cubic", "half_pixel", "scales"),
    ("nearest", "half_pixel", "sizes"), ("linear", "align_corners", "sizes"), ("linear", "pytorch_half_pixel", "sizes"),
])  # fmt: skip
def test_images_of_open_sizes_are_resized(mode, how, by, tmp_path):
    """Places are computed from the sizes of the call, not from those that a trace has in their place."""
    rounding = {"nearest_mode": "floor"} if how == "asymmetric" else {}
    if by == "scales":
        nodes = [make("Resize", ["x", "", "two"], ["y"], mode=mode, coordinate_transformation_mode=how, **rounding)]
        stored = [tensor("two", [1, 1, 2, 2])]
    else:  # twice the height and width, less one
        nodes = [make("Shape", ["x"], ["s"]), make("Mul", ["s", "two"], ["d"]), make("Sub", ["d", "one"], ["sizes"]),
                 make("Resize", ["x", "", "", "sizes"], ["y"], mode=mode, coordinate_transformation_mode=how, **rounding)]  # fmt: skip
        stored = [tensor("two", [1, 1, 2, 2], np.int64), tensor("one", [0, 0, 1, 1], np.int64)]
    model = built(nodes, [typed("x", shape=["n", 2, "h", "w"])], [typed("y")], stored)
    everywhere(model, numbers(1, 2, 4, 5), tmp_path, {"x": {0: "n", 2: "h", 3: "w"}}, numbers(2, 2, 7, 3))


@pytest.mark.parametrize("attributes", [
    {"sampling_ratio": 2}, {"sampling_ratio": 3, "mode": "max"},
    {"sampling_ratio": 1, "coordinate_transformation_mode": "output_half_pixel"},
])  # fmt: skip
def test_regions_of_images_in_programs(attributes, tmp_path):
    """Any number of regions, whose places are computed: compiled, and exported again."""
    node = make("RoiAlign", ["x", "rois", "at"], ["y"], output_height=2, output_width=3, spatial_scale=0.5, **attributes)
    model = built([node], [typed("x", shape=[2, 3, 6, 7]), typed("rois", shape=["n", 4]), typed("at", INT64, ["n"])], [typed("y")])
    loaded = gl.onnx.load(model)
    compiled = gl.compile(loaded)
    for count in (3, 3, 5):
        x, corners = numbers(2, 3, 6, 7), np.abs(numbers(count, 2, seed=1)) * 4
        rois = np.concatenate([corners, corners + np.abs(numbers(count, 2, seed=2)) * 6], 1)
        feed = {"x": x, "rois": rois, "at": np.arange(count) % 2}
        want = both(model, **feed)[0]
        for run in (loaded, compiled):
            np.testing.assert_allclose(run(*map(gl.tensor, feed.values())).numpy(), want, rtol=1e-4, atol=1e-5)
    gl.onnx.export(loaded, tuple(map(gl.tensor, feed.values())), tmp_path / "again.onnx", dynamic={"rois": {0: "n"}, "at": {0: "n"}})
    less = {k: v if k == "x" else v[:2] for k, v in feed.items()}
    np.testing.assert_allclose(both(onnx.load(str(tmp_path / "again.onnx")), **less)[0], want[:2], rtol=1e-4, atol=1e-5)


def test_long_chains_and_mean_pools(tmp_path):
    """How a value lies follows from what it was made of, however long that chain is; pools are pools when they are exported again."""
    nodes = [make("Add", ["x" if i == 0 else f"v{i - 1}", "one"], [f"v{i}"]) for i in range(300)]
    nodes.append(make("AveragePool", ["v299"], ["y"], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1))
    model = built(nodes, [typed("x", shape=["n", 2, 4, 4])], [typed("y")], [tensor("one", 1e-3)])
    _, again = everywhere(model, numbers(1, 2, 4, 4), tmp_path, {"x": {0: "n"}}, numbers(3, 2, 4, 4))
    assert "AveragePool" in {n.op_type for n in again.graph.node}


@pytest.mark.parametrize("attributes", [
    {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    {"kernel_shape": [3, 3], "pads": [0, 1, 2, 1], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {"kernel_shape": [2, 2], "dilations": [2, 2]},
    {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [2, 1]},
])  # fmt: skip
def test_mean_pools_of_all_kinds(attributes):
    model = built([make("AveragePool", ["x"], ["y"], **attributes)], [typed("x", shape=[2, 3, 7, 6])], [typed("y")], opset=19)
    x = numbers(2, 3, 7, 6)
    np.testing.assert_allclose(gl.onnx.load(model)(gl.tensor(x)).numpy(), both(model, x=x)[0], rtol=1e-5, atol=1e-6)


def test_loops_over_constants_are_computed_when_a_file_is_loaded():
    """A filter that is made by a loop, and by arithmetic on large arrays: a stored tensor in the end, without NaN in its gradient."""
    body = onnx.helper.make_graph([make("Mul", ["v", "half"], ["w"]), make("Identity", ["c"], ["d"])], "b",
                                  [typed("i", INT64, []), typed("c", 9, []), typed("v")], [typed("d", 9), typed("w")])  # fmt: skip
    nodes = [make("Loop", ["three", "", "taps"], ["scaled"], body=body), make("Cos", ["scaled"], ["window"]),
             make("Sin", ["grid"], ["sine"]), make("Div", ["sine", "grid"], ["ratio"]), make("Equal", ["grid", "zero"], ["middle"]),
             make("Where", ["middle", "one", "ratio"], ["sinc"]), make("Mul", ["sinc", "window"], ["filter"]),
             make("MatMul", ["x", "filter"], ["y"])]  # fmt: skip
    grid = np.linspace(-3, 3, 300 * 301).astype(np.float32).reshape(300, 301)
    grid[7] = 0
    stored = [tensor("three", 3, np.int64), tensor("taps", np.linspace(0, 1, 301)), tensor("half", 0.5), tensor("grid", grid),
              tensor("zero", 0.0), tensor("one", 1.0)]  # fmt: skip
    model, x = built(nodes, [typed("x", shape=["n", 300])], [typed("y")], stored), numbers(2, 300)
    loaded = gl.onnx.load(model)
    assert [n.kind for n in loaded.body.nodes] == ["MatMul"] and [n for n, _ in loaded.named_parameters()] == ["filter"]
    y = loaded(gl.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), both(model, x=x)[0], rtol=1e-4, atol=1e-4)
    y.sum().backward()
    assert bool(gl.isfinite(loaded.filter.grad).all())


def test_a_session_runs_loaded_files():
    """Also results that do not depend on the inputs."""
    nodes = [make("MatMul", ["x", "w"], ["y"]), make("Add", ["two", "two"], ["four"])]
    stored = [tensor("w", numbers(3, 4)), tensor("two", [2], np.int64)]
    model = built(nodes, [typed("x", shape=["n", 3])], [typed("y"), typed("four", INT64)], stored)
    loaded, x, graph = gl.onnx.load(model), numbers(2, 3), gl.Graph()
    with graph.as_default():
        place = gl.placeholder(gl.float32, shape=[2, 3])
        results = list(loaded(place))
        with gl.Session(graph) as session:
            session.run(gl.global_variables_initializer())
            for got, want in zip(session.run(results, {place: x}), both(model, x=x), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_blocks_of_any_rank_become_images(rank):
    sizes, block = [5, 4, 6][:rank], [2, 3, 2][:rank]
    pads, strides = [1, 0, 1][:rank] + [0, 1, 1][:rank], [1, 2, 1][:rank]
    counts = [(n + a + b - k) // s + 1 for n, a, b, k, s in zip(sizes, pads[:rank], pads[rank:], block, strides, strict=True)]
    x = numbers(2, 2 * int(np.prod(block)), int(np.prod(counts)))
    nodes = [make("Col2Im", ["x", "sizes", "block"], ["y"], pads=pads, strides=strides)]
    stored = [tensor("sizes", sizes, np.int64), tensor("block", block, np.int64)]
    model = built(nodes, [typed("x", shape=x.shape)], [typed("y")], stored, 18)
    from onnx.reference import ReferenceEvaluator

    loaded = gl.onnx.load(model)
    np.testing.assert_allclose(loaded(gl.tensor(x)).numpy(), ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_inputs_of_a_wrong_rank_are_named():
    for kind, more in (("Conv", {}), ("MaxPool", {"kernel_shape": [2]}), ("AveragePool", {"kernel_shape": [2]}), ("ConvTranspose", {})):
        inputs = ["x", "w"] if kind.startswith("Conv") else ["x"]
        model = built([make(kind, inputs, ["y"], name="it", **more)], [typed("x")], [typed("y")], [tensor("w", numbers(2, 2, 3))])
        with pytest.raises(gl.onnx.OnnxLoadError, match=rf"{kind} \(node 'it'\).*2 dimensions, \[2, 3\]"):
            gl.onnx.load(model)(gl.ones(2, 3))


def test_an_input_that_is_a_number_names_the_way_out():
    """Axes that a file takes as an input: eagerly fine, in a trace only where the input is fixed."""
    model = built([make("ReduceSum", ["x", "axes"], ["y"])], [typed("x", shape=["n", 3]), typed("axes", INT64, [1])], [typed("y")])
    x, axes = numbers(2, 3), np.array([1])
    loaded = gl.onnx.load(model)
    np.testing.assert_allclose(loaded(gl.tensor(x), gl.tensor(axes)).numpy(), both(model, x=x, axes=axes)[0], rtol=1e-6)
    with pytest.raises(Exception, match=r"ReduceSum.*constants=\{name: value\}\) with one of 'x', 'axes'"):
        gl.jit.trace(loaded, (gl.tensor(x), gl.tensor(axes)))
    fixed = gl.onnx.load(model, constants={"axes": axes})
    np.testing.assert_allclose(gl.jit.trace(fixed, gl.tensor(x))(gl.tensor(x)).numpy(), both(model, x=x, axes=axes)[0], rtol=1e-6)


def test_what_is_narrow_inside_may_deviate_more(tmp_path):
    """Half types and numbers rounded to 8 bits inside a file whose results are float32, also in a branch."""
    from gradlab.onnx.checking import STEP, TOLERANCES, inner_tolerance

    half = [make("Cast", ["x"], ["h"], to=10), make("Mul", ["h", "h"], ["s"]), make("Cast", ["s"], ["y"], to=FLOAT)]
    step = [make("Round", ["x"], ["r"]), make("Cast", ["r"], ["i"], to=3), make("Cast", ["i"], ["y"], to=FLOAT)]
    plain = [make("Round", ["x"], ["y"])]
    for nodes, want in ((plain, 0.0), (half, TOLERANCES["float16"]), (step, STEP)):
        branch = onnx.helper.make_graph(nodes, "b", [], [typed("y")])
        inside = [make("If", ["c"], ["z"], then_branch=branch, else_branch=branch)]
        for model in (built(nodes, [typed("x")], [typed("y")]), built(inside, [typed("x"), typed("c", 9, [])], [typed("z")])):
            onnx.save(model, tmp_path / "it.onnx")
            assert inner_tolerance(tmp_path / "it.onnx") == want
    x = numbers(4, 64)
    model = built([make("Cast", ["x"], ["h"], to=10), make("MatMul", ["h", "w"], ["s"]), make("Softmax", ["s"], ["p"]),
                   make("Cast", ["p"], ["y"], to=FLOAT)], [typed("x", shape=["n", 64])], [typed("y")],
                  [tensor("w", numbers(64, 9, seed=1), np.float16)])  # fmt: skip
    loaded = gl.onnx.load(model)
    gl.onnx.export(loaded, gl.tensor(x), tmp_path / "again.onnx", dynamic={"x": {0: "n"}})
    np.testing.assert_allclose(both(onnx.load(str(tmp_path / "again.onnx")), x=x)[0], both(model, x=x)[0], atol=1e-2)
