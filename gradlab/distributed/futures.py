"""Results that are there later: `torch.futures`, and those of collectives that are under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A result that somebody sets, from this thread or another. devices: taken for PyTorch's programs, without effect.

    >>> future = Future()
    >>> doubled = future.then(lambda done: done.value() * 2)
    >>> future.set_result(3)
    >>> doubled.wait()
    6
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._inner: futures.Future[Any] = futures.Future()

    def done(self) -> bool:
        """Whether there is a result, or an exception."""
        return self._inner.done()

    def wait(self) -> Any:
        """The result, when it is there; raises the exception if there is one."""
        return self._inner.result()

    def value(self) -> Any:
        """The result. RuntimeError if it is not there yet."""
        if not self.done():
            raise RuntimeError("Future.value: there is no result yet; wait() waits for it")
        return self._inner.result()

    def set_result(self, result: Any) -> None:
        """Give the result. RuntimeError if there is one."""
        if self.done():
            raise RuntimeError("Future.set_result: it has a result already")
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Give an exception in place of a result."""
        self._inner.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call it with this future when the result is there; at once if it is."""
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of what callback gives for this one, when its result is there."""
        after: Future[Any] = Future()

        def go_on(_: Any) -> None:
            try:
                after.set_result(callback(self))
            except Exception as error:  # it is raised where the result is asked for
                after.set_exception(error)

        self._inner.add_done_callback(go_on)
        return after


class Later(Future[T]):
    """A result that is made when somebody waits for it, or asks and it is ready: what follows on it runs there, in that thread."""

    def __init__(self, make: Callable[[], Any], ready: Callable[[], bool]) -> None:
        super().__init__()
        self._make, self._ready = make, ready

    def _settle(self) -> None:
        if self._inner.done():
            return
        try:
            found = self._make()
        except Exception as error:  # it is raised where the result is asked for
            self._inner.set_exception(error)
        else:
            self._inner.set_result(found)

    def done(self) -> bool:
        """Whether there is a result, or an exception."""
        if not self._inner.done() and self._ready():
            self._settle()
        return self._inner.done()

    def wait(self) -> Any:
        """The result, when it is there; raises the exception if there is one."""
        self._settle()
        return self._inner.result()

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of what callback gives for this one, when somebody waits for that."""

        def go_on() -> Any:
            self._settle()
            return callback(self)

        return Later(go_on, self.done)


def collect_all(futures: Sequence[Future[Any]]) -> Future[Any]:
    """A future of the list of futures, which is there when all of their results are."""
    waiting, all_of_them = list(futures), Future[Any]()
    if not waiting:
        all_of_them.set_result([])

    def look(_: Future[Any]) -> None:
        if all(future.done() for future in waiting) and not all_of_them.done():
            all_of_them.set_result(waiting)

    for future in waiting:
        future.add_done_callback(look)
    return all_of_them


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The results of all, when they are there."""
    return [future.wait() for future in futures]


__all__ = ["Future", "collect_all", "wait_all"]
