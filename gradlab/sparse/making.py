"""Making sparse tensors of indices and values."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.device import get_default_device
from gradlab.dtype import INT64, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from gradlab.layout import sparse_csc, sparse_csr
from gradlab.named_errors import named_functions
from gradlab.sparse import invariants
from gradlab.sparse.array import Pattern, index_tensor, is_sparse, only_eager, sparse
from gradlab.spec import ShapeError
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, as_tensor, tensor, zeros
from gradlab.tensor.repetition import repeat_interleave
from gradlab.tensor.shape import stack


def _values(name: str, values: Any, dtype: Any, device: Any) -> Tensor:
    """The values as a tensor of their own name: in the graph of those given, if they are in one."""
    if is_sparse(values):
        raise TypeError(f"{name}: the values are a dense tensor, not a sparse one")
    if not isinstance(values, Differentiable):
        return tensor(values, dtype=dtype, device=device)
    found: Any = values.to(dtype=dtype, device=device)  # type: ignore[attr-defined]
    if found is not values:
        return found
    return found.view(found._array.shape) if found._edge is not None else found.detach()  # type: ignore[attr-defined]


def _finished(made: Any, requires_grad: bool) -> Any:
    """requires_grad of what is in a graph already is as it is."""
    return made if not requires_grad or made.requires_grad else made.requires_grad_()


def _within(name: str, indices: Tensor, sizes: tuple[int, ...]) -> None:
    """Raise unless every index lies within the sizes."""
    if not indices.numel():
        return
    low, high = indices.amin(1).tolist(), indices.amax(1).tolist()
    for d, (a, b) in enumerate(zip(low, high, strict=True)):
        if a < 0:
            raise RuntimeError(f"{name}: found negative index {a} for dim {d}")
        if b >= sizes[d]:
            raise RuntimeError(f"{name}: size is inconsistent with indices: for dim {d}, size is {sizes[d]} but found index {b}")


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> Any:  # fmt: skip
    """A sparse tensor of `values` (n, …) at the places `indices` (dimensions, n), integers; places that occur twice are added up.

    size: the whole shape; by default the smallest that has the places. A size alone, by name or in the first place, gives a tensor without
    entries. Gradients reach the values that are given; with requires_grad the tensor is a leaf. is_coalesced=True says that the places are
    distinct and in order (RuntimeError under `check_sparse_tensor_invariants` if they are not).
    RuntimeError for indices outside of the size.

    >>> gl.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    name = "sparse_coo_tensor"
    only_eager(name)
    if indices is None and (values is not None or size is None):
        raise TypeError(f"{name}: needs indices and values, or a size alone")
    if values is None:
        shape = tuple(int(s) for s in (indices if size is None else size))
        found = zeros((0,), dtype=dtype, device=device)
        none = zeros((len(shape), 0), dtype=INT64, device=device)
        return _finished(sparse(Pattern(none, shape, True), found), requires_grad)
    if device is None and not isinstance(values, Differentiable) and isinstance(indices, Differentiable):
        device = indices.device  # type: ignore[attr-defined]
    found = _values(name, values, dtype, device)
    at = index_tensor(name, as_tensor(indices), found.device)
    if not at.numel() and at.ndim == 1:
        at = at.reshape((0 if size is None else len(tuple(size)) - max(found.ndim - 1, 0), 0))
    if at.ndim != 2:
        raise RuntimeError(f"{name}: indices must be a matrix (dimensions, entries), not of shape {at.shape}")
    if not found.ndim and at.shape[1] == 1:
        found = found.reshape(1)
    if not found.ndim or found.shape[0] != at.shape[1]:
        raise RuntimeError(f"{name}: {at.shape[1]} places need as many values, not shape {found.shape}")
    rest = tuple(found.shape[1:])
    if size is None:
        sizes = tuple(int(m) + 1 for m in at.amax(1).tolist()) if at.numel() else (0,) * at.shape[0]
    else:
        shape = tuple(int(s) for s in size)
        sizes = shape[: at.shape[0]]
        if len(shape) != at.shape[0] + len(rest) or shape[at.shape[0] :] != rest:
            raise RuntimeError(f"{name}: {at.shape[0]} sparse dimensions and values of shape {found.shape} do not make the size {shape}")
    _within(name, at, sizes)
    pattern = Pattern(at, sizes, bool(is_coalesced) or at.shape[1] < 2)
    if is_coalesced and invariants.asked(check_invariants):
        invariants.check_order(name, pattern)
    return _finished(sparse(pattern, found), requires_grad)


def _compressed(
    name: str, starts: Any, others: Any, values: Any, size: Any, dtype: Any, device: Any, requires_grad: bool, check: bool | None, dim: int
) -> Any:
    only_eager(name)
    found = _values(name, values, dtype, device)
    first = index_tensor(name, as_tensor(starts), found.device)
    other = index_tensor(name, as_tensor(others), found.device)
    if first.ndim != 1 or other.ndim != 1:
        shapes = f"{first.shape} and {other.shape}"
        raise NotImplementedError(f"{name}: one matrix, so indices of one dimension, not {shapes}; keep a batch in a list")
    if first.shape[0] < 1 or found.ndim != 1 or found.shape != other.shape:
        shapes = f"{first.shape}, {found.shape}, {other.shape}"
        raise ShapeError(f"{name}: pointers of rows + 1, and as many values as indices, not shapes {shapes}")
    number = first.shape[0] - 1
    across = (int(other.amax().item()) + 1 if other.numel() else 0) if size is None else tuple(size)[1 - dim]
    sizes = (number, int(across)) if dim == 0 else (int(across), number)
    if size is not None and tuple(size) != sizes:
        raise ShapeError(f"{name}: {first.shape[0]} pointers do not fit the size {tuple(size)}")
    often = first[1:] - first[:-1]
    if int(first[0]) or int(first[-1]) != other.shape[0] or bool((often < 0).any()):
        raise RuntimeError(f"{name}: pointers begin with 0, do not fall and end with the number of entries, {other.shape[0]}")
    along = repeat_interleave(arange(number, device=found.device), often)
    indices = stack([along, other] if dim == 0 else [other, along])
    _within(name, indices, sizes)
    pattern = Pattern(indices, sizes).with_starts(dim, first)
    if invariants.asked(check):
        invariants.check_order(name, pattern if dim == 0 else pattern.turned(0, 1))
    return _finished(sparse(pattern, found, sparse_csr if dim == 0 else sparse_csc), requires_grad)


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> Any:  # fmt: skip
    """A sparse matrix by rows: row i has the values crow_indices[i] … crow_indices[i + 1], in the columns col_indices.

    RuntimeError for pointers that are none, and for columns outside of the size.

    >>> gl.sparse_csr_tensor([0, 1, 3], [1, 0, 1], [2.0, 3.0, 4.0]).to_dense()
    tensor([[0., 2.],
            [3., 4.]])
    """
    return _compressed("sparse_csr_tensor", crow_indices, col_indices, values, size, dtype, device, requires_grad, check_invariants, 0)


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> Any:  # fmt: skip
    """A sparse matrix by columns: column i has the values ccol_indices[i] … ccol_indices[i + 1], in the rows row_indices.

    >>> gl.sparse_csc_tensor([0, 1, 3], [1, 0, 1], [2.0, 3.0, 4.0]).to_dense()
    tensor([[0., 3.],
            [2., 4.]])
    """
    return _compressed("sparse_csc_tensor", ccol_indices, row_indices, values, size, dtype, device, requires_grad, check_invariants, 1)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Any:  # fmt: skip
    """`sparse_csr_tensor` or `sparse_csc_tensor`, as `layout` says.

    >>> gl.sparse_compressed_tensor([0, 1], [1], [2.0], layout=gl.sparse_csr).to_dense()
    tensor([[0., 2.]])
    """
    if layout not in (sparse_csr, sparse_csc):
        raise NotImplementedError(f"sparse_compressed_tensor: layouts are sparse_csr and sparse_csc, not {layout}")
    make = sparse_csr_tensor if layout is sparse_csr else sparse_csc_tensor
    return make(
        compressed_indices, plain_indices, values, size, dtype=dtype, device=device, requires_grad=requires_grad,
        check_invariants=check_invariants,
    )  # fmt: skip


named_functions(__name__, also="sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_compressed_tensor")


class OldConstructor(type):
    """The class of `torch.sparse.FloatTensor` and its kin. Called with indices, values and perhaps a size, or with sizes alone, they make a
    sparse tensor; `isinstance` asks for its dtype and device."""

    dtype: Any
    place: str | None

    def __call__(cls, *args: Any) -> Any:
        if args and isinstance(args[0], Differentiable):
            return sparse_coo_tensor(*args, dtype=cls.dtype, device=cls.place or args[0].device)  # type: ignore[attr-defined]
        sizes = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        return sparse_coo_tensor(tuple(sizes), dtype=cls.dtype, device=cls.place or get_default_device())

    def __instancecheck__(cls, instance: Any) -> bool:
        return is_sparse(instance) and instance.dtype == cls.dtype and instance.is_sparse and instance.device.type == (cls.place or "cpu")


OLD = {
    "FloatTensor": float32, "DoubleTensor": float64, "HalfTensor": float16, "BFloat16Tensor": bfloat16, "CharTensor": int8,
    "ShortTensor": int16, "IntTensor": int32, "LongTensor": int64, "ByteTensor": uint8,
}  # fmt: skip


def old_constructor(name: str, place: str | None = None) -> Any:
    """The old constructor of that name, for tensors on a device."""
    if name not in OLD:
        raise AttributeError(f"sparse tensors have no old constructor {name!r}: there are {', '.join(OLD)}; use gl.sparse_coo_tensor")
    return OldConstructor(name, (), {"dtype": OLD[name], "place": place})

