"""Cross entropy and selection by class: `kernels/loss.cu`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.backends.cuda.kernel_faults import Site
from gradlab.backends.cuda.launch import row_forms
from gradlab.backends.cuda.launch.row_forms import Call, aligned, forms_of, policy, split
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOATING, INT64
from gradlab.spec import Spec

FILE = "loss.cu"
SHARE = 1 << 14  # targets of one block


def int64_targets(at: int) -> Callable[..., bool]:
    """The rule takes int64 class indices at that place among the inputs."""

    def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        spec = specs[at]
        return spec is not None and spec.dtype == INT64 and outs[0].dtype in FLOATING

    return takes


def class_site(work: Work, classes: int, ignore: int) -> int:
    """The site of a class that is not there."""
    text = lambda k: f"class {k} is not in [0, {classes}); only ignore_index={ignore} may lie outside"
    return work.faults.sites(("class", classes, ignore), Site(IndexError, text))


def _total(work: Work, loss: Any, target: Any, y: Any, number: Any, dtype: Any, ignore: int, mean: bool) -> None:
    """The sum or mean of the losses in `y`, the number of targets that count (at least 1) in `number`; either may be None."""
    rows = target.size
    parts = max(1, min(-(-rows // SHARE), 512))
    sums = numbers = None
    if parts > 1:
        sums = None if loss is None else work.empty((parts,), work.wide(dtype))
        numbers = work.empty((parts,), INT64)
    work.launch(
        work.kernel(FILE, "total_loss", dtype), parts, 512, loss, target, y, number, sums, numbers, ignore, int(mean), rows
    )  # fmt: skip
    if parts > 1:
        work.launch(work.kernel(FILE, "join_losses", dtype), 1, 32, sums, numbers, y, number, int(mean), parts)


def cross_entropy(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, target = (work.contiguous(v) for v in inputs)
    y, p = outputs
    sizes = split(x.shape, 1)
    rows, ignore, dtype = sizes[0] * sizes[2], params["ignore_index"], x.dtype
    loss = work.empty((max(rows, 1),), work.wide(dtype))
    if rows:
        site = class_site(work, sizes[1], ignore)
        call = Call((x, target), (p, loss, work.faults.record), extra=(ignore, site))
        row_forms.run(work, FILE, policy("CrossEntropy", dtype), call, dtype, sizes, forms_of(dtype))
        work.faults.check()
    if params["reduction"] == "none":
        work.each(work.kernel(FILE, "convert_loss", dtype), rows, loss, y)
    else:
        _total(work, loss, target, y, None, dtype, ignore, params["reduction"] == "mean")


def _backward(work: Work, dy: Any, p: Any, target: Any, y: Any, number: Any, each: bool, ignore: int) -> None:
    """One thread for 16 bytes of the derivative."""
    _, classes, inner = split(y.shape, 1)
    packed = int(aligned(work, p, y))
    blocks = -(-y.size // (256 * min(16 // y.dtype.itemsize, 8)))
    function = work.kernel(FILE, "class_backward", y.dtype)
    work.launch(function, blocks, 256, dy, p, target, y, number, int(each), ignore, classes, inner, packed, y.size)


def cross_entropy_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, p, target = (work.contiguous(x) for x in inputs)
    (y,) = outputs
    if not y.size:
        return
    number, ignore = None, params["ignore_index"]
    if params["reduction"] == "mean":
        number = work.empty((1,), INT64)
        _total(work, None, target, None, number, y.dtype, ignore, True)
    _backward(work, dy, p, target, y, number, params["reduction"] == "none", ignore)


def nll(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, target = (work.contiguous(v) for v in inputs)
    (y,) = outputs
    _, classes, inner = split(x.shape, 1)
    ignore = params["ignore_index"]
    site = class_site(work, classes, ignore)
    work.each(work.kernel(FILE, "nll", y.dtype), y.size, x, target, y, ignore, classes, inner, work.faults.record, site)
    work.faults.check()


def nll_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, target = (work.contiguous(v) for v in inputs)
    (y,) = outputs
    if y.size:
        _backward(work, dy, None, target, y, None, True, params["ignore_index"])


RULES = {
    (FILE, "cross_entropy"): Rule(cross_entropy, int64_targets(1)),
    (FILE, "cross_entropy_backward"): Rule(cross_entropy_backward, int64_targets(2)),
    (FILE, "nll"): Rule(nll, int64_targets(1)),
    (FILE, "nll_backward"): Rule(nll_backward, int64_targets(1)),
}
