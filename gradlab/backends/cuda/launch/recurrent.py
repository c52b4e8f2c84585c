"""Recurrent units: one time step, one launch between the matrix products; or all steps of a layer of LSTM units in one launch."""

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

FILE, ALONE, CLUSTER = "recurrent.cu", "lstm_steps.cu", "lstm_cluster.cu"
GATES = 4
ROWS = (4, 8)  # sequences of a team of blocks
THREADS, WARP = 256, 32
TEAMS = {1: 264, 8: 32}  # by its blocks: of how many teams a batch may be. Two for each place on an H100; of more, steps make better use
FEW_UNITS = 64  # that one block alone takes as soon as a cluster does
ROOM = {(7, 5): 64, (8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227}  # KiB of shared memory of a block
LEAST_ROOM = 99  # of other GPUs from compute capability 8.0
STEPS = struct.Struct("21qd")  # lstm_steps.cuh


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
    """How a layer's way through its steps is divided: blocks of a team, which has so many sequences; threads of a block and bytes of its
    shared memory, forward and backward."""

    blocks: int
    rows: int
    threads: tuple[int, int]
    shared: tuple[int, int]


def instances() -> list[tuple[Any, ...]]:
    """The template arguments of the kernels that there may be."""
    return [(s, rows) for s in ("float", "double", "__half", "__nv_bfloat16") for rows in ROWS]


def form_of(capability: tuple[int, int], dtype: np.dtype[Any], batch: int, units: int) -> Form | None:
    """The form for so many sequences and units, of states and weights of a dtype; None where steps one by one are better."""
    if dtype not in FLOATING or not batch or not units:
        return None
    room = 1024 * ROOM.get(capability, LEAST_ROOM if capability >= (8, 0) else 48)
    for blocks in (1, 8) if units <= FEW_UNITS or capability < (9, 0) else (8,):
        for rows in ROWS[::-1] if batch > 64 else ROWS[:1]:
            found = _form(blocks, rows, dtype, units)
            fits = found is not None and max(found.shared) <= room and -(-batch // rows) <= TEAMS[blocks]
            if found is not None and fits and (blocks == 1 or capability >= (9, 0)):
                return found
    return None


def _form(blocks: int, rows: int, dtype: np.dtype[Any], units: int) -> Form | None:
    own, size, weight = -(-units // blocks), wide(dtype).itemsize, GATES * units * -(-units // blocks) * dtype.itemsize
    if own > THREADS:
        return None
    forward = _threads(own, max(units // 8, 1))
    backward = _threads(units, max(own // 8, 1))
    senders = blocks * max(backward // units, 1)
    return Form(
        blocks, rows, (forward, backward),
        ((GATES * rows * forward + 2 * units * rows + rows * own) * size + weight,
         (GATES * rows * own + 2 * senders * own * rows + rows * own) * size + weight),
    )  # fmt: skip


def _threads(columns: int, slices: int) -> int:
    """Whole warps, with so many threads for each column of a product as there is use for."""
    return min(THREADS, -(-columns * min(slices, max(THREADS // columns, 1)) // WARP) * WARP)


def steps_forward(work: Work, form: Form, inputs: Sequence[Any], outputs: Sequence[Any], backwards: bool) -> None:
    """gates of the first two steps as they lie in memory, the weight (units, gates), the first hidden and cell states → hidden states with
    the first ones (steps + 1, batch, units), cells, gates after their sigmoid or tanh."""
    x, following, weight, first, begun = inputs
    hidden, cells, acts = outputs
    steps, batch, units = cells.shape
    numbers = (
        steps, batch, units, int(backwards), *element_strides(weight), _apart(work, x, following), element_strides(x)[0],
        *element_strides(first), *element_strides(begun), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0,
    )  # fmt: skip
    _launch(work, form, 0, weight.dtype, batch, x, weight, first, begun, hidden, cells, acts, STEPS.pack(*numbers))


def steps_backward(
    work: Work, form: Form, inputs: Sequence[Any], outputs: Sequence[Any], backwards: bool, slope: float
) -> None:
    """The gradients that arrive at the last hidden and cell states, gates and cells of the first two steps as they lie in memory, the first
    cell states, the weight (gates, units), and what arrives at the other hidden states: arrays of two of them, of one, or none and a number
    → the gradients of the gates' sums (steps, batch, gates) and of the first cell states."""
    first, arrived, acts, acts_then, cells, cells_then, begun, weight, *slopes = inputs
    dgates, dcell = outputs
    (batch, units), steps = dcell.shape, dgates.shape[0]
    slope_step = _apart(work, *slopes) if len(slopes) == 2 else 0
    gate, unit = element_strides(weight)
    numbers = (
        steps, batch, units, int(backwards), unit, gate, 0, 0, *element_strides(first), *element_strides(arrived), *element_strides(begun),
        slope_step, *(element_strides(slopes[0]) if slopes else (0, 0)), _apart(work, cells, cells_then), element_strides(cells)[0],
        _apart(work, acts, acts_then), element_strides(acts)[0], slope,
    )  # fmt: skip
    operands = (slopes[0] if slopes else None, first, arrived, acts, cells, begun, weight, dgates, dcell)
    _launch(work, form, 1, weight.dtype, batch, *operands, STEPS.pack(*numbers))


def _launch(work: Work, form: Form, back: int, dtype: np.dtype[Any], batch: int, *values: Any) -> None:
    file, name = (ALONE, "lstm_steps") if form.blocks == 1 else (CLUSTER, "lstm_cluster")
    function = work.kernel(file, name + ("_backward" if back else ""), dtype, form.rows)
    work.launch(function, -(-batch // form.rows) * form.blocks, form.threads[back], *values, shared=form.shared[back])


def _apart(work: Work, first: Any, then: Any) -> int:
    """Elements from one array to another."""
    return int(work.pointer(then) - work.pointer(first)) // int(first.dtype.itemsize)
