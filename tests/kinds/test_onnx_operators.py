"""Every operator of ONNX in each of its versions is imported, or refused by name; damaged files end in OnnxLoadError."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

onnx = pytest.importorskip("onnx")

REFUSED = {"ImageDecoder"}


def schemas():
    from gradlab.onnx.operators import ready

    ready()
    return [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated]


def model_of(schema, attributes=()):
    """A file with one node of an operator in the version that began with an opset."""
    count = max(schema.min_input, min(1, schema.max_input))
    names = [f"x{i}" for i in range(count)]
    node = onnx.NodeProto(op_type=schema.name, input=names, output=[f"y{i}" for i in range(max(schema.min_output, 1))])
    values = {onnx.defs.OpSchema.AttrType.INT: 1, onnx.defs.OpSchema.AttrType.INTS: [1, 1], onnx.defs.OpSchema.AttrType.FLOAT: 1.0,
              onnx.defs.OpSchema.AttrType.STRING: "i->i", onnx.defs.OpSchema.AttrType.TENSOR: onnx.numpy_helper.from_array(np.zeros(2)),
              onnx.defs.OpSchema.AttrType.FLOATS: [1.0], onnx.defs.OpSchema.AttrType.STRINGS: ["a"],
              onnx.defs.OpSchema.AttrType.GRAPH: onnx.helper.make_graph([], "g", [], [])}  # fmt: skip
    for name, attribute in schema.attributes.items():
        if attribute.required or (schema.name == "Constant" and name == "value"):
            node.attribute.append(onnx.helper.make_attribute(name, values[attribute.type]))
    graph = onnx.GraphProto(name="g", node=[node], input=[onnx.ValueInfoProto(name=n) for n in names],
                            output=[onnx.ValueInfoProto(name=n) for n in node.output])  # fmt: skip
    return onnx.ModelProto(graph=graph, opset_import=[onnx.helper.make_opsetid("", schema.since_version)])


def test_every_operator_of_every_version_is_imported_or_refused_by_name():
    loaded = refused = 0
    for schema in schemas():
        try:
            gl.onnx.load(model_of(schema))
            loaded += 1
        except gl.onnx.OnnxLoadError as error:
            assert schema.name in REFUSED, f"{schema.name} of opset {schema.since_version}: {error}"
            assert schema.name in str(error)
            refused += 1
    assert loaded > 566 and refused <= 2


def test_operators_with_too_few_inputs_are_refused():
    for schema in schemas():
        if schema.min_input and schema.name not in REFUSED:
            model = model_of(schema)
            del model.graph.node[0].input[:]
            with pytest.raises(gl.onnx.OnnxLoadError, match=schema.name):
                gl.onnx.load(model)


def conv_net():
    rng = np.random.default_rng(0)
    make, tensor = onnx.helper.make_node, onnx.numpy_helper.from_array
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="conv"), make("Relu", ["c"], ["r"]), make("Shape", ["r"], ["s"]),
        make("Slice", ["s", "zero", "one"], ["n"]), make("Concat", ["n", "rest"], ["wanted"], axis=0),
        make("Reshape", ["r", "wanted"], ["f"]), make("Gemm", ["f", "v", "u"], ["y"], transB=1),
    ]  # fmt: skip
    arrays = {"w": rng.normal(size=(2, 1, 3, 3)), "b": rng.normal(size=2), "v": rng.normal(size=(3, 32)), "u": rng.normal(size=3)}
    tensors = [tensor(a.astype(np.float32), k) for k, a in arrays.items()]
    tensors += [tensor(np.array(v, np.int64), k) for k, v in (("zero", [0]), ("one", [1]), ("rest", [-1]))]
    ends = [[onnx.helper.make_tensor_value_info(k, 1, s)] for k, s in (("x", ["n", 1, 4, 4]), ("y", ["n", 3]))]
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", *ends, tensors), opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_damaged_files_end_in_load_errors():
    """A file loads (and then runs, or names the node that it fails in), or is refused with OnnxLoadError."""
    good = conv_net().SerializeToString()
    x, refused = gl.ones(2, 1, 4, 4), 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        data = bytearray(good)
        if seed % 3 == 0:
            for at in rng.integers(len(data), size=rng.integers(1, 5)):
                data[at] ^= 1 << rng.integers(8)
        elif seed % 3 == 1:
            at = int(rng.integers(len(data)))
            del data[at : at + int(rng.integers(1, 40))]
        else:
            a, b = map(int, rng.integers(len(data), size=2))
            data[a : a + 30] = data[b : b + 30]
        try:
            loaded = gl.onnx.load(bytes(data))
        except gl.onnx.OnnxLoadError:
            refused += 1
            continue
        try:
            loaded(x)
        except (ValueError, TypeError, RuntimeError, IndexError, NotImplementedError) as error:
            assert "onnx" in str(error) or "this model takes" in str(error), error
    assert 100 < refused < 400


@pytest.mark.parametrize("kind", ["reads nothing", "no maker", "negative shape", "short data"])
def test_what_cannot_be_is_named(kind):
    model = conv_net()
    if kind == "reads nothing":
        model.graph.node[1].input[0] = "nobody"
    elif kind == "no maker":
        model.graph.output[0].name = "nobody"
    elif kind == "negative shape":
        model.graph.initializer[0].dims[0] = -2
    else:
        model.graph.initializer[0].raw_data = b"1234"
    with pytest.raises(gl.onnx.OnnxLoadError, match="nobody" if kind in ("reads nothing", "no maker") else "damaged"):
        gl.onnx.load(model)
