"""What dense tensors answer to questions about sparse ones, and how they become sparse. `gradlab.sparse`, a room above, is imported
when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.above import above
from gradlab.autograd.base import Differentiable
from gradlab.layout import Layout, sparse_coo, sparse_csc, sparse_csr, strided

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor


def _shapes() -> Any:
    return above("shapes of sparse tensors")


class SparseMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    layout: Layout = strided  # how the elements are kept
    is_sparse = is_sparse_csr = False
    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Layout | None = None, blocksize: Any = None, dense_dim: int | None = None
    ) -> Tensor:  # fmt: skip
        """The elements that are not 0, as a sparse tensor. Gradients reach them.

        sparse_dim: how many dimensions the indices go over (all); the parts along them are then kept whole. layout: `sparse_coo`,
        `sparse_csr` or `sparse_csc`.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().indices()
        tensor([[0],
                [1]])
        """
        if dense_dim:
            sparse_dim = len(self._array.shape) - dense_dim
        found: Tensor = _shapes().from_dense(self, sparse_dim)
        return found if layout in (None, sparse_coo) else _shapes().in_layout(found, layout, blocksize)

    def to_sparse_coo(self) -> Tensor:
        """The elements that are not 0, in the layout sparse_coo.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_coo().values()
        tensor([2.])
        """
        return self.to_sparse()

    def to_sparse_csr(self, dense_dim: int | None = None) -> Tensor:
        """The elements of a matrix that are not 0, in the layout sparse_csr.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_csr().crow_indices()
        tensor([0, 1])
        """
        return self.to_sparse(layout=sparse_csr, dense_dim=dense_dim)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Tensor:
        """The elements of a matrix that are not 0, in the layout sparse_csc.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_csc().ccol_indices()
        tensor([0, 0, 1])
        """
        return self.to_sparse(layout=sparse_csc, dense_dim=dense_dim)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The tensor itself, which is dense, perhaps in another dtype.

        >>> gl.tensor([1.0]).to_dense()
        tensor([1.])
        """
        return self if dtype is None else self.to(dtype=dtype)  # type: ignore[attr-defined, return-value]

    def sparse_mask(self, mask: Tensor) -> Tensor:
        """The elements at the places of the sparse tensor `mask`, as a sparse tensor.

        >>> gl.tensor([[1.0, 2.0]]).sparse_mask(gl.tensor([[0.0, 1.0]]).to_sparse()).values()
        tensor([2.])
        """
        return _shapes().sparse_mask(self, mask)

    def sparse_dim(self) -> int:
        """0: a dense tensor has no sparse dimensions.

        >>> gl.ones(2, 3).sparse_dim()
        0
        """
        return 0

    def dense_dim(self) -> int:
        """The number of dimensions.

        >>> gl.ones(2, 3).dense_dim()
        2
        """
        return len(self._array.shape)

    def _refuse(self, name: str) -> Any:
        raise RuntimeError(f"{name}: this tensor is dense (layout {self.layout}); x.to_sparse() gives a sparse one")

    def coalesce(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().coalesce().values()
        tensor([2.])
        """
        return self._refuse("coalesce")

    def is_coalesced(self) -> bool:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().is_coalesced()
        True
        """
        return self._refuse("is_coalesced")

    def indices(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().indices()
        tensor([[0],
                [1]])
        """
        return self._refuse("indices")

    def values(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().values()
        tensor([2.])
        """
        return self._refuse("values")

    def crow_indices(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_csr().crow_indices()
        tensor([0, 1])
        """
        return self._refuse("crow_indices")

    def col_indices(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_csr().col_indices()
        tensor([1])
        """
        return self._refuse("col_indices")

    def ccol_indices(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_csc().ccol_indices()
        tensor([0, 0, 1])
        """
        return self._refuse("ccol_indices")

    def row_indices(self) -> Tensor:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse_csc().row_indices()
        tensor([0])
        """
        return self._refuse("row_indices")

    def nnz(self) -> int:
        """Only of sparse tensors: RuntimeError.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().nnz()
        1
        """
        return self._refuse("nnz")

    def smm(self, mat2: Tensor) -> Tensor:
        """A sparse matrix times a dense one, as a sparse matrix.

        >>> gl.tensor([[0.0, 2.0]]).to_sparse().smm(gl.ones(2, 1)).to_dense()
        tensor([[2.]])
        """
        return above("sparse").smm(self, mat2)
