"""Samples are uneven: sizes, parameters and dimensions that can be told apart, so that two that are swapped give another result."""

from __future__ import annotations

import numpy as np
import pytest

from samples import SAMPLES

SQUARE = {"eig", "cholesky", "eigh", "ldl", "inverse", "det", "cofactor", "slogdet", "matrix_exp"}
LINES = {"reduce_scatter", "poisson"}  # nothing in them depends on which axis is which
SPREAD = {"expand", "squeeze"}  # an axis of one number is the point of them
MISSING = {"unfold_backward": {"last"}}  # a window's own axis is last


def whole(value):
    """Whether a parameter is several whole numbers."""
    return isinstance(value, (tuple, list)) and len(value) > 1 and all(type(v) is int or isinstance(v, np.integer) for v in value)


def arrays(name):
    return [a for s in SAMPLES[name] for a in s.inputs if isinstance(a, np.ndarray) and a.ndim > 1]


def place(dim, ndim):
    return {0: "first", ndim - 1: "last"}.get(dim % ndim, "between")


@pytest.mark.parametrize("name", [n for n in SAMPLES if any(whole(v) for s in SAMPLES[n] for v in s.params.values())])
def test_numbers_for_several_axes_differ_in_one_sample(name):
    given = {}
    for s in SAMPLES[name]:
        for key, value in s.params.items():
            if whole(value):
                given.setdefault(key, []).append(tuple(value))
    even = {key: values for key, values in given.items() if all(len(set(v)) == 1 for v in values)}
    assert not even, "strides, paddings, kernels of all axes are alike in every sample"


@pytest.mark.parametrize("name", [n for n in SAMPLES if arrays(n) and n not in LINES])
def test_no_two_sizes_are_alike_in_one_sample(name):
    least = 1 if name in SPREAD else 2
    kept = [a.shape[:-1] if name in SQUARE else a.shape for a in arrays(name)]
    assert any(len(set(shape)) == len(shape) and min(shape) >= least for shape in kept), "a swap of two axes would not be seen"


@pytest.mark.parametrize("name", [n for n in SAMPLES if any("dim" in s.params for s in SAMPLES[n]) and arrays(n)])
def test_a_dimension_is_first_between_and_last(name):
    """Of at least three: with two, a row that takes each for the other is wrong only where it is looked at."""
    found, tried = set(), False
    for s in SAMPLES[name]:
        dims, ndim = s.params.get("dim"), np.ndim(s.inputs[0])
        one = dims[0] if isinstance(dims, tuple) and len(dims) == 1 else dims
        if isinstance(one, int):
            tried = True
            found |= {place(one, ndim)} if ndim > 2 else set()
    assert not tried or found | MISSING.get(name, set()) == {"first", "between", "last"}


def test_a_permutation_is_not_its_own_inverse():
    inverses = [tuple(np.argsort(s.params["dims"])) == tuple(s.params["dims"]) for s in SAMPLES["permute"]]
    assert not all(inverses)
