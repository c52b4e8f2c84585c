"""Device memory: how much is in use, and giving back what is not."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.driver import MemoryUse, OutOfMemoryError, readable
from gradlab.backends.cuda.loading import available, load
from gradlab.cuda.devices import index_of

__all__ = [
    "OutOfMemoryError", "empty_cache", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "set_per_process_memory_fraction",
]  # fmt: skip


def _use(device: Any) -> MemoryUse:
    return load().driver.memory(index_of(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold on a device; 0 where there is no GPU."""
    return _use(device).allocated if available() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors held since `reset_peak_memory_stats`. Where that was never called: what the pool ever took, an upper
    bound. 0 where there is no GPU."""
    return _use(device).peak if available() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start `max_memory_allocated` anew; nothing where there is no GPU."""
    if available():
        load().driver.reset_peak(index_of(device))


def memory_reserved(device: Any = None) -> int:
    """Bytes that the memory pool has taken from a device, for tensors and for later; 0 where there is no GPU."""
    return _use(device).reserved if available() else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the memory pool has held: what it holds now, since it gives nothing back by itself. 0 where there is no GPU."""
    return memory_reserved(device)


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved  # PyTorch's older names
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes by PyTorch's names: held by tensors, and by the pool, now and at most; nothing where there is no GPU."""
    if not available():
        return {}
    use = _use(device)
    return {
        "allocated_bytes.all.current": use.allocated, "allocated_bytes.all.peak": use.peak,
        "reserved_bytes.all.current": use.reserved, "reserved_bytes.all.peak": use.reserved,
    }  # fmt: skip


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that this process does not hold, and all bytes of a device."""
    use = _use(device)
    return use.total - use.reserved, use.total


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let this process take at most that part (0 to 1) of a device's memory; beyond it an allocation is out of memory."""
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool):
        raise TypeError(f"set_per_process_memory_fraction: a number from 0 to 1, not {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: {fraction} is not from 0 to 1")
    index = index_of(device)
    load().driver.limit_memory(index, int(fraction * _use(index).total))


def empty_cache() -> None:
    """Give cached memory that no tensor holds back to the devices; nothing where there is no GPU."""
    if available():
        load().driver.free_cached()


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of a device's memory for people."""
    index = index_of(device)
    use = _use(index)
    lines = [
        f"cuda:{index} {load().driver.device_name(index)}",
        f"  allocated by tensors  {readable(use.allocated):>14}",
        f"  most allocated        {readable(use.peak):>14}",
        f"  held by the pool      {readable(use.reserved):>14}",
    ]
    if not abbreviated:
        lines.append(f"  in the device         {readable(use.total):>14}")
    return "\n".join(lines)
