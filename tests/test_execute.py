"""Programs in NumPy: chains run in blocks, in place where that is safe, and large rows on several threads."""

from __future__ import annotations

import os

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.openblas import thread_count
from gradlab.graph import trace
from gradlab.graph.executables.numpy import cache_blocks, row_threads
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable

F = nn.functional


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(row_threads, "threads", lambda: 2)


def compare(function, *arrays, updates=()):
    """Run a function's program twice and compare it with the function. The program's executable."""
    tensors = [gl.from_numpy(a) for a in arrays]
    graph = trace(function, *tensors).graph
    executable = NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates))
    wanted = function(*tensors)
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    for _ in range(2):
        outs = [np.full(v.spec.shape, 7, v.spec.dtype) for v in graph.outputs]
        executable.run(arrays, outs)
        for got, want in zip(outs, wanted, strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-5)
    return executable


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(3, 70_000), (400, 500), (210_001,), (2, 3, 50_000), (1, 200_000)])
def test_a_chain_runs_in_blocks(shape):
    row, column = normal(shape[-1]), normal(*shape[:-1], 1)
    compare(lambda x, y: ((x * y + 1).tanh() * x - y, (x - y).relu()), normal(*shape), normal(*shape) + 1)
    compare(lambda x, r, c: F.gelu(x * r + c, approximate="tanh") * 2 - r, normal(*shape), row, column)
    compare(lambda x, s: (x > s).to(gl.float64) * x.to(gl.float64), normal(*shape), normal())


def test_what_is_read_again_is_not_written_over():
    def function(x):
        a = x * 2  # lies in the arena and is needed by both of the next
        b = a.sum()
        c = F.gelu(a) + a  # gelu takes several calls: it must not write over its input
        return c * b, (c.exp() - a) * c

    compare(function, normal(300, 700))


def test_arguments_need_not_be_contiguous():
    compare(lambda x: (x + 1) * 2, normal(6, 5).T)
    compare(lambda x: x.reshape(-1) * 2, normal(6, 5)[:, ::2])


def test_state_is_written_in_place_and_only_behind_its_last_reader():
    a, b = gl.from_numpy(normal(300, 500)), gl.from_numpy(normal(300, 500))

    @gl.compile(check=True)
    def step(x):
        old = a * 1
        a.copy_(F.gelu(a * 2) + x)
        b.copy_(old + b)
        return (a - old).sum()

    for _ in range(4):
        step(gl.from_numpy(normal(300, 500)))


def test_state_that_is_not_contiguous_is_written():
    store = normal(400, 3)
    state = gl.from_numpy(store.T)
    graph = trace(lambda x: x * state, gl.ones(3, 400)).graph
    executable = NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    out = np.empty((3, 400), np.float32)
    for _ in range(2):
        store += 1  # the program sees it: nothing was copied when it was made
        executable.run([np.full((3, 400), 2, np.float32)], [out])
        np.testing.assert_array_equal(out, 2 * store.T)


# ---------------------------------------------------------------- threads


def steps_on_threads(monkeypatch):
    """How often work was given to the threads."""
    given = []
    together = row_threads.together

    def counted(lists):
        given.append(len(lists))
        together(lists)

    monkeypatch.setattr(row_threads, "together", counted)
    monkeypatch.setattr(cache_blocks, "together", counted)
    return given


def test_large_rows_run_on_threads(monkeypatch, two_threads):
    given = steps_on_threads(monkeypatch)
    x, w = normal(9, 8, 90, 90), normal(16, 8, 3, 3)

    def function(x, w):
        y = F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2)
        return y, *gl.autograd.grad(y.square().sum(), [x, w])

    tensors = [gl.from_numpy(x).requires_grad_(), gl.from_numpy(w).requires_grad_()]
    graph = trace(function, *tensors).graph
    executable = NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    outs = [np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
    executable.run([x, w], outs)
    assert len(given) >= 5
    for got, want in zip(outs, function(*tensors), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-3, atol=1e-2)


def test_attention_and_products_run_on_threads(monkeypatch, two_threads):
    given = steps_on_threads(monkeypatch)
    q, w = normal(8, 4, 128, 64), normal(256, 256) / 16
    compare(lambda q, w: F.linear(F.scaled_dot_product_attention(q, q, q, is_causal=True).reshape(1024, 256), w) @ w, q, w)
    assert len(given) >= 3


@pytest.mark.parametrize("make", [gl.optim.SGD, gl.optim.Adam, gl.optim.AdamW])
def test_updates_on_threads_count_one_step(monkeypatch, two_threads, make):
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)
    given = steps_on_threads(monkeypatch)
    found = []
    for compiled in (False, True):
        p = nn.Parameter(gl.from_numpy(normal(1100, 1000)))
        options = {"momentum": 0.9} if make is gl.optim.SGD else {}
        optimizer = make([p], lr=0.1, **options)

        def step(x, p=p, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((p - x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = gl.compile(step) if compiled else step
        for _ in range(5):
            run(gl.zeros(1100, 1000))
        found.append(p.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-7)
    assert given or not isinstance(run.programs[0].runner.executable, NumpyExecutable)


def test_errors_of_threads_arrive_and_the_rest_is_done(two_threads):
    def bad():
        raise IndexError("no")

    for lists in ([[(bad, (), {})], []], [[], [(bad, (), {})], []], [[(bad, (), {})]] * 4):
        with pytest.raises(IndexError, match="no"):
            row_threads.together(lists)
    done = []
    row_threads.together([[(done.append, (i,), {})] for i in range(20)])
    assert sorted(done) == list(range(20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_has_threads_of_its_own(two_threads):
    row_threads.together([[], [], []])
    child = os.fork()
    if not child:
        done = []
        row_threads.together([[(done.append, (i,), {})] for i in range(20)])
        os._exit(0 if len(done) == 20 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_blas_gets_its_threads_back():
    blas = thread_count()
    if blas is None:
        pytest.skip("NumPy without the OpenBLAS of its wheels")
    before = blas[0]()
    with row_threads.Alone():
        assert blas[0]() == 1
    assert blas[0]() == before
