"""Values and subgradients at ties, bounds, zeros of both signs, infinities and NaN: every function of the catalogue gives the written ones.

They stand in `edges.npz` and are PyTorch's, but for `edge_exceptions.py`; the tests marked `torch` ask PyTorch again.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

from kinds import edges
from kinds.calls import TORCH
from kinds.edge_exceptions import EXCEPTIONS

EDGES = list(edges.edge_calls())
PARTS = 8
often = ("line", "pairs", "ties", "nan")
parts = pytest.mark.parametrize("part", range(PARTS))


def agree(got, want):
    """The same numbers, NaN where there is NaN; a gradient that is not there is 0."""
    if got is None or want is None:
        return got is want
    pairs = [(g if g.size else np.zeros_like(w), w if w.size else np.zeros_like(g)) for g, w in zip(got, want, strict=False)]
    return len(got) == len(want) and all(
        g.shape == w.shape and np.allclose(g, w, rtol=3e-4, atol=1e-4, equal_nan=True) for g, w in pairs
    )  # fmt: skip


def wrong(part, variants):
    """Edges of a part whose numbers are not the written ones."""
    written = edges.read()
    of_part = [e for e in EDGES[part::PARTS] if e.variant in variants]
    assert sum(e.name in written for e in of_part) > 0.75 * len(of_part), "edges without written values: python -m tests.kinds.edges"
    return [e.name for e in of_part if e.name in written and not agree(e.run(gl), written[e.name])]


@parts
def test_written_values(part):
    assert wrong(part, often) == []


@pytest.mark.slow
@parts
def test_written_values_of_equal_zero_and_infinite_elements(part):
    assert wrong(part, set(edges.VARIANTS) - set(often)) == []


@pytest.mark.torch
def test_written_values_are_pytorchs():
    written, found = edges.read(), []
    for edge in EDGES:
        if edge.bare not in EXCEPTIONS and edge.call.reference is not None and edge.name in written:
            theirs = edge.run(TORCH)
            if theirs is not None and len(theirs) == len(written[edge.name]) and not agree(theirs, written[edge.name]):
                found.append(edge.name)
    assert found == []


@pytest.mark.torch
def test_every_exception_is_one():
    differing = {e.bare for e in EDGES if e.bare in EXCEPTIONS and e.call.reference is not None and not agree(e.run(gl), e.run(TORCH))}
    assert set(EXCEPTIONS) - differing == set()
