"""What is known of the processor's caches."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Caches(NamedTuple):
    """Bytes of the second-level cache of a core, and of the third-level cache that some cores share."""

    second: int = 1 << 20
    third: int = 1 << 24


@functools.cache
def caches(folder: Path = CACHES) -> Caches:
    """Those of this machine; where the system does not say, usual ones."""
    found: dict[str, int] = {}
    for cache in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[level] = int(size[:-1]) * UNITS[size[-1]] if size[-1:] in UNITS else int(size)
        except (OSError, ValueError):
            continue
    usual = Caches()
    second = found.get("2", usual.second)
    return Caches(second, max(found.get("3", usual.third), second))
