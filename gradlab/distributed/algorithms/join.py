"""Uneven inputs: `with Join([model]):`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any


class JoinHook:
    """What a class of one's own does when its process has ended before others: not called here."""

    def main_hook(self) -> None:
        """While others go on."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all have ended."""


class Joinable:
    """What takes part in `Join`: here `DistributedDataParallel`."""


class Join:
    """Within it processes may have different numbers of batches, see `DistributedDataParallel.join`. Of `joinables` one has to be such a
    model; optimizers among them, which do nothing on their own, are let be."""

    def __init__(self, joinables: Sequence[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        self._models = [each for each in joinables if callable(getattr(each, "join", None))]
        if not self._models:
            raise ValueError("Join: among joinables is a model in DistributedDataParallel")
        self._arguments = {"enable": enable, "throw_on_early_termination": throw_on_early_termination, **kwargs}
        self._stack = ExitStack()

    def __enter__(self) -> Join:
        for model in self._models:
            self._stack.enter_context(model.join(**self._arguments))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        return self._stack.__exit__(kind, error, trace)
