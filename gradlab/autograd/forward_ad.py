"""`gl.autograd.forward_ad`: dual numbers. They are made of the walk backward, and live in `gl.func`.

A room may not import one above it, so the names are looked up when they are asked for.
"""

from __future__ import annotations

from typing import Any

from gradlab.above import above

__all__ = [  # noqa: F822 - see __getattr__
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(above("autograd.forward_ad"), name)
    raise AttributeError(f"module 'gradlab.autograd.forward_ad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
