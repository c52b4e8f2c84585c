"""Whether results have to be the same bits in every run. They are by default. Imported with gradlab, so it imports nothing of it."""

from __future__ import annotations

from collections.abc import Callable

# Rows that have a faster algorithm whose results may differ in the last bits from run to run: what it does, and when it is taken.
NONDETERMINISTIC = {
    row: f"{what}: more than 64 sources in float32 or float64 are added by atomics, in any order, instead of sorted by place first"
    for row, what in {
        "embedding_backward": "the gradient of embedding",
        "index_backward": "the gradient of x[index]",
        "index_put": "index_put(accumulate=True) and index_add",
        "gather_backward": "the gradient of gather and take_along_dim",
        "scatter_add": "scatter_add",
    }.items()
}


class _State:
    __slots__ = ("deterministic", "warn_only")

    def __init__(self) -> None:
        self.deterministic, self.warn_only = True, False


STATE = _State()
changed: list[Callable[[], None]] = []  # called when the choice changes: plans were made for the old one


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether every operation gives the same bits in every run on one device. True, the default here; False frees faster algorithms on a
    GPU (`gl.cuda.nondeterministic_algorithms()` says which). Every operation has a deterministic algorithm, so True never raises, and
    `warn_only` has nothing to warn of.

    >>> gl.use_deterministic_algorithms(False)
    >>> gl.are_deterministic_algorithms_enabled()
    False
    >>> gl.use_deterministic_algorithms(True)
    """
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms: True or False, not {type(mode).__name__}")
    if not isinstance(warn_only, (bool, int)):
        raise TypeError(f"use_deterministic_algorithms: warn_only is True or False, not {type(warn_only).__name__}")
    before, STATE.deterministic, STATE.warn_only = STATE.deterministic, mode, bool(warn_only)
    if before is not mode:
        for forget in changed:
            forget()


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` has set; True by default."""
    return STATE.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The `warn_only` that `use_deterministic_algorithms` was given."""
    return STATE.warn_only


def nondeterministic_algorithms() -> dict[str, str]:
    """The rows that `use_deterministic_algorithms(False)` makes faster on a GPU, with what it does there.

    >>> sorted(gl.cuda.nondeterministic_algorithms())
    ['embedding_backward', 'gather_backward', 'index_backward', 'index_put', 'scatter_add']
    """
    return dict(NONDETERMINISTIC)
