"""Random rows with a loop, a search or a sort: poisson, permutation, multinomial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch.sort import KEY32, KEY64, MOST, sorted_keys, sorted_rows
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOAT64, FLOATING, INT64
from gradlab.spec import Spec, count

FILE = "choice.cu"


def poisson(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (rate, state), (y,) = (work.contiguous(x) for x in inputs), outputs
    site = work.faults.values("poisson: rates are not negative")
    work.each(work.kernel(FILE, "poisson", y.dtype), y.size, rate, state, y, params["offset"], work.faults.record, site)
    work.faults.check()


def permutation(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    state, (y,) = work.contiguous(inputs[0]), outputs
    if not y.size:
        return
    keys, order = work.empty((y.size,), KEY64), work.empty((y.size,), KEY32)
    work.launch(work.kernel(FILE, "permutation_keys"), -(-y.size // 1024), 256, state, keys, order, params["offset"], y.size)
    _, order = sorted_keys(work, keys, order, 1, y.size, 64)
    work.each(work.kernel("sort.cu", "order_as", y.dtype), y.size, order, y)


def multinomial(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (weights, state), (y,) = (work.contiguous(x) for x in inputs), outputs
    samples, offset = params["samples"], params["offset"]
    categories = weights.shape[-1]
    rows = weights.size // categories
    if not rows:
        return
    site = work.faults.values(
        "multinomial: weights are finite and not negative, and each row has one above zero",
        f"multinomial: fewer than {samples} weights of a row are above zero; draw with replacement=True",
    )
    sums, last = work.empty((weights.size,), FLOAT64), work.empty((rows,), INT64)
    least = 0 if params["replacement"] else samples
    function = work.kernel(FILE, "running_weights", weights.dtype)
    work.launch(function, rows, 32, weights, sums, last, work.faults.record, site, least, categories)
    if params["replacement"]:
        work.each(work.kernel(FILE, "pick_category"), y.size, sums, last, state, y, offset, samples, categories)
    else:
        work.each(work.kernel(FILE, "waiting_times", weights.dtype), weights.size, weights, state, sums, offset)
        _, order = sorted_rows(work, sums.reshape((rows, categories)), 1)
        work.each(work.kernel("sort.cu", "pick_sorted", "unsigned long long"), y.size, sums, order, None, y, samples, categories, 1)
    work.faults.check()


def floats(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point input whose places fit a sort."""
    return specs[0] is not None and specs[0].dtype in FLOATING and count(specs[0].shape) <= MOST


def sortable(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Places that fit a sort."""
    return count(outs[0].shape) <= MOST


RULES = {
    ("random.cu", "poisson"): Rule(poisson, floats), ("random.cu", "permutation"): Rule(permutation, sortable),
    ("random.cu", "multinomial"): Rule(multinomial, floats),
}  # fmt: skip
