"""RNN, GRU and LSTM in all their variants beside ONNX Runtime: eager, compiled, exported again."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
# names with what they take: numbers of alpha and beta
ACTIVATIONS = {
    "Relu": 0, "Tanh": 0, "Sigmoid": 0, "Softsign": 0, "Softplus": 0, "LeakyRelu": 1, "ThresholdedRelu": 1, "Elu": 1, "Affine": 2,
    "ScaledTanh": 2, "HardSigmoid": 2,
}  # fmt: skip
TIME, BATCH, WIDTH, SIZE = 5, 3, 4, 6


def drawn(kind, seed):
    """A variant: the node's inputs by name, and its attributes."""
    rng = np.random.default_rng(seed)

    def floats(*shape):
        return (rng.normal(size=shape) * 0.5).astype(np.float32)

    def often(share=0.5):
        return bool(rng.random() < share)

    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    both = 2 if direction == "bidirectional" else 1
    attributes = {"hidden_size": SIZE, "direction": direction}
    gates = GATES[kind]
    inputs = {"x": floats(TIME, BATCH, WIDTH), "w": floats(both, gates * SIZE, WIDTH), "r": floats(both, gates * SIZE, SIZE)}
    inputs["b"] = floats(both, 2 * gates * SIZE) if often(0.8) else None
    inputs["lens"] = rng.integers(1, TIME + 1, BATCH).astype(np.int32) if often(0.4) else None
    inputs["h"] = floats(both, BATCH, SIZE) if often() else None
    if kind == "LSTM":
        inputs["c"] = floats(both, BATCH, SIZE) if often() else None
        inputs["p"] = floats(both, 3 * SIZE) if often(0.4) else None
        attributes["input_forget"] = int(often(0.3))
    if kind == "GRU":
        attributes["linear_before_reset"] = int(often())
    if often(0.3):
        attributes["clip"] = float(np.float32(rng.uniform(0.2, 0.8)))
    if often(0.6):
        names = [str(n) for n in rng.choice(list(ACTIVATIONS), FUNCTIONS[kind] * both)]
        attributes["activations"] = names
        if often() or {"Affine", "ScaledTanh", "ThresholdedRelu"} & set(names):  # ONNX Runtime has zeros for what they lack
            values = [np.round(rng.uniform(0.1, 0.9, 2), 3).tolist() for n in names]
            alphas, betas = ([v[k] for n, v in zip(names, values, strict=True) if ACTIVATIONS[n] > k] for k in (0, 1))
            attributes.update({k: v for k, v in (("activation_alpha", alphas), ("activation_beta", betas)) if v})
    return inputs, attributes


def built(kind, inputs, attributes, version, outputs, free=("x",)):
    """free: which inputs are the model's, the others being stored."""
    names = [n if v is not None else "" for n, v in inputs.items()]
    node = helper.make_node(kind, names, outputs, **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(inputs[n].dtype), inputs[n].shape) for n in free]
    stored = [numpy_helper.from_array(v, n) for n, v in inputs.items() if v is not None and n not in free]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(n, 1, None) for n in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def by_runtime(model, feed):
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)


def compare(got, want, what):
    got = got if isinstance(got, tuple) else (got,)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.detach().numpy() if isinstance(a, gl.Tensor) else a, b, rtol=1e-4, atol=3e-6, err_msg=str(what))


def batch_first(inputs, results):
    """The inputs and results as `layout=1` has them."""
    turned = {n: v.swapaxes(0, 1) if n in "xhc" and v is not None else v for n, v in inputs.items()}
    return {n: np.ascontiguousarray(v) if v is not None else None for n, v in turned.items()}, [
        results[0].transpose(2, 0, 1, 3), *(v.swapaxes(0, 1) for v in results[1:])]  # fmt: skip


def check(kind, seed, tmp_path, again):
    inputs, attributes = drawn(kind, seed)
    outputs = ["y", "y_h", "y_c"][: 2 + (kind == "LSTM")]
    what = (seed, attributes, [n for n, v in inputs.items() if v is not None])
    model = built(kind, inputs, attributes, 14, outputs)
    want = by_runtime(model, {"x": inputs["x"]})
    loaded = gl.onnx.load(model)
    x = gl.tensor(inputs["x"])
    with gl.no_grad():
        compare(loaded(x), want, what)
        turned, results = batch_first(inputs, want)
        compare(gl.onnx.load(built(kind, turned, {**attributes, "layout": 1}, 22, outputs))(gl.tensor(turned["x"])), results, what)
        free = [n for n in ("x", "lens", "h", "c") if inputs.get(n) is not None]
        open_ = gl.onnx.load(built(kind, inputs, attributes, 7, outputs, free))
        compare(open_(*(gl.tensor(inputs[n]) for n in free)), want, what)
        if again:
            compiled = gl.compile(loaded)
            for _ in range(2):
                compare(compiled(x), want, what)
            compiled = gl.compile(open_)
            for _ in range(2):
                compare(compiled(*(gl.tensor(inputs[n]) for n in free)), want, what)
            gl.onnx.export(loaded, x, tmp_path / "again.onnx")
            compare(tuple(by_runtime(gl_read(tmp_path / "again.onnx"), {"x": inputs["x"]})), want, what)
            assert [n.op_type for n in gl_read(tmp_path / "again.onnx").graph.node].count(kind) == 1, what


def gl_read(path):
    import onnx

    return onnx.load(str(path))


@pytest.mark.parametrize("kind", GATES)
def test_some_variants(kind, tmp_path):
    for seed in range(8):
        check(kind, seed, tmp_path, seed == 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GATES)
def test_many_variants(kind, tmp_path):
    for seed in range(100, 130):
        check(kind, seed, tmp_path, True)
