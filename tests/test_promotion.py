"""PyTorch's promotion, written out: two tensors, a tensor and a 0-d tensor, a tensor and a Python number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab.dtype import as_numpy, from_numpy, promote, result_type

NAMES = {
    "b1": gl.bool, "u1": gl.uint8, "i1": gl.int8, "i2": gl.int16, "i4": gl.int32, "i8": gl.int64,
    "f2": gl.float16, "bf": gl.bfloat16, "f4": gl.float32, "f8": gl.float64,
}  # fmt: skip

# Rows and columns in the order of NAMES.
TENSORS = """
b1 u1 i1 i2 i4 i8 f2 bf f4 f8
u1 u1 i2 i2 i4 i8 f2 bf f4 f8
i1 i2 i1 i2 i4 i8 f2 bf f4 f8
i2 i2 i2 i2 i4 i8 f2 bf f4 f8
i4 i4 i4 i4 i4 i8 f2 bf f4 f8
i8 i8 i8 i8 i8 i8 f2 bf f4 f8
f2 f2 f2 f2 f2 f2 f2 f4 f4 f8
bf bf bf bf bf bf f4 bf f4 f8
f4 f4 f4 f4 f4 f4 f4 f4 f4 f8
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8
"""
# A tensor with dimensions (row) and one without (column).
ZERO_DIM = """
b1 u1 i1 i2 i4 i8 f2 bf f4 f8
u1 u1 u1 u1 u1 u1 f2 bf f4 f8
i1 i1 i1 i1 i1 i1 f2 bf f4 f8
i2 i2 i2 i2 i2 i2 f2 bf f4 f8
i4 i4 i4 i4 i4 i4 f2 bf f4 f8
i8 i8 i8 i8 i8 i8 f2 bf f4 f8
f2 f2 f2 f2 f2 f2 f2 f2 f2 f2
bf bf bf bf bf bf bf bf bf bf
f4 f4 f4 f4 f4 f4 f4 f4 f4 f4
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8
"""
# A tensor (row; with dimensions or without) and True, 3, 2.5.
NUMBERS = """
b1 i8 f4
u1 u1 f4
i1 i1 f4
i2 i2 f4
i4 i4 f4
i8 i8 f4
f2 f2 f2
bf bf bf
f4 f4 f4
f8 f8 f8
"""
PAIRS = list(itertools.product(NAMES, NAMES))


def read(table, columns):
    lines = [line.split() for line in table.split("\n") if line]
    return {(row, column): NAMES[cell] for row, line in zip(NAMES, lines, strict=True) for column, cell in zip(columns, line, strict=True)}


def ones(name, *shape):
    return gl.ones(*shape, dtype=NAMES[name]) if shape else gl.ones((), dtype=NAMES[name])


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_tensors(a, b):
    want = read(TENSORS, NAMES)[a, b]
    assert from_numpy(promote(NAMES[a].dtype, NAMES[b].dtype)) == want
    assert gl.promote_types(NAMES[a], NAMES[b]) == want
    x, y = ones(a, 2), ones(b, 3, 1)
    assert gl.result_type(x, y) == (x * y).dtype == gl.maximum(x, y).dtype == want
    assert (x + y).dtype == gl.where(gl.tensor([True, False]), x, y).dtype == want
    assert gl.cat([x, y.reshape(3)]).dtype == want
    assert (x / y).dtype == (want if want.is_floating_point else gl.float32)
    assert (x == y).dtype == gl.bool
    assert ones(a).add(ones(b)).dtype == want


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_zero_dimensional(a, b):
    want = read(ZERO_DIM, NAMES)[a, b]
    x, y = ones(a, 2), ones(b)
    assert from_numpy(result_type([(NAMES[a].dtype, 1), (NAMES[b].dtype, 0)])) == want
    assert gl.result_type(x, y) == gl.result_type(y, x) == want
    assert (x * y).dtype == (y * x).dtype == gl.minimum(y, x).dtype == want
    assert (x / y).dtype == (want if want.is_floating_point else gl.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("column", "value"), [("True", True), ("3", 3), ("2.5", 2.5)])
def test_numbers(name, column, value):
    want = read(NUMBERS, ("True", "3", "2.5"))[name, column]
    for x in (ones(name, 2), ones(name)):
        assert gl.result_type(x, value) == gl.result_type(value, x) == want
        assert (x * value).dtype == (value * x).dtype == (x + value).dtype == want
        assert (x / value).dtype == (value / x).dtype == (want if want.is_floating_point else gl.float32)
        assert (x < value).dtype == gl.bool
        assert gl.where(x == 1, x, value).dtype == want


def test_in_place_results_must_fit():
    for a, b in PAIRS:
        x = ones(a, 2)
        if gl.can_cast(read(TENSORS, NAMES)[a, b], NAMES[a]):
            x *= ones(b, 2)
            assert x.dtype == NAMES[a]
        else:
            with pytest.raises(RuntimeError, match="cannot be stored"):
                x *= ones(b, 2)


def test_the_default_dtype_decides():
    gl.set_default_dtype(gl.float64)
    try:
        assert (ones("i4", 2) * 2.5).dtype == (ones("i4", 2) / 2).dtype == gl.exp(ones("i8", 2)).dtype == gl.float64
        assert (ones("f4", 2) * 2.5).dtype == gl.float32
    finally:
        gl.set_default_dtype(gl.float32)


def test_two_numbers_make_a_tensor():
    """In the functions in which PyTorch takes two numbers; a program's sizes come there."""
    for name, a, b, options, want in [
        ("add", 5, 2, {}, 7), ("add", 5, 2, {"alpha": 3}, 11), ("add", 5.0, 2, {}, 7.0), ("add", True, 2, {}, 3), ("sub", 5, 2.5, {}, 2.5),
        ("mul", 5, 2, {}, 10), ("mul", 5, 2j, {}, 10j), ("div", 5, 2, {}, 2.5), ("div", -5, 2, {"rounding_mode": "trunc"}, -2),
        ("div", -5, 2, {"rounding_mode": "floor"}, -3), ("div", 5.5, 2, {"rounding_mode": "trunc"}, 2.0), ("true_divide", 1, 4, {}, 0.25),
        ("floor_divide", -5, 2, {}, -3), ("floor_divide", 5.0, 2, {}, 2.0), ("multiply", 2, 3, {}, 6), ("subtract", 2, 3, {}, -1),
    ]:  # fmt: skip
        y = getattr(gl, name)(a, b, **options)
        assert y.shape == () and y.item() == want and type(y.item()) is type(want), (name, a, b, options)
        assert y.dtype == {int: gl.int64, float: gl.float32, complex: gl.complex64}[type(want)]
    for name in ("fmod", "atan2", "maximum"):
        with pytest.raises(TypeError, match=name):
            getattr(gl, name)(5, 2)


def test_numbers_keep_their_value():
    assert (gl.tensor([1], dtype=gl.uint8) + 255).item() == 0
    assert (gl.tensor([1.0], dtype=gl.float16) * 1e5).item() == float("inf")
    assert (gl.tensor([True]) + 2).item() == 3
    assert as_numpy(gl.bfloat16) == NAMES["bf"].dtype
    assert np.dtype(gl.float32) == np.float32
