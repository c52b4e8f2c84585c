"""The class of sparse tensors: a Tensor whose array is a `SparseArray`.

Its entries' values are a dense Tensor, and what is computed of a sparse tensor is computed of them by ordinary rows, so gradients of any
order follow from theirs. Functions of tensors come to `rules.run` by way of their rows; a method that is neither here nor there refuses,
naming the way out.
"""

from __future__ import annotations

import copy
from typing import Any

from gradlab.autograd.base import LEAF
from gradlab.layout import Layout
from gradlab.sparse import entries, shapes
from gradlab.sparse.array import Pattern, SparseArray, adopt, is_sparse, refusal, sparse
from gradlab.sparse.contents import ContentMethods
from gradlab.sparse.printing import describe
from gradlab.sparse.rules import refuse_the_rest
from gradlab.spec import ShapeError
from gradlab.tensor import Tensor
from gradlab.tensor.subclasses import disabled


def given(name: str, dim: Any, axis: Any, out: Any = None) -> Any:
    """The dimension, which NumPy calls axis."""
    if out is not None:
        raise refusal(f"{name} with out=")
    if dim is None and axis is None:
        raise TypeError(f"{name}: a dimension is needed")
    return dim if axis is None else axis


class SparseTensor(ContentMethods):
    """A tensor of which only some elements are kept, in the layout sparse_coo, sparse_csr or sparse_csc; the others are zero.

    Made by `sparse_coo_tensor`, `sparse_csr_tensor`, `sparse_csc_tensor` and `Tensor.to_sparse`.
    """

    __slots__ = ()
    __torch_function__ = disabled
    owner: Any = None  # of a gradient: the sparse leaf that shows it

    def __init__(self, *data: Any, **options: Any) -> None:
        raise TypeError("SparseTensor: use gl.sparse_coo_tensor(indices, values, size)")

    def __repr__(self) -> str:
        return describe(self)

    def __format__(self, spec: str) -> str:
        if spec:
            raise refusal(f"format {spec!r}")
        return repr(self)

    def __len__(self) -> int:
        if not self._array.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self._array.shape[0])

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return shapes.item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise refusal("writing to elements")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError("deepcopy: only leaves can be copied deeply; this tensor was computed and has a graph: use detach().clone()")
        array = self._array
        twin: Any = sparse(array.pattern, copy.deepcopy(array.values, memo), array.layout)
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        pattern = self._array.pattern
        return _rebuild, (pattern.indices, pattern.sizes, pattern.coalesced, self._array.values, self._array.layout)

    # ------------------------------------------------------------ structure

    def t(self) -> Any:
        """The transpose of a matrix."""
        if len(self._array.shape) > 2:
            raise ShapeError(f"t: at most 2 dimensions, not shape {self._array.shape}; use transpose")
        return self if len(self._array.shape) < 2 else shapes.transpose(self, 0, 1)

    def transpose(self, dim0: Any, dim1: Any = None) -> Any:
        """Two dimensions exchanged, both sparse or both dense."""
        return shapes.transpose(self, dim0, dim1)

    swapaxes = swapdims = transpose  # type: ignore[assignment]

    @property
    def T(self) -> Any:
        """The transpose of a matrix."""
        if len(self._array.shape) > 2:
            raise refusal("T of more than two dimensions; mT, or")
        return self.t()

    @property
    def mT(self) -> Any:
        """The last two dimensions exchanged."""
        return shapes.transpose(self, -2, -1)

    def index_select(self, dim: int | None = None, index: Any = None, *, out: Any = None, axis: Any = None) -> Any:
        """The parts at the places of the vector `index` along a sparse dimension.

        >>> gl.eye(3).to_sparse().index_select(0, gl.tensor([2])).to_dense()
        tensor([[0., 0., 1.]])
        """
        return shapes.index_select(self, given("index_select", dim, axis, out), index)

    def narrow(self, dim: int | None = None, start: Any = None, length: Any = None, *, axis: Any = None) -> Any:
        """The part start … start + length along a sparse dimension."""
        return shapes.narrow(self, given("narrow", dim, axis), int(start), int(length))

    def select(self, dim: int | None = None, index: Any = None, *, axis: Any = None) -> Any:
        """The part at one index along a sparse dimension."""
        return shapes.select(self, given("select", dim, axis), int(index))

    def unsqueeze(self, dim: int | None = None, *, axis: Any = None) -> Any:
        """With a sparse dimension of size 1 more."""
        return shapes.unsqueeze(self, given("unsqueeze", dim, axis))

    def sparse_mask(self, mask: Any) -> Any:
        """The values at the places of the sparse tensor `mask`; 0 where this tensor has no entry.

        >>> gl.eye(2).to_sparse().sparse_mask(gl.ones(2, 2).to_sparse()).values()
        tensor([1., 0., 0., 1.])
        """
        return shapes.sparse_mask(self, mask)

    # ------------------------------------------------------------ reductions

    def sum(
        self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None = None, out: Any = None
    ) -> Any:  # fmt: skip
        """The sum of all elements, or along dimensions (a sparse tensor while a sparse dimension is left).

        >>> gl.eye(3).to_sparse().sum()
        tensor(3.)
        """
        dim = given("sum", dim, axis, out) if dim is not None or axis is not None or out is not None else None
        return entries.total(self, dim, keepdim if keepdims is None else keepdims, dtype)

    def norm(
        self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None, *, axis: Any = None, keepdims: bool | None = None
    ) -> Tensor:  # fmt: skip
        """The norm of all elements together."""
        if dim is not None or axis is not None:
            raise refusal("norm with a dim")
        _, values = entries.coalesced(self._array.pattern, self._array.values)
        return values.flatten().norm(2.0 if p == "fro" or p is None else p, dtype=dtype)

    # ------------------------------------------------------------ in place

    def _become(self, name: str, result: Any) -> Any:
        """Take over another sparse tensor's entries, as the result of an operation in place."""
        if not is_sparse(result) or result._array.shape != self._array.shape:
            raise refusal(f"{name} with a result that is dense, or not of the shape {self.shape},")
        if self.requires_grad and self.is_leaf and result.requires_grad:
            raise RuntimeError(f"{name}: a leaf that requires grad cannot be written in place; use the out-of-place form, or no_grad")
        kept = self._array
        values = result._array.values.to(dtype=kept.dtype)
        if kept.values._edge is LEAF:  # under no_grad
            values = values.detach().requires_grad_()
            values._grad = kept.values._grad if result._array.pattern is kept.pattern else None
        self._array = SparseArray(result._array.pattern, values, kept.layout)
        if self.owner is not None:
            self.owner._grad = self
        return self

    def add_(self, other: Any, *old: Any, alpha: float = 1) -> Any:
        """self += alpha · other, which is sparse, too."""
        return self._become("add_", self.add(other, *old, alpha=alpha))

    def sub_(self, other: Any, *old: Any, alpha: float = 1) -> Any:
        """self -= alpha · other, which is sparse, too."""
        return self._become("sub_", self.sub(other, *old, alpha=alpha))

    def mul_(self, other: Any) -> Any:
        """self *= other."""
        return self._become("mul_", self.mul(other))

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Any:
        """self /= other."""
        return self._become("div_", self.div(other, rounding_mode=rounding_mode))

    def neg_(self) -> Any:
        """self = -self."""
        return self._become("neg_", self.neg())

    def pow_(self, exponent: Any) -> Any:
        """self **= exponent."""
        return self._become("pow_", self.pow(exponent))

    def clamp_(self, min: Any = None, max: Any = None) -> Any:
        """Limit the elements to [min, max], which contains 0."""
        return self._become("clamp_", self.clamp(min, max))

    def zero_(self) -> Any:
        """No entries any more."""
        return self._become("zero_", entries.empty_like(self))

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Take over the entries of another sparse tensor."""
        if not is_sparse(source):
            raise refusal("copy_ of a dense tensor, which to_sparse() would make one of,")
        return self._become("copy_", source.to(device=self.device).clone())

    def __iadd__(self, other: Any) -> Any:
        return self.add_(other)

    def __isub__(self, other: Any) -> Any:
        return self.sub_(other)

    def __imul__(self, other: Any) -> Any:
        return self.mul_(other)

    def __itruediv__(self, other: Any) -> Any:
        return self.div_(other)


def _rebuild(indices: Tensor, sizes: tuple[int, ...], coalesced: bool, values: Tensor, layout: Layout) -> Any:
    return sparse(Pattern(indices, sizes, coalesced), values, layout)


adopt(SparseTensor)
refuse_the_rest(SparseTensor)
