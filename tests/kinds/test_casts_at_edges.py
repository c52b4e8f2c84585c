"""Each dtype becomes each other one at the numbers where that is more than a copy: what is not finite, too large, negative, a fraction, or
has no real part."""

import warnings

import numpy as np
import pytest

import gradlab as gl

FLOATS = [gl.float16, gl.bfloat16, gl.float32, gl.float64]
INTEGERS = [gl.uint8, gl.int8, gl.int16, gl.int32, gl.int64]
COMPLEX = [gl.complex64, gl.complex128]
EVERY = [*FLOATS, *INTEGERS, *COMPLEX, gl.bool]
NUMBERS = {
    "f": [0.0, -0.0, 0.5, -0.5, 1.0, -1.75, 2.5, 100.0, 300.0], "i": [0, 1, -1, 2, 127, -128, 100],
    "c": [0, 1j, -0.5j, 1, 2.5 + 1j, -1 - 1j],
}  # fmt: skip
BEYOND = [np.inf, -np.inf, np.nan]


def numbers(dtype, beyond):
    if dtype == gl.bool:
        return [False, True]
    if dtype in COMPLEX:
        return [*NUMBERS["c"], *([complex(n, 1) for n in BEYOND] + [complex(0, n) for n in BEYOND] if beyond else [])]
    if dtype in INTEGERS:
        return [n for n in NUMBERS["i"] if dtype != gl.uint8 or n >= 0]
    return [*NUMBERS["f"], *(BEYOND if beyond else [])]


def expected(values, target):
    """By Python's rules: a truth value is whether it is not 0, a real number a complex one's real part, an integer cut off and wrapped."""
    if target == gl.bool:
        return [bool(v != 0) for v in values]
    if target in COMPLEX:
        return [complex(v) for v in values]
    reals = [v.real if isinstance(v, complex) else v for v in values]
    if target in FLOATS:
        return [float(v) for v in reals]
    bits = gl.iinfo(target).bits
    signed = target != gl.uint8
    wrapped = [int(v) % (1 << bits) for v in reals]
    return [w - (1 << bits) if signed and w >= 1 << (bits - 1) else w for w in wrapped]


@pytest.mark.parametrize("source", EVERY, ids=str)
@pytest.mark.parametrize("target", EVERY, ids=str)
def test_each_pair(source, target):
    values = numbers(source, beyond=target not in INTEGERS)
    if target in INTEGERS and (source in FLOATS or source in COMPLEX):  # a fraction beyond the range has no meaning there
        info = gl.iinfo(target)
        values = [v for v in values if info.min <= (v.real if isinstance(v, complex) else v) <= info.max]
    for size in (1, 400):  # few elements and many go different ways
        x = gl.tensor(values * size, dtype=source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = x.to(target)
        assert found.dtype == target
        np.testing.assert_array_equal(np.array(found.tolist()), np.array(expected(x.tolist(), target)))
        if target == gl.bool:
            np.testing.assert_array_equal(np.array(x.bool().tolist()), np.array(gl.ne(x, 0).tolist()))
            np.testing.assert_array_equal(np.array(x.logical_not().tolist()), ~np.array(x.bool().tolist()))
