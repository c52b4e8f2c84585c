"""Numbers that fill a cube evenly: PyTorch's `quasirandom`, with the sequences of `scipy.stats.qmc`."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np

from gradlab.dtype import get_default_dtype
from gradlab.tensor import Tensor
from gradlab.tensor.creation import from_numpy


class SobolEngine:
    """Points of a Sobol' sequence in the cube [0, 1) of `dimension` dimensions, with the direction numbers of Joe and Kuo (2008).

    scramble: with a random linear scramble and a random shift, by Owen (1998) and Matoušek (1998), which `seed` decides; two engines of
    one seed give the same points, and others than PyTorch's of that seed. Unscrambled points are PyTorch's. Needs SciPy.
    ValueError for less than one dimension or more than `MAXDIM`.

    >>> gl.quasirandom.SobolEngine(2).draw(3)  # doctest: +SKIP
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30  # of each number
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"SobolEngine: a dimension from 1 to {self.MAXDIM}, not {dimension}")
        try:
            qmc: Any = import_module("scipy.stats.qmc")
        except ImportError as error:
            raise ImportError("SobolEngine: needs SciPy's sequences: pip install scipy") from error
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self._points = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, rng=np.random.default_rng(seed))
        self.num_generated = 0

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next n points, (n, dimension), in `dtype` (the default one, if none is given) or written to `out`."""
        dtype = get_default_dtype() if dtype is None else dtype
        if not dtype.is_floating_point:
            raise TypeError(f"SobolEngine.draw: points are of a floating point dtype, not {dtype}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that n is no power of two: draw_base2 is for those who mind
            points = from_numpy(self._points.random(n)).to(dtype)
        self.num_generated += n
        return points if out is None else out.resize_(points.shape).copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2^m points, (2^m, dimension). ValueError if the points drawn with them are no power of two, which alone are balanced."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"SobolEngine.draw_base2: {self.num_generated} points and 2^{m} more are {total}, no power of two; use draw({2**m})"
            )
        return self.draw(2**m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over n points."""
        self._points.fast_forward(n)
        self.num_generated += n
        return self

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self._points.reset()
        self.num_generated = 0
        return self

    def __repr__(self) -> str:
        seed = "" if self.seed is None else f", seed={self.seed}"
        return f"SobolEngine(dimension={self.dimension}{', scramble=True' if self.scramble else ''}{seed})"
