"""Machine code for images whose channels come last in memory: loops, sums, copies, resampling give what they give in row-major order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings.iteration_order import alike, dense, walk
from gradlab.backends.native.place import Place, last_place, place_of
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.spec import Spec

F = nn.functional
SHAPES = [(2, 3, 4, 5), (1, 16, 6, 7), (3, 1, 5, 4), (2, 5, 1, 1), (2, 40, 9, 8), (5, 2, 33, 31), (70, 7, 5, 3), (1, 200, 2, 2)]
needs_compiler = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


def images(*shape, seed=0):
    return gl.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def run(graph, arrays, last, threads):
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, [], last=last))
    found = []
    for count in threads:
        executable._threads = count
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        executable.run(arrays, outs)
        found.append(outs)
    return executable, found


def check(function, *inputs, numpy=(), tolerance=3e-6):
    """The function, with all images between its inputs and results channels last, as in row-major order, on any number of threads. Only
    rows named in `numpy` run there."""
    graph = trace(function, *inputs).graph
    ends = {v.id for v in graph.outputs}
    made = [v for c in graph.calls for v in c.outputs if not c.op.view and v.id not in ends]
    last = frozenset(v.id for v in made if len(v.spec.shape) == 4)
    assert last
    arrays = [t._array for t in inputs]
    _, [wanted] = run(graph, arrays, frozenset(), [1])
    executable, (first, *others) = run(graph, arrays, last, [1, 2, 3])
    assert all(executable.arranged.places[n].channels_last for n in last if n in executable.arranged.places)
    assert {c.op.name for s in executable.report if s.kind == "numpy" for c in s.calls} <= set(numpy)
    for got, want in zip(first, wanted, strict=True):
        scale = np.abs(want[np.isfinite(want)]).max(initial=1) if want.dtype.kind == "f" else 1
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)
    for outs in others:
        for got, want in zip(outs, first, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", SHAPES)
@needs_compiler
def test_loops(shape):
    n, c, h, w = shape
    scale, shift = images(c, 1, 1, seed=1), images(1, c, 1, 1, seed=2)
    each, mask, rows = images(n, c, 1, 1, seed=3), images(n, 1, h, w, seed=4), images(h, 1, seed=5)

    def function(x, y, scale, shift, each, mask, rows):
        a = x * 2
        b = (a * scale + shift).relu()
        d = gl.where(b > 0, b * each, y * rows) + mask
        return d * 1, (d > a).sum(dim=(2, 3)), d.to(gl.float16) * 2

    check(function, images(*shape), images(*shape, seed=6), scale, shift, each, mask, rows)


@pytest.mark.parametrize("shape", SHAPES[::2])
@needs_compiler
def test_sums_over_any_dimensions(shape):
    dims = [d for k in range(1, 5) for d in itertools.combinations(range(4), k)]

    def function(x, y):
        a = x * y
        made = [a.sum(dim=d) for d in dims] + [a.mean(dim=d, keepdim=True) for d in dims[::4]] + [a.amax(dim=d) for d in dims[::3]]
        return (*made, (a > 0).any(dim=1), (a * 1000).to(gl.int64).sum(dim=(0, 2, 3)), a.exp().sum(dim=(0, 2, 3)))

    check(function, images(*shape), images(*shape, seed=1))


@pytest.mark.parametrize("shape", [(64, 16, 32, 32), (33, 24, 40, 40), (2, 3, 224, 223), (1, 130, 64, 64), (64, 2, 40, 40)])
@needs_compiler
def test_long_sums_do_not_depend_on_threads(shape):
    def function(x):
        a = x + 1
        return a.sum(dim=(0, 2, 3)), a.mean(dim=(2, 3)), a.amin(dim=(0, 2, 3)), (a * x.relu()).sum(dim=(0, 2, 3)), a * 1

    check(function, images(*shape))


@pytest.mark.parametrize("shape", SHAPES)
@needs_compiler
def test_padding_slices_and_cat(shape):
    n, c, h, w = shape

    def function(x, y):
        a, b = x * 2, (y + 1).relu()
        padded = F.pad(a, (1, 2, 0, 1, 2, 3), value=7.0)
        cropped = F.pad(padded, (-1, -1, -1, 0, -2, 0))
        parts = [gl.cat([a, b, a], dim=d) * 1 for d in range(4)]
        whole = gl.cat([a[:, : max(1, c // 2)], b[:, :, ::2, ::2].expand(n, c, -1, -1)[:, :, :h, :w].mean((2, 3), keepdim=True) + b], dim=1)
        return (*parts, cropped * 1, whole.sum(dim=1), padded.reshape(n, -1), whole[:, 0], a.permute(0, 2, 3, 1).reshape(-1, c) * 3)

    check(function, images(*shape), images(*shape, seed=1))


@needs_compiler
def test_gradients_of_slices():
    def function(x):
        leaf = x.detach().requires_grad_()
        a = leaf * 3
        y = a[:, :, ::2, 1::3].exp().sum() + a[1:, 2:5].square().sum() + a[0].sum()
        return gl.autograd.grad(y, [leaf])

    check(function, images(3, 6, 7, 8), tolerance=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@needs_compiler
def test_resampling(mode):
    def function(x):
        leaf = x.detach().requires_grad_()
        y = F.interpolate(leaf * 2, scale_factor=2.0, mode=mode) * 2
        return y + 1, gl.autograd.grad((y * y).sum(), [leaf])[0]

    check(function, images(2, 6, 7, 5), tolerance=1e-5)


@needs_compiler
def test_nans_and_infinities():
    x = images(2, 5, 6, 7)
    x._array[0, 1, 2, 3], x._array[1, 4, 0, 0], x._array[1, 2, 3, 3] = np.nan, np.inf, -np.inf

    def function(x):
        a = x * 2
        return a * 1, a.amax(dim=(2, 3)), a.relu().sum(dim=(0, 2, 3)), F.pad(a, (1, 1)) * 1

    check(function, x)


def test_orders_of_memory():
    spec = Spec((2, 3, 4, 5), np.dtype(np.float32))
    row, last = place_of(0, spec), last_place(0, spec)
    assert walk(row) == [0, 1, 2, 3]
    assert walk(last) == [0, 2, 3, 1]
    assert dense(row)
    assert dense(last)
    assert not dense(last._replace(shape=(2, 2, 4, 5)))
    assert alike(last, last._replace(offset=64))
    assert not alike(row, last)
    flat = Spec((2, 3, 1, 1), np.dtype(np.float32))
    assert alike(place_of(0, flat), last_place(0, flat))
    assert dense(Place(0, 0, (), (), np.dtype(np.float32)))
