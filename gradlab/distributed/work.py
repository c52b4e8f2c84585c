"""What an operation among processes is while it runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any


class Work:
    """A collective that was started with `async_op=True`. Over one process it has ended when the call returns."""

    def __init__(self, tensors: list[Any]) -> None:
        self._tensors = tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; True."""
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return True

    def is_success(self) -> bool:
        """Whether it ended well."""
        return True

    def exception(self) -> None:
        """What it raised: None."""

    def result(self) -> list[Any]:
        """The tensors that it wrote."""
        return self._tensors

    def synchronize(self) -> None:
        """Let this process's stream wait for the end."""
