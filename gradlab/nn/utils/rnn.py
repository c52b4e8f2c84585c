"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.named_errors import named_functions
from gradlab.tensor import Tensor
from gradlab.tensor.creation import as_tensor
from gradlab.tensor.shape import cat, stack


class PackedSequence(NamedTuple):
    """Sequences one time step after the other, longest sequence first. Made by the functions below.

    data: the elements of all sequences (sum of lengths, *). batch_sizes: how many sequences have each time step (CPU, int64).
    sorted_indices, unsorted_indices: the order by length, and back, on the device of data; None where the sequences came sorted.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With `data.to(...)`; the indices follow to its device."""
        return self._with(self.data.to(*args, **kwargs))

    def _with(self, data: Tensor) -> PackedSequence:
        there = [None if index is None else index.to(data.device) for index in (self.sorted_indices, self.unsorted_indices)]
        return PackedSequence(data, self.batch_sizes, *there)

    def cpu(self) -> PackedSequence:
        """On the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> PackedSequence:
        """On a GPU."""
        return self._with(self.data.cuda(device))

    def float(self) -> PackedSequence:
        """As float32."""
        return self._replace(data=self.data.float())

    def double(self) -> PackedSequence:
        """As float64."""
        return self._replace(data=self.data.double())

    @property
    def is_cuda(self) -> bool:
        """Whether on a GPU."""
        return self.data.device.type == "cuda"


def _integers(values: Any) -> np.ndarray[Any, Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.int64).reshape(-1)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another."""
    return None if permutation is None else _index(np.argsort(_integers(permutation), kind="stable"), permutation.device)


def _index(values: np.ndarray[Any, Any], device: Any = "cpu") -> Tensor:
    return as_tensor(values.astype(np.int64), device=device)


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack a padded batch (T, B, *), or (B, T, *) if batch_first, of those lengths.

    enforce_sorted: the lengths do not increase (RuntimeError otherwise); False sorts the sequences, and results come back in order.
    """
    sizes = _integers(lengths)
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[0], input.shape[1]
    if len(sizes) != batch:
        raise RuntimeError(f"pack_padded_sequence: {len(sizes)} lengths for a batch of {batch}; batch_first={batch_first}")
    if batch == 0 or sizes.min() <= 0:
        raise RuntimeError("pack_padded_sequence: every sequence has at least one element")
    if sizes.max() > steps:
        raise RuntimeError(f"pack_padded_sequence: a length of {sizes.max()} in a batch padded to {steps}; batch_first={batch_first}")
    order = back = None
    if enforce_sorted:
        if (np.diff(sizes) > 0).any():
            raise RuntimeError("pack_padded_sequence: the lengths increase; sort the sequences, or pass enforce_sorted=False")
    else:
        places = np.argsort(-sizes, kind="stable")
        order, sizes = _index(places, input.device), sizes[places]
        back = _index(np.argsort(places, kind="stable"), input.device)
        input = input.index_select(1, order)
    counts = (sizes[None, :] > np.arange(sizes[0])[:, None]).sum(1)
    full = int((counts == batch).sum())  # as long as the shortest: no gap there
    parts = [input[:full].reshape(full * batch, *input.shape[2:])] if full else []
    parts += [input[t, : int(n)] for t, n in enumerate(counts) if t >= full]
    return PackedSequence(cat(parts), _index(counts), order, back)


def lengths_of(batch_sizes: Any) -> np.ndarray[Any, Any]:
    """The sequences' lengths, longest first."""
    counts = _integers(batch_sizes)
    return np.asarray((counts[:, None] > np.arange(counts[0])[None, :]).sum(0))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded batch (T, B, *), or (B, T, *) if batch_first, and the lengths. total_length: pad to that length at least."""
    counts = _integers(sequence.batch_sizes)
    batch, steps = int(counts[0]), len(counts)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(f"pad_packed_sequence: total_length {total_length} is shorter than the longest sequence, {steps}")
        steps = total_length
    data = sequence.data
    rows, start = [], 0
    for n in counts:
        rows.append(_padded(data[start : start + int(n)], batch, padding_value))
        start += int(n)
    out = _padded(stack(rows), steps, padding_value)
    lengths = _index(lengths_of(counts))
    if sequence.unsorted_indices is not None:
        out = out.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.cpu())
    return (out.transpose(0, 1) if batch_first else out), lengths


def _padded(x: Tensor, size: int, value: float) -> Tensor:
    """More rows of one value, up to `size`."""
    missing = size - x.shape[0]
    return cat([x, x.new_full((missing, *x.shape[1:]), value)]) if missing else x


def pad_sequence(
    sequences: Tensor | Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (L_i, *) padded to the longest: (T, B, *), or (B, T, *) if batch_first. padding_side: "right" or "left"."""
    if padding_side not in ("right", "left"):
        raise ValueError(f'pad_sequence: padding_side is "right" or "left", not {padding_side!r}')
    listed = list(sequences)
    if not listed:
        raise RuntimeError("pad_sequence: expected at least one sequence")
    longest = max(x.shape[0] for x in listed)
    if padding_side == "right":
        rows = [_padded(x, longest, padding_value) for x in listed]
    else:
        rows = [cat([x.new_full((longest - x.shape[0], *x.shape[1:]), padding_value), x]) if x.shape[0] < longest else x for x in listed]
    return stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, without their padding. Copies."""
    batch = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [batch[i, : int(n)].clone() for i, n in enumerate(_integers(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L_i, *)."""
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


named_functions(__name__)
