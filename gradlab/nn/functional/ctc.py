"""Connectionist temporal classification (Graves et al., 2006), formula (6) in the logarithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.named_errors import named_functions
from gradlab.nn.multi_output_node import parts
from gradlab.spec import ShapeError
from gradlab.tensor.creation import arange, tensor
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.shape import cat, stack

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["ctc_loss"]

NEVER = -1e30  # the logarithm of an impossible path; finite, so that gradients stay numbers


def _lengths(name: str, given: Any, batch: int) -> np.ndarray[Any, Any]:
    values = given.detach().cpu().numpy() if isinstance(given, Differentiable) else given  # type: ignore[attr-defined]
    found = np.asarray(values).reshape(-1)
    if found.dtype.kind not in "iu" and found.size:
        raise RuntimeError(f"ctc_loss: {name} are integers, not {found.dtype}")
    if found.shape != (batch,):
        raise RuntimeError(f"ctc_loss: {found.size} {name} for a batch of {batch}")
    return found.astype(np.int64)


def _padded(targets: Tensor, lengths: np.ndarray[Any, Any], blank: int) -> Tensor:
    """The targets as (N, S), with blanks after each one's end."""
    longest = int(lengths.max(initial=0))
    if targets.ndim == 1:
        if targets.shape[0] < lengths.sum():
            raise RuntimeError(f"ctc_loss: target_lengths add up to {lengths.sum()}, but there are {targets.shape[0]} targets")
        places = (np.cumsum(lengths) - lengths)[:, None] + np.arange(longest)
        rows = targets.index_select(0, tensor(places.clip(0, max(targets.shape[0] - 1, 0)).reshape(-1), device=targets.device))
        rows = rows.reshape(len(lengths), longest)
    elif targets.ndim == 2 and targets.shape[0] == len(lengths) and targets.shape[1] >= longest:
        rows = targets[:, :longest]
    else:
        raise ShapeError(f"ctc_loss: targets {targets.shape} do not fit {len(lengths)} sequences of up to {longest} labels")
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
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank {blank} is none of the {classes} classes")
    inputs, labels = _lengths("input_lengths", input_lengths, batch), _lengths("target_lengths", target_lengths, batch)
    if inputs.size and (inputs.max() > steps or inputs.min() < 0 or labels.min() < 0):
        raise RuntimeError(f"ctc_loss: input_lengths lie between 0 and {steps}, target_lengths are not negative")
    place: dict[str, Any] = {"device": log_probs.device}
    rows = _padded(targets.long(), labels, blank)
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
    loss = loss.masked_fill(impossible, 0.0 if zero_infinity else float("inf"))
    if reduction == "mean":
        return (loss / tensor(np.maximum(labels, 1), **place).to(loss._array.dtype)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if single else loss


named_functions(__name__)
