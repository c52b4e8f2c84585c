"""A step length that satisfies the strong Wolfe conditions, for optimizers that may evaluate the loss several times in a step.

Source: J. Nocedal and S. J. Wright, "Numerical Optimization" (2nd ed. 2006), algorithms 3.5 and 3.6, cubic interpolation (3.59). The
bounds of the steps and the rule against slow progress are those of PyTorch's LBFGS, so that both take the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

ARMIJO, CURVATURE = 1e-4, 0.9  # the two conditions' constants


class Point(NamedTuple):
    """Where a line search has been: step length, loss, gradient, and the loss's slope along the direction."""

    t: float
    loss: float
    gradient: Any
    slope: float


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """The minimum of the cubic through two points and their slopes, limited to [low, high]: of a line the end that it falls to. The middle
    where there is none."""
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    rise, divisor = b.slope + d2 - d1, b.slope - a.slope + 2 * d2
    if divisor == 0:
        return (low + high) / 2 if rise == 0 else low if rise > 0 else high
    return min(max(b.t - (b.t - a.t) * (rise / divisor), low), high)


def bracket(evaluate: Callable[[float], Point], start: Point, first: float, most: int) -> tuple[list[Point], bool, int]:
    """Algorithm 3.5: longer steps until two points enclose an acceptable one (or one is acceptable: True), and the number of steps after
    the first, `most` at most."""
    before, now, steps = start, evaluate(first), 0
    while steps < most:
        if now.loss > start.loss + ARMIJO * now.t * start.slope or (steps > 1 and now.loss >= before.loss):
            return [before, now], False, steps
        if abs(now.slope) <= -CURVATURE * start.slope:
            return [now, now], True, steps
        if now.slope >= 0:
            return [before, now], False, steps
        t = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10)
        before, now = now, evaluate(t)
        steps += 1
    return [start, now], False, steps


def zoomed(ends: list[Point], stuck: bool) -> tuple[float, bool]:
    """The next step length between two ends: the cubic's minimum, kept a tenth away from an end that it would fall on twice."""
    left, right = sorted((ends[0].t, ends[1].t))
    t = cubic_minimum(ends[0], ends[1], left, right)
    margin = 0.1 * (right - left)
    if min(right - t, t - left) >= margin:
        return t, False
    if stuck or t >= right or t <= left:
        return (right - margin if abs(t - right) < abs(t - left) else left + margin), False
    return t, True


def strong_wolfe(evaluate: Callable[[float], Point], start: Point, first: float, size: float, tolerance: float, most: int) -> Point:
    """The point to go to, after `most` evaluations or fewer. `size` is the direction's largest element: ends closer than `tolerance` / size
    are one."""
    ends, done, steps = bracket(evaluate, start, first, most - 1)
    stuck = False
    low = 0 if ends[0].loss <= ends[1].loss else 1
    while not done and steps < most - 1 and abs(ends[1].t - ends[0].t) * size >= tolerance:
        t, stuck = zoomed(ends, stuck)
        now = evaluate(t)
        steps += 1
        if now.loss > start.loss + ARMIJO * t * start.slope or now.loss >= ends[low].loss:
            ends[1 - low] = now
            low = 0 if ends[0].loss <= ends[1].loss else 1
            continue
        if abs(now.slope) <= -CURVATURE * start.slope:
            done = True
        elif now.slope * (ends[1 - low].t - ends[low].t) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = now
    return ends[low]
