"""Views without elements, and of tensors without elements, however they lie: on the CPU and a GPU as NumPy has them, with gradients.

On a GPU no view may ask for a copy, and no library's rule about strides may refuse a view that reaches nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops

# What a tensor is a part of, and which part.
PARTS = {
    "every second": ((6, 8), lambda x: x[::2, ::2]),
    "columns past the end": ((6, 8), lambda x: x[::2, 8::2]),
    "rows past the end": ((6, 8), lambda x: x[6::2, ::2]),
    "turned": ((4, 6), lambda x: x[:, ::2].swapaxes(0, 1)),
    "turned, no rows": ((4, 6), lambda x: x[:0, ::2].swapaxes(0, 1)),
    "repeated": ((1, 6), lambda x: x[:, ::2][None].swapaxes(0, 2)[:, 0, :]),
    "deep": ((2, 6, 8), lambda x: x[:, ::2, 1::2]),
    "deep, the middle gone": ((2, 6, 8), lambda x: x[:, 6:, ::2].swapaxes(0, 2)),
    "a line": ((8,), lambda x: x[1::2]),
    "an empty line": ((8,), lambda x: x[8::2]),
}


def last(x):
    return x.ndim - 1


# For each row that makes views: parameters for an array like x, and what NumPy makes of it. None: nothing of that kind.
VIEWS = {
    "as_strided": [
        (lambda x: {"shape": (0, 2), "steps": (1, 1), "first": 0}, lambda x: x.reshape(-1)[:0].reshape(0, 2)),
        (lambda x: {"shape": (3, 0), "steps": (7, 100), "first": 5}, lambda x: np.zeros((3, 0), x.dtype)),
    ],
    "view": [
        (lambda x: {"shape": (5, 0, 7)} if not x.size else None, lambda x: x.reshape(5, 0, 7)),
        (lambda x: {"shape": (0,)} if not x.size else None, lambda x: x.reshape(-1)),
    ],
    "permute": [(lambda x: {"dims": tuple(range(x.ndim))[::-1]}, np.transpose)],
    "transpose": [(lambda x: {"dim0": 0, "dim1": last(x)}, lambda x: x.swapaxes(0, -1))],
    "t": [(lambda x: {} if x.ndim == 2 else None, np.transpose)],
    "expand": [
        (lambda x: {"shape": (0, *x.shape)}, lambda x: np.broadcast_to(x, (0, *x.shape))),
        (lambda x: {"shape": (2, *x.shape)}, lambda x: np.broadcast_to(x, (2, *x.shape))),
    ],
    "squeeze": [(lambda x: {"dims": ()}, lambda x: x)],
    "unsqueeze": [(lambda x: {"dim": 0}, lambda x: x[None]), (lambda x: {"dim": x.ndim}, lambda x: x[..., None])],
    "slice": [
        (lambda x: {"index": ((0, 0, 1),)}, lambda x: x[0:0]),
        (lambda x: {"index": (*[(0, None, 1)] * last(x), (x.shape[-1], x.shape[-1], 3))}, lambda x: x[..., 100::3]),
    ],
    "diagonal": [
        (lambda x, k=k: {"offset": k, "dim1": 0, "dim2": last(x)} if x.ndim > 1 else None, lambda x, k=k: x.diagonal(k, 0, x.ndim - 1))
        for k in (-9, 0, 9)
    ],
    "unfold": [
        (lambda x: {"dim": 0, "size": 0, "step": 2}, lambda x: np.zeros((x.shape[0] // 2 + 1, *x.shape[1:], 0), x.dtype)),
        (lambda x: {"dim": last(x), "size": x.shape[-1], "step": 1}, lambda x: x[..., None, :]),
    ],
    "bits": [(lambda x: {"dtype": np.dtype(np.int32)}, lambda x: x.view(np.int32))],
    "real": [(lambda x: {}, np.real)],
    "imag": [(lambda x: {}, np.imag)],
    "view_as_real": [(lambda x: {}, lambda x: np.stack([x.real, x.imag], -1))],
    "view_as_complex": [(lambda x: {}, lambda x: x[..., 0] + 1j * x[..., 1])],
}


def parts(name):
    """Arrays with, for each, the way to the part of it that is looked at."""
    for words, (shape, part) in PARTS.items():
        whole = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
        if name in ("real", "imag", "view_as_real"):
            yield words, whole + 1j * whole, part
        elif name == "view_as_complex":  # pairs side by side
            yield words, np.stack([whole, -whole], -1), lambda x, part=part: pairs(x, part)
        else:
            yield words, whole, part


def pairs(x, part):
    """The part of all dimensions but the last."""
    if isinstance(x, np.ndarray):
        return np.stack([part(x[..., 0]), part(x[..., 1])], -1)
    return gl.view_as_real(part(gl.view_as_complex(x)))


def test_all_rows_of_views_are_here():
    assert set(VIEWS) == {name for name, row in ops.ROWS.items() if row.view}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_parts(request, device, name):
    if device == "cuda":
        request.getfixturevalue("cuda")
    row = ops.ROWS[name]
    for number, (given, wanted) in enumerate(VIEWS[name]):
        for words, whole, part in parts(name):
            at = f"{words}, {number}"
            params = given(part(whole))
            if params is None:
                continue
            x = gl.tensor(whole, device=device, requires_grad=bool(row.steps))
            want = wanted(part(whole))
            got = row(part(x), **params)
            np.testing.assert_array_equal(got.detach().cpu().numpy(), want, err_msg=at, strict=True)
            if row.steps:
                got.backward(gl.ones_like(got))
                assert x.grad.shape == x.shape, at
                seen = gl.tensor(whole, requires_grad=True)
                row(part(seen).clone(), **params).backward(gl.ones_like(got.cpu()))
                np.testing.assert_array_equal(x.grad.cpu().numpy(), seen.grad.numpy(), err_msg=at)


def test_the_public_functions_reach_them(cuda):
    for device in ("cpu", "cuda"):
        w = gl.arange(48.0).reshape(6, 8).to(device)[::2, ::2]
        assert gl.as_strided(w, (0, 2), (1, 1)).shape == gl.as_strided_copy(w, (0, 2), (1, 1)).shape == (0, 2)
        assert w.as_strided((2, 0), (3, 3), 4).shape == w.new_zeros(2, 0).shape
        steps = gl.compile(lambda w: (gl.as_strided(w[::2, ::2], (0, 2), (1, 1)), w[::2, 8:].view(5, 0)))
        for _ in range(3):
            assert [tuple(y.shape) for y in steps(gl.ones(6, 8, device=device))] == [(0, 2), (5, 0)]


TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "complex64", "complex128")
FEW = (("float32", "int32"), ("float32", "complex64"))
ALL = [(a, b) for a in TYPES for b in TYPES if a != b]
WAYS = (lambda y: y[:, ::2].contiguous(), lambda y: y.t().contiguous(), lambda y: y * 0 + 1, lambda y: gl.where(y == y, y, y))


@pytest.mark.parametrize("pairs", [pytest.param(FEW, id="few"), pytest.param(ALL, marks=pytest.mark.slow, id="all")])
def test_bits_of_every_type_are_computed_with(cuda, pairs):
    """Memory given out for elements of one type is that of another one, too, once it is seen so: strided, computed with, written."""
    for old, new in pairs:
        start = gl.arange(64, device="cuda").reshape(4, 16).to(getattr(gl, old))
        x = start.clone()
        seen, host = x.view(getattr(gl, new)), x.cpu().view(getattr(gl, new))
        for way in WAYS if pairs is ALL else WAYS[:1]:
            got, want = way(seen).cpu().numpy(), way(host).numpy()
            assert (got.dtype, got.shape) == (want.dtype, want.shape), (old, new)
        np.testing.assert_array_equal(seen.t().contiguous().cpu().view(gl.uint8).numpy(), host.t().contiguous().view(gl.uint8).numpy())
        seen[:, ::2].fill_(1)
        assert (x.view(getattr(gl, new))[:, ::2].cpu() == 1).all(), (old, new)
        assert gl.equal(seen[:, 1::2].cpu().contiguous().view(gl.uint8), host[:, 1::2].contiguous().view(gl.uint8)), (old, new)


def programs(dtype):
    """Steps in which bits are seen as another type: of arguments, of intermediate values, of results, beside what sees them as they are."""
    return (
        lambda x: ((x * 2).view(dtype).sum(0) * 3).view(x.dtype),
        lambda x: (x.view(dtype) * 2, x * 2),
        lambda x: (x * 2).view(dtype) * 1,
        lambda x: ((x * 2).view(dtype) * 1).view(x.dtype) + x,
        lambda x: (x[:2].view(dtype) * 1, (x * 2).view(dtype)[:, ::2] * 1),
        lambda x: (x + 1, (x + 1).view(dtype)),
        lambda x: gl.cat([x.view(dtype), (x * 2).view(dtype), (x @ x.T @ x).view(dtype), gl.softmax(x, 1).view(dtype)]),
    )


def every(results):
    return results if isinstance(results, (tuple, list)) else (results,)


SEEN = ((gl.float32, gl.int32), (gl.float32, gl.complex64))


@pytest.mark.parametrize("way", ["compiler", "numpy", "cuda"])
def test_bits_in_compiled_programs(request, way, monkeypatch):
    """One program reads memory as two types; on a GPU kernels took such an argument for what it was given as."""
    device = "cuda" if way == "cuda" else "cpu"
    if way == "cuda":
        request.getfixturevalue("cuda")
    elif way == "numpy":
        monkeypatch.setenv("GRADLAB_COMPILER", "none")
    for old, new in SEEN:
        x = (gl.arange(64) % 7).reshape(4, 16).to(old)
        functions = programs(new)
        if way == "cuda":  # a kernel is built for each program: one of them all, and one of what a program can begin and end with
            functions = (lambda x, all=functions: [y for function in all for y in every(function(x))], functions[3])
        for number, function in enumerate(functions):
            step, want = gl.compile(function), function(x)
            for _ in range(3):
                got = step(x.to(device))
            for a, b in zip(every(got), every(want), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), (new, number)
                a, b = a.detach().cpu().contiguous(), b.contiguous()
                if not gl.equal(a.view(gl.uint8), b.view(gl.uint8)):  # a product or a softmax may be rounded otherwise
                    gl.testing.assert_close(a.view(old), b.view(old), equal_nan=True, msg=f"{new}, {number}")
