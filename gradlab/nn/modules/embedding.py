"""Embeddings: rows of a table by integer index."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.nn import functional as F, init
from gradlab.nn.module import Module
from gradlab.nn.parameter import Parameter
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty


def _padding_row(name: str, padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"{name}: padding_idx {padding_idx} is not a row of {rows}")
    return padding_idx % rows


class _Table(Module):
    """What both share. weight: (num_embeddings, embedding_dim), normal at first, with a row of zeros at padding_idx."""

    weight: Parameter

    def _make(self, num: int, dim: int, padding_idx: int | None, given: Tensor | None, frozen: bool, device: Any, dtype: Any) -> None:
        self.num_embeddings, self.embedding_dim = num, dim
        self.padding_idx = _padding_row(type(self).__name__, padding_idx, num)
        if given is None:
            self.weight = Parameter(empty(num, dim, device=device, dtype=dtype), requires_grad=not frozen)
            self.reset_parameters()
        elif tuple(given.shape) != (num, dim):
            raise ValueError(f"{type(self).__name__}: the weight has shape {tuple(given.shape)}, not {(num, dim)}")
        else:
            self.weight = Parameter(given, requires_grad=not frozen)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table):
    """Integers of any shape (*) to rows of the weight (*, embedding_dim).

    padding_idx: a row that is zero at first and gets no gradient. max_norm: rows longer than this (norm_type) are shortened in place.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """An Embedding with that table (a matrix), not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: the table is a matrix, not of shape {tuple(embeddings.shape)}")
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, default in (("padding_idx", None), ("max_norm", None), ("norm_type", 2.0)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text + (", scale_grad_by_freq=True" if self.scale_grad_by_freq else "") + (", sparse=True" if self.sparse else "")


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows: bags are the rows of a matrix (B, N), or parts of a vector that begin at `offsets` (B,)."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None, *,
        _freeze: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:  # fmt: skip
        """An EmbeddingBag with that table (a matrix), not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: the table is a matrix, not of shape {tuple(embeddings.shape)}")
        rows, columns = embeddings.shape
        return cls(
            rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx,
            _freeze=freeze,
        )  # fmt: skip

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        return f"{text}, mode={self.mode!r}" + (f", padding_idx={self.padding_idx}" if self.padding_idx is not None else "")
