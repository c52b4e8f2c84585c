"""What a sparse tensor is and holds, and what it is turned into."""

from __future__ import annotations

from typing import Any

from gradlab.layout import Layout, sparse_coo, sparse_csc, sparse_csr
from gradlab.sparse import entries, shapes
from gradlab.sparse.array import Pattern, SparseArray, is_sparse, refusal, sparse
from gradlab.sparse.graph import GraphMethods
from gradlab.tensor import Tensor


class ContentMethods(GraphMethods):
    """A sparse tensor's entries."""

    __slots__ = ()

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """sparse_coo, sparse_csr or sparse_csc.

        >>> gl.eye(2).to_sparse().layout
        gradlab.sparse_coo
        """
        return self._array.layout

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        """Whether the layout is sparse_coo.

        >>> gl.eye(2).to_sparse().is_sparse
        True
        """
        return self._array.layout is sparse_coo

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """Whether the layout is sparse_csr."""
        return self._array.layout is sparse_csr

    def sparse_dim(self) -> int:
        """How many dimensions the indices go over.

        >>> gl.eye(2).to_sparse().sparse_dim()
        2
        """
        return len(self._array.pattern.sizes)

    def dense_dim(self) -> int:
        """How many dimensions each entry has.

        >>> gl.eye(2).to_sparse(1).dense_dim()
        1
        """
        return len(self._array.values._array.shape) - 1

    def _nnz(self) -> int:
        return self._array.pattern.number

    def nnz(self) -> int:
        """How many entries there are, those that share a place and those of value 0 among them.

        >>> gl.eye(2).to_sparse().nnz()
        2
        """
        return self._array.pattern.number

    def is_coalesced(self) -> bool:
        """Whether the indices are distinct and in order.

        >>> gl.eye(2).to_sparse().is_coalesced()
        True
        """
        self._only(sparse_coo, "is_coalesced")
        return self._array.pattern.coalesced

    def _coalesced_(self, coalesced: bool) -> Any:
        """Say that the indices are (or are not) distinct and in order. Nothing is looked at."""
        array = self._array
        self._array = SparseArray(Pattern(array.pattern.indices, array.pattern.sizes, coalesced), array.values, array.layout)
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of the indices and the values."""
        return self._array.pattern.indices.nbytes + self._array.values.nbytes

    @property
    def _version(self) -> int:
        return self._array.values._version

    def is_inference(self) -> bool:
        """Whether made under `inference_mode`."""
        return self._array.values.is_inference()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """True: the entries have an order of their own."""
        return True

    def contiguous(self, memory_format: Any = None) -> Any:
        """The tensor itself."""
        return self

    def _only(self, layout: Layout, name: str) -> None:
        if self._array.layout is not layout:
            raise RuntimeError(f"{name}: only of layout {layout}, not {self._array.layout}; convert with to_{layout.name}()")

    def zeros_like(self) -> Any:
        """Of this shape, without entries."""
        return entries.empty_like(self)

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any) -> Any:
        """Of a shape, without entries."""
        shape = tuple(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
        dims = self.sparse_dim() if len(shape) == len(self._array.shape) else len(shape)
        values = self._array.values.detach().new_zeros((0, *shape[dims:]), dtype=dtype, device=device)
        indices = self._array.pattern.indices.new_zeros((dims, 0), device=device)
        made = sparse(Pattern(indices, shape[:dims], True), values, self._array.layout if dims == self.sparse_dim() else sparse_coo)
        return made.requires_grad_(requires_grad)

    def new_full(
        self, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = False, **options: Any
    ) -> Any:  # fmt: skip
        """`new_zeros`: no other value is kept everywhere."""
        if fill_value != 0:
            raise refusal(f"new_full with {fill_value}")
        return self.new_zeros(size, dtype=dtype, device=device, requires_grad=requires_grad)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the old constructor that makes such a tensor, or the tensor in another dtype."""
        if dtype is not None:
            return sparse(self._array.pattern, self._array.values.type(dtype), self._array.layout)
        module, _, name = self._array.values.type().rpartition(".")
        return f"{module}.sparse.{name}" if self.is_sparse else f"{module}.{name}"

    def _indices(self) -> Tensor:
        self._only(sparse_coo, "_indices")
        return self._array.pattern.indices

    def _values(self) -> Tensor:
        return self._array.values.detach()

    def indices(self) -> Tensor:
        """The indices (sparse dimensions, entries), int64. RuntimeError unless the tensor is coalesced.

        >>> gl.eye(2).to_sparse().indices()
        tensor([[0, 1],
                [0, 1]])
        """
        self._only(sparse_coo, "indices")
        if not self._array.pattern.coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._array.pattern.indices

    def values(self) -> Tensor:
        """The entries' values (entries, dense dimensions), in the graph. RuntimeError unless the tensor is coalesced.

        >>> gl.eye(2).to_sparse().values()
        tensor([1., 1.])
        """
        if self._array.layout is sparse_coo and not self._array.pattern.coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        values = self._array.values
        found: Tensor = values.view(values._array.shape)
        return found

    def _pointers(self, layout: Layout, dim: int, name: str) -> Tensor:
        self._only(layout, name)
        return self._array.pattern.compressed(dim)[0]

    def crow_indices(self) -> Tensor:
        """Of the layout sparse_csr: where each row's entries begin, and the number of entries.

        >>> gl.eye(2).to_sparse_csr().crow_indices()
        tensor([0, 1, 2])
        """
        return self._pointers(sparse_csr, 0, "crow_indices")

    def col_indices(self) -> Tensor:
        """Of the layout sparse_csr: the entries' columns.

        >>> gl.eye(2).to_sparse_csr().col_indices()
        tensor([0, 1])
        """
        self._only(sparse_csr, "col_indices")
        return self._array.pattern.indices[1]

    def ccol_indices(self) -> Tensor:
        """Of the layout sparse_csc: where each column's entries begin, and the number of entries.

        >>> gl.eye(2).to_sparse_csc().ccol_indices()
        tensor([0, 1, 2])
        """
        return self._pointers(sparse_csc, 1, "ccol_indices")

    def row_indices(self) -> Tensor:
        """Of the layout sparse_csc: the entries' rows.

        >>> gl.eye(2).to_sparse_csc().row_indices()
        tensor([0, 1])
        """
        self._only(sparse_csc, "row_indices")
        return self._array.pattern.indices[0]

    def coalesce(self) -> Any:
        """With distinct indices in order; entries that share a place are added up.

        >>> gl.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0]).coalesce().values()
        tensor([2., 4.])
        """
        self._only(sparse_coo, "coalesce")
        pattern, values = entries.coalesced(self._array.pattern, self._array.values)
        return self if pattern is self._array.pattern else sparse(pattern, values)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements in a dense tensor. The gradient is taken at the entries.

        >>> gl.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0]).to_dense()
        tensor([[0., 2.],
                [3., 0.]])
        """
        found = entries.dense(self._array.pattern, self._array.values)
        return found if dtype is None else found.to(dtype=dtype)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Any:
        """In another layout; sparse_coo if none is given.

        >>> gl.eye(2).to_sparse_csr().to_sparse().layout
        gradlab.sparse_coo
        """
        if sparse_dim is not None and sparse_dim != self.sparse_dim():
            return self.to_dense().to_sparse(sparse_dim)
        return shapes.in_layout(self, sparse_coo if layout is None else layout, blocksize)

    def to_sparse_coo(self) -> Any:
        """In the layout sparse_coo."""
        return shapes.in_layout(self, sparse_coo)

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """In the layout sparse_csr.

        >>> gl.eye(2).to_sparse().to_sparse_csr().layout
        gradlab.sparse_csr
        """
        return shapes.in_layout(self, sparse_csr)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """In the layout sparse_csc."""
        return shapes.in_layout(self, sparse_csc)

    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False, other: Any = None,
        memory_format: Any = None,
    ) -> Any:  # fmt: skip
        """In another dtype or on another device; itself if nothing changes."""
        array = self._array
        args = tuple(x._array.values if is_sparse(x) else x for x in (*args, other))
        values = array.values.to(*args, dtype=dtype, device=device, copy=copy)
        if values is array.values:
            return self
        pattern = array.pattern
        if values.device != pattern.indices.device or copy:
            pattern = Pattern(pattern.indices.to(device=values.device, copy=copy), pattern.sizes, pattern.coalesced)
        return sparse(pattern, values, array.layout)

    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy in memory of its own; gradients pass through."""
        pattern = self._array.pattern
        own = Pattern(pattern.indices.clone(), pattern.sizes, pattern.coalesced)
        return sparse(own, self._array.values.clone(), self._array.layout)

    def cpu(self, *args: Any, **options: Any) -> Any:
        """On the CPU."""
        return self.to(device="cpu")

