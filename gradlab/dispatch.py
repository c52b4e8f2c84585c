"""From an array's type to the backend that computes with it. The only global table of the engine.

`numpy.ndarray` leads to the CPU backend, `cupy.ndarray` to the CUDA backend, a tracer's `Symbol` to the tracer. Used by `op.py`,
by the recording of operations and by creation functions; nobody else needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from gradlab.above import above
from gradlab.device import Device


class Row(Protocol):
    """What is asked of a row here; rows themselves are the floor above (`op.py`)."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def variadic(self) -> bool: ...


class Backend(Protocol):
    """What a backend offers. Arrays are of the backend's own type."""

    staged: bool  # True where arrays have no values yet (a tracer); such a backend also takes real arrays

    def run(self, op: Any, arrays: list[Any], params: dict[str, Any]) -> Any:
        """Compute one row: an array, or a tuple of arrays where the row has several outputs."""

    def device_of(self, array: Any) -> Device: ...

    def to_numpy(self, array: Any) -> Any: ...

    def from_numpy(self, array: Any, device: Device) -> Any: ...

    def address(self, array: Any) -> int:
        """Where the first element is in memory."""

    def copy(self, array: Any) -> Any:
        """The same values in memory of their own. Not offered by a staged backend."""

    def assign(self, target: Any, source: Any) -> None:
        """Write `source` into the memory of `target`. Not offered by a staged backend."""


class Drawing(Protocol):
    """What the backend of a device with memory of its own offers besides, for `tensor.generator.draw`."""

    def random_state(self, seed: int, device: Device) -> Any:
        """The state at the beginning of a seed's stream, int64[2], in memory of the device's."""


class Recalling(Protocol):
    """What a backend offers besides where calls repeat themselves: `autograd.general.apply` asks it before it promotes and dispatches."""

    # By key, of calls that need no promotion: what computes the result, the inputs' Specs and the outputs'.
    known: dict[Any, tuple[Callable[[list[Any]], Any], tuple[Any, ...], tuple[Any, ...]]]

    def key(self, op: Any, arrays: list[Any], params: dict[str, Any]) -> Any:
        """What such a call depends on."""

    def remember(self, op: Any, given: list[Any], arrays: list[Any], params: dict[str, Any]) -> None:
        """Keep what a call with the inputs `given` came to, which were `arrays` after promotion, if they are the same."""


_by_type: dict[type, Backend] = {}
recalling: dict[type, Recalling] = {}  # by type of array
layouts: dict[type, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {}  # by type: of tensors whose array is none, what runs a row
_by_device: dict[str, Callable[[], Backend]] = {}


_kernels: list[Any] = []
remembered: list[dict[Any, Any]] = []  # what fast paths have kept of such answers


def by_kernel(op: Any, arrays: Sequence[Any], params: dict[str, Any], outs: Sequence[Any] | None = None) -> Any:
    """What machine code (`backends/native/eager.py`, loaded when it is first asked) makes of a large row on NumPy arrays; None where NumPy
    is to compute."""
    return kernels().run(op, arrays, params, outs)


def kernels() -> Any:
    """The module of that machine code."""
    if not _kernels:
        _kernels.append(above("kernels of eager code"))
    return _kernels[0]


beside_kernels = [False]  # whether kernels compute with threads of their own, which BLAS's are not to stand in the way of
SHORT, LONG = 1 << 18, 1 << 27  # multiplications: from which on OpenBLAS wakes its other threads, and from which on they are worth it


def product(x: Any, y: Any, out: Any = None) -> Any:
    """x @ y, two matrices of NumPy's, by its BLAS."""
    if beside_kernels[0] and SHORT < x.size * y.shape[-1] < LONG:
        return _by_one_thread()(x, y, out)
    return x.dot(y, out)


@functools.cache
def _by_one_thread() -> Any:
    return above("product by one thread")


def register(array_type: type, backend: Backend) -> None:
    """Let `backend` compute with arrays of `array_type`."""
    _by_type[array_type] = backend
    if hasattr(backend, "remember"):
        recalling[array_type] = cast(Recalling, backend)


def register_device(kind: str, load: Callable[[], Backend]) -> None:
    """Let `load()` supply the backend of devices of that type ("cpu", "cuda"); it may raise, saying what is missing."""
    _by_device[kind] = load


def backend_of(array: Any) -> Backend:
    """The backend of one array. Raises TypeError for a type that no backend has."""
    try:
        return _by_type[type(array)]
    except KeyError:
        for known, backend in _by_type.items():
            if isinstance(array, known):
                return backend
        raise TypeError(f"no backend computes with {type(array).__module__}.{type(array).__name__}") from None


def backend_for(device: Device) -> Backend:
    """The backend of a device. Raises RuntimeError where the device is not usable here."""
    load = _by_device.get(device.type)
    if load is None:
        raise RuntimeError(f"no backend for device {device}")
    return load()


def choose(op: Row, arrays: list[Any]) -> Backend:
    """The one backend for these inputs (None and Python numbers fit all). Raises RuntimeError where devices are mixed."""
    found: Backend | None = None
    for array in arrays:
        if array is None or isinstance(array, (int, float, complex)):
            continue
        backend = _by_type.get(type(array)) or backend_of(array)
        if found is None or backend is found or (backend.staged and not found.staged):
            found = backend
        elif not found.staged:
            raise mixed(op, arrays)
    if found is None:
        raise TypeError(f"{op.name}: at least one input must be a tensor")
    return found


class DevicesDiffer(RuntimeError):
    """Inputs of an operation lie on different devices. `places`: each input's name and its device's."""

    def __init__(self, op: str, places: list[tuple[str, str]]) -> None:
        self.op, self.places = op, places
        words = ", ".join(f"{name} on {device}" for name, device in places)
        super().__init__(f"{op}: inputs on different devices: {words}; move them with .to(device)")

    def __reduce__(self) -> Any:
        return DevicesDiffer, (self.op, self.places)


def mixed(op: Row, arrays: list[Any]) -> DevicesDiffer:
    """The error for inputs on different devices."""
    names = op.inputs if not op.variadic else [f"{op.inputs[0]}[{i}]" for i in range(len(arrays))]
    places = [
        (name, str(backend_of(a).device_of(a)))
        for name, a in zip(names, arrays, strict=False)
        if a is not None and not isinstance(a, (int, float, complex))
    ]
    return DevicesDiffer(op.name, places)
