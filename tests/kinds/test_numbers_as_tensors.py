"""One integer argument given as an array or a tensor without dimensions: the same as the number, wherever a tuple of them is taken too."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.spec import is_number

F = gl.nn.functional
FORMS = {"tensor": gl.tensor, "int32": lambda n: gl.tensor(n, dtype=gl.int32), "array": np.array, "numpy": np.int64}
IMAGES = {1: (1, 1, 8), 2: (1, 1, 6, 6), 3: (1, 1, 4, 4, 4)}


def calls():
    row, table = gl.arange(6.0), gl.arange(12.0).reshape(3, 4)
    for rank, shape in IMAGES.items():
        x, weight = gl.arange(float(np.prod(shape))).reshape(shape), gl.ones(1, 1, *(2,) * rank)
        for name in ("max_pool", "avg_pool"):
            pool = getattr(F, f"{name}{rank}d")
            yield f"{name}{rank}d kernel_size", lambda n, f=pool, x=x: f(x, n(2))
            yield f"{name}{rank}d stride", lambda n, f=pool, x=x: f(x, 2, n(2))
            yield f"{name}{rank}d padding", lambda n, f=pool, x=x: f(x, 2, 1, n(1))
        yield f"max_pool{rank}d dilation", lambda n, f=F.__dict__[f"max_pool{rank}d"], x=x: f(x, 2, 1, 0, n(1))
        yield f"lp_pool{rank}d", lambda n, f=F.__dict__[f"lp_pool{rank}d"], x=x: f(x, 2, n(2))
        for name in ("adaptive_avg_pool", "adaptive_max_pool"):
            yield f"{name}{rank}d", lambda n, f=F.__dict__[f"{name}{rank}d"], x=x: f(x, n(2))
        for name in ("conv", "conv_transpose"):
            for what in ("stride", "padding", "dilation"):
                yield f"{name}{rank}d {what}", lambda n, f=F.__dict__[f"{name}{rank}d"], x=x, w=weight, k=what: f(x, w, **{k: n(1)})
        yield f"interpolate {rank}", lambda n, x=x: F.interpolate(x, size=n(3))
    image = gl.ones(1, 1, 6, 6)
    yield "unfold", lambda n: F.unfold(image, n(2), n(1), n(1), n(1))
    yield "fold", lambda n: F.fold(gl.ones(1, 4, 25), n(6), n(2))
    yield "layer_norm", lambda n: F.layer_norm(table, n(4))
    yield "MaxPool2d", lambda n: gl.nn.MaxPool2d(n(2))(image)
    yield "AvgPool2d", lambda n: gl.nn.AvgPool2d(n(2), n(1), n(1))(image)
    for name in ("zeros", "ones", "empty"):
        yield name, lambda n, f=gl.__dict__[name]: gl.zeros(f(n(2)).shape)
    for name in ("new_zeros", "new_ones", "new_empty"):
        yield name, lambda n, name=name: gl.zeros(getattr(row, name)(n(2)).shape)
    yield "view", lambda n: row.view(n(6))
    yield "reshape", lambda n: row.reshape(n(6))
    yield "repeat", lambda n: row.repeat(n(2))
    yield "tile", lambda n: row.tile(n(2))
    yield "split", lambda n: gl.stack(row.split(n(2)))
    yield "chunk", lambda n: gl.stack(row.chunk(n(2)))
    yield "tensor_split", lambda n: gl.stack(row.tensor_split(n(2)))
    yield "sum", lambda n: table.sum(n(1))
    yield "flip", lambda n: table.flip(n(1))
    yield "roll", lambda n: row.roll(n(2))
    yield "norm", lambda n: table.norm(n(2), n(1))
    yield "vector_norm", lambda n: gl.linalg.vector_norm(table, n(2), n(1))
    yield "tensordot", lambda n: gl.tensordot(table, table.t(), n(1))
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        yield f"fft.{name}", lambda n, f=gl.fft.__dict__[name]: gl.view_as_real(f(table, n(4), n(1)) + 0j)


@pytest.mark.parametrize("form", FORMS)
def test_one_number(form):
    refused, tried = [], 0
    for name, call in calls():
        if form == "int32" and name == "tensor_split":  # an int64 one
            continue
        plain, tried = call(lambda n: n), tried + 1
        try:
            assert np.array_equal(call(FORMS[form]).numpy(), plain.numpy()), name
        except (TypeError, RuntimeError, ValueError) as error:
            refused.append((name, error))
    assert tried > 70 and not refused


def test_what_a_number_is():
    assert all(map(is_number, (2, True, np.int8(2), np.array(2), gl.tensor(2))))
    assert not any(map(is_number, ((2,), [2], np.array([2]), gl.tensor([2]), "2", 2.0, None)))
