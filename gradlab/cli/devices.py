"""Which devices there are, asked in one place."""

from __future__ import annotations

import os
from typing import Any

import gradlab as gl
from gradlab.cli.arguments import device
from gradlab.cli.failure import FAILED, Failure

CUDA: Any = gl.cuda


def cuda_available() -> bool:
    return bool(CUDA.is_available())


def cuda_names() -> list[str]:
    """What the CUDA devices call themselves, in their order."""
    return [str(CUDA.get_device_name(index)) for index in range(CUDA.device_count())] if cuda_available() else []


def best_device() -> str:
    """A real GPU if there is one; the emulated one only when it is asked for by name, for it is slow."""
    return "cuda" if cuda_available() and not os.environ.get("GRADLAB_CUDA", "").startswith("emulated") else "cpu"


def usable_device(name: str) -> str:
    """`name` if it is a device that this machine has; a Failure otherwise."""
    kind, colon, number = device(name).partition(":")
    if kind == "cuda":
        if not cuda_available():
            raise Failure(f"no device {name!r} here; use --device cpu (gradlab info says what is missing)", FAILED)
        if colon and int(number) >= CUDA.device_count():
            raise Failure(f"no device {name!r} here; there are {CUDA.device_count()}, counted from 0", FAILED)
    return name
