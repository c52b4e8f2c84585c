"""Loading the backend: which driver, and what is missing where there is none."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradlab import dispatch

if TYPE_CHECKING:
    from gradlab.backends.cuda.backend import CudaBackend
    from gradlab.backends.cuda.driver import Driver

EMULATED, MOST_EMULATED = 2, 16  # devices

_lock = threading.Lock()
_loaded: CudaBackend | None = None
_reason: str | None = None


def emulated() -> bool:
    """Whether the emulated GPU was chosen."""
    return _chosen() is not None


def _chosen() -> int | None:
    """How many emulated devices GRADLAB_CUDA asks for (`emulated` 2, `emulated:N` N); None for a real GPU, else RuntimeError."""
    chosen = os.environ.get("GRADLAB_CUDA", "").strip().lower()
    if chosen in ("", "real"):
        return None
    kind, colon, number = chosen.partition(":")
    if kind != "emulated" or (colon and not (number.isdecimal() and 1 <= int(number) <= MOST_EMULATED)):
        raise RuntimeError(f"GRADLAB_CUDA is {chosen!r}; it may be emulated, emulated:N for N devices (at most {MOST_EMULATED}), or real")
    return int(number) if colon else EMULATED


def _driver() -> Driver:
    """The driver of the chosen kind. RuntimeError says what is missing and which command mends it."""
    devices = _chosen()
    if devices is not None:
        module = importlib.import_module("gradlab.backends.cuda.emulated")
        return module.EmulatedDriver(devices)
    module = importlib.import_module("gradlab.backends.cuda.real")
    return module.RealDriver()


def load() -> CudaBackend:
    """The one CUDA backend of this process. Raises RuntimeError, each time the same, where there is none."""
    global _loaded, _reason
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            if _reason is not None:
                raise RuntimeError(_reason)
            try:
                driver = _driver()
            except RuntimeError as error:
                _reason = str(error)
                raise
            _loaded = importlib.import_module("gradlab.backends.cuda.backend").CudaBackend(
                driver
            )  # not when gradlab is imported: it takes time
            assert _loaded is not None
            dispatch.register(driver.array_type, _loaded)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=driver.forked)
    return _loaded


@contextmanager
def emulating() -> Iterator[CudaBackend]:
    """Within the block "cuda" is the emulated GPU, where there is no other; checks of kernels run on it (`testing.opcheck`).

    Where a GPU, real or emulated, is there already, it stays. RuntimeError without a C++ compiler is left to the first kernel.
    """
    global _loaded
    if available():
        yield load()
        return
    emulated_driver = importlib.import_module("gradlab.backends.cuda.emulated").EmulatedDriver(1)
    backend = importlib.import_module("gradlab.backends.cuda.backend").CudaBackend(emulated_driver)
    dispatch.register(emulated_driver.array_type, backend)
    with _lock:
        _loaded = backend
    try:
        yield backend
    finally:
        with _lock:
            _loaded = None


def loaded() -> bool:
    """Whether the backend is loaded."""
    return _loaded is not None


def available() -> bool:
    """Whether a device can be used."""
    try:
        return load().driver.device_count() > 0
    except RuntimeError:
        return False


def missing() -> str | None:
    """What is missing; None where the backend works."""
    try:
        load()
    except RuntimeError as error:
        return str(error)
    return None
