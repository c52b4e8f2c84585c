"""Sparse tensors: PyTorch's `torch.sparse`, as far as graphs and gradients of embeddings need it."""

from __future__ import annotations

from typing import Any

from gradlab.named_errors import named, named_functions
from gradlab.sparse import compiled as compiled, entries, products, rules as rules
from gradlab.sparse.array import is_sparse, refusal, sparse
from gradlab.sparse.invariants import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from gradlab.sparse.making import OLD, old_constructor, sparse_coo_tensor
from gradlab.sparse.tensor import SparseTensor as SparseTensor
from gradlab.tensor import Tensor
from gradlab.tensor.linalg import mm as dense_mm
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.shape import stack

__all__ = ["addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]


def _needs(name: str, x: Any) -> None:
    if not is_sparse(x):
        raise TypeError(f"sparse.{name}: a sparse tensor, not {type(x).__name__}; use gl.{name}, or x.to_sparse()")


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Any:
    """The product of two matrices, each of them sparse or dense; sparse if both are.

    >>> gl.sparse.mm(gl.eye(2).to_sparse(), gl.tensor([[1.0], [2.0]]))
    tensor([[1.],
            [2.]])
    """
    if reduce != "sum":
        raise NotImplementedError(f"sparse.mm: reduce is 'sum', not {reduce!r}; use scatter_reduce on the rows that the indices name")
    if not is_sparse(mat1) and not is_sparse(mat2):
        return dense_mm(mat1, mat2)
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"sparse.mm: two matrices, not shapes {mat1.shape} and {mat2.shape}")
    return products.matmul(mat1, mat2, "sparse.mm")


@named
def smm(input: Tensor, mat2: Tensor) -> Any:
    """A sparse matrix times a dense one, as a sparse matrix.

    >>> gl.smm(gl.eye(2).to_sparse(), gl.tensor([[1.0], [2.0]])).is_sparse
    True
    """
    return mm(input, mat2).to_sparse()


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """beta · mat + alpha · (mat1 @ mat2), one of the last two sparse.

    >>> gl.sparse.addmm(gl.ones(2, 1), gl.eye(2).to_sparse(), gl.tensor([[1.0], [2.0]]), alpha=10.0)
    tensor([[11.],
            [21.]])
    """
    return products.combined("sparse.addmm", mat, mm(mat1, mat2), beta, alpha)


def sampled_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out: Any = None) -> Any:
    """beta · input + alpha · (mat1 @ mat2) at the places of the sparse matrix `input` alone; the product is computed nowhere else.

    >>> gl.sparse.sampled_addmm(gl.eye(2).to_sparse_csr(), gl.ones(2, 3), gl.ones(3, 2)).values()
    tensor([4., 4.])
    """
    _needs("sampled_addmm", input)
    if out is not None:
        raise refusal("sampled_addmm with out=")
    if input.is_sparse:
        input = input.coalesce()
    array: Any = input._array
    found = products.sampled(input, mat1, mat2)
    return sparse(array.pattern, products.combined("sampled_addmm", array.values, found, beta, alpha), array.layout)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all elements, or along dimensions: sparse while a sparse dimension is left.

    >>> gl.sparse.sum(gl.sparse_coo_tensor([[0, 1], [2, 2]], [3.0, 4.0]), 0).to_dense()
    tensor([0., 0., 7.])
    """
    _needs("sum", input)
    return entries.total(input, dim, False, dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Any:
    """Softmax along a dimension of the entries alone: elements that are not kept count as minus infinity.

    >>> gl.sparse.softmax(gl.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0]), 1).to_dense()
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    _needs("softmax", input)
    return entries.softmax("softmax", input, dim, dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of `softmax`.

    >>> gl.sparse.log_softmax(gl.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0]), 1).values()
    tensor([-0.6931, -0.6931])
    """
    _needs("log_softmax", input)
    return entries.softmax("log_softmax", input, dim, dtype)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix with the rows of `diagonals` on the diagonals that `offsets` names: element j of a row is in column j.

    >>> gl.sparse.spdiags(gl.tensor([1.0, 2.0]), gl.tensor([0]), (2, 2)).to_dense()
    tensor([[1., 0.],
            [0., 2.]])
    """
    lines = diagonals.reshape(1, -1) if diagonals.ndim == 1 else diagonals
    rows, columns = shape
    col = offsets.new_tensor(range(lines.shape[1])).unsqueeze(0).expand(lines.shape)
    row = col - offsets.reshape(-1, 1)
    kept = (row >= 0) & (row < rows) & (col < columns)
    at = kept.nonzero()
    indices = stack([x[at[:, 0], at[:, 1]] for x in (row, col)])
    found = sparse_coo_tensor(indices, lines[at[:, 0], at[:, 1]], (rows, columns)).coalesce()
    return found if layout is None else found.to_sparse(layout=layout)


named_functions(__name__)


def __getattr__(name: str) -> Any:
    if name in OLD:
        return old_constructor(name)
    raise _absent("gradlab.sparse", name)
