"""Which devices there are, asked in one place."""

from __future__ import annotations

import re

import gradlab as gl
from gradlab.cli.failure import FAILED, Failure, chosen

KINDS = ("cpu", "cuda")


def cuda_available() -> bool:
    cuda = getattr(gl, "cuda", None)
    return cuda is not None and bool(cuda.is_available())


def best_device() -> str:
    return "cuda" if cuda_available() else "cpu"


def usable_device(name: str) -> str:
    """`name` if it is a device that this machine has; a Failure otherwise."""
    kind, number = re.fullmatch(r"(.*?)(:\d+)?", name, re.DOTALL).groups()  # type: ignore[union-attr]
    chosen("device", kind, KINDS)
    if kind == "cpu" and number not in (None, ":0"):
        raise Failure(f"there is one cpu, not {name!r}")
    if kind == "cuda":
        if not cuda_available():
            raise Failure(f"no device {name!r} here; use --device cpu (gradlab info says what is missing)", FAILED)
        count = gl.cuda.device_count()
        if number is not None and int(number[1:]) >= count:
            raise Failure(f"no device {name!r} here: there are {count}, numbered from 0", FAILED)
    return name
