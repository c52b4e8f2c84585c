"""The emulated GPU's cuFFT: the library's functions, called by the same prototypes, computing in NumPy on raw addresses.

It refuses what the library refuses or leaves undefined: calls out of order, a plan without stream or work space, memory outside of an
allocation or not aligned. As in the library, C2R writes over its input; where a coefficient that should be real is not, it gives NaN.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.cufft.binding import FORWARD, INVERSE, MOST_DIMENSIONS, PROTOTYPES, Status, Type

SPACE_FROM = 64  # numbers of one transform; the library takes work space where several kernels follow one another
DTYPES = {
    Type.C2C: ("complex64", "complex64"), Type.R2C: ("float32", "complex64"), Type.C2R: ("complex64", "float32"),
    Type.Z2Z: ("complex128", "complex128"), Type.D2Z: ("float64", "complex128"), Type.Z2D: ("complex128", "float64"),
}  # fmt: skip
Submit = Callable[[str, Sequence[int], Sequence[int], Callable[[], None], int], None]


class Misuse(Exception):
    """A status and why."""

    def __init__(self, status: Status, reason: str | None) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def require(condition: bool, reason: str, status: Status = Status.INVALID_VALUE) -> None:
    if not condition:
        raise Misuse(status, reason)


class Operand(NamedTuple):
    """A plan's input or output; strides in elements."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """From its first element to its last one's end."""
        return (1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))) * self.dtype.itemsize


class Made(NamedTuple):
    """What a plan was made for. steps: of the input and of the output, None where its elements lie side by side."""

    n: tuple[int, ...]
    batch: int
    kind: Type
    space: int
    steps: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = (None, None)

    def arrays(self) -> list[Operand]:
        """Input and output."""
        half = (self.batch, *self.n[:-1], self.n[-1] // 2 + 1)
        shapes = {"R": half, "D": half}
        source, target = self.kind.name.split("2")
        whole = (self.batch, *self.n)
        found = (shapes.get(target, whole), shapes.get(source, whole))
        beside = (tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape))) for shape in found)
        kinds = map(np.dtype, DTYPES[self.kind])
        return [Operand(shape, kind, own or steps) for shape, kind, own, steps in zip(found, kinds, self.steps, beside, strict=True)]


class State:
    """A plan's settings."""

    def __init__(self) -> None:
        self.own_space = True
        self.made: Made | None = None
        self.stream: int | None = None
        self.area = 0


class StandIn:
    """Has the functions of `binding.PROTOTYPES`.

    allocation   start and size of the allocation that holds an address, None where that is not known.
    submit       takes a piece of work: its name, the addresses that it reads and those that it writes, the work, its stream's handle.
    """

    def __init__(self, allocation: Callable[[int], tuple[int, int] | None], submit: Submit) -> None:
        self.reason: str | None = None
        self.raised: Exception | None = None  # what a call could not raise through C
        self.refused: Callable[[Made], Status | None] = lambda made: None  # for tests: what the library has no plan for
        self.calls: list[str] = []  # for tests
        self._allocation, self._submit = allocation, submit
        self.states: dict[int, State] = {}
        self._next = 0
        for name, (result, arguments) in PROTOTYPES.items():
            function = self._executing(Type[name[9:]]) if name.startswith("cufftExec") else getattr(self, f"_{name[5:].lower()}")
            setattr(self, name, ctypes.CFUNCTYPE(result, *arguments)(self._guarded(name, function)))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., int]:
        """An exception may not leave a C callback: it becomes a status."""

        def call(*arguments: Any) -> int:
            self.reason = self.raised = None
            self.calls.append(name)
            del self.calls[:-100]
            try:
                function(*arguments)
            except Misuse as misuse:
                self.reason = misuse.reason
                return misuse.status
            except Exception as error:
                self.reason, self.raised = f"{type(error).__name__}: {error}", error
                return Status.INTERNAL_ERROR
            return Status.SUCCESS

        return call

    def _find(self, handle: int) -> State:
        require(handle in self.states, f"no plan {handle}", Status.INVALID_PLAN)
        return self.states[handle]

    def _getversion(self, place: int) -> None:
        ctypes.c_int.from_address(place).value = 12500

    def _create(self, place: int) -> None:
        self._next += 1
        self.states[self._next] = State()
        ctypes.c_int.from_address(place).value = self._next

    def _destroy(self, handle: int) -> None:
        self._find(handle)
        del self.states[handle]

    def _setautoallocation(self, handle: int, own: int) -> None:
        require(self._find(handle).made is None, "after the plan was made", Status.INVALID_PLAN)
        self.states[handle].own_space = bool(own)

    def _makeplanmany64(
        self, handle: int, rank: int, sizes: int, inembed: int, istride: int, idist: int, onembed: int, ostride: int, odist: int,
        kind: int, batch: int, place: int,
    ) -> None:  # fmt: skip
        state = self._find(handle)
        require(state.made is None, "the plan is made already", Status.INVALID_PLAN)
        require(1 <= rank <= MOST_DIMENSIONS and bool(sizes) and bool(place), f"rank {rank}")
        n = tuple((ctypes.c_int64 * rank).from_address(sizes))
        require(min(n) > 0 and batch > 0, f"sizes {n}, batch {batch}", Status.INVALID_SIZE)
        require(kind in set(Type), f"type {kind}", Status.INVALID_TYPE)
        numbers = int(np.prod(n))
        space = numbers * batch * 8 if numbers >= SPACE_FROM else 0
        layouts = ((inembed, istride, idist), (onembed, ostride, odist))
        made = Made(n, batch, Type(kind), space, (_steps(rank, *layouts[0]), _steps(rank, *layouts[1])))
        refused = self.refused(made)
        if refused is not None:
            raise Misuse(refused, None)
        state.made = made
        ctypes.c_size_t.from_address(place).value = space

    def _setstream(self, handle: int, stream: int | None) -> None:
        self._find(handle).stream = stream or 0

    def _setworkarea(self, handle: int, area: int | None) -> None:
        require(not self._find(handle).own_space, "the plan has work space of its own", Status.INVALID_PLAN)
        self.states[handle].area = area or 0

    def _executing(self, kind: Type) -> Callable[..., None]:
        def execute(handle: int, source: int, target: int, direction: int = FORWARD) -> None:
            state = self._find(handle)
            made = state.made
            if made is None or made.kind is not kind:
                raise Misuse(Status.INVALID_PLAN, f"a plan that was not made for {kind.name}")
            require(direction in (FORWARD, INVERSE), f"direction {direction}")
            require(state.stream is not None, "no stream was set")
            for name, place, operand in zip(("input", "output"), (source, target), made.arrays(), strict=True):
                aligned = max(operand.dtype.itemsize, 8 if kind in (Type.C2C, Type.R2C, Type.C2R) else 16)
                require(bool(place) and place % aligned == 0, f"{name} at {place or 0:#x}: not aligned", Status.UNALIGNED_DATA)
                self._inside(name, place, operand.bytes)
            if made.space:
                require(bool(state.area), "no work space was set", Status.NO_WORKSPACE)
                self._inside("the work space", state.area, made.space)
            area = state.area if made.space else 0
            overwritten = [source] if kind in (Type.C2R, Type.Z2D) else []
            writes = [target, *overwritten, *([area] if area else [])]
            work = functools.partial(compute, made, source, target, direction, area)
            self._submit(f"cufftExec{kind.name}", [source], writes, work, state.stream or 0)

        return execute

    def _inside(self, name: str, address: int, size: int) -> None:
        """The bytes belong to one allocation, where that is known."""
        found = self._allocation(address)
        if found is not None:
            beyond = address + size - sum(found)
            require(beyond <= 0, f"{name} reaches {beyond} bytes beyond an array of {found[1]} bytes", Status.EXEC_FAILED)


def _steps(rank: int, embed: int, stride: int, distance: int) -> tuple[int, ...] | None:
    """Of the batch and of each dimension, in elements. Without `embed`, sizes with padding, the library does not look at the others."""
    if not embed:
        return None
    steps = [stride]
    for size in reversed((ctypes.c_int64 * rank).from_address(embed)[1:]):
        steps.insert(0, steps[0] * size)
    return (distance, *steps)


def _at(address: int, operand: Operand) -> Any:
    memory = np.frombuffer(memoryview((ctypes.c_char * operand.bytes).from_address(address)), operand.dtype)
    return np.lib.stride_tricks.as_strided(memory, operand.shape, [operand.dtype.itemsize * step for step in operand.strides])


def compute(made: Made, source: int, target: int, direction: int, area: int) -> None:
    """The transform, without a factor."""
    x, y = (_at(place, operand) for place, operand in zip((source, target), made.arrays(), strict=True))
    axes = tuple(range(1, x.ndim))
    if area:
        ctypes.memset(area, 255, made.space)  # whose memory it is no longer holds
    if made.kind in (Type.C2C, Type.Z2Z):
        y[...] = np.fft.fftn(x, axes=axes) if direction == FORWARD else np.fft.ifftn(x, axes=axes, norm="forward")
    elif made.kind in (Type.R2C, Type.D2Z):
        y[...] = np.fft.rfftn(x, axes=axes)
    else:
        y[...] = np.fft.irfftn(x, made.n, axes=axes, norm="forward")
        alone = [0] if made.n[-1] % 2 else [0, -1]
        if len(made.n) == 1 and np.any(x[..., alone].imag):
            y[...] = np.nan
        x[...] = np.nan
