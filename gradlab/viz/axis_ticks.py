"""Where an axis puts its marks: round numbers, as a person would choose them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

NICE = (1.0, 2.0, 5.0, 10.0)
DECADES = 3  # a logarithmic axis longer than this is marked at powers of ten alone


@dataclass(frozen=True)
class Axis:
    """The range of an axis and its marks; `log` says how a value becomes a place."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def shows(self, value: float) -> bool:
        """Whether the value has a place at all: finite, and positive on a logarithmic axis."""
        return math.isfinite(value) and not (self.log and value <= 0)


def nice_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that cuts `span` into at most `count` parts."""
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    # The tolerance keeps 0.30000000000000004 / 3 from taking the next step up.
    return next(factor * power for factor in NICE if factor * power >= rough * (1 - 1e-9))


def linear_axis(values: Iterable[float], count: int = 5, *, tight: bool = False, whole: bool = False) -> Axis:
    """An axis over the finite values; its ends are marks, or with `tight` the extreme values themselves.

    `whole` allows no mark between two integers (epochs). No values at all give the axis from 0 to 1.
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        # One value: an axis around it, so that the line lies in the middle.
        half = 0.5 if tight or low == 0 else abs(low) / 2
        low, high = low - half, high + half
    step = nice_step(high - low, count)
    if whole:
        step = max(step, 1.0)
    if not tight:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, tuple(index * step for index in range(first, last + 1)))


def log_axis(values: Iterable[float]) -> Axis:
    """A logarithmic axis over the positive values, ending at 1, 2 or 5 times a power of ten; linear if there are none."""
    positive = [value for value in values if math.isfinite(value) and value > 0]
    if not positive:
        return linear_axis([])
    first, last = math.floor(math.log10(min(positive))) - 1, math.floor(math.log10(max(positive))) + 1
    marks = [factor * 10.0**power for power in range(first, last + 1) for factor in NICE[:3]]
    low = max(mark for mark in marks if mark <= min(positive) * (1 + 1e-9))
    high = min(mark for mark in marks if mark >= max(positive) * (1 - 1e-9))
    if low == high:
        low, high = low / 2, high * 2
    inside = [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
    if high / low > 10**DECADES:
        decades = [10.0**power for power in range(first, last + 1)]
        inside = [mark for mark in decades if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
    return Axis(low, high, tuple(inside), log=True)


def label(value: float, step: float | None = None) -> str:
    """A number as a person writes it, with the digits that a step of that size needs (without one: three digits)."""
    size = abs(value)
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e6:
        mantissa, _, power = f"{value:.3g}".partition("e")
        text = f"{mantissa}e{int(power)}" if power else mantissa
    elif step is None:
        decimals = 0 if value == int(value) else max(0, 2 - math.floor(math.log10(size)))
        text = f"{value:,.{decimals}f}"
    else:
        text = f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
    return text.replace("-", "−")
