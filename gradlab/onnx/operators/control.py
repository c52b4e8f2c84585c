"""Branches, loops, sequences and optional values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.onnx.importing import Node, imports, number, read


def _branch(node: Node, name: str) -> Any:
    found = node.get(name).run(dict(node.scope), node.device)
    return found[0] if len(found) == 1 else tuple(found)


@imports("If", host=(0,))
def if_(node: Node, condition: Any) -> Any:
    """One of two graphs."""
    return _branch(node, "then_branch" if bool(number(read(node, condition, "a branch"))) else "else_branch")


def _stacked(node: Node, parts: Sequence[Any], axis: int = 0, backwards: bool = False) -> Any:
    return gl.stack([node.tensor(p) for p in (reversed(parts) if backwards else parts)], axis)


@imports("Loop", host=(0, 1))
def loop(node: Node, most: Any, condition: Any, *state: Any) -> Any:
    """A body that is run while its first result is true, at most a number of times; further results are stacked."""
    body = node.get("body")
    going = True if condition is None else bool(number(read(node, condition, "the number of turns")))
    last = None if most is None else int(number(read(node, most, "the number of turns")))
    values, columns = list(state), [[] for _ in range(len(body.outputs) - 1 - len(state))]  # type: list[Any], list[list[Any]]
    turn = 0
    while going and (last is None or turn < last):
        given = dict(node.scope)
        given.update(zip(body.inputs, [np.array(turn, np.int64), np.array(going), *values], strict=True))
        going_, *found = body.run(given, node.device)
        going = bool(number(read(node, going_, "the number of turns")))
        values = found[: len(values)]
        for column, value in zip(columns, found[len(values) :], strict=True):
            column.append(value)
        turn += 1
    if any(not column for column in columns):
        raise node.refuse("no turn was made, so that the shape of what its turns give is not known")
    return (*values, *(_stacked(node, column) for column in columns))


@imports("Scan", first=9)
def scan(node: Node, *inputs: Any) -> Any:
    """A body over the steps of its last inputs, with state that is handed on; further results are stacked."""
    body, steps = node.get("body"), node.get("num_scan_inputs")
    state, sequences = list(inputs[: len(inputs) - steps]), [node.tensor(x) for x in inputs[len(inputs) - steps :]]
    axes = node.get("scan_input_axes", [0] * steps)
    turned = node.get("scan_input_directions", [0] * steps)
    length = sequences[0].shape[axes[0]]
    columns: list[list[Any]] = [[] for _ in range(len(body.outputs) - len(state))]
    for i in range(length):
        parts = [x.select(a, length - 1 - i if back else i) for x, a, back in zip(sequences, axes, turned, strict=True)]
        given = dict(node.scope)
        given.update(zip(body.inputs, [*state, *parts], strict=True))
        found = body.run(given, node.device)
        state = found[: len(state)]
        for column, value in zip(columns, found[len(state) :], strict=True):
            column.append(value)
    places = node.get("scan_output_axes", [0] * len(columns))
    backwards = node.get("scan_output_directions", [0] * len(columns))
    return (*state, *(_stacked(node, c, a, bool(b)) for c, a, b in zip(columns, places, backwards, strict=True)))


# ---------------------------------------------------------------- sequences are Python lists


@imports("SequenceEmpty")
def sequence_empty(node: Node) -> Any:
    return []


@imports("SequenceConstruct")
def sequence_construct(node: Node, *xs: Any) -> Any:
    return list(xs)


@imports("SequenceLength", always_host=True)
def sequence_length(node: Node, xs: Any) -> Any:
    return np.array(len(xs), np.int64)


@imports("SequenceAt", host=(1,))
def sequence_at(node: Node, xs: Any, at: Any) -> Any:
    return xs[int(number(read(node, at, "a place")))]


@imports("SequenceInsert", host=(2,))
def sequence_insert(node: Node, xs: Any, x: Any, at: Any = None) -> Any:
    found = list(xs)
    place = len(found) if at is None else int(number(read(node, at, "a place")))
    found.insert(place + len(found) if place < 0 else place, x)
    return found


@imports("SequenceErase", host=(1,))
def sequence_erase(node: Node, xs: Any, at: Any = None) -> Any:
    found = list(xs)
    del found[-1 if at is None else int(number(read(node, at, "a place")))]
    return found


@imports("SplitToSequence", host=(1,))
def split_to_sequence(node: Node, x: Any, sizes: Any = None) -> Any:
    axis = node.get("axis", 0)
    if sizes is None:
        parts = gl.split(x, 1, axis)
        return list(parts) if node.get("keepdims", 1) else [p.squeeze(axis) for p in parts]
    return list(gl.split(x, int(sizes) if np.ndim(sizes) == 0 else [int(n) for n in sizes], axis))


@imports("ConcatFromSequence")
def concat_from_sequence(node: Node, xs: Any) -> Any:
    parts = [node.tensor(x) for x in xs]
    return gl.stack(parts, node.get("axis")) if node.get("new_axis", 0) else gl.cat(parts, node.get("axis"))


@imports("SequenceMap")
def sequence_map(node: Node, xs: Any, *rest: Any) -> Any:
    """A body over the elements of sequences; what is no sequence is the same for all."""
    body = node.get("body")
    columns: list[list[Any]] = [[] for _ in body.outputs]
    for i, x in enumerate(xs):
        given = dict(node.scope)
        given.update(zip(body.inputs, [x, *(r[i] if isinstance(r, list) else r for r in rest)], strict=True))
        for column, value in zip(columns, body.run(given, node.device), strict=True):
            column.append(value)
    return columns[0] if len(columns) == 1 else tuple(columns)


@imports("Optional", "OptionalGetElement")
def optional(node: Node, x: Any = None) -> Any:
    return x


@imports("OptionalHasElement", always_host=True)
def optional_has_element(node: Node, x: Any = None) -> Any:
    return np.array(x is not None)
