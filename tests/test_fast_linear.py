"""A fully connected layer of small matrices (`autograd/fast_rows.py`) beside the call that every other row of several inputs takes."""

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.autograd.record import bind

F = gl.nn.functional
general = bind(ops.linear.linear)
LIES = {
    "plain": lambda t: t, "transposed": lambda t: t.mT.contiguous().mT, "a part": lambda t: gl.stack([t, t], 2)[:, :, 0],
    "expanded": lambda t: t[:1].expand(t.shape), "turned round": lambda t: t.flip(0),
}  # fmt: skip
SHAPES = [(3, 4, 5), (1, 1, 1), (0, 4, 5), (3, 0, 5), (3, 4, 0), (40, 50, 60), (130, 130, 130)]


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64, gl.bfloat16, gl.int64])
def test_values_and_gradients(dtype):
    for (n, k, m), lies, biased in itertools.product(SHAPES, LIES, (False, True)):
        r = np.random.default_rng(0)
        if lies == "expanded" and not (n and m):
            continue
        x, w, b = (gl.tensor(np.round(r.normal(0, 3, shape))).to(dtype) for shape in ((n, k), (m, k), (m,)))
        x, w = LIES[lies](x), LIES[lies](w)
        if dtype.is_floating_point and x.numel():
            x = x.clone() if lies == "plain" else x
            w = w * 1
            w[:1] = gl.inf
            b[:1] = gl.nan
        found = []
        for function in (F.linear, general):
            inputs = [t.detach().clone(memory_format=gl.preserve_format) for t in (x, w, b)[: 2 + biased]]
            for t in inputs:
                t.requires_grad_(dtype.is_floating_point)
            y = function(*inputs, *(() if biased else (None,)))
            grads = gl.autograd.grad(y.sum(), inputs, create_graph=False) if y.requires_grad else []
            with gl.no_grad():
                found.append([y.detach(), function(*inputs, *(() if biased else (None,))), *grads])
        for got, want in zip(*found, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride()
            np.testing.assert_array_equal(got.double().numpy(), want.double().numpy())


def test_second_gradients_hooks_and_writes():
    x, w, b = gl.randn(3, 4, requires_grad=True), gl.randn(5, 4, requires_grad=True), gl.randn(5, requires_grad=True)
    y = F.linear(x, w, b)
    assert type(y.grad_fn).__name__ == type(general(x, w, b).grad_fn).__name__
    seen = []
    handles = [y.register_hook(lambda g: seen.append(g.shape)), w.register_hook(lambda g: g * 2)]
    first = gl.autograd.grad(y.sin().sum(), (x, w, b), create_graph=True)
    second = gl.autograd.grad(sum(g.sum() for g in first), (x, w, b))
    assert set(seen) == {(3, 5)} and all(g.shape == t.shape for g, t in zip(second, (x, w, b), strict=True))
    for handle in handles:
        handle.remove()
    assert gl.autograd.gradcheck(F.linear, [t.detach().double().requires_grad_() for t in (x, w, b)])
    with gl.autograd.graph.saved_tensors_hooks(lambda t: seen.append("packed") or t, lambda t: t):
        F.linear(x, w, b)
    assert seen.count("packed") == 2
    y = F.linear(x, w, b)
    with gl.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match=r"in place|modified"):
        y.sum().backward()
    base = gl.zeros(2, 3, 4)
    view = base[0]
    base.add_(1)  # a view is derived anew
    assert (F.linear(view, w.detach()) == w.detach().sum(1)).all()
    assert (F.linear(view, view, base[1, 0, :3]) == 5).all()


def test_modes_and_transforms():
    x, w, b = gl.randn(3, 4), gl.randn(5, 4), gl.randn(5)
    want = general(x, w, b)
    with gl.autocast("cpu", dtype=gl.bfloat16):
        assert F.linear(x, w, b).dtype == gl.bfloat16
    assert gl.allclose(gl.vmap(F.linear, in_dims=(0, None, None))(gl.stack([x, x]), w, b)[1], want)
    assert gl.allclose(gl.func.jvp(lambda t: F.linear(t, w, b), (x,), (x,))[1], general(x, w, None), atol=1e-6)
    assert gl.allclose(gl.compile(F.linear)(x, w, b), want, atol=1e-6)
    assert F.linear(x.to("meta"), w.to("meta"), b.to("meta")).shape == (3, 5)
    with gl.inference_mode():
        assert F.linear(x, w, b).is_inference() == general(x, w, b).is_inference()
    assert not F.linear(x, w, b).requires_grad


@pytest.mark.parametrize("shapes", [((3, 4), (5, 3)), ((3, 4), (5, 4), (4,)), ((3, 4), (5, 4), (5, 1)), ((3, 4), (5, 4), (0,))])
def test_what_does_not_fit(shapes):
    tensors = [gl.ones(*shape) for shape in shapes]
    messages = []
    for function in (F.linear, general):
        with pytest.raises((ValueError, RuntimeError)) as error:
            function(*tensors, *(() if len(tensors) == 3 else (None,)))
        messages.append(str(error.value))
    assert messages[0].startswith("linear: ") and messages[0] == messages[1]
    for bias in (gl.ones(1), gl.tensor(2.0)):
        assert F.linear(gl.ones(2, 3), gl.ones(4, 3), bias).equal(general(gl.ones(2, 3), gl.ones(4, 3), bias))
    with pytest.raises(TypeError):
        F.linear(gl.ones(2, 3), np.ones((4, 3)))
