"""Branches, loops, sequences and optional values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.autograd.mode import current
from gradlab.onnx.importing import Node, OnnxLoadError, given, imports, inside, ints, is_dynamic, number, read, way_out
from gradlab.onnx.operators.shapes import padded

LONGEST = 64  # turns that a trace writes one by one; more of them are a loop of the program


def _traced(*values: Any) -> bool:
    """Whether a decision on these values is one of a program's."""
    return current().tracer is not None and any(isinstance(v, gl.Tensor) for v in values)


def _run(node: Node, body: Any, inputs: Sequence[Any]) -> list[Any]:
    """A graph inside, once."""
    values = inside(node)
    values.update(zip(body.inputs, inputs, strict=True))
    found: list[Any] = body.run(values, node.device)
    return found


@imports("If", host=(0,))
def if_(node: Node, condition: Any) -> Any:
    """One of two graphs; in a program by a tensor, both."""
    names = ("then_branch", "else_branch")

    def branch(name: str) -> Any:
        found = _run(node, node.get(name), [])
        return found[0] if len(found) == 1 else tuple(found)

    if not _traced(condition):
        return branch(names[0 if bool(number(read(node, condition, "a branch"))) else 1])

    def tensors(name: str) -> Any:
        try:
            found = branch(name)
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            raise node.refuse(f"a program holds both branches, and the {name} cannot be computed here: {error}{way_out(node)}") from error
        return tuple(map(node.tensor, found)) if isinstance(found, tuple) else node.tensor(found)

    try:
        return gl.cond(condition.reshape(()), lambda: tensors(names[0]), lambda: tensors(names[1]))
    except (ValueError, TypeError) as error:
        if isinstance(error, OnnxLoadError):
            raise
        raise node.refuse(f"its branches cannot both be parts of a program: {error}{way_out(node)}") from error


def _stacked(node: Node, parts: Sequence[Any], axis: int = 0, backwards: bool = False) -> Any:
    return gl.stack([node.tensor(p) for p in (reversed(parts) if backwards else parts)], axis)


@imports("Loop", host=(0, 1))
def loop(node: Node, most: Any, condition: Any, *state: Any) -> Any:
    """A body that is run while its first result is true, at most a number of times; further results are stacked."""
    body = node.get("body")
    many = len(state)
    columns: list[list[Any]] = [[] for _ in range(len(body.outputs) - 1 - many)]
    if _traced(most, condition) and not columns:
        return _while(node, most, condition, state)
    going = True if condition is None else bool(number(read(node, condition, "the number of turns")))
    if most is not None and is_dynamic(number(read(node, most, "the number of turns"))):
        return _counted(node, number(most), going, state)
    last = None if most is None else int(number(read(node, most, "the number of turns")))
    values, turn = list(state), 0
    while going and (last is None or turn < last):
        going_, *found = _run(node, body, [np.array(turn, np.int64), np.array(going), *values])
        if _traced(going_):
            if columns or turn:
                raise node.refuse(f"how many turns are stacked is computed in the program{way_out(node)}")
            return _while(node, most, np.array(going), state)
        going = bool(number(read(node, going_, "the number of turns")))
        values = found[:many]
        for column, value in zip(columns, found[many:], strict=True):
            column.append(value)
        turn += 1
    if any(not column for column in columns):
        raise node.refuse("no turn was made, so that the shape of what its turns give is not known")
    return (*values, *(_stacked(node, column) for column in columns))


def _while(node: Node, most: Any, condition: Any, state: Sequence[Any]) -> Any:
    """A loop of the program: how often it turns is known when it runs."""
    body = node.get("body")
    limit = None if most is None else node.tensor(most).reshape(())
    going = node.tensor(np.array(True) if condition is None else condition).reshape(())
    start = (node.tensor(np.array(0, np.int64)), going, *map(node.tensor, state))

    def turn(at: Any, going: Any, *values: Any) -> Any:
        again, *found = map(node.tensor, _run(node, body, [at, going, *values]))
        return (at + 1, again.reshape(()), *found)

    _, _, *found = gl.while_loop(lambda at, going, *_: going if limit is None else going & (at < limit), turn, start)
    return tuple(found)


def _counted(node: Node, turns: Any, going: bool, state: Sequence[Any]) -> Any:
    """A loop of as many turns as a size that a trace leaves open."""
    body = node.get("body")
    stacks = len(body.outputs) - 1 > len(state)

    def turn(carry: Any, at: Any) -> Any:
        again, *found = _run(node, body, [at, np.array(True), *carry])
        if isinstance(again, gl.Tensor) or not bool(again):
            raise _Ends
        found = list(map(node.tensor, found))
        return tuple(found[: len(carry)]), tuple(found[len(carry) :])

    try:
        carry, ys = gl.scan(turn, tuple(map(node.tensor, state)), gl.arange(turns if going else 0, device=node.device))
    except _Ends:
        if stacks:
            raise node.refuse(f"how many turns are stacked is computed in the program{way_out(node)}") from None
        return _while(node, np.asarray(turns, object), np.array(going), state)
    return (*carry, *ys)


class _Ends(Exception):
    """A loop's body may end it."""


@imports("Scan")
def scan(node: Node, *inputs: Any) -> Any:
    """A body over the steps of its last inputs, with state that is handed on; further results are stacked."""
    if node.opset >= 9:
        return _scan(node, inputs, node.get("scan_input_axes"), node.get("scan_input_directions"))
    lengths, *rest = inputs  # of opset 8: each entry of a batch, the first dimension, by itself
    state = len(rest) - node.get("num_scan_inputs")
    longest = rest[state].shape[1]
    counts = ints(read(node, lengths, "the number of steps")) if given(lengths) else None
    found = []
    for i, n in enumerate(counts or [longest] * rest[0].shape[0]):
        one = [node.tensor(x)[i] if k < state else node.tensor(x)[i, :n] for k, x in enumerate(rest)]
        parts = _scan(node, one, None, node.get("directions"))
        found.append([y if k < state or n == longest else padded(y, 0, 0, longest - n, "constant", 0) for k, y in enumerate(parts)])
    return tuple(_stacked(node, parts) for parts in zip(*found, strict=True))


def _scan(node: Node, inputs: Sequence[Any], axes: Any, turned: Any) -> tuple[Any, ...]:
    body, steps = node.get("body"), node.get("num_scan_inputs")
    state, sequences = list(inputs[: len(inputs) - steps]), [node.tensor(x) for x in inputs[len(inputs) - steps :]]
    axes, turned = axes or [0] * steps, turned or [0] * steps
    length = sequences[0].shape[axes[0]]
    count = len(body.outputs) - len(state)
    places = node.get("scan_output_axes", [0] * count)
    backwards = node.get("scan_output_directions", [0] * count)
    if current().tracer is not None and (is_dynamic(length) or length > LONGEST):
        parts = tuple((x.flip(a) if back else x).movedim(a, 0) for x, a, back in zip(sequences, axes, turned, strict=True))

        def turn(carry: Any, part: Any) -> Any:
            found = list(map(node.tensor, _run(node, body, [*carry, *part])))
            return tuple(found[: len(carry)]), tuple(found[len(carry) :])

        ends, ys = gl.scan(turn, tuple(map(node.tensor, state)), parts)
        return (*ends, *((y.flip(0) if back else y).movedim(0, a) for y, a, back in zip(ys, places, backwards, strict=True)))
    columns: list[list[Any]] = [[] for _ in range(count)]
    for i in range(length):
        parts_ = [x.select(a, length - 1 - i if back else i) for x, a, back in zip(sequences, axes, turned, strict=True)]
        found = _run(node, body, [*state, *parts_])
        state = found[: len(state)]
        for column, value in zip(columns, found[len(state) :], strict=True):
            column.append(value)
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
        for column, value in zip(columns, _run(node, body, [x, *(r[i] if isinstance(r, list) else r for r in rest)]), strict=True):
            column.append(value)
    return columns[0] if len(columns) == 1 else tuple(columns)


@imports("Optional", "OptionalGetElement")
def optional(node: Node, x: Any = None) -> Any:
    return x


@imports("OptionalHasElement", always_host=True)
def optional_has_element(node: Node, x: Any = None) -> Any:
    return np.array(x is not None)
