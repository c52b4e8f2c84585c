"""ONNX's node tests written in older opsets: a case as every version of its operator has it, and who says what comes out of it."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as runtime
from onnx import defs, helper, numpy_helper

import gradlab as gl
from gradlab.onnx.holders import held
from gradlab.onnx.importing import OPERATORS
from gradlab.onnx.operators import ready

ready()
runtime.set_default_logger_severity(4)
HISTORY = defaultdict(dict)  # of each operator that is claimed its versions
for _schema in defs.get_all_schemas_with_history():
    if _schema.domain == "" and _schema.name in OPERATORS:
        HISTORY[_schema.name][_schema.since_version] = _schema
NAMES = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool", 10: "float16", 11: "double",
    12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip


class Case(NamedTuple):
    """A node with its values. results: what the newest version gives."""

    name: str
    kind: str
    version: int
    inputs: list
    outputs: list
    attributes: dict
    infos: dict
    arrays: dict
    results: list

    def model(self, fixed):
        """fixed: what are plain numbers here (axes, sizes) are stored in the file."""
        node = helper.make_node(self.kind, self.inputs, self.outputs, **self.attributes)
        host = {n for i, n in enumerate(self.inputs) if n and fixed and i in OPERATORS[self.kind].host}
        host = {n for n in host if not isinstance(self.arrays[n], list) and self.arrays[n] is not None}
        stored = [tensor(self.arrays[n], n) for n in host]
        free = [n for n in dict.fromkeys(self.inputs) if n and n not in host]
        outputs = [onnx.ValueInfoProto(name=n) for n in self.outputs if n]
        graph = helper.make_graph([node], "g", [self.infos[n] for n in free], outputs, stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.version)], ir_version=10)
        return model, {n: array(self.arrays[n]) for n in free}


def tensor(value, name):
    if isinstance(value, onnx.TensorProto):
        found = onnx.TensorProto()
        found.CopyFrom(value)
        found.name = name
        return found
    return numpy_helper.from_array(np.asarray(value), name)


def array(value):
    value = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return np.asarray(value) if isinstance(value, np.generic) else value


def node_tests(kinds=None):
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            nodes = case.model.graph.node
            if len(nodes) == 1 and nodes[0].op_type in HISTORY and not nodes[0].domain and kinds in (None, nodes[0].op_type):
                yield case


def versions(case):
    """The case as each version of its operator has it: inputs become attributes again; not where a version lacks what the case uses."""
    node, graph = case.model.graph.node[0], case.model.graph
    infos = {v.name: v for v in graph.input}
    inputs, results = case.data_sets[0]
    arrays = dict(zip(infos, inputs, strict=True))
    newest = HISTORY[node.op_type][max(HISTORY[node.op_type])]
    for version, schema in HISTORY[node.op_type].items():
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        names = list(node.input)
        if schema.deprecated or not all(a in schema.attributes for a in attributes):
            continue
        while names and older(schema, newest, len(names) - 1):
            name = names.pop()
            if name and not becomes(attributes, schema, newest.inputs[len(names)].name, array(arrays[name])):
                break
        else:
            if len(names) < schema.min_input or not all(takes(schema, i, infos[n]) for i, n in enumerate(names) if n):
                continue
            if any(a.required and a.name not in attributes for a in schema.attributes.values()):
                continue
            yield Case(case.name, node.op_type, version, names, list(node.output)[: schema.max_output], attributes, infos, arrays, results)


def older(schema, newest, place):
    """Whether a version lacks the input at a place."""
    if place >= schema.max_input or not schema.inputs:
        return True
    if place >= min(len(schema.inputs), len(newest.inputs)):
        return False
    return schema.inputs[place].name != newest.inputs[place].name and newest.inputs[place].name in schema.attributes


def becomes(attributes, schema, name, value):
    """An input is an attribute. False where it cannot be."""
    if name not in schema.attributes or not value.size:
        return False
    several = schema.attributes[name].type.name.endswith("S")
    attributes[name] = value.reshape(-1).tolist() if several else value.reshape(-1)[0].item()
    return True


def takes(schema, place, info):
    if not info.type.HasField("tensor_type"):
        return True
    kind = info.type.tensor_type.elem_type
    return f"tensor({NAMES.get(kind, kind)})" in schema.inputs[min(place, len(schema.inputs) - 1)].types


def same(got, want, rtol=1e-3, atol=1e-4):
    """Whether two results are one: tensors, lists of them, strings, nothing."""
    if isinstance(got, list) or isinstance(want, list):
        return isinstance(got, list) and isinstance(want, list) and len(got) == len(want) and all(map(same, got, want))
    if got is None or want is None:
        return got is want
    got, want = got.detach().numpy() if isinstance(got, gl.Tensor) else np.asarray(got), held(np.asarray(want))
    if got.dtype.kind in "USO":
        return got.astype(str).tolist() == want.astype(str).tolist()
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    return np.allclose(got.astype(kind), want.astype(kind), rtol, atol, equal_nan=True)


def given(value):
    """A value of a test as the model takes it."""
    if isinstance(value, list):
        return [given(v) for v in value]
    value = array(value)
    return gl.tensor(held(value)) if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU" else value


def computed(model, feed):
    """The results here."""
    with np.errstate(all="ignore"):
        found = gl.onnx.load(model)(*map(given, feed.values()))
    return list(found) if isinstance(found, tuple) else [found]


def judges(model, feed):
    """What ONNX Runtime and ONNX's reference say, where they know the version."""
    from onnx.reference import ReferenceEvaluator

    found = {}
    for name, run in (
        ("runtime", lambda: runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)),
        ("reference", lambda: ReferenceEvaluator(model).run(None, feed)),
    ):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = run()
        except Exception:  # it has no implementation of this version, or none of this type
            continue
    return found


def verdict(case, fixed):
    """None where nobody can say, "" where one of the judges agrees, else what is wrong."""
    model, feed = case.model(fixed)
    wanted = judges(model, feed)
    if case.version == max(HISTORY[case.kind]):
        wanted["case"] = list(map(array, case.results))
    try:
        got = computed(model, feed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200] if wanted else None
    if not wanted:
        return None
    fit = [k for k, w in wanted.items() if len(w) == len(got) and all(map(same, got, w))]
    return "" if fit else f"differs from {', '.join(wanted)}"
