"""Update rows of the optimizers: one launch for all parameters of a group (`multi_tensor`), which may write into its own inputs.

The tables of addresses travel with the launch, not through device memory. Where a row counts steps, a second small launch before it
advances the counters and computes each parameter's constants.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.arguments import Packer
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOAT64, FLOATING
from gradlab.op import Op
from gradlab.spec import Spec

CHUNK, CONSTANTS, COUNTED, ROOM = 4096, 8, 64, 3800  # as in optim.cu
MOST_BLOCKS = 1 << 30
HYPERS = struct.Struct("Q8dQ")


class Form(NamedTuple):
    """How a row's inputs (p, grad, buffers…, extras…, step, h) and outputs (p, buffers…, extras…, step) are a kernel's.

    places: which of the kernel's `buffers` each of the row's is. extras: 0-d numbers besides the step. counts: whether there is a step.
    """

    kind: str
    buffers: int
    places: tuple[int, ...]
    extras: int = 0
    counts: bool = True


FORMS = {
    "sgd_update": Form("SGD", 0, (), counts=False),
    "sgd_momentum_update": Form("MOMENTUM", 1, (0,), counts=False),
    "adam_update": Form("ADAM", 2, (0, 1)),
    "amsgrad_update": Form("AMSGRAD", 3, (0, 1, 2)),
    "rmsprop_update": Form("RMSPROP", 3, (0,)),
    "rmsprop_centered_update": Form("RMSPROP", 3, (0, 1)),
    "rmsprop_momentum_update": Form("RMSPROP", 3, (0, 2)),
    "rmsprop_centered_momentum_update": Form("RMSPROP", 3, (0, 1, 2)),
    "adagrad_update": Form("ADAGRAD", 1, (0,)),
    "adadelta_update": Form("ADADELTA", 2, (0, 1)),
    "adamax_update": Form("ADAMAX", 2, (0, 1)),
    "nadam_update": Form("NADAM", 2, (0, 1), extras=1),
    "radam_update": Form("RADAM", 2, (0, 1)),
    "asgd_update": Form("ASGD", 1, (0,), extras=2),
    "rprop_update": Form("RPROP", 2, (0, 1)),
    "lion_update": Form("LION", 1, (0,), counts=False),
}


class Part(NamedTuple):
    """One parameter of a launch. arrays: p, gradient, kernel's buffers, new p, new buffers. counters: step, two extras, the new ones."""

    arrays: tuple[Any, ...]
    counters: tuple[Any, ...]

    @property
    def size(self) -> int:
        return int(self.arrays[0].size)


def table_length(buffers: int) -> int:
    """How many parameters one launch takes."""
    return ROOM // (8 * (4 + 2 * buffers) + 4)


def part_of(form: Form, inputs: Sequence[Any], outputs: Sequence[Any]) -> Part:
    """A row's contiguous inputs (without h) and outputs."""
    p, g, *rest = inputs
    new_p, *news = outputs
    olds, updated = [None] * form.buffers, [None] * form.buffers
    for place, old, new in zip(form.places, rest, news, strict=False):
        olds[place], updated[place] = old, new
    counters: list[Any] = [None] * 6
    if form.counts:
        counters[0], counters[3] = rest[-1], news[-1]
        for i in range(form.extras):
            counters[1 + i], counters[4 + i] = rest[len(form.places) + i], news[len(form.places) + i]
    # A kernel's table has room for one buffer where the row has none.
    pad = [None] if form.buffers == 0 else []
    return Part((p, g, *olds, *pad, new_p, *updated, *pad), tuple(counters))


def _hypers(work: Work, h: Any, skip: Any = None) -> tuple[bytes, Any]:
    """The bytes of `Hypers`, and the device array to keep until the launch. skip: a truth value on the device."""
    flag = 0 if skip is None else work.pointer(skip)
    if isinstance(h, np.ndarray):
        numbers = h.tolist()
        return HYPERS.pack(0, *numbers, *[0.0] * (8 - len(numbers)), flag), None
    device = work.converted(h, FLOAT64)
    return HYPERS.pack(work.pointer(device), *[0.0] * 8, flag), device


def _batches(parts: Sequence[Part], length: int) -> Iterator[tuple[Sequence[Part], list[int]]]:
    """Parts for one launch each, with the number of the first block of each and the total."""
    taken: list[Part] = []
    first = [0]
    for part in parts:
        blocks = -(-part.size // CHUNK)
        if taken and (len(taken) == length or first[-1] + blocks > MOST_BLOCKS):
            yield taken, first
            taken, first = [], [0]
        taken.append(part)
        first.append(first[-1] + blocks)
    if taken:
        yield taken, first


def _addresses(work: Work, arrays: Sequence[Any]) -> list[int]:
    return [0 if a is None else work.pointer(a) for a in arrays]


class Update:
    """The launches that update some parameters, ready to be made again: only gradients and hyper-parameters are packed anew."""

    def __init__(self, work: Work, form: Form, parts: Sequence[Part], first: list[int], params: dict[str, Any]) -> None:
        self.work = work
        dtype, length = parts[0].arrays[0].dtype, table_length(form.buffers)
        kind, rest = f"gradlab::{form.kind}", length - len(parts)
        launcher = work.driver.launcher
        self.constants: Any = None
        if form.counts:
            self.constants = work.driver.maker((len(parts), CONSTANTS), work.wide(dtype))
            columns = [_addresses(work, column) for column in zip(*(part.counters for part in parts), strict=True)]
            pad = [0] * (COUNTED - len(parts))
            counters = struct.pack(f"{6 * COUNTED}Qii", *(a for column in columns for a in (*column, *pad)), len(parts), 0)
            packer = Packer(["P", len(counters), HYPERS.size])
            self.counting = packer.fill(0, counters, b"")
            self.pack_counting = packer.part(0), packer.part(2)
            advance = work.kernel("optim.cu", "advance", work.wide(dtype), parts[0].counters[0].dtype, kind)
            self.advance = launcher(advance, (1, 1, 1), (COUNTED, 1, 1), 0)
        self.update: Any = None
        if first[-1]:
            columns = [_addresses(work, column) for column in zip(*(part.arrays for part in parts), strict=True)]
            columns.append([part.size for part in parts])
            numbers = [a for column in columns for a in (*column, *[0] * rest)]
            table = struct.pack(f"{len(numbers)}Q{length + 2}i", *numbers, len(parts), *first, *[first[-1]] * rest)
            table += bytes(-len(table) % 8)
            packer = Packer([len(table), "P", HYPERS.size, "i", "i"])
            flag = params.get("nesterov", params.get("decoupled", False))
            self.packet = packer.fill(table, 0, b"", flag, params["maximize"])
            self.pack_gradients = functools.partial(struct.Struct(f"{len(parts)}Q").pack_into, self.packet.buffer, 8 * length)
            self.pack_constants = packer.part(1), packer.part(2)
            update = work.kernel("optim.cu", "update", dtype, kind)
            self.update = launcher(update, (first[-1], 1, 1), (256, 1, 1), 0)

    def run(self, gradients: Sequence[Any], hypers: bytes) -> None:
        """Launch. The gradients are contiguous; there may be others than those at first, of the same shapes."""
        pointer = self.work.pointer
        constants, address = None, 0
        if self.constants is not None:
            constants = self.constants()
            address = pointer(constants)
            where, what = self.pack_counting
            where(self.counting, address)
            what(self.counting, hypers)
            self.advance(self.counting.address)
        if self.update is not None:
            where, what = self.pack_constants
            where(self.packet, address)
            what(self.packet, hypers)
            self.pack_gradients(*map(pointer, gradients))
            self.update(self.packet.address)


def updates_of(work: Work, form: Form, parts: Sequence[Part], params: dict[str, Any]) -> Iterator[tuple[Update, Sequence[Part]]]:
    """The updates of parameters of one dtype, whose counters are of one dtype: one launch each (two where steps are counted)."""
    length = table_length(form.buffers)
    for taken, first in _batches(parts, min(length, COUNTED) if form.counts else length):
        yield Update(work, form, taken, first, params), taken


def launch(work: Work, form: Form, parts: Sequence[Part], h: Any, params: dict[str, Any]) -> None:
    """Update parameters of one dtype, whose counters are of one dtype."""
    hypers, kept = _hypers(work, h)
    for update, taken in updates_of(work, form, parts, params):
        update.run([part.arrays[1] for part in taken], hypers)
    del kept


def _takes(form: Form) -> Any:
    def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        *_, h = specs
        counters = {s.dtype for s in specs[len(specs) - 2 - form.extras : -1] if s is not None} if form.counts else set()
        return outs[0].dtype in FLOATING and h is not None and h.dtype in FLOATING and len(counters) <= 1 and counters <= FLOATING

    return takes


def _rule(form: Form) -> Rule:
    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        *arrays, h = inputs
        ready = [None if a is None else work.contiguous(a) for a in arrays]
        launch(work, form, [part_of(form, ready, outputs)], h, params)

    return Rule(run, _takes(form))


class Group(NamedTuple):
    """What updates many parameters in place, as long as they are where they were. It keeps none of them alive."""

    places: list[Any]  # addresses, strides, shapes, dtypes
    updates: list[tuple[Update, list[int]]]  # and which parameters each takes


def multi_tensor(
    work: Work, op: Op, arguments: Sequence[Sequence[Any]], params: dict[str, Any], known: dict[Any, Group] | None = None,
    skip: Any = None,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Update many parameters in place by an optimizer's row.

    arguments: the row's inputs for each parameter: device arrays, None for a buffer to be made; h is a vector on the device or on the host
    (NumPy), the same for all. Everything but h and the gradient is written into its own memory. Gradients have their parameter's shape and
    dtype. Returns each parameter's outputs: the given arrays, or new ones where None was given. Parameters may differ in dtype, not in
    device. known: what was prepared for earlier calls of this row with these params, kept by whoever owns the parameters. skip: a truth
    value on the device; where it holds, everything stays as it is. It must not where a buffer is to be made.
    """
    found = [(p, *buffers) for p, _, *buffers, _ in arguments]
    gradients, h = [work.contiguous(inputs[1]) for inputs in arguments], arguments[0][-1]
    pointer = work.pointer
    late: list[tuple[Any, Any]] = []
    places: list[Any] = [None if a is None else (pointer(a), a.strides) for arrays in found for a in arrays]
    places += [(arrays[0].shape, arrays[0].dtype) for arrays in found]
    group = None if known is None else known.get(op)
    if group is None or group.places != places:
        updates, late, found, lasting = _updates(work, FORMS[op.name], found, gradients, params)
        group = Group(places, updates)
        if known is not None and lasting:
            known[op] = group
    hypers, kept = _hypers(work, h, skip)
    for update, numbers in group.updates:
        update.run([gradients[i] for i in numbers], hypers)
    for target, output in late:
        work.copy(target, output)
    del kept
    return found


def _updates(
    work: Work, form: Form, given: Sequence[Sequence[Any]], gradients: Sequence[Any], params: dict[str, Any]
) -> tuple[list[tuple[Update, list[int]]], list[tuple[Any, Any]], list[tuple[Any, ...]], bool]:
    """The updates; what is to be copied to where after them (what is not contiguous is updated in a copy); the outputs; whether the updates
    will do for the same arrays again."""
    by_dtype: dict[Any, tuple[list[Part], list[int]]] = {}
    returned, late, lasting = [], [], True
    for number, (arrays, gradient) in enumerate(zip(given, gradients, strict=True)):
        p = arrays[0]
        targets = [work.empty(p.shape, p.dtype) if a is None else a for a in arrays]
        ready = [None if a is None else work.contiguous(a) for a in arrays]
        outputs = [t if i is None or i is a else i for t, i, a in zip(targets, ready, arrays, strict=True)]
        late += [(t, o) for t, o in zip(targets, outputs, strict=True) if t is not o]
        lasting = lasting and not late and all(a is not None for a in arrays)
        part = part_of(form, [ready[0], gradient, *ready[1:]], outputs)
        parts, numbers = by_dtype.setdefault((p.dtype, None if part.counters[0] is None else part.counters[0].dtype), ([], []))
        parts.append(part)
        numbers.append(number)
        returned.append(tuple(targets))
    updates: list[tuple[Update, list[int]]] = []
    for parts, numbers in by_dtype.values():
        first = 0
        for update, taken in updates_of(work, form, parts, params):
            updates.append((update, numbers[first : first + len(taken)]))
            first += len(taken)
    return updates, late, returned, lasting


def launches(
    work: Work, op: Op, rows: Sequence[tuple[Sequence[Any], Sequence[Any]]], params: dict[str, Any]
) -> list[Callable[[], None]]:
    """Calls that compute many parameters' outputs of an optimizer's row, one for each dtype. Inputs have the same h and may be strided."""
    form = FORMS[op.name]
    by_dtype: dict[Any, list[tuple[Sequence[Any], Sequence[Any]]]] = {}
    for (*inputs, _), outputs in rows:
        counter = part_of(form, inputs, outputs).counters[0]
        by_dtype.setdefault((inputs[0].dtype, None if counter is None else counter.dtype), []).append((inputs, outputs))

    def run(some: list[tuple[Sequence[Any], Sequence[Any]]]) -> None:
        parts = [part_of(form, [None if a is None else work.contiguous(a) for a in inputs], outputs) for inputs, outputs in some]
        launch(work, form, parts, rows[0][0][-1], params)

    return [functools.partial(run, some) for some in by_dtype.values()]


RULES = {("optim.cu", name): _rule(form) for name, form in FORMS.items()}
