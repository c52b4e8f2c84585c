"""Programs as files: a safetensors file with the tensors by name, and the program as a JSON text in its metadata.

    {"format": 1, "gradlab": "0.3.0", "rows": {"matmul": 1, …}, "title": …, "training": …, "device": "cpu",
     "sizes": {"batch": null},                       unknown sizes, with a hint where the trace gave one
     "arguments": structure, "names": [...], "result": structure, "outputs": [["value", 7], …], "ends": [...], "moved": [...],
     "layouts": [[0, null], …],                      arguments that have to lie row by row, or with these strides
     "inputs": [[1, "float32", [{"size": "batch"}, 784]], …],
     "state": [[2, ["fc.weight"], requires_grad, persistent], …],      first name: the tensor in the file; null instead of 2 for unused ones
     "random": [[3, 0, 128]], "generators": [null, [seed, offset]],    value, generator, words; null is the default generator
     "calls": [["linear", ["%1", "%2", 0.5], {"dim": 0}, [[4, "float32", […]]]], …],
     "cuts": [[4, [0]], …], "updates": [[2, 9], …], "values": [7]}

A sub-graph of control flow is {"inputs": …, "calls": …, "outputs": [...]} inside a call's parameters. Nothing in the file is code.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from gradlab import dispatch
from gradlab._version import __version__
from gradlab.dtype import from_numpy
from gradlab.graph.control.body_call import KINDS, Part
from gradlab.graph.control.branching import Switch
from gradlab.graph.control.looping import While
from gradlab.graph.control.scanning import Scan
from gradlab.graph.ir.dims import Dim, hint, hints_of, symbols
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.ir.specialize import unknowns
from gradlab.jit.limits import parts_of
from gradlab.jit.portable import FORMAT, KEY, encoded, row_version, shape_text
from gradlab.jit.program_data import Plan
from gradlab.tensor.generator import Generator, default_generator
from gradlab.utils.atomic import write_bytes
from gradlab.utils.serialization import checksum


def write(plan: Plan, tensors: Sequence[Any], f: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a program with these tensors (one for each of `plan.held`) to a path or a file. TypeError for what a file cannot hold."""
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise TypeError(f"save: expected a path or a file open for writing, not {type(f).__name__}")
        f.write(to_bytes(plan, tensors))
        return
    write_bytes(f, to_bytes(plan, tensors))


def save(m: Any, f: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a traced program, or a script that has been called, to a path or to a file open for writing, that `load` reads: `m.save(f)`."""
    m.save(f)


def to_bytes(plan: Plan, tensors: Sequence[Any]) -> bytes:
    """The file's content. The same program with the same tensors always makes the same bytes."""
    arrays: dict[str, Any] = {}
    state = []
    for held, tensor in zip(plan.held, tensors, strict=True):
        array = tensor._array
        content = np.ascontiguousarray(dispatch.backend_of(array).to_numpy(array))
        arrays[held.names[0]] = content.reshape(array.shape)
        kind = "parameter" if type(tensor).__name__ == "Parameter" else "buffer"
        number = None if held.value is None else held.value.id
        state.append([number, held.names, kind, tensor._edge is not None, held.persistent])
    text = json.dumps(_outline(plan, state), allow_nan=False, separators=(",", ":"))
    return checksum.sealed(importlib.import_module("safetensors.numpy").save(dict(sorted(arrays.items())), {KEY: text}))


def _outline(plan: Plan, state: list[Any]) -> dict[str, Any]:
    graph = plan.graph
    generators: list[Generator] = []
    for generator, _, _ in graph.random:
        if all(generator is not g for g in generators):
            generators.append(generator)
    return {
        "format": FORMAT, "gradlab": __version__, "rows": {n: row_version(n) for n in sorted(set(_rows(graph)))},
        "title": plan.title, "training": plan.training, "device": graph.device.type, "sizes": _sizes(graph),
        "arguments": plan.arguments, "names": plan.names, "result": plan.result, "outputs": [list(o) for o in plan.outputs],
        "ends": plan.ends, "moved": plan.moved, "layouts": [[i, s if s is None else list(s)] for i, s in sorted(plan.layouts.items())],
        "inputs": [_value(v) for v in graph.inputs], "state": state,
        "random": [
            [v.id, next(i for i, g in enumerate(generators) if g is generator), encoded(words)] for generator, v, words in graph.random
        ],
        "generators": [None if g is default_generator else [g._seed, g._offset] for g in generators],
        "calls": [_call(c) for c in graph.calls], "cuts": [[number, list(cut)] for number, cut in sorted(plan.cuts.items())],
        "updates": [[old.id, new.id] for old, new in graph.updates], "values": [v.id for v in graph.outputs],
    }  # fmt: skip


def _rows(graph: Graph) -> Iterator[str]:
    for call in graph.calls:
        yield call.op.name
        for part in parts_of(call):
            yield from _rows(part.source)


def _sizes(graph: Graph) -> dict[str, Any]:
    """The unknown sizes by name, and what comparisons saw of those for which the user said so."""
    found: dict[str, Any] = {}
    for value in graph.inputs:
        for size in value.spec.shape:
            if isinstance(size, Dim):
                for name in symbols(size.expr):
                    found.setdefault(name, None)
                if isinstance(size.expr, str) and hint(size) not in hints_of([size.expr]):
                    found[size.expr] = hint(size)
    for name in unknowns(graph):
        found.setdefault(name, None)
    return dict(sorted(found.items()))


def _value(value: Value) -> list[Any]:
    return [value.id, from_numpy(value.spec.dtype).name, shape_text(value.spec.shape)]


def _call(call: Call) -> list[Any]:
    try:
        inputs = [f"%{x.id}" if isinstance(x, Value) else encoded(x) for x in call.inputs]
        if call.op.name in KINDS and "flow" in call.params:
            params = _flow(call.params["flow"])
        elif "flow" in call.params:
            raise TypeError("it runs Python code, which a program file does not hold; leave it out of the trace")
        else:
            params = {k: encoded(v) for k, v in call.params.items()}
        return [call.op.name, inputs, params, [_value(v) for v in call.outputs]]
    except TypeError as error:
        source = call.source()
        raise TypeError(f"save: {call.op.name}: {error}{f'{chr(10)}  at: {source}' if source else ''}") from None


def _flow(flow: Any) -> dict[str, Any]:
    if isinstance(flow, Scan):
        return {
            "body": _part(flow.body), "carries": flow.carries, "stacked": flow.stacked, "length": encoded(flow.length),
            "reverse": bool(flow.reverse),
        }  # fmt: skip
    if isinstance(flow, Switch):
        return {"parts": [_part(p) for p in flow.parts], "reads": flow.reads, "writes": flow.writes}
    assert isinstance(flow, While)
    return {
        "condition": _part(flow.condition), "body": _part(flow.body), "carries": flow.carries, "constants": flow.constants,
    }  # fmt: skip


def _part(part: Part) -> dict[str, Any]:
    graph = part.source
    return {"inputs": [_value(v) for v in graph.inputs], "calls": [_call(c) for c in graph.calls],
            "outputs": [v.id for v in graph.outputs]}  # fmt: skip
