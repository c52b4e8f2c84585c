"""What an operation among processes is while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from gradlab.distributed.futures import Future, Later
from gradlab.distributed.transport import Job

kept: list[Callable[[], None]] = []  # begin what waits for its like: messages of GPUs


def flush() -> None:
    """Begin what was kept, before anything else is done among the processes."""
    while kept:
        kept.pop(0)()


class Work:
    """A collective that was started with `async_op=True`. Its tensors are written by the time `wait()` has returned."""

    def __init__(
        self, tensors: list[Any], job: Job | None = None, leave: Callable[[], None] | None = None, given: Any = None,
        sender: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self._tensors, self._job, self._leave, self._sender = tensors, job or Job(), leave, sender
        self._given = given  # what travels, kept until it has
        if type(self._job) is Job:  # it has ended
            self.wait()

    @classmethod
    def of_all(cls, tensors: list[Any], works: Sequence[Work | None]) -> Work:
        """One for several."""
        every = [work for work in works if work is not None]
        return works[0] if len(every) == 1 and every[0]._tensors == tensors and works[0] is not None else cls(tensors, _All(every))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; True. Raises what went wrong, TimeoutError after `timeout`."""
        self._job.wait(None if timeout is None else timeout.total_seconds())
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave()
        self._given = None
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        if not self._job.done():
            return False
        if self._job.error is None:
            self.wait()
        return True

    def is_success(self) -> bool:
        """Whether it ended well."""
        return self.is_completed() and self._job.error is None

    def exception(self) -> BaseException | None:
        """What it raised, None for nothing."""
        return self._job.error if self._job.done() else None

    def result(self) -> list[Any]:
        """The tensors that it wrote."""
        self.wait()
        return self._tensors

    def get_future(self) -> Future[list[Any]]:
        """A future of the tensors that it writes. What follows on it (`then`) runs where somebody waits for that."""
        return Later(self.result, self.is_completed)

    def source_rank(self) -> int:
        """The rank in the world of the process that sent what was received."""
        self.wait()
        return -1 if self._sender is None else self._sender()

    def synchronize(self) -> None:
        """Let this process's stream wait for the end."""
        self.wait()


class _All(Job):
    """The jobs of several works as one."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works

    def done(self) -> bool:
        """Whether all have ended."""
        return all(work.is_completed() for work in self._works)

    def wait(self, seconds: float | None = None) -> None:
        """Until all have ended."""
        for work in self._works:
            work.wait(None if seconds is None else timedelta(seconds=seconds))
