"""Operations of one's own: eager, recorded, traced, compiled, vmapped, on both devices; and what cannot be one."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.library import CudaSource, Launch, Spec, custom_op

ROW_SUM = """
#include "common.cuh"
template <class S> __global__ void row_sum(const S* x, S* y, long long columns, float plus) {
    float total = plus;
    if (threadIdx.x) return;
    for (long long j = 0; j < columns; ++j) total += float(gradlab::load(x[blockIdx.x * columns + j]));
    y[blockIdx.x] = gradlab::store<S>(total);
}
"""

gate = custom_op(
    "test::gate",
    lambda x, w, *, scale=2.0: x / (1 + np.exp(-x)) * w * scale,
    cuda="x * sigmoid(x) * w * T(scale)",
    grad={
        "x": lambda g, x, w, scale: g * w * scale * x.sigmoid() * (1 + x * (1 - x.sigmoid())),
        "w": lambda g, x, scale: g * scale * x * x.sigmoid(),
    },
)
row_sum = custom_op(
    "test::row_sum",
    lambda x, *, plus=0.0: x.sum(-1) + plus,
    cuda=CudaSource(ROW_SUM, "row_sum<{x}>", lambda x, plus: Launch(x.shape[0], 32, ("x", "y", x.shape[1], np.float32(plus)))),
    infer=lambda x: Spec(x.shape[:-1], x.dtype),
    grad=lambda g, x_spec: g.unsqueeze(-1).expand(x_spec.shape),
)


def inputs(dtype=gl.float64):
    rng = np.random.default_rng(0)
    return tuple(gl.tensor(rng.normal(size=shape), dtype=dtype, requires_grad=True) for shape in ((4, 5), (5,)))


def test_gradients_of_both_orders():
    x, w = inputs()
    assert gl.autograd.gradcheck(lambda x, w: gate(x, w, scale=3), (x, w))
    assert gl.autograd.gradgradcheck(gate, (x, w))
    assert gl.autograd.gradcheck(row_sum, (x,))


def test_a_compiled_function_and_a_trace_agree():
    x, w = inputs()
    function = gl.compile(lambda x, w: gate(x, w).sum() + row_sum(x).mean())
    want = (gate(x, w).sum() + row_sum(x).mean()).item()
    assert [function(x, w).item() for _ in range(3)] == pytest.approx([want] * 3, rel=1e-12)
    program = gl.graph.trace(lambda x: row_sum(x, plus=1.0), x.detach())
    np.testing.assert_allclose(program(x.detach() * 2).numpy(), row_sum(x.detach() * 2, plus=1.0).numpy())


def test_vmap_in_both_orders():
    x, w = (t.detach() for t in inputs())
    outside = gl.func.grad(lambda x: gl.vmap(gate, in_dims=(0, None))(x, w).sum())(x)
    inside = gl.vmap(gl.func.grad(lambda x: gate(x, w).sum()))(x)
    np.testing.assert_allclose(inside.numpy(), outside.numpy(), rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one by one
        assert gl.vmap(row_sum)(gl.ones(2, 3, 4)).tolist() == [[4.0] * 3] * 2


@pytest.mark.usefixtures("cuda")
def test_on_the_gpu():
    for dtype in (gl.float32, gl.float16):
        x, w = inputs(dtype)
        on_gpu = gate(x.detach().cuda(), w.detach().cuda(), scale=0.5)
        np.testing.assert_allclose(on_gpu.cpu().numpy(), gate(x, w, scale=0.5).detach().numpy(), rtol=4e-3, atol=1e-4)
    x, _ = inputs(gl.float32)
    moved = x.detach().cuda()
    for view in (moved, moved.t()):
        np.testing.assert_allclose(row_sum(view, plus=1.0).cpu().numpy(), row_sum(view.cpu(), plus=1.0).numpy(), rtol=1e-5, atol=1e-5)
    moved.requires_grad_()
    row_sum(moved).sum().backward()
    assert moved.grad.cpu().tolist() == gl.ones(4, 5).tolist()


def test_several_outputs_writing_references_and_optional_inputs():
    def split(x, low, high):
        low[...], high[...] = np.minimum(x, 0), np.maximum(x, 0)

    both = custom_op("test::split", split, outputs=("low", "high"), grad={"x": lambda g_low, g_high, x: g_low * (x < 0) + g_high * (x > 0)})
    x = gl.tensor([-1.0, 2.0], dtype=gl.float64, requires_grad=True)
    assert both(x).high.tolist() == [0.0, 2.0]
    assert gl.autograd.gradcheck(lambda x: tuple(both(x)), (x,))
    optional = custom_op("test::optional", lambda x, bias=None: x if bias is None else x + bias)
    assert optional(x).tolist() == [-1.0, 2.0] and optional(x, bias=gl.ones(2, dtype=gl.float64)).tolist() == [0.0, 3.0]


def test_a_decorator_and_copies():
    @custom_op("test::halved")
    def halved(x):
        """Half of x."""
        return x / 2

    assert halved.__doc__ == "Half of x." and halved(gl.ones(1)).item() == 0.5
    assert copy.deepcopy(halved) is halved and pickle.loads(pickle.dumps(halved)) is halved
    again = custom_op("test::halved", lambda x: x / 4, replace=True)
    assert gl.library.get("test::halved") is again and again(gl.ones(1)).item() == 0.25


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: custom_op("nospace", lambda x: x), ValueError, "namespace::operation"),
        (lambda: custom_op("test::gate", lambda x: x), ValueError, "exists already"),
        (lambda: custom_op("test::a", lambda x, y=1: x), TypeError, "keyword-only"),
        (lambda: custom_op("test::a", lambda *x: x), TypeError, "name each tensor"),
        (lambda: custom_op("test::a", lambda x, *, eps: x), TypeError, "say what the parameter 'eps' is"),
        (lambda: custom_op("test::a", np.tanh), TypeError, "wrap it"),
        (lambda: custom_op("test::a", lambda x: x, cuda="z + x"), ValueError, "'z'"),
        (lambda: custom_op("test::a", lambda x: x, cuda="sigmoi(x)"), ValueError, "did you mean 'sigmoid'"),
        (lambda: custom_op("test::a", lambda x, y: x, cuda="x"), ValueError, "does not use y"),
        (lambda: custom_op("test::a", lambda x: x, cuda=ROW_SUM), ValueError, "CudaSource"),
        (lambda: custom_op("test::a", lambda x: x, grad={"z": lambda g: g}), ValueError, "a gradient names"),
        (lambda: custom_op("test::a", lambda x: x, infer=lambda a, b: a), ValueError, "infer takes the Specs of x"),
        (lambda: custom_op("test::a", lambda x: x, cuda=CudaSource(ROW_SUM, "row_sum<{q}>")), ValueError, "'q'"),
        (lambda: CudaSource(ROW_SUM, "other"), ValueError, "does not define"),
        (lambda: gate(gl.ones(2)), TypeError, "input 'w' is missing"),
        (lambda: gate(gl.ones(2), gl.ones(2), scal=1), TypeError, "did you mean 'scale'"),
        (lambda: gate(gl.ones(2), gl.ones(2), scale="x"), TypeError, "scale is a float"),
        (lambda: gate(gl.ones(2), gl.ones(3)), RuntimeError, "do not broadcast"),
        (lambda: custom_op("test::shape", lambda x: x.sum(), replace=True)(gl.ones(2)), RuntimeError, "but infer says"),
        (lambda: gl.library.get("test::nothing"), KeyError, "test::nothing"),
    ],
)  # fmt: skip
def test_errors(make, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        make()
