"""What the tables are written with: arguments, and arrays that most of them share."""

from __future__ import annotations

from typing import Any

import numpy as np

from samples.base import distinct, integers, normal, uniform


class Fixed(np.ndarray):
    """A float array whose tensor takes no gradient, here and in PyTorch (running statistics, class weights)."""


def fixed(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64).view(Fixed)


class Given:
    """Arguments of one call: float64 arrays for float tensors, integer and bool arrays for others, lists of arrays for lists of tensors."""

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.arguments, self.options = arguments, options


def given(*arguments: Any, **options: Any) -> Given:
    return Given(arguments, options)


def words(text: str) -> list[str]:
    return text.split()


X = distinct(3, 4, gap=0.17)  # of both signs, no two alike
Y = distinct(3, 4, seed=1, gap=0.23) + 0.05
P = uniform(0.15, 0.95, 3, 4)  # where logarithms, roots and inverse functions are defined
Q = uniform(0.15, 0.95, 3, 4, seed=1)
V, W = X[0], Y[0]  # vectors
CUBE = distinct(2, 3, 4, gap=0.11)
SQUARE = normal(3, 3) + 3 * np.eye(3)
SYMMETRIC = SQUARE + SQUARE.T
POSITIVE = normal(3, 3) @ normal(3, 3).T + 2 * np.eye(3)
BATCH = np.stack([SQUARE, SQUARE + 1])
I, J = integers(1, 9, 3, 4), integers(1, 5, 3, 4, seed=1)
B, C = I % 2 == 0, J % 2 == 0
MASK = X > 0.1
AT = np.array([2, 0, 1])
PLACES = np.array([[0, 2, 1, 1], [2, 1, 0, 0], [1, 0, 2, 2]])

__all__ = [
    "AT", "BATCH", "CUBE", "MASK", "PLACES", "POSITIVE", "SQUARE", "SYMMETRIC", "Fixed", "Given", "distinct", "fixed", "given", "integers",
    "normal", "uniform", "words", "B", "C", "I", "J", "P", "Q", "V", "W", "X", "Y",
]  # fmt: skip
