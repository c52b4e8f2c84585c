"""What scikit-learn takes for X, as a model's inputs: arrays and sparse matrices scaled, data frames with words coded column by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler

import gradlab as gl
from gradlab.data.tables import TableCoding, column_of, read_table

PREDICTED_AT_ONCE = 1024
DENSE = 1 << 24  # numbers that a batch made of sparse rows holds at most


def has_words(X: Any) -> bool:
    """Whether X is a data frame with a column that is no plain numbers: text, categories, dates, or numbers with missing ones."""
    columns = getattr(X, "columns", None)
    return columns is not None and any(_is_word(X[name]) for name in columns)


def _is_word(column: Any) -> bool:
    return _is_category(column) or np.asarray(column).dtype.kind not in "biuf"


def _is_category(column: Any) -> bool:
    return str(column.dtype).lower().startswith(("category", "categorical", "enum"))


class Numbers:
    """Arrays and sparse matrices: each feature divided by its deviation, and centred where that keeps it as it is."""

    sizes: tuple[int, ...] = ()

    def __init__(self, X: Any, weights: Any) -> None:
        self.scaler = StandardScaler(with_mean=not sparse.issparse(X)).fit(X, sample_weight=weights)
        if not np.isfinite(self.scaler.scale_).all():
            first = int(np.argmin(np.isfinite(self.scaler.scale_)))
            raise ValueError(f"feature {first} of X has numbers whose squares overflow; scale it down")
        self.features = X.shape[1]

    def coded(self, X: Any) -> tuple[Any, Any]:
        """Numbers, float32 [rows, features], sparse where X is, and no categories, int64 [rows, 0]."""
        centred = self.scaler.with_mean
        if sparse.issparse(X) and centred:
            X = X.toarray()
        found = self.scaler.transform(X if centred else sparse.csr_matrix(X))
        return found.astype(np.float32), np.zeros((X.shape[0], 0), np.int64)


class Words:
    """Data frames: see `TableCoding`. Missing cells and categories that the training did not have are taken for what they are."""

    def __init__(self, X: Any, weights: Any) -> None:
        table = read_table(X)
        kinds = {str(name): "category" if _is_category(X[name]) else None for name in X.columns}
        columns = [column_of(name, values, kinds.get(name)) for name, values in table.columns.items()]  # type: ignore[arg-type]
        self.coding = TableCoding.fit(columns, np.arange(table.rows))
        self.features, sizes = self.coding.sizes
        self.sizes = tuple(sizes)

    def coded(self, X: Any) -> tuple[Any, Any]:
        """Numbers, float32 [rows, features], and categories, int64 [rows, len(sizes)]."""
        return self.coding.coded(read_table(X))


def one_hot(numbers: Any, categories: Any, sizes: tuple[int, ...]) -> Any:
    """Numbers with a column for each code of each category beside them, sparse where there is a category."""
    if not sizes:
        return numbers
    rows, starts = np.arange(len(categories)), np.cumsum((0, *sizes[:-1]))
    places = (np.repeat(rows, len(sizes)), (categories + starts).reshape(-1))
    codes = sparse.csr_matrix((np.ones(len(places[0]), np.float32), places), shape=(len(rows), sum(sizes)))
    return sparse.hstack([sparse.csr_matrix(numbers), codes], format="csr")


class Batches:
    """Rows of arrays and sparse matrices as tuples of tensors, in a new order each time where a generator is given.

    A last batch of a single row, which cannot be normalised, is part of the one before it.
    """

    def __init__(self, parts: tuple[Any, ...], size: int, generator: Any = None) -> None:
        wide = max(part.shape[1] if sparse.issparse(part) else 1 for part in parts)
        self.parts, self.size, self.generator = parts, max(1, min(size, DENSE // wide)), generator
        self.rows = parts[0].shape[0]

    def __len__(self) -> int:
        full, rest = divmod(self.rows, self.size)
        return max(1, full + (rest > (1 if self.generator is not None else 0))) if self.rows else 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        order = np.arange(self.rows) if self.generator is None else gl.randperm(self.rows, generator=self.generator).numpy()
        for i in range(len(self)):
            chosen = order[i * self.size : (i + 1) * self.size if i + 1 < len(self) else None]
            yield tuple(gl.from_numpy(np.ascontiguousarray(_rows(part, chosen))) for part in self.parts)


def _rows(part: Any, chosen: Any) -> Any:
    return part[chosen].toarray() if sparse.issparse(part) else part[chosen]
