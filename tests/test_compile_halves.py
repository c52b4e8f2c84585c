"""float16 and bfloat16 in compiled CPU programs: loaded as float32, computed, rounded once for each row, as eager mode does."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from test_ops import leaves
from test_trace import outputs_and_gradients, shuffled

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.passes import optimize
from gradlab.ops.elementwise import cast

from samples import SAMPLES

F = nn.functional
HALVES = {"float16": gl.float16, "bfloat16": gl.bfloat16}
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
# Rows of each kind: loops, reductions, products, rows with kernels by hand, what moves values, updates.
ROWS = [
    "add", "sub", "mul", "true_divide", "neg", "abs", "sqrt", "square", "maximum", "minimum", "clamp", "where", "cast", "relu", "eq", "lt",
    "exp", "log", "tanh", "sigmoid", "gelu", "silu", "pow", "floor", "round", "sign", "isnan", "leaky_relu", "lerp", "sum", "mean", "amax",
    "cat", "slice", "matmul", "linear", "softmax", "log_softmax", "layer_norm", "cross_entropy", "batch_norm", "embedding", "convolution",
    "mse", "max_pool", "scaled_dot_product_attention", "sgd_update", "adam_update",
]  # fmt: skip
# IEEE arithmetic and moves: the same bits. Elsewhere float32 may differ from NumPy's in its last bits, and rounds to a neighbour at times.
EXACT = {
    "add", "sub", "mul", "true_divide", "neg", "abs", "sqrt", "square", "maximum", "minimum", "clamp", "where", "cast", "relu", "eq", "lt",
    "floor", "round", "sign", "isnan", "leaky_relu", "amax", "cat", "slice", "embedding", "max_pool",
}  # fmt: skip


def bits(array):
    """A half array as integers in the order of its values: neighbours are 1 apart."""
    found = array.view(np.int16).astype(int)
    return np.where(found < 0, -(found & 0x7FFF), found)


def cases(name, dtype):
    def narrow(inputs):
        return tuple(x.astype(HALVES[dtype]) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x for x in inputs)

    for sample in SAMPLES[name]:
        if any(isinstance(x, np.ndarray) for x in sample.inputs) and dtype in sample.dtypes:
            example = [t for t in leaves(narrow(sample.inputs)) if isinstance(t, gl.Tensor)]
            yield outputs_and_gradients(name, sample), example, [t for t in leaves(narrow(shuffled(sample))) if isinstance(t, gl.Tensor)]


@pytest.mark.parametrize("first", range(0, len(ROWS), 8))
@pytest.mark.parametrize("dtype", HALVES)
def test_rows_in_half_types_round_as_eager_mode_does(dtype, first):
    found = [(name, *case) for name in ROWS[first : first + 8] if name in SAMPLES for case in cases(name, dtype)]

    def everything(*tensors):
        waiting = iter(tensors)
        return [compute(*[next(waiting) for _ in example]) for _, compute, example, _ in found]

    program = trace(everything, *[t for _, _, example, _ in found for t in example])
    graph = optimize(program.graph)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    given = [t for *_, fresh in found for t in fresh]
    outs = [np.zeros(v.spec.shape, v.spec.dtype) for v in graph.outputs]
    executable.run([t._array for t in given], outs)
    waiting = iter(outs)
    for (name, *_), (results, gradients) in zip(found, everything(*given), strict=True):
        for want in (*results, *gradients):
            got, expected = next(waiting), want.detach()._array
            assert (np.isnan(got.astype("f")) == np.isnan(expected.astype("f"))).all()
            if expected.dtype in HALVES.values() and got.size:
                known = ~np.isnan(expected.astype("f"))
                apart = np.abs(bits(got) - bits(expected))[known].max(initial=0)
                assert apart <= (0 if name in EXACT else 1), name
            elif got.size:
                np.testing.assert_allclose(got.astype("d"), expected.astype("d"), rtol=1e-4, atol=1e-5, err_msg=name)


CONVERSIONS = """
#include "half.h"
using namespace gradlab;
#define BOTH(name, Half) \\
  extern "C" void wide_##name(const Half* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = cast<float>(x[i]); } \\
  extern "C" void round_##name(const float* x, Half* y, long n) { for (long i = 0; i < n; ++i) y[i] = cast<Half>(rounded<Half>(x[i])); } \\
  extern "C" void narrow_##name(const double* x, Half* y, long n) { for (long i = 0; i < n; ++i) y[i] = cast<Half>(rounded<Half>(x[i])); }
BOTH(float16, Float16)
BOTH(bfloat16, Bfloat16)
"""


def convert(name, source, target):
    function = getattr(compiler.loaded(compiler.built(CONVERSIONS)), name)
    function(ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data), ctypes.c_long(source.size))
    return target


@pytest.mark.parametrize("name", HALVES)
def test_conversions_are_those_of_numpy(name):
    every = np.arange(65536, dtype=np.uint16)
    wide, expected = convert(f"wide_{name}", every, np.empty(65536, "f")), every.view(HALVES[name]).astype("f")
    assert ((wide.view("u4") == expected.view("u4")) | (np.isnan(wide) & np.isnan(expected))).all()
    rng = np.random.default_rng(0)
    edges = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x3000], np.uint32)  # around halfway, both types
    near = ((np.arange(65536, dtype=np.uint32)[:, None] << 16) | edges).ravel()
    floats = np.concatenate([near, rng.integers(0, 2**32, 100_000, dtype=np.uint32)]).view("f")
    halfway = np.ldexp(rng.integers(0, 1 << 13, 50_000) + 0.5, rng.integers(-30, 8, 50_000))
    halfway *= 1 + rng.choice([-3e-16, -1e-13, 0, 1e-13, 3e-16], halfway.size)
    doubles = np.concatenate([halfway, [1e300, 65520.0, 65519.9999999, 2e-8]])
    with np.errstate(all="ignore"):
        for function, x in ((f"round_{name}", floats), (f"narrow_{name}", np.concatenate([doubles, -doubles]))):
            got, want = convert(function, x, np.empty(x.size, np.uint16)), np.empty(x.size, HALVES[name])
            cast.cpu(x, want, dtype=want.dtype)  # float64 to bfloat16 by float32, which NumPy alone does not since ml_dtypes 0.7
            number = ~np.isnan(x)
            assert (got == want.view(np.uint16))[number].all()
            assert np.isnan(got.view(HALVES[name])[~number].astype("f")).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_a_chain_is_one_loop_and_rounds_after_each_row(dtype):
    def chain(x, y):
        return ((x * y + 1.5) / (y * y + 0.5) - x).maximum(y * 0.3)

    gl.manual_seed(0)
    x, y = gl.randn(33, 65).to(HALVES[dtype]), gl.randn(33, 65).to(HALVES[dtype])
    compiled = gl.compile(chain)
    for _ in range(3):
        assert (compiled(x, y)._array.view(np.uint16) == chain(x, y)._array.view(np.uint16)).all()
    assert compiled.stats().kinds == {"loop": 1}


@pytest.mark.parametrize("dtype", HALVES)
def test_a_chain_into_a_reduction_is_one_loop(dtype):
    x = gl.arange(7 * 40).reshape(7, 40).to(HALVES[dtype]) * 0.01
    compiled = gl.compile(lambda x: (x * 2 + 1).sum(1))
    for _ in range(2):
        got = compiled(x)
    assert (bits(got._array) == bits((x * 2 + 1).sum(1)._array)).all()
    assert compiled.stats().kinds == {"loop": 2}  # the sum, in float32, and its rounding


def test_a_mixed_precision_step_has_no_numpy_step_and_trains_as_eagerly():
    def losses(wrap):
        gl.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        optimizer = gl.optim.AdamW(model.parameters(), lr=0.01)
        halves = [(n, p) for n, p in model.named_parameters()]

        def step(x, t):
            lowered = {n: p.to(gl.bfloat16) for n, p in halves}
            h = F.gelu(F.linear(x.to(gl.bfloat16), lowered["0.weight"], lowered["0.bias"]))
            h = F.layer_norm(h, (16,), lowered["2.weight"], lowered["2.bias"])
            loss = F.cross_entropy(F.linear(h, lowered["3.weight"], lowered["3.bias"]).float(), t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        x, t = gl.randn(32, 8), gl.randint(0, 4, (32,))
        return [run(x, t).item() for _ in range(8)], run

    eager, _ = losses(lambda f: f)
    compiled, run = losses(gl.compile)
    np.testing.assert_allclose(compiled, eager, rtol=5e-3)
    assert run.stats().numpy == {}
