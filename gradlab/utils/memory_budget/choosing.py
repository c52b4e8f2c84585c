"""Which parts are computed again and which are moved to the host, so that a step takes least time within a number of bytes.

The parts run one after the other. Kept for backward are: what parts keep that are left as they are, and the inputs of those that are
computed again; backward needs, besides, what the one that it is at keeps when it is computed again. How long a run of neighbours may be
that is computed again as one is tried from long to short (few inputs, much at once; many inputs, little at once); for each length, runs are
taken by what they save for a second, and given back where the others do (a greedy answer to a knapsack problem).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradlab.utils.memory_budget.survey import Part

LENGTHS = 24  # of runs, that are tried


class Run(NamedTuple):
    """Neighbouring parts of one Sequential, or one part. how: "keep", "checkpoint" or "offload"."""

    parts: tuple[Part, ...]
    how: str = "keep"

    @property
    def kept(self) -> int:
        """Bytes that its forward keeps."""
        return sum(part.kept for part in self.parts)

    @property
    def given(self) -> int:
        """Bytes of its inputs."""
        return self.parts[0].given

    @property
    def seconds(self) -> float:
        """Of its forward."""
        return sum(part.seconds for part in self.parts)


class Chosen(NamedTuple):
    """Runs in order, the most bytes that the step is to hold, and the seconds that it is to take longer."""

    runs: tuple[Run, ...]
    peak: int
    seconds: float


def peak(runs: Sequence[Run], fixed: int) -> int:
    """The most bytes held in a step. fixed: what is held whatever is chosen."""
    total, again, kept_before = fixed, 0, True
    for run in runs:
        if run.how == "keep":
            total += run.kept + (0 if kept_before else run.given)
        elif run.how == "checkpoint":
            total += 0 if kept_before else run.given
            again = max(again, run.kept)
        else:
            again = max(again, max(part.kept for part in run.parts) // 2)  # of one operation after the other
        kept_before = run.how == "keep"
    return total + again


def runs_of(units: Sequence[Part], most: float) -> list[Run]:
    """Neighbours joined as long as they keep no more than so many bytes together."""
    found: list[list[Part]] = []
    for unit in units:
        last = found[-1][-1] if found else None
        joins = (
            last is not None and last.place is not None and unit.place is not None and last.place[0] is unit.place[0]
            and last.place[1] + 1 == unit.place[1] and last.calls == unit.calls == 1
            and sum(part.kept for part in found[-1]) + unit.kept <= most
        )  # fmt: skip
        if joins:
            found[-1].append(unit)
        else:
            found.append([unit])
    return [Run(tuple(parts)) for parts in found]


def choose(units: Sequence[Part], fixed: int, target: int, second_per_byte: float | None) -> Chosen:
    """The quickest choice whose peak is at most `target`; where there is none, the one with the lowest peak.

    second_per_byte: what moving a byte to the host and back takes; None where nothing can be moved.
    """
    total = sum(unit.kept for unit in units)
    lengths = sorted({total / k for k in range(1, LENGTHS)} | {float(unit.kept) for unit in units}, reverse=True)
    thin = max(1, len(lengths) // (2 * LENGTHS))
    candidates = [_within(runs_of(units, most), fixed, target, second_per_byte) for most in lengths[::thin] + lengths[-1:]]
    fitting = [chosen for chosen in candidates if chosen.peak <= target]
    return min(fitting, key=lambda c: (c.seconds, c.peak)) if fitting else min(candidates, key=lambda c: (c.peak, c.seconds))


def _within(runs: list[Run], fixed: int, target: int, second_per_byte: float | None) -> Chosen:
    def cost(run: Run) -> float:
        if run.how == "keep":
            return 0.0
        return run.seconds if run.how == "checkpoint" else run.kept * (second_per_byte or 0.0)

    now = list(runs)
    offers: list[tuple[float, int, Run]] = []  # bytes saved for a second
    for i, run in enumerate(runs):
        kinds = [(run._replace(how="checkpoint"), run.kept - run.given)]
        if second_per_byte is not None:
            kinds.append((run._replace(how="offload"), run.kept))
        offers += [(saved / max(cost(changed), 1e-9), i, changed) for changed, saved in kinds if saved > 0]
    offers.sort(key=lambda offer: -offer[0])
    best, least = list(now), peak(now, fixed)
    for _, i, changed in offers:
        if least <= target:
            break
        if now[i].how == "keep" or changed.how == "offload":
            now[i] = changed
        size = peak(now, fixed)
        if size < least:
            best, least = list(now), size
    for i in sorted(range(len(best)), key=lambda i: -cost(best[i])):  # what turns out not to be needed
        if best[i].how != "keep":
            without = [*best[:i], best[i]._replace(how="keep"), *best[i + 1 :]]
            size = peak(without, fixed)
            if size <= target or size <= least:
                best, least = without, size
    return Chosen(tuple(best), least, sum(map(cost, best)))
