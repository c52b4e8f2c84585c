"""Einstein sums: parsed into labels, contracted two tensors at a time by matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import HALF
from gradlab.named_errors import named_functions
from gradlab.spec import count
from gradlab.tensor.layout import common_dtype
from gradlab.tensor.rounding import once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["einsum"]

Label = int  # 0 to 51 for A-Z, a-z; below 0 the dimensions of the ellipsis, -1 being the last
_LETTERS = {letter: i for i, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")}
_DOTS = 99  # the ellipsis, before its dimensions are known


def _name(label: Label) -> str:
    return "..." if label < 0 or label == _DOTS else next(letter for letter, i in _LETTERS.items() if i == label)


def _letters(text: str) -> list[Label]:
    """Labels of one term such as "ab...c"."""
    found: list[Label] = []
    text = text.replace(" ", "")
    i = 0
    while i < len(text):
        if text.startswith("...", i):
            found.append(_DOTS)
            i += 3
        elif text[i] in _LETTERS:
            found.append(_LETTERS[text[i]])
            i += 1
        else:
            raise RuntimeError(f"einsum: {text[i]!r} in {text!r} is neither a letter nor part of '...'")
    return found


def _numbers(sublist: Any) -> list[Label]:
    """Labels of one sublist such as [0, Ellipsis, 2]."""
    found = []
    for value in sublist:
        if value is Ellipsis:
            found.append(_DOTS)
        elif isinstance(value, int) and 0 <= value < 52:
            found.append(value)
        else:
            raise RuntimeError(f"einsum: a sublist holds numbers from 0 to 51 and Ellipsis, not {value!r}")
    return found


def _parse(equation: Any, operands: tuple[Any, ...]) -> tuple[list[Any], list[list[Label]], list[Label] | None]:
    """The tensors, the labels of each, and those of the output (None where implicit)."""
    if isinstance(equation, str):
        tensors = list(operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands)
        left, arrow, right = equation.partition("->")
        terms = [_letters(term) for term in left.split(",")]
        return tensors, terms, _letters(right) if arrow else None
    parts = [equation, *operands]
    output = _numbers(parts.pop()) if len(parts) % 2 else None
    return parts[::2], [_numbers(s) for s in parts[1::2]], output


def _spread(labels: list[Label], rank: int, what: str) -> list[Label]:
    """Put labels, -n to -1, in place of the ellipsis."""
    dots = labels.count(_DOTS)
    if dots > 1:
        raise RuntimeError(f"einsum: {what} has more than one ellipsis")
    hidden = rank - (len(labels) - dots)
    if hidden < 0 or (hidden and not dots):
        raise RuntimeError(f"einsum: {what} names {len(labels) - dots} dimensions, the tensor has {rank}")
    if not dots:
        return labels
    at = labels.index(_DOTS)
    return [*labels[:at], *range(-hidden, 0), *labels[at + 1 :]]


class _Term:
    """A tensor with one label for each dimension, no label twice."""

    def __init__(self, tensor: Any, labels: list[Label]) -> None:
        self.tensor, self.labels = tensor, labels

    def size(self, label: Label) -> int:
        size: int = self.tensor.shape[self.labels.index(label)]
        return size

    def ordered(self, labels: Sequence[Label]) -> Any:
        """The tensor with its dimensions in this order."""
        order = [self.labels.index(x) for x in labels]
        return self.tensor if order == list(range(len(order))) else self.tensor.permute(order)

    def summed(self, labels: Sequence[Label]) -> _Term:
        """Without these labels."""
        if not labels:
            return self
        dims = tuple(self.labels.index(x) for x in labels)
        return _Term(self.tensor.sum(dims, dtype=self.tensor.dtype), [x for x in self.labels if x not in labels])

    def squeezed(self, label: Label) -> _Term:
        """Without this label, whose size is 1."""
        return _Term(self.tensor.squeeze(self.labels.index(label)), [x for x in self.labels if x != label])


def _term(tensor: Any, labels: list[Label]) -> _Term:
    """Repeated labels become one: the diagonal."""
    while len(set(labels)) < len(labels):
        first, second = next((i, j) for i, x in enumerate(labels) for j in range(i + 1, len(labels)) if labels[j] == x)
        a, b = tensor.shape[first], tensor.shape[second]
        if a != b:
            raise RuntimeError(f"einsum: label {_name(labels[first])!r} stands for sizes {a} and {b} of one tensor of shape {tensor.shape}")
        tensor = tensor.diagonal(0, first, second)
        labels = [x for i, x in enumerate(labels) if i not in (first, second)] + [labels[first]]
    return _Term(tensor, labels)


def _contract(a: _Term, b: _Term, needed: set[Label]) -> _Term:
    """Two terms as one, which keeps the labels that are needed later."""
    a = a.summed([x for x in a.labels if x not in needed and x not in b.labels])
    b = b.summed([x for x in b.labels if x not in needed and x not in a.labels])
    gone = [x for x in a.labels if x in b.labels and x not in needed]
    for x in [x for x in gone if a.size(x) != b.size(x)]:  # one of the sizes is 1: only the other is summed
        a, b = (a.squeezed(x), b.summed([x])) if a.size(x) == 1 else (a.summed([x]), b.squeezed(x))
        gone.remove(x)
    batch = [x for x in a.labels if x in b.labels and x in needed]
    rows = [x for x in a.labels if x not in b.labels]
    columns = [x for x in b.labels if x not in a.labels]
    if not gone or not (rows or columns):
        left = a.ordered([*batch, *rows, *gone])
        right = b.ordered([*batch, *columns, *gone])
        left = left.reshape((*left.shape[: len(batch) + len(rows)], *(1 for _ in columns), *left.shape[len(batch) + len(rows) :]))
        right = right.reshape((*right.shape[: len(batch)], *(1 for _ in rows), *right.shape[len(batch) :]))
        return _Term(left * right, [*batch, *rows, *columns, *gone]).summed(gone)
    left, right = a.ordered([*batch, *rows, *gone]), b.ordered([*batch, *gone, *columns])
    k, m = len(batch), len(rows)
    row_sizes, inner, column_sizes = left.shape[k : k + m], left.shape[k + m :], right.shape[k + len(gone) :]
    left = _grouped(left, k, (m, len(gone)), (count(row_sizes), count(inner)))
    right = _grouped(right, k, (len(gone), len(columns)), (count(inner), count(column_sizes)))
    product = left @ right
    if len(rows) != 1 or len(columns) != 1:
        product = product.reshape((*product.shape[:k], *row_sizes, *column_sizes))
    return _Term(product, [*batch, *rows, *columns])


def _grouped(tensor: Any, batch: int, groups: tuple[int, int], sizes: tuple[int, int]) -> Any:
    """The dimensions after the batch as two; nothing to do where they are two already."""
    return tensor if groups == (1, 1) else tensor.reshape((*tensor.shape[:batch], *sizes))


def _best_pair(terms: list[_Term], output: set[Label]) -> tuple[int, int]:
    """The pair whose contraction shrinks the terms most."""
    best, found = None, (0, 1)
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            a, b = terms[i], terms[j]
            later = output.union(*(t.labels for n, t in enumerate(terms) if n not in (i, j)))
            sizes = {x: max(t.size(x) for t in (a, b) if x in t.labels) for x in {*a.labels, *b.labels} if x in later}
            change = count(list(sizes.values())) - count(a.tensor.shape) - count(b.tensor.shape)
            if best is None or change < best:
                best, found = change, (i, j)
    return found


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sum of products over labelled dimensions: `einsum("bij,bjk->bik", a, b)`.

    Each letter names a dimension. A letter that the output does not have is summed over; one that a tensor has twice takes its diagonal;
    "..." stands for all other dimensions, which broadcast. Without "->" the output has the letters that occur once, in alphabetical
    order, after the "..." dimensions. Also `einsum(a, [0, 1], b, [1, 2], [0, 2])`. Sizes of 1 broadcast. Dtypes promote.
    Raises RuntimeError for an equation that does not fit.

    >>> gl.einsum('ij,j->i', gl.tensor([[1.0, 2.0], [3.0, 4.0]]), gl.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    tensors, terms, output = _parse(equation, operands)
    if not tensors or len(tensors) != len(terms):
        raise RuntimeError(f"einsum: the equation has {len(terms)} terms for {len(tensors)} tensors")
    for i, x in enumerate(tensors):
        if not isinstance(x, Differentiable):
            raise TypeError(f"einsum: operand {i} is a {type(x).__name__}, not a tensor")
    dtype = common_dtype(tensors)
    if len(tensors) > 2 and dtype in HALF:
        return once(einsum, (equation, *operands))
    labels = [_spread(term, len(x._array.shape), f"term {i}") for i, (term, x) in enumerate(zip(terms, tensors, strict=True))]
    hidden = max((-min(term, default=0) for term in labels), default=0)
    known = [x for term in labels for x in term]
    if output is None:
        output = [*range(-max(hidden, 0), 0), *sorted(x for x in set(known) if x >= 0 and known.count(x) == 1)]
    else:
        dots = output.count(_DOTS)
        output = _spread(output, len(output) - dots + (max(hidden, 0) if dots else 0), "the output")
    for x in output:
        if output.count(x) > 1 or x not in known:
            raise RuntimeError(f"einsum: the output's label {_name(x)!r} occurs {'twice' if output.count(x) > 1 else 'in no tensor'}")
    parts = [_term(x.to(dtype), term) for x, term in zip(tensors, labels, strict=True)]
    _check_sizes(parts)
    wanted = set(output)
    while len(parts) > 1:
        i, j = _best_pair(parts, wanted) if len(parts) > 2 else (0, 1)
        b, a = parts.pop(j), parts.pop(i)
        parts.append(_contract(a, b, wanted.union(*(p.labels for p in parts))))
    last = parts[0].summed([x for x in parts[0].labels if x not in wanted])
    found = last.ordered(output)
    return found.view(found._array.shape) if found is tensors[0] else found


def _check_sizes(parts: list[_Term]) -> None:
    sizes: dict[Label, int] = {}
    for part in parts:
        for x in part.labels:
            size = part.size(x)
            if sizes.setdefault(x, size) != size:
                if 1 not in (sizes[x], size):
                    raise RuntimeError(f"einsum: label {_name(x)!r} stands for sizes {sizes[x]} and {size}, which do not broadcast")
                sizes[x] = max(sizes[x], size)


named_functions(__name__)
