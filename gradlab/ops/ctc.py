"""Rows of connectionist temporal classification (Graves et al., 2006): a loss for each sequence, and its gradient.

log_probs (T, N, C); targets of int64, (N, S) or all in one row; input_lengths and target_lengths (N,) of int64. `nn.functional.ctc_loss`
uses the rows on the CPU; elsewhere, and for gradients of gradients, it is composed of other rows. kernels/cpu/ctc.cpp says how.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.above import above
from gradlab.dtype import FLOATING
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec

HOW = ("blank", "zero_infinity")


def ctc_rule(x: Spec, targets: Spec, inputs: Spec, labels: Spec, *, blank: int, zero_infinity: bool) -> Spec:
    """Rule: (T, N, C) to (N,)."""
    if len(x.shape) != 3 or inputs.shape != x.shape[1:2] or labels.shape != x.shape[1:2]:
        raise ShapeError(f"log_probs {x.shape} with lengths of shapes {inputs.shape} and {labels.shape}; expected (T, N, C), (N,) and (N,)")
    if len(targets.shape) not in (1, 2) or (len(targets.shape) == 2 and targets.shape[0] != x.shape[1]):
        raise ShapeError(f"targets {targets.shape} do not fit {x.shape[1]} sequences")
    if x.dtype not in FLOATING or any(s.dtype.kind != "i" for s in (targets, inputs, labels)):
        found = ", ".join(str(s.dtype) for s in (x, targets, inputs, labels))
        raise TypeError(f"log_probs are floating point and the others integers, not {found}")
    if not 0 <= blank < x.shape[2]:
        raise ShapeError(f"blank {blank} is none of the {x.shape[2]} classes")
    return Spec(x.shape[1:2], x.dtype)


def ctc_backward_rule(g: Spec, x: Spec, targets: Spec, inputs: Spec, labels: Spec, *, blank: int, zero_infinity: bool) -> Spec:
    """Rule: that of log_probs."""
    want = ctc_rule(x, targets, inputs, labels, blank=blank, zero_infinity=zero_infinity)
    if g.shape != want.shape:
        raise ShapeError(f"the gradient of losses of shape {want.shape} has shape {g.shape}")
    return x


def check_lengths(steps: int, inputs: Any, labels: Any) -> None:
    """Raises RuntimeError for lengths that cannot be."""
    if inputs.size and (inputs.max() > steps or inputs.min() < 0 or labels.min() < 0):
        raise RuntimeError(f"ctc_loss: input_lengths lie between 0 and {steps}, target_lengths are not negative")


def places(targets: Any, labels: Any) -> Any:
    """Where each label stands in the targets: (N, the longest) indices, the first target's behind a target's end; None for targets (N, S).
    Raises RuntimeError where there are fewer targets."""
    longest, shape = int(labels.max(initial=0)), targets.shape
    if len(shape) == 1:
        if shape[0] < labels.sum():
            raise RuntimeError(f"ctc_loss: target_lengths add up to {labels.sum()}, but there are {shape[0]} targets")
        return ((np.cumsum(labels) - labels)[:, None] + np.arange(longest)).clip(0, max(shape[0] - 1, 0))
    if len(shape) != 2 or shape[0] != len(labels) or shape[1] < longest:
        raise ShapeError(f"ctc_loss: targets {shape} do not fit {len(labels)} sequences of up to {longest} labels")
    return None


def _paths(x: Any, targets: Any, inputs: Any, labels: Any, blank: int) -> tuple[Any, Any]:
    """(N, W): blank, label, blank, …, blank; and 0 where a label may follow the one before directly, else minus infinity."""
    check_lengths(x.shape[0], inputs, labels)
    found, longest = places(targets, labels), int(labels.max(initial=0))
    rows = targets[:, :longest] if found is None else targets[found]
    rows = np.where(np.arange(longest) < labels[:, None], rows, blank)
    wrong = (rows < 0) | (rows >= x.shape[2])
    if wrong.any():
        raise IndexError(f"ctc_loss: target {rows[wrong][0]} is none of the {x.shape[2]} classes")
    path = np.full((len(rows), 2 * longest + 1), blank, np.int64)
    path[:, 1::2] = rows
    skip = np.full(path.shape, -np.inf)
    skip[:, 3::2] = np.where(rows[:, 1:] != rows[:, :-1], 0.0, -np.inf)
    return path, skip


def _arrivals(own: Any, skip: Any, inputs: Any) -> Any:
    """The logarithms (T, N, W) of what arrives in each place of the paths; behind a sequence's end as at its end."""
    alpha = np.full((max(len(own), 1), *skip.shape), -np.inf)
    alpha[0, :, :2] = 0
    for t, taken in enumerate(own):
        if t == 0:
            new = alpha[0] + taken
        else:
            new, before = alpha[t - 1].copy(), alpha[t - 1]
            new[:, 1:] = np.logaddexp(new[:, 1:], before[:, :-1])
            new[:, 2:] = np.logaddexp(new[:, 2:], before[:, :-2] + skip[:, 2:])
            new += taken
        alpha[t] = np.where((inputs > t)[:, None], new, alpha[t - 1] if t else alpha[0])
    return alpha


def _given(x: Any, targets: Any, inputs: Any, labels: Any, blank: int) -> tuple[Any, ...]:
    """Paths, which places may be skipped, what the paths have at each step, the arrivals, and the losses; all in float64."""
    path, skip = _paths(x, targets, inputs, labels, blank)
    own = np.take_along_axis(x, path[None], 2).astype(np.float64)
    alpha = _arrivals(own, skip, inputs)
    rows = np.arange(len(path))
    blanks = alpha[-1][rows, 2 * labels]
    ends = np.where(labels > 0, alpha[-1][rows, np.maximum(2 * labels - 1, 0)], -np.inf)
    losses = 0.0 - np.logaddexp(blanks, ends)
    losses[(inputs == 0) & (labels > 0)] = np.inf
    return path, skip, own, alpha, losses


def ctc_cpu(x: Any, targets: Any, inputs: Any, labels: Any, y: Any, *, blank: int, zero_infinity: bool) -> None:
    """The losses."""
    losses = _given(x, targets, inputs, labels, blank)[-1]
    y[...] = np.where(np.isposinf(losses), 0.0, losses) if zero_infinity else losses


def ctc_backward_cpu(g: Any, x: Any, targets: Any, inputs: Any, labels: Any, y: Any, *, blank: int, zero_infinity: bool) -> None:
    """exp(log_probs) less the share of the alignments with the class at that step; 0 where there is none, and behind a sequence's end."""
    path, skip, own, alpha, losses = _given(x, targets, inputs, labels, blank)
    y[...] = 0
    places = np.arange(path.shape[1])
    last = (places >= 2 * labels[:, None] - 1) & (places <= 2 * labels[:, None])
    beta = np.full(path.shape, -np.inf)
    for t in reversed(range(len(own))):
        then = beta + own[t + 1] if t + 1 < len(own) else beta
        new = then.copy()
        new[:, :-1] = np.logaddexp(new[:, :-1], then[:, 1:])
        new[:, :-2] = np.logaddexp(new[:, :-2], then[:, 2:] + skip[:, 2:])
        beta = np.where((inputs == t + 1)[:, None], np.where(last, 0.0, -np.inf), new)
        both = alpha[t] + beta
        for n in np.flatnonzero((inputs > t) & ~np.isposinf(losses)):
            share = np.exp(both[n] - both[n].max())
            slope = np.exp(x[t, n].astype(np.float64))
            np.subtract.at(slope, path[n], share / share.sum())
            y[t, n] = g[n] * slope


def _slopes(g: Any, x: Any, targets: Any, inputs: Any, labels: Any, blank: int, zero_infinity: bool) -> Any:
    return above("slopes of ctc_loss")(g, x, targets, inputs, labels, blank, zero_infinity)


ctc_loss: Op = Op("ctc_loss", ctc_rule, params=HOW, cpu=ctc_cpu, autocast="float32", roundings=1, grad={"x": _slopes})
ctc_loss_backward: Op = Op("ctc_loss_backward", ctc_backward_rule, params=HOW, cpu=ctc_backward_cpu)
