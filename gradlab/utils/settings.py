"""Settings of PyTorch's that scripts make and ask for, and that mean little or nothing here: each says what."""

from __future__ import annotations

from gradlab import advice
from gradlab.autograd.mode import current
from gradlab.backends.determinism import STATE, use_deterministic_algorithms
from gradlab.backends.threads import MOST

_MODES = ("default", "warn", "error")


def set_flush_denormal(mode: bool) -> bool:
    """False: the processor is not told to take the smallest numbers for 0, as PyTorch answers on machines that cannot.

    >>> gl.set_flush_denormal(True)
    False
    """
    return False


def get_num_interop_threads() -> int:
    """1: operations run one after the other, each on up to `get_num_threads()` threads.

    >>> gl.get_num_interop_threads()
    1
    """
    return 1


def set_num_interop_threads(num: int) -> None:
    """Changes nothing; see `get_num_interop_threads`. RuntimeError for less than 1, ValueError for more than an int of C's holds."""
    if isinstance(num, bool) or not isinstance(num, int):
        raise TypeError(f"set_num_interop_threads: an integer, not {type(num).__name__}")
    if num < 1:
        raise RuntimeError(f"set_num_interop_threads: at least 1, not {num}")
    if num > MOST:
        raise ValueError(f"set_num_interop_threads: at most {MOST}, not {num}")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms`: "default" (0) switches it off, "warn" (1) and "error" (2) on. Nothing ever warns or raises, since
    every operation has a deterministic algorithm. RuntimeError for another mode.
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"set_deterministic_debug_mode: an integer or a word, not {type(debug_mode).__name__}")
    mode = _MODES[debug_mode] if isinstance(debug_mode, int) and 0 <= debug_mode <= 2 else debug_mode
    if mode not in _MODES:
        raise RuntimeError(f"set_deterministic_debug_mode: 0, 1, 2 or one of {', '.join(_MODES)}, not {debug_mode!r}")
    use_deterministic_algorithms(mode != "default", warn_only=mode == "warn")


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2, as `set_deterministic_debug_mode` names them.

    >>> gl.get_deterministic_debug_mode()
    2
    """
    return 0 if not STATE.deterministic else 1 if STATE.warn_only else 2


def set_warn_always(b: bool) -> None:
    """Whether warnings are shown each time, and not only the first time at a line."""
    advice.always = bool(b)


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` has set; False by default.

    >>> gl.is_warn_always_enabled()
    False
    """
    return advice.always


def is_anomaly_enabled() -> bool:
    """Whether every result of a backward pass is checked, as `autograd.set_detect_anomaly` sets it.

    >>> gl.is_anomaly_enabled()
    False
    """
    return current().anomaly
