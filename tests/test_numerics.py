"""docs/numerics.md is what was measured, every row stands in it, what is worse than PyTorch explained, and results are so exact."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.ops import ROWS

from numerics import figures, page, rows
from numerics.complexes import COMPLEX
from numerics.exceptions import EXCEPTIONS
from numerics.inputs import errors
from numerics.kept import CLOSE, WIDE, read, read_wide
from numerics.larger import BACKWARD, LARGER
from numerics.scalars import SCALARS

FIGURES = figures.read()
ENTRIES = [*SCALARS, *LARGER, *BACKWARD, *COMPLEX, *(f"row {name}" for name in rows.SAMPLED)]


def test_the_page_is_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(FIGURES), "python -m tests.numerics --write"


def test_every_row_is_measured_or_has_a_reason():
    assert rows.missing({name for found in figures.rows().values() for name in found}) == []
    named = [*rows.REASON_OF, *rows.SAMPLED]
    assert not [name for name in named if name not in ROWS]
    assert len(named) == len(set(named))


def test_every_entry_was_measured():
    assert set(FIGURES) == set(ENTRIES) == set(figures.rows())


def test_what_is_worse_than_twice_pytorch_is_explained():
    worse = page.worse(FIGURES)
    assert not [f"{f.part} {f.entry} {f.dtype} {f.form}: {f.ratio:.1f}" for f in worse if page.reason(f) is None]
    used = {page.pattern(f) for f in worse}
    assert set(EXCEPTIONS) == used, "an exception that stands for nothing"


@pytest.mark.parametrize("name", SCALARS)
def test_results_and_slopes_are_as_exact_as_the_page_says(name):
    """At the points where errors were largest, and some others: half as much again is left for other processors."""
    check(SCALARS[name], *read(name), FIGURES[name]["float32"]["numpy"])


@pytest.mark.parametrize("name", SCALARS)
def test_results_in_float64(name):
    """At a score of points where they were close; as much again and more is left for other processors: the angles of high degrees magnify
    what NumPy's cosines lose with AVX-512."""
    inputs, want = read_wide(name)
    assert len(want) >= WIDE // 2
    got = SCALARS[name].call(gl, *map(gl.tensor, inputs)).numpy()
    assert got.dtype == np.float64
    assert errors(got, want).max() <= (16 if "chebyshev" in name else 4) * CLOSE


def check(entry, inputs, want, sides, said):
    """A function's results and slopes beside the exact ones, and what was measured of it."""
    leaves = [gl.tensor(v, dtype=gl.float32).requires_grad_(entry.slope) for v in inputs]
    result = entry.call(gl, *leaves)
    found = [result, *(gl.autograd.grad(result, leaves, gl.ones_like(result), allow_unused=True) if entry.slope else ())]
    for part, y, exact in zip(("y", "d0", "d1"), found, (want, *sides), strict=False):
        if y is None or part not in said:
            continue
        got = y.detach().numpy()
        apart = errors(got, exact)[np.isfinite(exact)]
        assert apart.max(initial=0) <= 1.5 * said[part]["ulp"] + 1, part
        if part == "y" and "wrong" not in said[part]:
            np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
