"""Views that are copies: each function is the view of its name with memory of its own, so that writing to one leaves the other alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.named_errors import named_functions
from gradlab.strides import contiguous_format
from gradlab.tensor.common_arguments import functions_take_axis, into, only_tensors

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "alias_copy", "detach_copy", "diagonal_copy", "expand_copy", "permute_copy", "select_copy", "slice_copy",
    "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy", "unsqueeze_copy",
    "view_copy",
]  # fmt: skip


def _own(name: str, view: Any, out: Any) -> Any:
    """The view's elements, row by row in memory of their own; a tuple of views gives a tuple."""
    if isinstance(view, (tuple, list)):
        if out is not None:
            into(name, out, tuple(view))
            return None
        return tuple([_own(name, part, None) for part in view])
    return view.clone(memory_format=contiguous_format) if out is None else into(name, out, view)


def alias_copy(input: Tensor, *, out: Any = None) -> Tensor:
    """A copy.

    >>> gl.alias_copy(gl.tensor([1, 2]))
    tensor([1, 2])
    """
    only_tensors("alias_copy", input)
    return _own("alias_copy", input, out)


def detach_copy(input: Tensor, *, out: Any = None) -> Tensor:
    """A copy that no gradient goes through.

    >>> gl.detach_copy(gl.tensor([1, 2]))
    tensor([1, 2])
    """
    only_tensors("detach_copy", input)
    return _own("detach_copy", input.detach(), out)


def diagonal_copy(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Any = None) -> Tensor:
    """`diagonal`, copied.

    >>> gl.diagonal_copy(gl.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    only_tensors("diagonal_copy", input)
    return _own("diagonal_copy", input.diagonal(offset, dim1, dim2), out)


def expand_copy(input: Tensor, size: Any, *, implicit: bool = False, out: Any = None) -> Tensor:
    """`expand`, copied: every repeated element has a place of its own. implicit changes nothing.

    >>> gl.expand_copy(gl.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    only_tensors("expand_copy", input)
    return _own("expand_copy", input.expand(size), out)


def permute_copy(input: Tensor, dims: Any, *, out: Any = None) -> Tensor:
    """`permute`, copied.

    >>> gl.permute_copy(gl.tensor([[1, 2]]), (1, 0))
    tensor([[1],
            [2]])
    """
    only_tensors("permute_copy", input)
    return _own("permute_copy", input.permute(dims), out)


def select_copy(input: Tensor, dim: int, index: int, *, out: Any = None) -> Tensor:
    """`select`, copied.

    >>> gl.select_copy(gl.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    only_tensors("select_copy", input)
    return _own("select_copy", input.select(dim, index), out)


def slice_copy(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *, out: Any = None
) -> Tensor:  # fmt: skip
    """The elements from `start` to before `end` along `dim`, each `step`-th, copied.

    >>> gl.slice_copy(gl.arange(5), 0, 1, 4, 2)
    tensor([1, 3])
    """
    only_tensors("slice_copy", input)
    if step < 1:
        raise RuntimeError(f"slice_copy: step is positive, got {step}; flip() turns the order")
    rank = input.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"slice_copy: dim={dim} of a tensor of {rank} dimensions")
    return _own("slice_copy", input[(slice(None),) * (dim % rank) + (slice(start, end, step),)], out)


def split_copy(input: Tensor, split_size: int, dim: int = 0, *, out: Any = None) -> tuple[Tensor, ...]:
    """`split`, copied. out: a tuple of tensors, which are written to (and nothing is returned, as in PyTorch).

    >>> gl.split_copy(gl.arange(3), 2)
    (tensor([0, 1]), tensor([2]))
    """
    only_tensors("split_copy", input)
    return _own("split_copy", input.split(split_size, dim), out)


def split_with_sizes_copy(input: Tensor, split_sizes: Any, dim: int = 0, *, out: Any = None) -> tuple[Tensor, ...]:
    """`split_with_sizes`, copied. out: as of `split_copy`.

    >>> gl.split_with_sizes_copy(gl.arange(3), (1, 2))
    (tensor([0]), tensor([1, 2]))
    """
    only_tensors("split_with_sizes_copy", input)
    return _own("split_with_sizes_copy", input.split_with_sizes(split_sizes, dim), out)


def squeeze_copy(input: Tensor, dim: Any = None, *, out: Any = None) -> Tensor:
    """`squeeze`, copied.

    >>> gl.squeeze_copy(gl.tensor([[1, 2]]))
    tensor([1, 2])
    """
    only_tensors("squeeze_copy", input)
    return _own("squeeze_copy", input.squeeze() if dim is None else input.squeeze(dim), out)


def t_copy(input: Tensor, *, out: Any = None) -> Tensor:
    """`t`, the transposed matrix, copied.

    >>> gl.t_copy(gl.tensor([[1, 2]]))
    tensor([[1],
            [2]])
    """
    only_tensors("t_copy", input)
    return _own("t_copy", input.t(), out)


def transpose_copy(input: Tensor, dim0: int, dim1: int, *, out: Any = None) -> Tensor:
    """`transpose`, copied.

    >>> gl.transpose_copy(gl.tensor([[1, 2]]), 0, 1)
    tensor([[1],
            [2]])
    """
    only_tensors("transpose_copy", input)
    return _own("transpose_copy", input.transpose(dim0, dim1), out)


def unbind_copy(input: Tensor, dim: int = 0, *, out: Any = None) -> tuple[Tensor, ...]:
    """`unbind`, copied. out: as of `split_copy`.

    >>> gl.unbind_copy(gl.tensor([1, 2]))
    (tensor(1), tensor(2))
    """
    only_tensors("unbind_copy", input)
    return _own("unbind_copy", input.unbind(dim), out)


def unfold_copy(input: Tensor, dimension: int, size: int, step: int, *, out: Any = None) -> Tensor:
    """`Tensor.unfold`, copied.

    >>> gl.unfold_copy(gl.arange(3), 0, 2, 1)
    tensor([[0, 1],
            [1, 2]])
    """
    only_tensors("unfold_copy", input)
    return _own("unfold_copy", input.unfold(dimension, size, step), out)


def unsqueeze_copy(input: Tensor, dim: int, *, out: Any = None) -> Tensor:
    """`unsqueeze`, copied.

    >>> gl.unsqueeze_copy(gl.tensor([1, 2]), 0)
    tensor([[1, 2]])
    """
    only_tensors("unsqueeze_copy", input)
    return _own("unsqueeze_copy", input.unsqueeze(dim), out)


def view_copy(input: Tensor, size: Any = None, *, dtype: Any = None, out: Any = None) -> Tensor:
    """`view` as a size or another dtype, copied; the size also where no view has it.

    >>> gl.view_copy(gl.arange(4), (2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    only_tensors("view_copy", input)
    if size is None and dtype is None:
        raise TypeError("view_copy: give a size, or a dtype")
    return _own("view_copy", input.reshape(size) if dtype is None else input.view(dtype), out)


functions_take_axis(__name__)
named_functions(__name__)
