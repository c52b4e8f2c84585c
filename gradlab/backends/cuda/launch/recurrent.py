"""Recurrent units: one time step, one launch between the matrix products; or all steps of a layer of them in one launch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.launch.row_forms import floating
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import element_strides
from gradlab.dtype import FLOATING, wide

FILE, ALONE, CLUSTER = "recurrent.cu", "recurrent_steps.cu", "recurrent_cluster.cu"
UNITS = ("lstm", "gru", "tanh", "relu")  # recurrent_steps.cuh
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
CARRIED = {"lstm": (1, 1), "gru": (0, 1), "tanh": (0, 0), "relu": (0, 0)}  # numbers that a unit has beside its state, forward and backward
ROWS = (4, 8)  # sequences of a team of blocks
THREADS, WARP = 256, 32
TEAMS = {1: 264, 8: 32}  # by its blocks: of how many teams a batch may be. Two for each place on an H100; of more, steps make better use
FEW_UNITS = 64  # that one block alone takes as soon as a cluster does
ROOM = {(7, 5): 64, (8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227}  # KiB of shared memory of a block
LEAST_ROOM = 99  # of other GPUs from compute capability 8.0
STEPS = struct.Struct("24qd")  # recurrent_steps.cuh


def step(name: str) -> Rule:
    """A kernel with one thread for each number of the state, which is the shape of the smallest output."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        state, gates = min(outputs, key=lambda y: y.size), max(outputs, key=lambda y: y.size)
        if state.size:
            index = "long long" if gates.size > 2**31 - 1 else "unsigned int"
            function = work.kernel(FILE, name, state.dtype, index)
            work.each(function, state.size, *map(work.contiguous, inputs), *outputs, state.shape[-1])

    return Rule(run, floating)


RULES = {(FILE, name): step(name) for name in ("lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward")}


# ---------------------------------------------------------------- all steps


class Form(NamedTuple):
    """How a layer's way through its steps is divided: the kind of its units; blocks of a team, which has so many sequences; threads of a
    block and bytes of its shared memory, forward and backward."""

    unit: str
    blocks: int
    rows: int
    threads: tuple[int, int]
    shared: tuple[int, int]


def instances() -> list[tuple[Any, ...]]:
    """The template arguments of the kernels that there may be."""
    storages = ("float", "double", "__half", "__nv_bfloat16")
    return [(s, number, rows) for s in storages for number in range(len(UNITS)) for rows in ROWS]


def form_of(capability: tuple[int, int], unit: str, dtype: np.dtype[Any], batch: int, units: int) -> Form | None:
    """The form for so many sequences and units of a kind, of states and weights of a dtype; None where steps one by one are better."""
    if dtype not in FLOATING or not batch or not units:
        return None
    room = 1024 * ROOM.get(capability, LEAST_ROOM if capability >= (8, 0) else 48)
    for blocks in (1, 8) if units <= FEW_UNITS or capability < (9, 0) else (8,):
        for rows in ROWS[::-1] if batch > 64 else ROWS[:1]:
            found = _form(unit, blocks, rows, dtype, units)
            fits = found is not None and max(found.shared) <= room and -(-batch // rows) <= TEAMS[blocks]
            if found is not None and fits and (blocks == 1 or capability >= (9, 0)):
                return found
    return None


def _form(unit: str, blocks: int, rows: int, dtype: np.dtype[Any], units: int) -> Form | None:
    own, size, gates = -(-units // blocks), wide(dtype).itemsize, GATES[unit]
    weight, (cells, carried) = gates * units * own * dtype.itemsize, CARRIED[unit]
    if own > THREADS:
        return None
    forward = _threads(own, max(units // 8, 1))
    backward = _threads(units, max(own // 8, 1))
    senders = blocks * max(backward // units, 1)
    return Form(
        unit, blocks, rows, (forward, backward),
        ((gates * rows * forward + 2 * units * rows + cells * rows * own) * size + weight,
         (gates * rows * own + 2 * senders * own * rows + carried * rows * own) * size + weight),
    )  # fmt: skip


def _threads(columns: int, slices: int) -> int:
    """Whole warps, with so many threads for each column of a product as there is use for."""
    return min(THREADS, -(-columns * min(slices, max(THREADS // columns, 1)) // WARP) * WARP)


def steps_forward(work: Work, form: Form, inputs: Sequence[Any], outputs: Sequence[Any], backwards: bool) -> None:
    """gates of the first two steps as they lie in memory, the weight (units, gates), the first hidden states, and of LSTM the first cell
    states, of GRU perhaps a bias (gates) → hidden states with the first ones (steps + 1, batch, units), cells of LSTM or sums of the state
    of GRU (steps, batch, gates), gates after their sigmoid or tanh."""
    x, following, weight, first, *begun = inputs
    hidden, *values, acts = outputs
    (steps, batch, _), units = acts.shape, hidden.shape[-1]
    cell = element_strides(begun[0]) if begun else (0,)
    numbers = (
        steps, batch, units, int(backwards), *element_strides(weight), _apart(work, x, following), element_strides(x)[0],
        *element_strides(first), *(0, *cell)[-2:], *(0,) * 12, 0.0,
    )  # fmt: skip
    operands = (x, weight, first, begun[0] if begun else None, hidden, values[0] if values else None, acts)
    _launch(work, form, 0, weight.dtype, batch, *operands, STEPS.pack(*numbers))


def steps_backward(
    work: Work, form: Form, given: dict[str, list[Any]], outputs: Sequence[Any], backwards: bool, slope: float
) -> None:
    """What `graph/passes/step_rows.arranged` names, and what arrives at the hidden states where there are no `slopes` → the gradients of
    the gates' sums, of GRU those of its sums of the state, and of LSTM and GRU those of what the way began with."""
    (first,), (weight,), acts, slopes = given["first"], given["weight"], given["acts"], given["slopes"]
    arrived, values, begun, states = (given.get(name, ()) for name in ("arrived", "values", "begun", "states"))
    dgates, *others = outputs
    steps, (batch, units) = dgates.shape[0], first.shape
    gate, unit = element_strides(weight)

    def lie(of: Sequence[Any], dims: int) -> tuple[int, ...]:
        if not of:
            return (0,) * (dims + 1)
        return (_apart(work, *of) if len(of) == 2 else 0, *element_strides(of[0])[:dims])

    numbers = (
        steps, batch, units, int(backwards), unit, gate, 0, 0, *element_strides(first), *lie(arrived, 2)[1:], *lie(begun, 2)[1:],
        *lie(slopes, 2), *lie(values, 1), *lie(acts, 1), *lie(states, 2), slope,
    )  # fmt: skip
    down, carried = ([None, *others] if form.unit != "gru" else others)[:2] if others else (None, None)
    of = [next(iter(some), None) for some in (slopes, given["first"], arrived, acts, values, states, begun, given["weight"])]
    _launch(work, form, 1, weight.dtype, batch, *of, dgates, down, carried, STEPS.pack(*numbers))


def _launch(work: Work, form: Form, back: int, dtype: np.dtype[Any], batch: int, *values: Any) -> None:
    file, name = (ALONE, "recurrent_steps") if form.blocks == 1 else (CLUSTER, "recurrent_cluster")
    function = work.kernel(file, name + ("_backward" if back else ""), dtype, UNITS.index(form.unit), form.rows)
    work.launch(function, -(-batch // form.rows) * form.blocks, form.threads[back], *values, shared=form.shared[back])


def _apart(work: Work, first: Any, then: Any) -> int:
    """Elements from one array to another."""
    return int(work.pointer(then) - work.pointer(first)) // int(first.dtype.itemsize)
