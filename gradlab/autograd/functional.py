"""`gl.autograd.functional`: derivatives of functions under PyTorch's older names. They are made of `gl.func`, and live there.

A room may not import one above it, so the names are looked up when they are asked for.
"""

from __future__ import annotations

from typing import Any

from gradlab.above import above

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]  # noqa: F822 - see __getattr__


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(above("autograd.functional"), name)
    raise AttributeError(f"module 'gradlab.autograd.functional' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
