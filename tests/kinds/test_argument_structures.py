"""Arguments in containers: whatever changes of a part between calls, at any depth, a compiled function gives what eager gives."""

import collections
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph.executables.numpy.executable import NumpyExecutable

Pair = collections.namedtuple("Pair", ["x", "k"])


@dataclass
class Both:
    x: Any
    k: Any


CONTAINERS = {
    "list": lambda x, k: [x, k], "tuple": lambda x, k: (x, k), "dict": lambda x, k: {"x": x, "k": k}, "named": Pair, "dataclass": Both,
    "ordered": lambda x, k: collections.OrderedDict(x=x, k=k), "numbered": lambda x, k: {0: x, 1: k},
    "list in a dict": lambda x, k: {"a": [x], "b": (k,)}, "dict in a list": lambda x, k: [{"x": x}, {"k": k}],
    "dict in a dict": lambda x, k: {"a": {"x": x}, "b": {"k": k}}, "dataclass in a list": lambda x, k: [Both(x, k)],
    "dict in a dataclass": lambda x, k: Both({"x": x}, {"k": k}), "tuple in a named tuple": lambda x, k: Pair((x,), (k,)),
}  # fmt: skip
CHANGES = {  # another tensor, another number; each of them alone
    "shape": (lambda: gl.arange(3.0), 2.0), "rank": (lambda: gl.ones(2, 2), 2.0), "dtype": (lambda: gl.tensor([1, 2]), 2.0),
    "graph": (lambda: gl.ones(2, requires_grad=True), 2.0), "number": (lambda: gl.tensor([1.0, 3.0]), 3.0),
    "kind of number": (lambda: gl.tensor([1.0, 3.0]), 2), "none": (lambda: gl.tensor([1.0, 3.0]), None),
    "tensor for a number": (lambda: gl.tensor([1.0, 3.0]), gl.tensor(2.5)), "number for a tensor": (lambda: 5.0, 2.0),
}  # fmt: skip


def parts(value):
    if isinstance(value, Both):
        value = [value.x, value.k]
    elif isinstance(value, dict):
        value = list(value.values())
    return [p for v in value for p in parts(v)] if isinstance(value, (list, tuple)) else [value]


def used(given):
    x, k = parts(given)
    if k is None:
        return gl.as_tensor(x) * 7
    return gl.as_tensor(x) * k + (1 if isinstance(k, int) else 0) + (10 if isinstance(x, gl.Tensor) and x.requires_grad else 0)


@pytest.mark.parametrize("container", CONTAINERS)
def test_each_change_is_followed(container, monkeypatch):
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)
    made = CONTAINERS[container]
    for named in (False, True):
        for change, (x, k) in CHANGES.items():
            run = gl.compile(lambda given: used(given))
            call = lambda *values, run=run: run(given=made(*values)) if named else run(made(*values))  # noqa: B023
            for _ in range(3):
                assert call(gl.tensor([1.0, 2.0]), 2.0).tolist() == [2.0, 4.0]
            for _ in range(3):
                value = x()
                got, want = call(value, k), used(made(value, k))
                assert (got.dtype, got.shape, got.requires_grad) == (want.dtype, want.shape, want.requires_grad), change
                np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy(), change)
            assert call(gl.tensor([1.0, 2.0]), 2.0).tolist() == [2.0, 4.0]


@pytest.mark.filterwarnings("ignore:compile")  # of many kinds of arguments
@pytest.mark.parametrize("container", CONTAINERS)
def test_another_container_of_the_same_parts(container, monkeypatch):
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)
    run = gl.compile(lambda given: used(given) + len(str(type(given))))
    for other in (container, container, *CONTAINERS, container):
        given = CONTAINERS[other](gl.tensor([1.0, 2.0]), 2.0)
        assert run(given).tolist() == (used(given) + len(str(type(given)))).tolist(), other
