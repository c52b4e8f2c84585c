"""Softmax, cross entropy and normalisations: a team of threads for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.faults import Site
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.work import Work
from gradlab.dtype import FLOATING, INT64
from gradlab.spec import Spec, count


def threads_for(size: int) -> int:
    """How many threads work on a row of that size."""
    return 32 if size <= 64 else 128 if size <= 1024 else 256 if size <= 4096 else 512


def split(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """outer, count, inner."""
    return (count(shape[:dim]), shape[dim], count(shape[dim + 1 :])) if shape else (1, 1, 1)


def floating(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point outputs."""
    return outs[0].dtype in FLOATING


def over_rows(file: str, name: str, *flags: bool) -> Rule:
    """A kernel of rows: inputs of one shape, one output."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        (y,) = outputs
        if not y.size:
            return
        outer, size, inner = split(y.shape, params["dim"])
        rows = outer * inner
        arrays = [work.contiguous(x if x.shape == y.shape else work.broadcast(x, y.shape)) for x in inputs]
        alone = inner > 1
        function = work.kernel(file, name, y.dtype, alone, *flags)
        blocks, threads = (-(-rows // 128), 128) if alone else (rows, threads_for(size))
        work.launch(function, blocks, threads, *arrays, y, rows, size, inner)

    return Rule(run, floating)


# ---------------------------------------------------------------- losses


def _targets(work: Work, target: Any) -> Any:
    """int64, contiguous."""
    return work.contiguous(target)


def int64_targets(at: int) -> Callable[..., bool]:
    """The rule takes int64 class indices at that place among the inputs."""

    def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        spec = specs[at]
        return spec is not None and spec.dtype == INT64 and outs[0].dtype in FLOATING

    return takes


def _class_site(work: Work, classes: int, ignore: int) -> int:
    """The site of a class that is not there."""
    text = lambda k: f"class {k} is not in [0, {classes}); only ignore_index={ignore} may lie outside"
    return work.faults.sites(("class", classes, ignore), Site(IndexError, text))


def cross_entropy(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, target = work.contiguous(inputs[0]), _targets(work, inputs[1])
    y, p = outputs
    outer, classes, inner = split(x.shape, 1)
    rows, ignore, dtype = outer * inner, params["ignore_index"], x.dtype
    loss = work.empty((max(rows, 1),), work.wide(dtype))
    if rows:
        alone = inner > 1
        site = _class_site(work, classes, ignore)
        blocks, threads = (-(-rows // 128), 128) if alone else (rows, threads_for(classes))
        function, record = work.kernel("loss.cu", "cross_entropy", dtype, alone), work.faults.record
        work.launch(function, blocks, threads, x, target, p, loss, ignore, record, site, rows, classes, inner)
        work.faults.check()
    if params["reduction"] == "none":
        work.each(work.kernel("loss.cu", "convert_loss", dtype), rows, loss, y)
    else:
        work.launch(
            work.kernel("loss.cu", "total_loss", dtype),
            1,
            threads_for(rows),
            loss,
            target,
            y,
            ignore,
            int(params["reduction"] == "mean"),
            rows,
        )


def cross_entropy_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, p, target = (work.contiguous(x) for x in inputs)
    (y,) = outputs
    if not y.size:
        return
    number = None
    if params["reduction"] == "mean":
        number = work.empty((1,), INT64)
        work.launch(
            work.kernel("loss.cu", "count_targets"), 1, threads_for(target.size), target, number, params["ignore_index"], target.size
        )
    _, classes, inner = split(p.shape, 1)
    each = int(params["reduction"] == "none")
    work.each(
        work.kernel("loss.cu", "cross_entropy_backward", y.dtype),
        y.size,
        dy,
        p,
        target,
        y,
        number,
        each,
        params["ignore_index"],
        classes,
        inner,
    )


def nll(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, target = (work.contiguous(v) for v in inputs)
    (y,) = outputs
    _, classes, inner = split(x.shape, 1)
    ignore = params["ignore_index"]
    site = _class_site(work, classes, ignore)
    work.each(work.kernel("loss.cu", "nll", y.dtype), y.size, x, target, y, ignore, classes, inner, work.faults.record, site)
    work.faults.check()


def nll_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, target = (work.contiguous(v) for v in inputs)
    (y,) = outputs
    _, classes, inner = split(y.shape, 1)
    work.each(work.kernel("loss.cu", "nll_backward", y.dtype), y.size, dy, target, y, params["ignore_index"], classes, inner)


# ---------------------------------------------------------------- normalisations


def _optional(work: Work, array: Any) -> Any:
    return None if array is None else work.contiguous(array)


def layer_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, weight, bias = (_optional(work, a) for a in inputs)
    _row_norm(work, x, weight, bias, outputs[0], outputs[1], outputs[2], params, True)


def rms_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, weight = (_optional(work, a) for a in inputs)
    _row_norm(work, x, weight, None, outputs[0], None, outputs[1], params, False)


def _row_norm(work: Work, x: Any, weight: Any, bias: Any, y: Any, mean: Any, rstd: Any, params: dict[str, Any], centred: bool) -> None:
    k = params["k"]
    rows, size = count(x.shape[: len(x.shape) - k]), count(x.shape[len(x.shape) - k :])
    if rows:
        function = work.kernel("norm.cu", "row_norm", x.dtype, centred)
        work.launch(function, rows, threads_for(size), x, weight, bias, y, mean, rstd, np.float64(params["eps"]), rows, size)


def layer_norm_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, x, weight, mean, rstd = (_optional(work, a) for a in inputs)
    _row_norm_backward(work, dy, x, weight, mean, rstd, outputs[0], outputs[1], outputs[2], params["k"], True)


def rms_norm_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, x, weight, rstd = (_optional(work, a) for a in inputs)
    _row_norm_backward(work, dy, x, weight, None, rstd, outputs[0], outputs[1], None, params["k"], False)


def _row_norm_backward(
    work: Work, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, dx: Any, dweight: Any, dbias: Any, k: int, centred: bool
) -> None:
    rows, size = count(x.shape[: len(x.shape) - k]), count(x.shape[len(x.shape) - k :])
    dtype = x.dtype
    if rows:
        function = work.kernel("norm.cu", "row_norm_backward", dtype, centred)
        work.launch(function, rows, threads_for(size), dy, x, weight, mean, rstd, dx, rows, size)
    if not size:
        return
    blocks = -(-size // 256)
    parts = max(1, min(rows // 32, 256 // blocks, 64))
    partial = work.empty((parts, 2, size), work.wide(dtype))
    work.launch(
        work.kernel("norm.cu", "row_norm_columns", dtype, centred), blocks, 256, dy, x, mean, rstd, partial, rows, parts, size, rows=parts
    )
    work.launch(work.kernel("norm.cu", "row_norm_parts", dtype), blocks, 256, partial, dweight, dbias, parts, size)


def batch_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, weight, bias = (_optional(work, a) for a in inputs)
    batch, channels, inner = split(x.shape, 1)
    if channels:
        work.launch(
            work.kernel("norm.cu", "batch_norm", x.dtype), channels, threads_for(batch * inner), x, weight, bias, *outputs,
            np.float64(params["eps"]), batch, channels, inner,
        )  # fmt: skip


def batch_norm_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    arrays = [_optional(work, a) for a in inputs]
    batch, channels, inner = split(arrays[1].shape, 1)
    if channels:
        function = work.kernel("norm.cu", "batch_norm_backward", arrays[1].dtype)
        work.launch(function, channels, threads_for(batch * inner), *arrays, *outputs, batch, channels, inner)


RULES = {
    ("softmax.cu", "softmax"): over_rows("softmax.cu", "softmax", False),
    ("softmax.cu", "masked_softmax"): over_rows("softmax.cu", "softmax", True),
    ("softmax.cu", "softmax_backward"): over_rows("softmax.cu", "softmax_backward"),
    ("softmax.cu", "log_softmax"): over_rows("softmax.cu", "log_softmax"),
    ("softmax.cu", "log_softmax_backward"): over_rows("softmax.cu", "log_softmax_backward"),
    ("loss.cu", "cross_entropy"): Rule(cross_entropy, int64_targets(1)),
    ("loss.cu", "cross_entropy_backward"): Rule(cross_entropy_backward, int64_targets(2)),
    ("loss.cu", "nll"): Rule(nll, int64_targets(1)),
    ("loss.cu", "nll_backward"): Rule(nll_backward, int64_targets(1)),
    ("norm.cu", "layer_norm"): Rule(layer_norm, floating),
    ("norm.cu", "layer_norm_backward"): Rule(layer_norm_backward, floating),
    ("norm.cu", "rms_norm"): Rule(rms_norm, floating),
    ("norm.cu", "rms_norm_backward"): Rule(rms_norm_backward, floating),
    ("norm.cu", "batch_norm"): Rule(batch_norm, floating),
    ("norm.cu", "batch_norm_backward"): Rule(batch_norm_backward, floating),
}
