"""Messages between two processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.autograd.record import wrap
from gradlab.dispatch import backend_of
from gradlab.distributed.collectives import _here, _into, _root, _tensors, _unrecorded
from gradlab.distributed.groups import ProcessGroup
from gradlab.distributed.work import Work, flush, kept
from gradlab.tensor import Tensor


def _peer(name: str, rank: int | None, group: Any, group_rank: int | None) -> tuple[ProcessGroup | None, int | None]:
    found = _here(group, name)
    if found is None or (rank is None and group_rank is None):
        if found is not None and (found.size() == 1 or name.endswith("send")):
            why = "there is no other process to wait for" if found.size() == 1 else "give dst, whom to send to"
            raise RuntimeError(f"{name}: {why}")
        return found, None
    peer = _root(name, found, rank, group_rank)
    if peer == found.rank():
        raise ValueError(f"{name}: process {found.rank()} is this one; it sends nothing to itself")
    return found, peer


def _plain(name: str, tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values, where they can travel without a row."""
    _tensors(name, "tensor", tensor)
    array = tensor.detach()._array
    if getattr(array, "tracer", None) is not None:
        raise RuntimeError(f"{name}: inside of a compiled function only collectives of all processes run; call {name} outside")
    return array if type(array) is np.ndarray else tensor.detach().cpu()._array


def _by_device(group: ProcessGroup, way: str, tensor: Tensor, peer: int | None) -> Any:
    """The message of a GPU's tensor by what its GPUs have; None where it goes by the host."""
    if type(tensor._array) is np.ndarray or group.size() == 1:
        return None
    offered = getattr(backend_of(tensor._array), "message", None)
    job = None if offered is None else offered(group.transport, way, tensor._array, peer)
    if job is not None:
        kept.append(job.flush)
    return job


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """Begin to send a tensor to process `dst`. ValueError where that is this one."""
    _tensors("isend", "tensor", tensor)
    found, peer = _peer("isend", dst, group, group_dst)
    if found is None or peer is None:
        return None
    if (job := _by_device(found, "send", tensor.detach().contiguous(), peer)) is not None:
        return Work([tensor], job)
    return Work([tensor], found.transport.send(_plain("isend", tensor), peer, tag))


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """Begin to receive a tensor from process `src`, or from any. ValueError where that is this one."""
    _tensors("irecv", "tensor", tensor)
    found, peer = _peer("irecv", src, group, group_src)
    if found is None:
        return None
    room = tensor.detach().contiguous().clone() if type(tensor._array) is not np.ndarray else tensor
    job = _by_device(found, "recv", room, peer)
    if job is None:
        room = wrap(np.empty_like(_plain("irecv", tensor)))
        job = found.transport.receive(room._array, peer, tag)
    return Work([tensor], job, lambda: _unrecorded(_into(tensor), room), sender=lambda: found.ranks[job.source])


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to process `dst`. ValueError where that is this one."""
    if (work := isend(tensor, dst, group, tag, group_dst)) is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor from process `src`, or from any. Returns the sender's rank, -1 outside of the group."""
    if (work := irecv(tensor, src, group, tag, group_src)) is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp(NamedTuple):
    """One sending or receiving for `batch_isend_irecv`: `P2POp(isend, tensor, peer)`."""

    op: Callable[..., Any]
    tensor: Tensor
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Any]:
    """Begin all of them, by NCCL as one."""
    works = [each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer) for each in p2p_op_list]
    flush()
    return works
