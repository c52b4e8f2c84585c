"""Mixed precision on a GPU under the older names of `torch.cuda.amp`: `autocast()`, `GradScaler()`, `custom_fwd`, `custom_bwd`.

New code says `gl.autocast("cuda")` and `gl.amp.GradScaler("cuda")`; these mean the same.
"""

from __future__ import annotations

from typing import Any

from gradlab.above import above

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]  # noqa: F822 - looked up below


def __getattr__(name: str) -> Any:
    """`gradlab.amp` lies above this room, so it is looked up when it is asked for."""
    if name in __all__:
        return above("mixed precision of devices").CUDA[name]
    raise AttributeError(f"module 'gradlab.cuda.amp' has no attribute {name!r}: gl.amp has all there is")


def __dir__() -> list[str]:
    return sorted(__all__)
