"""ONNX files whose fields were set by chance, for `evil_loaders.py`: sizes, types, names, graphs in graphs, places of other files."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import onnx
from evil_files import NUMBERS, WORDS, damaged
from onnx import TensorProto, helper as h

import gradlab as gl


@cache
def onnx_files(folder):
    gl.manual_seed(0)
    nn = gl.nn
    models = [
        (nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2)), gl.randn(3, 4)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)),
         gl.randn(2, 3, 8, 8)),
        (nn.LSTM(3, 4), gl.randn(2, 2, 3)),
    ]  # fmt: skip
    files = []
    for model, x in models:
        gl.onnx.export(model.eval(), (x,), path := folder / "model.onnx")
        files.append(path.read_bytes())
    body = h.make_graph(
        [h.make_node("Add", ["v", "v"], ["w"]), h.make_node("Identity", ["c"], ["d"])], "body",
        [h.make_tensor_value_info("i", TensorProto.INT64, []), h.make_tensor_value_info("c", TensorProto.BOOL, []),
         h.make_tensor_value_info("v", TensorProto.FLOAT, [2])],
        [h.make_tensor_value_info("d", TensorProto.BOOL, []), h.make_tensor_value_info("w", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    nodes = [
        h.make_node("ConstantOfShape", ["shape"], ["zeros"]), h.make_node("Loop", ["n", "yes", "zeros"], ["out"], body=body),
        h.make_node("Expand", ["out", "shape2"], ["big"]), h.make_node("Range", ["a", "n", "one"], ["r"]),
        h.make_node("Tile", ["r", "times"], ["tiled"]), h.make_node("Slice", ["tiled", "a1", "b1"], ["cut"]),
        h.make_node("Reshape", ["cut", "shape3"], ["again"]), h.make_node("Cast", ["again"], ["f"], to=1),
        h.make_node("Gather", ["f", "n"], ["g"]), h.make_node("Add", ["x", "g"], ["y"]), h.make_node("Mul", ["y", "big"], ["z"]),
    ]  # fmt: skip
    numbers = {"shape": [2], "n": 3, "shape2": [4, 2], "a": 0, "one": 1, "times": [2], "a1": [0], "b1": [6], "shape3": [6]}
    values = {name: np.array(value) for name, value in numbers.items()}
    held = [h.make_tensor(name, TensorProto.INT64, value.shape, value.reshape(-1)) for name, value in values.items()]
    held.append(h.make_tensor("yes", TensorProto.BOOL, [], [True]))
    ends = [[h.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (("x", [2]), ("z", [4, 2]))]
    files.append(h.make_model(h.make_graph(nodes, "g", *ends, held), opset_imports=[h.make_opsetid("", 18)]).SerializeToString())
    return files


def messages(message, found):
    """A protobuf message and all inside it."""
    found.append(message)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
                messages(inner, found)
    return found


def set_by_chance(choose, message, everywhere):
    """Give one field of a message another value."""
    field = choose.choice(list(message.DESCRIPTOR.fields))
    many = getattr(field, "is_repeated", None)
    many = field.label == field.LABEL_REPEATED if many is None else many
    if field.message_type is not None:
        others = [m for m in everywhere if m.DESCRIPTOR is field.message_type]
        if not others or choose.random() < 0.2:
            message.ClearField(field.name)
            return
        other = deepcopy(choose.choice(others))  # which may hold this very message
        (getattr(message, field.name).add() if many else getattr(message, field.name)).CopyFrom(other)
        return
    if field.cpp_type == field.CPPTYPE_STRING:
        known = [getattr(m, "name", "") for m in everywhere] + [getattr(m, "op_type", "") for m in everywhere]
        value = choose.choice((*WORDS, *known))
        value = value.encode() if field.type == field.TYPE_BYTES else value
        value = choose.randbytes(choose.choice((0, 1, 8, 100))) if field.type == field.TYPE_BYTES and choose.random() < 0.7 else value
    elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        value = choose.choice((0.0, -1.0, float("nan"), float("inf"), 1e38))
    elif field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM):
        value = choose.choice((0, 1, 2, 3, 7, 9, 11, 16, 22, 100))
    else:
        value = abs(choose.choice(NUMBERS)) if field.cpp_type == field.CPPTYPE_UINT64 else choose.choice(NUMBERS)
    if not many:
        setattr(message, field.name, value)
        return
    values = getattr(message, field.name)
    if len(values) and choose.random() < 0.6:
        values[choose.randrange(len(values))] = value
    elif len(values) and choose.random() < 0.5:
        del values[choose.randrange(len(values))]
    else:
        values.append(value)


def onnx_changed(choose, whole):
    """Fields set by chance, or bytes changed."""
    if choose.random() < 0.2:
        return damaged(choose, whole)
    proto = onnx.load_from_string(whole)
    for _ in range(choose.choice((1, 1, 2, 4))):
        everywhere = messages(proto, [])
        if proto.ByteSize() > 1 << 20:
            break
        try:
            set_by_chance(choose, choose.choice(everywhere), everywhere)
        except (ValueError, TypeError):  # a value that the field does not hold
            continue
    return proto.SerializeToString()
