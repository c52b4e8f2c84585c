"""Numbers that become bfloat16, in all ways that there are, are rounded to float32 on their way, as kernels do it and PyTorch."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

NUMBER = 1 + 2**-8 + 2**-40  # 1 by float32, which is halfway to the next; 1.0078125 otherwise
LOW = gl.bfloat16


def wide(number=NUMBER, dtype=gl.float64):
    return gl.tensor([number], dtype=dtype)


def put(x, index, value):
    x[index] = value
    return x


WAYS = {
    "tensor": lambda x: gl.tensor([NUMBER], dtype=LOW),
    "tensor of a number": lambda x: gl.tensor(NUMBER, dtype=LOW),
    "scalar_tensor": lambda x: gl.scalar_tensor(NUMBER, dtype=LOW),
    "as_tensor": lambda x: gl.as_tensor(np.array([NUMBER]), dtype=LOW),
    "asarray": lambda x: gl.asarray([NUMBER], dtype=LOW),
    "new_tensor": lambda x: x.new_tensor([NUMBER]),
    "full": lambda x: gl.full((1,), NUMBER, dtype=LOW),
    "full_like": lambda x: gl.full_like(x, NUMBER),
    "new_full": lambda x: x.new_full((1,), NUMBER),
    "fill_": lambda x: x.fill_(NUMBER),
    "constant_": lambda x: gl.nn.init.constant_(x, NUMBER),
    "to": lambda x: wide().to(LOW),
    "bfloat16": lambda x: wide().bfloat16(),
    "of a complex number": lambda x: gl.tensor([NUMBER + 0j], dtype=gl.complex128).real.to(LOW),
    "copy_": lambda x: x.copy_(wide()),
    "add_": lambda x: x.add_(wide()),
    "setitem": lambda x: put(x, 0, NUMBER),
    "setitem of a tensor": lambda x: put(x, 0, wide()[0]),
    "setitem by a mask": lambda x: put(x, x == 0, NUMBER),
    "masked_fill": lambda x: x.masked_fill(x == 0, NUMBER),
    "where": lambda x: gl.where(x == 0, NUMBER, x),
    "index_fill": lambda x: x.index_fill(0, gl.tensor([0]), NUMBER),
    "scatter": lambda x: x.scatter(0, gl.tensor([0]), NUMBER),
    "fill_diagonal_": lambda x: gl.zeros(2, 2, dtype=LOW).fill_diagonal_(NUMBER),
    "pad": lambda x: F.pad(x, (1, 0), value=NUMBER),
    "clamp": lambda x: x.clamp(min=NUMBER),
    "threshold": lambda x: F.threshold(x, 1.0, NUMBER),
    "nan_to_num": lambda x: (x * float("nan")).nan_to_num(NUMBER),
    "arange": lambda x: gl.arange(NUMBER, 3, dtype=LOW),
    "linspace": lambda x: gl.linspace(NUMBER, 3, 3, dtype=LOW),
    "add": lambda x: x + NUMBER,
    "sum": lambda x: wide().sum(dtype=LOW),
    "compiled": lambda x: gl.compile(lambda t: t.to(LOW))(wide()),
}


@pytest.mark.parametrize("way", WAYS)
def test_numbers(way):
    assert WAYS[way](gl.zeros(1, dtype=LOW)).flatten()[0].item() == 1


@pytest.mark.parametrize("kind", [gl.int8, gl.int16, gl.int32, gl.uint8, gl.float16, gl.float64, gl.bool, gl.complex64], ids=str)
def test_what_was_bfloat16(kind):
    """Is what the same float32 numbers become."""
    x = gl.tensor([0.0, -1.5, 3.25, 300.0, -129.0, 70000.0, -0.0], dtype=LOW)
    x = x[:5] if kind in (gl.int16, gl.int32) else x
    assert x.to(kind).equal(x.float().to(kind))
    assert wide(2**24 * 256 + 2**16 * 257 + 1, gl.int64).to(LOW).equal(wide(2**24 * 256 + 2**16 * 257 + 1, gl.int64).float().to(LOW))
