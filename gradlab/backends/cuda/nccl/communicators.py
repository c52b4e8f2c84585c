"""The communicators of groups of processes: made when a group's first collective of GPU tensors runs, which all of its processes call.

`by` is a group's carrier for the host (`gradlab.distributed.transport`), by which the processes agree and find each other.
"""

from __future__ import annotations

import os
import warnings
import weakref
from typing import Any

import numpy as np

from gradlab.backends.cuda.nccl.library import nccl_of, place_of
from gradlab.backends.cuda.nccl.names import REDUCTIONS, TYPES, UNIQUE_ID_BYTES
from gradlab.backends.cuda.nvidia_libraries import LibraryMissing

_PLACE = 256  # bytes of a place's name
_known: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


def communicator_of(driver: Any, by: Any) -> tuple[Any, Any] | None:
    """The module and the communicator of a group on the current device; None where arrays go by the host: GRADLAB_NCCL=0, no NCCL
    somewhere, or two processes on one GPU, which NCCL does not take. With one warning."""
    index = driver.current_device()
    found = _known.setdefault(by, {})
    if index not in found:
        found[index] = _made(driver, by, index)
    made: tuple[Any, Any] | None = found[index]
    return made


def made(driver: Any, by: Any) -> tuple[Any, Any] | None:
    """The same, if a collective has made it: one of two processes alone cannot."""
    found: tuple[Any, Any] | None = _known.get(by, {}).get(driver.current_device())
    return found


def _made(driver: Any, by: Any, index: int) -> tuple[Any, Any] | None:
    why = "GRADLAB_NCCL=0"
    nccl: Any = None
    if os.environ.get("GRADLAB_NCCL", "1") != "0":
        try:
            nccl, why = nccl_of(driver), ""
        except LibraryMissing as error:
            why = str(error)
    said = np.zeros(_PLACE, np.uint8)
    text = (f"-{why}" if nccl is None else place_of(driver, index)).encode()[:_PLACE]
    said[: len(text)] = np.frombuffer(text, np.uint8)
    every = np.zeros((by.size, _PLACE), np.uint8)
    by.all_gather(said, every)
    places = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in every]
    lacking = next((f"rank {by.ranks[r]}: {place[1:]}" for r, place in enumerate(places) if place.startswith("-")), "")
    twice = next((f"two processes are on {place}" for r, place in enumerate(places) if place in places[:r]), "")
    if lacking or twice:
        if "GRADLAB_NCCL=0" not in lacking:
            warnings.warn(f"collectives of GPU tensors go by the host, which is slow: {lacking or twice}", RuntimeWarning, stacklevel=2)
        return None
    number = np.zeros(UNIQUE_ID_BYTES, np.int16)
    if by.rank == 0:
        number[:] = nccl.get_unique_id()
    by.broadcast(number, number, 0)
    return nccl, nccl.NcclCommunicator(by.size, tuple(int(n) for n in number), by.rank)


def number_type(dtype: Any, op: str) -> int | None:
    """NCCL's number of a dtype that it reduces by `op`; None where it does not."""
    if op not in REDUCTIONS or (op == "mean" and dtype.kind in "iub"):
        return None
    return TYPES.get(dtype.name)
