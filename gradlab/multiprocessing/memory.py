"""The memory of tensors that processes share: blocks without a name, and how they travel.

A block is an anonymous file in memory. Processes that are forked inherit it; others are sent a descriptor of it, by what `multiprocessing`
has for that. The system counts who uses it, so there is nothing to clean up, however a process ends.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from gradlab.autograd.base import LEAF
from gradlab.autograd.record import wrap
from gradlab.multiprocessing.descriptors import sent
from gradlab.nn.parameter import Buffer, Parameter
from gradlab.tensor import Tensor
from gradlab.tensor.values import check_readable

_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class Block(mmap.mmap):
    """Memory that processes share, and the descriptor by which others get it."""

    descriptor: int

    def __new__(cls, descriptor: int, size: int) -> Block:
        """Map the first `size` bytes of what the descriptor, which then belongs to the block, stands for."""
        made = super().__new__(cls, descriptor, size, **_UNTRACKED)
        made.descriptor = descriptor
        weakref.finalize(made, os.close, descriptor)
        return made

    @classmethod
    def of_size(cls, size: int) -> Block:
        """A new block of zeros."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("gradlab-shared")
        else:
            with tempfile.TemporaryFile() as file:  # has no name any more, or loses it when it is closed
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, max(size, 1))
        return cls(descriptor, max(size, 1))


def block_of(array: Any) -> Block | None:
    """The block that an array lies in; None for any other memory."""
    while array is not None and not isinstance(array, Block):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def is_shared(tensor: Any) -> bool:
    """Whether a tensor's memory can be seen by other processes; that of a GPU counts as such, as in PyTorch."""
    return tensor.device.type != "cpu" or block_of(tensor._array) is not None


def share(tensor: Any) -> Any:
    """Move a CPU tensor, the same object, into a block. A tensor on a GPU stays as it is."""
    check_readable(tensor)
    if not is_shared(tensor):
        array = tensor._array
        block = Block.of_size(array.nbytes)
        moved = np.ndarray(array.shape, array.dtype, buffer=block, strides=np.empty_like(array).strides)  # dense, dimensions as they lie
        np.copyto(moved, array)
        tensor.data = wrap(moved)
    if type(tensor) not in _known:
        _known.add(type(tensor))
        ForkingPickler.register(type(tensor), _reduced)
    return tensor


# ---------------------------------------------------------------- to another process and back


def _reduced(tensor: Any) -> tuple[Any, ...]:
    """What a tensor is sent as."""
    if not tensor.is_leaf:
        raise RuntimeError("a computed tensor cannot be sent to another process: its graph stays here; send x.detach()")
    if tensor.device.type != "cpu":
        return tensor.__reduce_ex__(2)
    array = share(tensor)._array
    block: Any = block_of(array)
    offset = array.__array_interface__["data"][0] - np.frombuffer(block, np.uint8).__array_interface__["data"][0]
    own = {name: value for name, value in tensor.__dict__.items() if name != "_grad"}
    return _arrived, (type(tensor), block, array.dtype, array.shape, array.strides, offset, tensor._edge is LEAF, own)


def _arrived(
    kind: type[Tensor], block: Block, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, requires_grad: bool,
    own: dict[str, Any],
) -> Tensor:  # fmt: skip
    made = object.__new__(kind)
    made._array = np.ndarray(shape, dtype, buffer=block, offset=offset, strides=strides)
    made._edge, made._meta = LEAF if requires_grad else None, None
    made.__dict__.update(own)
    return made


def _reduced_block(block: Block) -> tuple[Any, ...]:
    return _arrived_block, (sent(block.descriptor), len(block))


def _arrived_block(offered: Any, size: int) -> Block:
    try:
        return Block(offered.detach(), size)
    except (OSError, EOFError) as error:
        raise RuntimeError(
            f"a tensor's memory could not be fetched from the process that sent it ({type(error).__name__}: {error}): it must live until "
            f"then; take what it sends before you join it"
        ) from None


_known: set[type] = {Tensor, Parameter, Buffer}
for _kind in _known:
    ForkingPickler.register(_kind, _reduced)
ForkingPickler.register(Block, _reduced_block)
