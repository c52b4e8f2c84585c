"""The two loops of L-BFGS over inner products: a direction is some products with the history and a little arithmetic.

The loops (Nocedal and Wright, algorithm 7.4) only need the products of the pairs with each other and with the gradient: what they take
from the gradient and add to the result is a combination of the pairs, whose factors follow from these products (the idea of R. H. Byrd,
J. Nocedal and R. B. Schnabel, "Representations of quasi-Newton matrices and their use in limited memory methods", Math. Programming 63,
1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.tensor import Tensor
from gradlab.tensor.creation import from_numpy

FEWEST = 4  # pairs from which on this pays
LARGEST = 1 << 15  # elements up to which it does: beyond, calls cost little beside the vectors, which lie in memory once more here


class History:
    """The pairs of changes of an optimizer as rows of two matrices, oldest first, and their inner products.

    All of it is determined by the pairs alone, to the bit, so that a resumed run goes on as one that was not interrupted: each inner
    product is a sum of its own, wherever its row lies. Of a step's products with changes only those with its own and later ones are wanted.
    """

    def __init__(self) -> None:
        self._known: list[Tensor] = []  # the changes of the gradient that the rows hold
        self._changes = self._steps = np.zeros((0, 0))
        self._cross = self._among = np.zeros((0, 0))  # steps · changes, changes · changes

    def __reduce__(self) -> tuple[type[History], tuple[()]]:
        """Copies and pickles begin anew: the optimizer's state has the pairs."""
        return History, ()

    @staticmethod
    def serves(changes: Sequence[Tensor], gradient: Tensor) -> bool:
        """Whether directions are to be found this way."""
        if len(changes) < FEWEST or gradient.device.type != "cpu":
            return False
        return 0 < gradient.numel() <= LARGEST and gradient.dtype in (FLOAT32, FLOAT64)

    def direction(
        self, changes: Sequence[Tensor], steps: Sequence[Tensor], scales: Sequence[float], diagonal: float, gradient: Tensor
    ) -> Tensor:
        """Minus the approximate inverse Hessian times the gradient. Vectors of n elements; scales: 1 / (change · step) of each pair."""
        with np.errstate(all="ignore"):  # what is infinite in the loops is so here
            self._follow(changes, steps)
            slope = gradient.numpy()
            taken, given = self._factors(np.array(scales), diagonal, slope)
            found = given.astype(slope.dtype) @ self._steps
            found -= (diagonal * taken).astype(slope.dtype) @ self._changes
            found -= slope.dtype.type(diagonal) * slope
        return from_numpy(found)

    def _factors(self, scales: Any, diagonal: float, slope: Any) -> tuple[Any, Any]:
        """What the loops take of each change from the gradient, and what they give of each step to the result."""
        met, seen = ((matrix @ slope).astype(np.float64) for matrix in (self._steps, self._changes))
        cross, back, count = self._cross, np.ascontiguousarray(self._cross.T), len(scales)
        taken, given = np.zeros(count), np.zeros(count)
        for i in range(count - 1, -1, -1):
            taken[i] = -scales[i] * (met[i] + cross[i, i + 1 :] @ taken[i + 1 :])
        inner = -diagonal * (seen + self._among @ taken)
        for i in range(count):
            given[i] = taken[i] - scales[i] * (inner[i] + back[i, :i] @ given[:i])
        return taken, given

    def _follow(self, changes: Sequence[Tensor], steps: Sequence[Tensor]) -> None:
        """Hold these pairs: the newest may be new, or all are, as after a loaded state."""
        known = self._known
        if len(changes) == len(known) and all(a is b for a, b in zip(changes, known)):
            return
        gone, new = len(known) + 1 - len(changes), 1
        if not known or gone not in (0, 1) or any(a is not b for a, b in zip(changes, known[gone:])):
            gone, new = 0, len(changes)
            self._changes = self._steps = np.zeros((0, changes[0].numel()), changes[0].numpy().dtype)
            self._cross = self._among = np.zeros((0, 0))
        for change, step in zip(changes[-new:], steps[-new:]):
            self._add(change.numpy(), step.numpy(), gone)
        self._known = [*changes]

    def _add(self, change: Any, step: Any, gone: int) -> None:
        """The next pair behind the others, of which the oldest may be gone."""
        self._changes, self._steps = _behind(self._changes, change, gone), _behind(self._steps, step, gone)
        self._cross, self._among = (np.pad(m[gone:, gone:], (0, 1)) for m in (self._cross, self._among))
        self._cross[:, -1] = np.einsum("ij,j->i", self._steps, change)
        self._among[:, -1] = self._among[-1] = np.einsum("ij,j->i", self._changes, change)


def _behind(rows: Any, last: Any, gone: int) -> Any:
    """The rows without the first `gone` ones, and the last: the next rows of the memory that they lie in, or twice as much memory."""
    whole = rows if rows.base is None else rows.base
    begin = (rows.ctypes.data - whole.ctypes.data) // max(1, whole.strides[0]) + gone
    count = len(rows) - gone
    if begin + count >= len(whole):
        moved = np.empty((2 * count + 8, len(last)), last.dtype)
        moved[:count] = rows[gone:]
        whole, begin = moved, 0
    whole[begin + count] = last
    return whole[begin : begin + count + 1]


__all__ = ["History"]
