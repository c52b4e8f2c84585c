"""What stands in the place of a sparse tensor's array: where its entries are, and their values as a dense tensor."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NoReturn

from gradlab import dispatch
from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.dtype import INT64
from gradlab.layout import NOT_TRACED, Layout, sparse_coo
from gradlab.op import Op
from gradlab.spec import count
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange
from gradlab.tensor.shape import stack
from gradlab.tensor.sort import searchsorted

WAY_OUT = "x.to_dense() gives a dense tensor"


class SparseError(NotImplementedError):
    """Something that sparse tensors do not offer."""


class Lacking(SparseError, AttributeError):
    """An attribute that they have not: whoever asks whether there is one gets an answer."""


class Pattern:
    """Where the entries are: `indices` (dimensions, entries), int64, in a space of `sizes`. Shared by tensors made entry by entry from one
    another, and what is found out about it is found once.

    coalesced: the indices are distinct and in the order of memory.
    """

    __slots__ = ("_compressed", "_seen", "coalesced", "indices", "sizes")

    def __init__(self, indices: Tensor, sizes: tuple[int, ...], coalesced: bool = False) -> None:
        self.indices, self.sizes, self.coalesced = indices, sizes, coalesced
        self._compressed: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._seen = indices._version

    @property
    def number(self) -> int:
        """How many entries there are."""
        return self.indices._array.shape[1]

    def keys(self) -> Tensor:
        """Each entry's place in the flattened space."""
        if count(self.sizes) >= 1 << 63:
            raise NotImplementedError(f"a sparse tensor of shape {self.sizes} has more places than an int64 counts")
        total: Any = self.indices[0] if self.sizes else self.indices.new_zeros((self.number,))
        for d in range(1, len(self.sizes)):
            total = total * self.sizes[d] + self.indices[d]
        return total

    def compressed(self, dim: int) -> tuple[Tensor, Tensor | None]:
        """Which entries have the same index along `dim`: those with index i are at order[starts[i]:starts[i + 1]]. order: None where the
        entries lie so."""
        if self.indices._version != self._seen:  # written in place by somebody
            self._compressed.clear()
            self._seen = self.indices._version
        found = self._compressed.get(dim)
        if found is None:
            index, order = self.indices[dim], None
            if not (self.coalesced and dim == 0):
                order = index.argsort(stable=True)
                index = index[order]
            bounds = arange(self.sizes[dim] + 1, device=index.device)
            found = self._compressed[dim] = searchsorted(index.contiguous(), bounds), order
        return found

    def with_starts(self, dim: int, starts: Tensor) -> Pattern:
        """This pattern, of which it is known that its entries lie in the order of the index along `dim`."""
        self._compressed[dim] = starts, None
        return self

    def turned(self, first: int, second: int) -> Pattern:
        """Two dimensions exchanged."""
        order = list(range(len(self.sizes)))
        order[first], order[second] = order[second], order[first]
        made = Pattern(stack([self.indices[d] for d in order]), tuple(self.sizes[d] for d in order), self.coalesced and first == second)
        made._compressed = {order.index(d): known for d, known in self._compressed.items()}
        return made

    def same(self, other: Pattern) -> bool:
        """Whether the entries are at the same places in the same order."""
        return self is other or (self.sizes == other.sizes and self.number == other.number and self.indices.equal(other.indices))


class SparseArray:
    """A pattern, the values of its entries (entries, …) as a dense Tensor, perhaps in a graph, and the layout in which they are shown."""

    __slots__ = ("dtype", "layout", "pattern", "shape", "values")

    def __init__(self, pattern: Pattern, values: Tensor, layout: Layout = sparse_coo) -> None:
        self.pattern, self.values, self.layout = pattern, values, layout
        self.shape = pattern.sizes + tuple(values._array.shape[1:])
        self.dtype = values._array.dtype

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Lacking(f"{asked_by()}a sparse tensor has no {name}: {WAY_OUT}")

    @property
    def size(self) -> int:
        return count(self.shape)


def asked_by() -> str:
    """ "item: " where a method of dense tensors, called through their class, asks what a sparse one has not: the outermost of gradlab's."""
    found = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("gradlab."):
        name = frame.f_code.co_name
        found = f"{name}: " if not name.startswith("_") and callable(getattr(Tensor, name, None)) else found
        frame = frame.f_back
    return found


class SparseBackend:
    """Answers for sparse arrays where they are, and refuses to compute with them: that `rules.run` does, with Tensors."""

    staged = False

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        raise refusal(op.name)

    def device_of(self, array: SparseArray) -> Device:
        return array.values.device

    def to_numpy(self, array: SparseArray) -> Any:
        raise TypeError(f"{asked_by()}a sparse tensor is no NumPy array: {WAY_OUT}")

    def from_numpy(self, array: Any, device: Device) -> Any:
        raise TypeError(f"a NumPy array is not sparse: use gl.tensor(array).to_sparse() on {device}")

    def address(self, array: SparseArray) -> int:
        raise SparseError(f"{asked_by()}the address of elements is not offered for sparse tensors: {WAY_OUT}")

    def copy(self, array: SparseArray) -> SparseArray:
        return SparseArray(array.pattern, array.values.detach().clone(), array.layout)

    def assign(self, target: SparseArray, source: Any) -> None:
        raise refusal("assign")


dispatch.register(SparseArray, SparseBackend())


_class: Any = Tensor  # SparseTensor, handed over by its file


def adopt(sparse_class: type[Tensor]) -> None:
    """Let sparse tensors be of this class."""
    global _class
    _class = sparse_class


def sparse(pattern: Pattern, values: Tensor, layout: Layout = sparse_coo) -> Any:
    """The sparse tensor with these entries."""
    only_eager("sparse tensor")
    made = object.__new__(_class)
    made._array, made._meta = SparseArray(pattern, values, layout), None
    return made


def is_sparse(x: Any) -> bool:
    """Whether this is a sparse tensor."""
    return type(getattr(x, "_array", None)) is SparseArray


def refusal(name: str) -> SparseError:
    """The error for what is not offered for sparse tensors."""
    if name.endswith("_update"):
        return SparseError(f"{name.removesuffix('_update')} does not support sparse gradients: use SparseAdam, SGD or Adagrad")
    return SparseError(f"{name} is not offered for sparse tensors: {WAY_OUT}")


def only_eager(name: str) -> None:
    """Raise where a function is traced or mapped over a batch: there the number of entries would have to be known."""
    mode = current()
    if mode.tracer is not None:
        raise NotImplementedError(f"{name}: {NOT_TRACED}")
    if mode.vmap is not None:
        raise NotImplementedError(f"{name}: vmap does not go over sparse tensors: {WAY_OUT}, or use a loop")


def index_tensor(name: str, indices: Any, device: Any) -> Tensor:
    """Indices of any integer type as an int64 tensor outside of every graph."""
    if indices._array.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices are integers, not {indices.dtype}; convert them with .long()")
    found: Tensor = indices.detach().to(dtype=INT64, device=device)
    return found
