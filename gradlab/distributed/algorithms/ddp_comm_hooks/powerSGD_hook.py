"""Approximations of low rank (Vogels, Karimireddy and Jaggi, 2019) are not offered; the names say what is."""

from __future__ import annotations

from typing import Any, NoReturn


def refusal() -> NotImplementedError:
    """What to use instead."""
    return NotImplementedError("PowerSGD is not offered; register fp16_compress_hook or bf16_compress_hook, or a hook of your own")


class PowerSGDState:
    """NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise refusal()


def powerSGD_hook(state: Any, bucket: Any) -> NoReturn:
    """NotImplementedError."""
    raise refusal()


def batched_powerSGD_hook(state: Any, bucket: Any) -> NoReturn:
    """NotImplementedError."""
    raise refusal()
