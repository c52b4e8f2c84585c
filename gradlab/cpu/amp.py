"""Mixed precision on the CPU under the older names of `torch.cpu.amp`: `autocast()` is `gl.autocast("cpu")`, and `GradScaler()`."""

from __future__ import annotations

from typing import Any

from gradlab.above import above

__all__ = ["GradScaler", "autocast"]  # noqa: F822 - looked up below


def __getattr__(name: str) -> Any:
    """`gradlab.amp` lies above this room, so it is looked up when it is asked for."""
    if name in __all__:
        return above("mixed precision of devices").CPU[name]
    raise AttributeError(f"module 'gradlab.cpu.amp' has no attribute {name!r}: gl.amp has all there is")


def __dir__() -> list[str]:
    return sorted(__all__)
