"""Gradients under `gl.autocast`, the casts that are kept, and what else it meets: checkpoint, functions, traces, transforms."""

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.utils.checkpoint import checkpoint

F = nn.functional
LOW = gl.float16


def half(*shape):
    return gl.full(shape, 0.5, dtype=LOW)


# ---------------------------------------------------------------- gradients, and what is kept


def casts(tensor):
    """How many different casts of float32 leaves lead to a tensor."""
    found, todo = set(), [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in found:
            continue
        found.add(node)
        todo += [edge.node for edge in node.next_functions]
    return sum(node.name() == "CastBackward0" and node.next_functions[0].node.name() == "AccumulateGrad" for node in found)


def test_gradients_come_in_the_parameters_dtype():
    layer = nn.Linear(4, 3)
    with gl.autocast("cpu"):
        loss = layer(gl.ones(2, 4)).square().sum()
    assert loss.dtype == gl.float32
    loss.backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == gl.float32
    assert layer.weight.dtype == gl.float32


def test_gradients_are_those_of_explicit_halves():
    w, x = gl.tensor(np.float32([[0.3, -1.7], [2.1, 0.6]]), requires_grad=True), gl.tensor(np.float32([[1.1, 2.3], [-0.4, 0.9]]))
    with gl.autocast("cpu"):
        loss = (x @ w).exp().sum()
    loss.backward()
    v = w.detach().requires_grad_()
    (x.bfloat16() @ v.bfloat16()).float().exp().sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), v.grad.numpy())


def test_a_parameter_is_cast_once_in_the_outermost_region():
    w, x = gl.ones(2, 2, requires_grad=True), gl.ones(2, 2)
    with gl.autocast("cpu"):
        y = x @ w
        with gl.autocast("cpu"):
            y = y + x @ w
        assert casts(y + x @ w) == 1
    with gl.autocast("cpu", cache_enabled=False):
        assert casts(x @ w + x @ w) == 2
    with gl.autocast("cpu"):
        y = x @ w
        gl.clear_autocast_cache()
        assert casts(y + x @ w) == 2
    y.sum().backward()
    assert w.grad.dtype == gl.float32


def test_what_is_kept_follows_the_parameter():
    w, x = gl.ones(2, 2, requires_grad=True), gl.ones(2, 2)
    with gl.autocast("cpu"):
        for step in range(3):
            y = x @ w
            assert y[0, 0].item() == 2 + 2 * step
            y.sum().backward()
            with gl.no_grad():
                w.add_(1)


def test_two_backwards_in_one_region():
    w, x = gl.ones(2, 2, requires_grad=True), gl.ones(2, 2)
    with gl.autocast("cpu"):
        for _ in range(2):
            (x @ w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 2), 4.0))


def test_nothing_is_kept_without_recording():
    w, x = gl.ones(2, 2, requires_grad=True), gl.ones(2, 2)
    with gl.autocast("cpu"):
        with gl.no_grad():
            y = x @ w
        assert not y.requires_grad
        (x @ w).sum().backward()
    assert w.grad is not None


def test_memory_is_given_back_at_the_end():
    w = gl.ones(2, 2, requires_grad=True)
    with gl.autocast("cpu"):
        _ = w @ w
        kept = gl.amp.autocast_mode._kept.get()
        assert len(kept) == 1
    assert not kept and gl.amp.autocast_mode._kept.get() is None


def test_backward_computes_as_the_forward_did():
    x = gl.tensor([[1.0, 2.0]], requires_grad=True)
    seen = []

    class Look(gl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            seen.append((gl.is_autocast_enabled("cpu"), (g @ g.mT).dtype))
            return g

    with gl.autocast("cpu"):
        Look.apply(x).sum().backward()
    assert seen == [(False, gl.float32)]


def test_second_derivatives():
    x = gl.tensor([[1.0, 2.0], [0.5, -1.0]], requires_grad=True)
    with gl.autocast("cpu"):
        (g,) = gl.autograd.grad((x @ x).square().sum(), x, create_graph=True)
        (h,) = gl.autograd.grad(g.square().sum(), x)
    y = x.detach().requires_grad_()
    (gy,) = gl.autograd.grad((y @ y).square().sum(), y, create_graph=True)
    (hy,) = gl.autograd.grad(gy.square().sum(), y)
    assert h.dtype == gl.float32
    np.testing.assert_allclose(h.numpy(), hy.numpy(), rtol=0.05, atol=0.5)


def test_in_place_operations_keep_the_tensors_dtype():
    x = gl.full((3,), 0.5, dtype=LOW)
    with gl.autocast("cpu", dtype=LOW):
        x.exp_()
        x += gl.ones(3)
    assert x.dtype == LOW


# ---------------------------------------------------------------- with other things


def equal(a, b):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a.detach().float().numpy(), b.detach().float().numpy())


def model():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


def test_checkpoint_runs_again_under_the_forwards_autocast():
    plain, kept = model(), model()
    x = gl.randn(5, 4)
    for m, run in ((plain, plain), (kept, lambda x: checkpoint(kept, x))):
        with gl.autocast("cpu"):
            loss = run(x).square().sum()
        loss.backward()
        assert m[0].weight.grad.dtype == gl.float32
    for p, q in zip(plain.parameters(), kept.parameters(), strict=True):
        equal(p.grad, q.grad)


def test_custom_functions():
    seen = []

    class Product(gl.autograd.Function):
        @staticmethod
        @gl.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            y = a @ b
            seen.append((gl.is_autocast_enabled("cpu"), y.dtype))
            return y

        @staticmethod
        @gl.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((gl.is_autocast_enabled("cpu"), gl.get_autocast_dtype("cpu")))
            return (g @ b.mT).float(), (a.mT @ g).float()

    class Exact(gl.autograd.Function):
        @staticmethod
        @gl.amp.custom_fwd(device_type="cpu", cast_inputs=gl.float32)
        def forward(ctx, a, parts):
            seen.append((gl.is_autocast_enabled("cpu"), a.dtype, parts["b"][0].dtype))
            return a @ parts["b"][0]

        @staticmethod
        @gl.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append(gl.is_autocast_enabled("cpu"))
            return g, None

    a = gl.ones(2, 2, requires_grad=True)
    with gl.autocast("cpu", dtype=LOW):
        y = Product.apply(a, a)
    y.sum().backward()
    assert seen == [(True, LOW), (True, LOW)]
    seen.clear()
    with gl.autocast("cpu", dtype=LOW):
        y = Exact.apply(a.half(), {"b": (half(2, 2),)})
    assert y.dtype == gl.float32
    y.sum().backward()
    assert seen == [(False, gl.float32, gl.float32), False]
    seen.clear()
    Exact.apply(a, {"b": (half(2, 2).float(),)})  # outside of autocast nothing is cast
    assert seen == [(False, gl.float32, gl.float32)]
    with pytest.raises(ValueError, match="device_type"):
        gl.amp.custom_fwd(lambda ctx: None, device_type=1)
    with pytest.raises(ValueError, match="device_type"):
        gl.amp.custom_bwd(lambda ctx: None, device_type=1)


def test_jit_trace_keeps_the_casts():
    m, x = model(), gl.randn(5, 4)
    with gl.autocast("cpu"), gl.no_grad():
        wanted = m(x)
        traced = gl.jit.trace(m, (x,))
        equal(traced(x), wanted)  # its casts are in the graph: none is made twice
    with gl.no_grad():
        equal(traced(x), wanted)


def test_func_transforms():
    m, x = model(), gl.randn(5, 4)

    def loss(weight, x):
        return F.linear(x, weight).square().sum()

    weight = m[0].weight.detach()
    with gl.autocast("cpu"):
        g = gl.func.grad(loss)(weight, x)
        each = gl.vmap(gl.func.grad(loss), in_dims=(None, 0))(weight, x.unsqueeze(1))
        outputs = gl.vmap(lambda row: F.linear(row, weight))(x)
        plain = F.linear(x, weight)
    assert g.dtype == each.dtype == gl.float32 and outputs.dtype == gl.bfloat16
    equal(outputs, plain)
    np.testing.assert_allclose(each.sum(0).numpy(), g.numpy(), rtol=0.05, atol=0.05)
    inside = gl.vmap(gl.autocast("cpu")(lambda row: F.linear(row, weight)))(x)
    equal(inside, plain)


def test_control_flow_eagerly():
    w, x = gl.ones(2, 2, requires_grad=True), gl.ones(2, 2)
    with gl.autocast("cpu"):
        y = gl.cond(gl.tensor(True), lambda x: x @ w, lambda x: x @ w.mT, (x,))
    assert y.dtype == gl.bfloat16


def test_bfloat16_training_is_close_to_float32s():
    gl.manual_seed(1)
    x = gl.randn(64, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    losses = {}
    for dtype in (None, gl.bfloat16):
        m = model()
        optimizer = gl.optim.Adam(m.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            with gl.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                loss = F.cross_entropy(m(x), y)
            loss.backward()
            optimizer.step()
        losses[dtype] = loss.item()
    assert losses[None] < 0.2
    assert abs(losses[gl.bfloat16] - losses[None]) < 0.02


def test_autocast_warns_of_nothing_when_it_is_off():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gl.autocast("cpu", enabled=False):
            assert not gl.is_autocast_enabled("cpu")
