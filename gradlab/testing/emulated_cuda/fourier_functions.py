"""cuFFT as CuPy's module calls it: the functions that gradlab calls too, plans in sizes of 32 bits, and those that are refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.backends.cuda.cufft.binding import PROTOTYPES, Status
from gradlab.backends.cuda.cufft.standin import StandIn

# Of several GPUs, half types and descriptors of arrays: what CuPy's module is linked with, so that they have to be there.
REFUSED = {
    "cufftXtExec": 4, "cufftXtExecDescriptorC2C": 4, "cufftXtExecDescriptorZ2Z": 4, "cufftXtMakePlanMany": 14, "cufftXtMemcpy": 4,
    "cufftXtSetGPUs": 3, "cufftXtSetWorkArea": 2,
}  # fmt: skip


class FourierFunctions:
    """`functions`: by name, the number of arguments and the function."""

    def __init__(self, standin: StandIn) -> None:
        self._standin = standin
        self.functions: dict[str, tuple[int, Callable[..., int]]] = {
            name: (len(arguments), getattr(standin, name)) for name, (_, arguments) in PROTOTYPES.items()
        }
        self.functions.update(cufftMakePlan1d=(5, self._plan_of_one), cufftMakePlanMany=(12, self._plan))
        self.functions.update({name: (count, lambda *_: Status.NOT_SUPPORTED) for name, count in REFUSED.items()})

    def _make(self, plan: int, sizes: Sequence[int], layouts: Sequence[tuple[Any, int, int]], kind: int, batch: int, place: int) -> int:
        rank = len(sizes)
        wide = ctypes.c_int64 * rank
        given: list[Any] = []
        for embed, stride, distance in layouts:
            given += [wide(*embed) if embed else None, stride, distance]
        return int(self._standin.cufftMakePlanMany64(plan, rank, wide(*sizes), *given, kind, batch, place))  # type: ignore[attr-defined]

    def _plan_of_one(self, plan: int, size: int, kind: int, batch: int, place: int) -> int:
        return self._make(plan, [_int(size)], [(None, 0, 0)] * 2, kind, _int(batch), place)

    def _plan(
        self, plan: int, rank: int, sizes: int, inembed: int, istride: int, idist: int, onembed: int, ostride: int, odist: int, kind: int,
        batch: int, place: int,
    ) -> int:  # fmt: skip
        def read(address: int) -> Any:
            return tuple((ctypes.c_int * _int(rank)).from_address(address)) if address else None

        layouts = [(read(inembed), _int(istride), _int(idist)), (read(onembed), _int(ostride), _int(odist))]
        return self._make(plan, read(sizes), layouts, kind, _int(batch), place)


def _int(word: int) -> int:
    """Of an argument's word, whose upper half C leaves undefined."""
    return ctypes.c_int(word & 0xFFFFFFFF).value
