"""Connectionist temporal classification (Graves et al., 2006), formula (6) in the logarithm: by rows on the CPU.

In exported programs, on a GPU and for gradients of gradients it is composed of other rows, so that those of every order follow.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd import engine
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.nn.multi_output_node import parts
from gradlab.ops.ctc import check_lengths, places
from gradlab.spec import ShapeError
from gradlab.tensor.creation import arange, tensor
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.shape import cat, stack

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["ctc_loss"]

NEVER = -1e30  # the logarithm of an impossible path; finite, so that gradients stay numbers
_row, _backward_row = bind(ops.ctc.ctc_loss), bind(ops.ctc.ctc_loss_backward)


def _by_rows(log_probs: Tensor) -> bool:
    """Whether the rows are used: on the CPU, and in programs that run here."""
    mode = current()
    if mode.tracer is None:
        return type(log_probs._array) is np.ndarray
    return mode.tracer.runs_here and mode.vmap is None and log_probs.device.type == "cpu"


def _lengths(name: str, given: Any, batch: int) -> Tensor:
    """As a tensor (N,) of int64 on the CPU."""
    found: Any = given if isinstance(given, Differentiable) else tensor(np.asarray(given))
    if type(found._array) is np.ndarray and found._array.dtype == np.int64 and found._array.shape == (batch,):
        return found
    if found._array.dtype.kind not in "iu" and found.numel():
        raise RuntimeError(f"ctc_loss: {name} are integers, not {found._array.dtype}")
    if found.numel() != batch:
        raise RuntimeError(f"ctc_loss: {found.numel()} {name} for a batch of {batch}")
    return found.detach().cpu().reshape(-1).long()


def _padded(targets: Tensor, lengths: np.ndarray[Any, Any], blank: int) -> Tensor:
    """The targets as (N, S), with blanks after each one's end."""
    longest, found = int(lengths.max(initial=0)), places(targets, lengths)
    if found is None:
        rows = targets[:, :longest]
    else:
        rows = targets.index_select(0, tensor(found.reshape(-1), device=targets.device)).reshape(len(lengths), longest)
    return rows.masked_fill(tensor(np.arange(longest) >= lengths[:, None], device=targets.device), blank)


@rounds_once(autocast="float32")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log probability of the targets, over all alignments with repeated labels and blanks.

    log_probs: (T, N, C) or (T, C), logarithms as from log_softmax. targets: class indices (N, S), or all in one row. The lengths are
    integers, one for each sequence. reduction: "mean" (each loss over its target's length, then the mean), "sum" or "none".
    zero_infinity: 0 instead of inf where no alignment exists; gradients there are 0.
    As in PyTorch the gradient takes log_probs for what log_softmax gives: it has exp(log_probs) added, which a log_softmax before it
    takes away again, and which makes it sum to 0 over the classes.

    >>> F.ctc_loss(gl.zeros(4, 1, 3).log_softmax(2), gl.tensor([[1, 2]]), gl.tensor([4]), gl.tensor([2]))
    tensor(0.8432)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'ctc_loss: reduction is "mean", "sum" or "none", not {reduction!r}')
    if log_probs.ndim not in (2, 3):
        raise ShapeError(f"ctc_loss: log_probs are (T, N, C) or (T, C), not {log_probs.shape}")
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.reshape(1, -1)
    _, batch, classes = log_probs.shape
    blank = index(blank)
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank {blank} is none of the {classes} classes")
    inputs, labels = _lengths("input_lengths", input_lengths, batch), _lengths("target_lengths", target_lengths, batch)
    if targets._array.dtype != np.int64:
        targets = targets.long()
    if _by_rows(log_probs):
        given = [x if x._array.flags.c_contiguous else x.contiguous() for x in (log_probs, targets)]
        loss = _row(*given, inputs, labels, blank=blank, zero_infinity=bool(zero_infinity))
    else:
        loss = composed(log_probs, targets, inputs, labels, blank, zero_infinity)
    if reduction == "mean":
        if current().tracer is None:
            counts = tensor(np.maximum(labels.numpy(), 1).astype(loss._array.dtype), device=loss.device)
        else:
            counts = labels.clamp(min=1).to(loss.device, loss._array.dtype)
        return (loss / counts).mean()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if single else loss


def slopes(
    g: Tensor, x: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int, zero_infinity: bool
) -> Tensor | None:
    """The gradient of log_probs: by a row, or by those of what `composed` does where it is differentiated."""
    mode, given = current(), (targets, input_lengths, target_lengths)
    if not mode.recording and _by_rows(x):
        found: Tensor = _backward_row(g.contiguous(), x, *given, blank=blank, zero_infinity=zero_infinity)
        return found
    if not (mode.recording and x.requires_grad):
        x = x.detach().requires_grad_()
    token = enter(mode.replace(recording=True, walking=False))
    try:
        loss = composed(x, *given, blank, zero_infinity)
    finally:
        leave(token)
    return engine.grad([loss], [x], [g], True, mode.recording)[0]


def composed(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int, zero_infinity: bool) -> Tensor:
    """The losses (N,) in many steps."""
    steps, batch, _ = log_probs.shape
    inputs, labels = input_lengths.numpy(), target_lengths.numpy()
    check_lengths(steps, inputs, labels)
    place: dict[str, Any] = {"device": log_probs.device}
    rows = _padded(targets, labels, blank)
    blanks = rows.new_full((batch, 1), blank)
    # blank, label, blank, label, …, blank
    path = cat([stack([blanks.expand(rows.shape), rows], 2).reshape(batch, -1), blanks], 1)
    width = path.shape[1]
    wide = log_probs.gather(2, path.unsqueeze(0).expand(steps, batch, width))
    first = wide.new_zeros((batch, min(width, 2)))
    alpha = cat([first, wide.new_full((batch, width - first.shape[1]), NEVER)], 1)
    if steps:
        # a label may follow another label directly, without a blank between them, unless they are equal
        skip = wide.new_full((batch, width), NEVER)
        if width > 2:
            allowed = (path[:, 2:] != path[:, :-2]) & (arange(2, width, **place) % 2 == 1)
            skip = cat([skip[:, :2], skip[:, 2:].masked_fill(allowed, 0)], 1)
        edge = wide.new_full((batch, 2), NEVER)
        for t, own in enumerate(parts(wide, (1,) * steps)):
            own = own.squeeze(0)
            if t == 0:
                new = alpha + own
            else:
                one = cat([edge[:, :1], alpha[:, :-1]], 1)
                two = cat([edge, alpha[:, :-2]], 1)[:, :width] + skip
                new = stack([alpha, one, two]).logsumexp(0) + own
            running = inputs > t
            alpha = new if running.all() else new.where(tensor(running[:, None], **place), alpha)
    ends = alpha.gather(1, tensor(np.stack([2 * labels, np.maximum(2 * labels - 1, 0)], 1), **place))
    no_label = tensor(np.stack([np.zeros(batch, bool), labels == 0], 1), **place)
    no_input = tensor((inputs == 0) & (labels > 0), **place)
    loss = -ends.masked_fill(no_label, NEVER).logsumexp(1)
    read = tensor((np.arange(steps)[:, None] < inputs)[:, :, None], **place).to(loss._array.dtype)
    total = (log_probs.exp() * read).sum((0, 2))
    loss = loss + (total - total.detach())
    impossible = (loss > -NEVER / 2) | no_input
    return loss.masked_fill(impossible, 0.0 if zero_infinity else float("inf"))


named_functions(__name__)
