"""Every public function and method in a graph of `gradlab.fx`: given proxies it is noted, and the graph's code gives the same values."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import gradlab as gl
from gradlab.fx import Graph, GraphModule, Tracer
from gradlab.nn import Module

from kinds.calls import CALLS, callable_of, converted, parts

# What Python asks of a value itself, and what makes tensors of values: a proxy has none. Items are not assigned, as in PyTorch.
OUTSIDE = {
    "gl.tensor", "gl.as_tensor", "gl.asarray", "gl.is_tensor", "Tensor.__array__", "Tensor.__bool__", "Tensor.__contains__",
    "Tensor.__deepcopy__", "Tensor.__divmod__", "Tensor.__dlpack__", "Tensor.__dlpack_device__", "Tensor.__float__", "Tensor.__index__",
    "Tensor.__int__", "Tensor.__iter__", "Tensor.__len__", "Tensor.__rdiv__", "Tensor.__rdivmod__", "Tensor.__reversed__",
    "Tensor.__setitem__", "gl.get_device",
}  # fmt: skip
NOTED = [call for call in CALLS if "making" not in call.marks and call.name not in OUTSIDE]


class Given:
    """A call with proxies for its tensors, as a graph, and these tensors."""

    def __init__(self, call):
        self.tensors = []
        self.tracer = Tracer()
        self.tracer.root, self.tracer.graph = Module(), Graph()
        args, options = converted(call.arguments, self.proxy), converted(call.options, self.proxy)
        self.tracer.create_node("output", "output", (self.tracer.create_arg(self.result(call, args, options)),), {})
        self.module = GraphModule(self.tracer.root, self.tracer.graph)

    def proxy(self, array):
        self.tensors.append(gl.tensor(np.asarray(array), dtype=gl.float32) if array.dtype == np.float64 else gl.tensor(array))
        return self.tracer.create_proxy("placeholder", f"x{len(self.tensors)}", (), {})

    def result(self, call, args, options):
        room, _, name = call.name.partition(".")
        if room != "Tensor":
            return callable_of(gl, call.name)(*args, **options)
        if not callable(getattr(gl.Tensor, name)):
            return getattr(args[0], name)
        if name.startswith("__") and hasattr(operator, name):
            return getattr(operator, name)(*args, **options)
        return getattr(args[0], name)(*args[1:], **options)


def values(result):
    return [(t if t.is_complex() else t.double()).detach().numpy() for t in parts(result)]


@pytest.mark.parametrize("call", NOTED, ids=repr)
def test_noted(call):
    given = Given(call)
    operations = [node for node in given.module.graph.nodes if node.op.startswith("call")]
    assert operations and all(map(operator.attrgetter("all_input_nodes"), operations))
    given.module.graph.lint()
    gl.manual_seed(0)
    expected = call.run()
    gl.manual_seed(0)
    found = given.module(*given.tensors)
    if not call.marks & {"random"} and "empty" not in call.name:
        for ours, theirs in zip(values(found), values(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)
