"""What processes do together with arrays of their GPUs: by NCCL, in the current stream; else by the host.

What NCCL does not reduce (bitwise operations, whole numbers' means, complex numbers, bool) goes by the host, too. A started all_reduce
runs in a stream of its own, beside the program's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.nccl.beside import before_mine, beside_of
from gradlab.backends.cuda.nccl.communicators import communicator_of, number_type
from gradlab.backends.cuda.nccl.names import REDUCTIONS, TYPES

BYTES = TYPES["uint8"]


def _by_host(work: Work, x: Any, y: Any, call: Callable[[Any, Any], None]) -> None:
    filled = np.empty(y.shape, y.dtype)
    call(work.driver.download(work.contiguous(x)), filled)
    work.driver.write(y, filled)


def _rule(name: str, by_nccl: Callable[..., None], reducing: bool) -> Rule:
    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        (x,), (y,) = inputs, outputs
        by = params["by"]
        others = {key: value for key, value in params.items() if key not in ("by", "slot")}
        kind = number_type(x.dtype, others.get("op", "sum")) if reducing else BYTES
        found = None if by.size == 1 or kind is None else communicator_of(work.driver, by)
        if found is None:
            _by_host(work, x, y, lambda given, filled: getattr(by, name)(given, filled, *others.values()))
        else:
            before_mine(work.driver, by)
            by_nccl(work, *found, work.contiguous(x), y, kind, **others)

    return Rule(run)


def _op(op: str) -> int:
    return REDUCTIONS[op]


def _all_reduce(work: Work, nccl: Any, comm: Any, x: Any, y: Any, kind: int, op: str) -> None:
    comm.allReduce(work.pointer(x), work.pointer(y), x.size, kind, _op(op), _stream(work))


def _reduce(work: Work, nccl: Any, comm: Any, x: Any, y: Any, kind: int, op: str, root: int) -> None:
    if comm.rank_id() != root and y.size:
        work.driver.fill_zero(y)
    comm.reduce(work.pointer(x), work.pointer(y), x.size, kind, _op(op), root, _stream(work))


def _broadcast(work: Work, nccl: Any, comm: Any, x: Any, y: Any, kind: int, root: int) -> None:
    comm.broadcast(work.pointer(x), work.pointer(y), x.nbytes, kind, root, _stream(work))


def _all_gather(work: Work, nccl: Any, comm: Any, x: Any, y: Any, kind: int) -> None:
    comm.allGather(work.pointer(x), work.pointer(y), x.nbytes, kind, _stream(work))


def _reduce_scatter(work: Work, nccl: Any, comm: Any, x: Any, y: Any, kind: int, op: str) -> None:
    comm.reduceScatter(work.pointer(x), work.pointer(y), y.size, kind, _op(op), _stream(work))


def _all_to_all(work: Work, nccl: Any, comm: Any, x: Any, y: Any, kind: int, give: tuple[int, ...], take: tuple[int, ...]) -> None:
    row = x.nbytes // x.shape[0] if x.size else y.nbytes // y.shape[0] if y.size else 0
    starts = [(0, *accumulate(counts)) for counts in (give, take)]
    stream = _stream(work)
    nccl.groupStart()
    for peer in range(comm.size()):
        if give[peer] * row:
            comm.send(work.pointer(x) + starts[0][peer] * row, give[peer] * row, kind, peer, stream)
        if take[peer] * row:
            comm.recv(work.pointer(y) + starts[1][peer] * row, take[peer] * row, kind, peer, stream)
    nccl.groupEnd()


def _stream(work: Work) -> int:
    return int(work.driver.current_stream().ptr)


# ---------------------------------------------------------------- beside the program


def _begin(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    by, op, driver = params["by"], params["op"], work.driver
    kind = number_type(x.dtype, op)
    found = None if by.size == 1 or kind is None else communicator_of(driver, by)
    if found is None:
        _by_host(work, x, y, lambda given, filled: by.all_reduce(given, filled, op))
        return
    work.copy(y, work.contiguous(x))  # x may be anything as soon as this row is over; y is nobody's until the end
    beside = beside_of(driver, by)
    beside.flush()
    nccl, comm = found
    beside.events[params["slot"]] = beside.run(lambda: _all_reduce(work, nccl, comm, y, y, kind, op), y)  # type: ignore[arg-type]


def _end(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    beside_of(work.driver, params["by"]).end(params["slot"])
    work.copy(y, work.contiguous(x))


BY_ROW = {
    "all_reduce": _rule("all_reduce", _all_reduce, True), "reduce": _rule("reduce", _reduce, True),
    "broadcast": _rule("broadcast", _broadcast, False), "all_gather": _rule("all_gather", _all_gather, False),
    "reduce_scatter": _rule("reduce_scatter", _reduce_scatter, True), "all_to_all": _rule("all_to_all", _all_to_all, False),
    "all_reduce_begin": Rule(_begin), "all_reduce_end": Rule(_end),
}  # fmt: skip
