"""Which devices there are, and which one new tensors go to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gradlab.backends.cuda.loading import available, load, loaded
from gradlab.cuda.cpu_driver import driver
from gradlab.device import Device
from gradlab.tensor import generator


def is_available() -> bool:
    """Whether a CUDA device can be used. Never raises."""
    return available()


def device_count() -> int:
    """How many CUDA devices there are; 0 where none can be used."""
    return load().driver.device_count() if available() else 0


def init() -> None:
    """Load the backend now rather than at its first use. RuntimeError says what is missing."""
    driver()


def is_initialized() -> bool:
    """Whether the backend is loaded."""
    return loaded()


def index_of(device: Any) -> int:
    """The number of a device: None is the current one; an int, "cuda:1", a Device."""
    known = driver()
    if device is None:
        return known.current_device()
    if isinstance(device, int) and not isinstance(device, bool):
        index: int | None = device
    else:
        found = Device(device)
        if found.type != "cuda" and found != Device("cuda"):
            raise ValueError(f"expected a CUDA device, got {found}")
        index = known.current_device() if found.index is None else found.index
    assert index is not None
    if not 0 <= index < known.device_count():
        raise RuntimeError(f"cuda:{index}: there are {known.device_count()} CUDA devices, counted from 0")
    return index


def current_device() -> int:
    """The number of the device that `device="cuda"` means in this thread."""
    return driver().current_device()


def set_device(device: Any) -> None:
    """Make a device current in this thread."""
    driver().set_device(index_of(device))


class device:
    """Within the block, another device is current: `with gl.cuda.device(1):`."""

    def __init__(self, device: Any) -> None:
        self.idx = index_of(device)
        self._before: list[int] = []

    def __enter__(self) -> device:
        known = driver()
        self._before.append(known.current_device())
        known.set_device(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        driver().set_device(self._before.pop())


@contextmanager
def on(index: int) -> Iterator[None]:
    """Within the block, the device of that number is current."""
    known = driver()
    before = known.current_device()
    known.set_device(index)
    try:
        yield
    finally:
        known.set_device(before)


def synchronize(device: Any = None) -> None:
    """Wait for all work on a device (the current one). Raises what its kernels have reported, such as an index out of range.

    Where "cuda" means the CPU (`gradlab run --device cpu`) nothing is to be waited for.
    """
    if Device("cuda").type == "cpu":
        return
    with on(index_of(device)):
        load().synchronize()


def get_device_name(device: Any = None) -> str:
    """What a device is called."""
    return driver().device_name(index_of(device))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """A device's compute capability, such as (9, 0)."""
    return load().driver.capability(index_of(device))


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is: its name, compute capability `major`.`minor`, and memory in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """A device's name, compute capability and memory."""
    index = index_of(device)
    driver = load().driver
    major, minor = driver.capability(index)
    return DeviceProperties(driver.device_name(index), major, minor, driver.memory(index).total)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether kernels compute in bfloat16 on the GPU: all of gradlab's do. False where there is no GPU."""
    return available()


def get_rng_state(device: Any = "cuda") -> Any:
    """As `gl.get_rng_state`: one stream of random numbers serves all devices."""
    return generator.get_rng_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """As `gl.set_rng_state`: one stream of random numbers serves all devices."""
    generator.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of random numbers for each GPU: for all the same, that of `gl.get_rng_state`; none where there is no GPU."""
    return [generator.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Set what `get_rng_state_all` gave."""
    for state in new_states:
        generator.set_rng_state(state)


def manual_seed(seed: int) -> None:
    """As `gl.manual_seed`: one stream of random numbers serves all devices."""
    generator.manual_seed(seed)


def initial_seed() -> int:
    """As `gl.initial_seed`: one stream of random numbers serves all devices."""
    return generator.initial_seed()


def seed() -> None:
    """As `gl.seed`: a seed that nobody knows, for all devices."""
    generator.seed()


seed_all = seed


def get_arch_list() -> list[str]:
    """Empty: kernels are compiled when they are first used, for the GPU that is there."""
    return []


def ipc_collect() -> None:
    """Changes nothing: no other process holds this one's GPU memory."""


def manual_seed_all(seed: int) -> None:
    """As `gl.manual_seed`: one stream of random numbers serves all devices."""
    generator.manual_seed(seed)
