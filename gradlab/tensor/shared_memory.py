"""Memory that several processes see: what `gradlab.multiprocessing` does, as methods of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.above import above
from gradlab.autograd.base import Differentiable

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor


class SharedMemoryMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def share_memory_(self) -> Tensor:
        """Move this tensor, the same object, to memory that other processes can share: those that are forked from here, and those it is
        sent to, see what is written in place, here and there. A tensor on a GPU stays as it is.

        What shared its memory before (a view, a detached twin, a NumPy array) keeps the old memory.

        >>> gl.ones(2).share_memory_().is_shared()
        True
        """
        return above("shared memory").share(self)

    def is_shared(self) -> bool:
        """Whether other processes can share this tensor's memory; that of a GPU counts as such.

        >>> gl.ones(2).is_shared()
        False
        """
        return above("shared memory").is_shared(self)
