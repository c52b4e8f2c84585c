"""Public functions whose calls go to a kernel at once (`gradlab/autograd/one_row.py`): what one call came to is not given to another."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler

import gradlab as gl

from kinds import calls

F = gl.nn.functional
pytestmark = needs_compiler


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        yield


def plain(function):
    """As it is while no class answers for it."""
    return getattr(function, "plain", function)


def learned(function):
    """The kinds of calls that are known to come to a kernel."""
    return [key for kinds in plain(function).known.values() for key, found in kinds.items() if found[1] is not None]


SHORT = {name: f for name, f in calls.public().items() if hasattr(plain(f), "known")}
CALLS = [call for call in calls.CALLS if call.name in SHORT]


def same(a, b):
    a, b = (x if isinstance(x, tuple) else (x,) for x in (a, b))
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y) and x.dtype == y.dtype and x.requires_grad == y.requires_grad
        np.testing.assert_array_equal(x.numpy(), y.numpy(), strict=True)


def test_they_are_many():
    assert len(SHORT) >= 20 and {call.name for call in CALLS} == set(SHORT)


def test_later_calls_are_the_first():
    known = set()
    for call in CALLS:
        args, options = call.tensors(gl.float32)
        first = call.function(*args, **options)
        for _ in range(3):
            same(call.function(*args, **options), first)
        if learned(call.function):
            known.add(call.name)
        again, options = call.tensors(gl.float32, requires_grad=True)  # recorded, and in other modes
        try:
            recorded = call.function(*again, **options)
        except RuntimeError:  # refuses tensors that require grad
            continue
        for x, y in zip(*(r if isinstance(r, tuple) else (r,) for r in (recorded, first)), strict=True):
            np.testing.assert_array_equal(x.detach().numpy(), y.numpy())
        with gl.inference_mode():
            assert all(x.is_inference() for x in [call.function(*args, **options)] if isinstance(x, gl.Tensor))
    assert len(known) >= 18, sorted(set(SHORT) - known)


def test_of_what_a_call_depends():
    x, y, z = (gl.tensor(np.random.default_rng(i).standard_normal((1, 2, 4, 4)), dtype=gl.float32) for i in range(3))
    attention = F.scaled_dot_product_attention
    for q, k, v in ((x, x, x), (x, y, z), (x, y, y), (x, x, y), (x, y, x), (x.view(1, 2, 4, 4), x, y)):
        wanted = (q @ k.mT * 0.5).softmax(-1) @ v
        for _ in range(4):
            np.testing.assert_allclose(attention(q, k, v).numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    for _ in range(3):
        F.avg_pool2d(x, 2)
        F.avg_pool2d(x, (1, 1))
        F.softplus(x, 1.0)
    assert len(learned(F.avg_pool2d)) >= 2
    for wrong in (2.0, True, [2.0], "2"):
        with pytest.raises(TypeError):
            F.avg_pool2d(x, wrong)
    with pytest.raises(TypeError):
        F.avg_pool2d(x, (1.0, 1.0))
    with pytest.raises(RuntimeError):
        F.softplus(x, 0.0)
    strided = gl.stack([x, y], -1)[..., 0]
    for _ in range(3):
        np.testing.assert_allclose(F.avg_pool2d(strided, 2).numpy(), F.avg_pool2d(x, 2).numpy(), rtol=1e-5)
        same(F.avg_pool2d(x, [2, 2]), F.avg_pool2d(x, 2))
        same(F.avg_pool2d(x, stride=1, kernel_size=2), F.avg_pool2d(x, 2, 1))
    special = x * 0 + gl.tensor([np.nan, np.inf, -np.inf, 0.0])
    assert gl.isnan(F.softmax(special.transpose(2, 3), 2)).all()
    same(F.softmax(special, 3), F.softmax(special.clone(), 3))
    with gl.autocast("cpu", dtype=gl.bfloat16):
        assert F.conv2d(x, x.view(2, 1, 4, 4)[:, :, :1, :1].repeat(1, 2, 1, 1)).dtype == gl.bfloat16


def test_what_a_call_writes_it_writes_each_time():
    indices = gl.tensor([0, 1])
    for _ in range(4):
        table = gl.full((2, 4), 3.0)
        F.embedding(indices, table, max_norm=1.0)
        assert float(table[0].norm()) <= 1.001
        with pytest.raises(IndexError, match="embedding"):
            F.embedding(gl.tensor([0, 2]), table)
        F.embedding(indices, table)


def test_out_is_written_each_time():
    x = gl.randn(3, 4)
    for shape in ((3, 4), (0,)):
        for _ in range(4):
            out = gl.zeros(shape)
            assert gl.softmax(x, 1, out=out) is out and gl.lerp(x, x, 0.5, out=gl.zeros(3, 4)).shape == (3, 4)
            same(out, F.softmax(x, 1))


@pytest.mark.parametrize("warns", [lambda x, t: F.softmax(x), lambda x, t: F.cross_entropy(x, t, size_average=True)])
def test_what_warns_warns_each_time(warns):
    x, target = gl.randn(3, 4), gl.tensor([0, 1, 2])
    for _ in range(4):
        with pytest.warns(UserWarning):
            warns(x, target)


def test_views_that_were_written_and_views_as_results():
    base = gl.zeros(2, 4)
    view = base[:, :]
    for i in range(4):
        base.add_(gl.tensor([1.0, 0.0, 0.0, float(i)]))
        same(F.softmax(view, 1), F.softmax(base.clone(), 1))


def test_vmap_and_traces():
    x = gl.randn(3, 2, 4)
    for _ in range(3):
        F.softmax(x[0], 1)
    np.testing.assert_allclose(gl.vmap(lambda row: F.softmax(row, 1))(x).numpy(), F.softmax(x, 2).numpy(), rtol=1e-6)
    compiled = gl.compile(lambda row: F.softmax(row, 1))
    for _ in range(3):
        np.testing.assert_allclose(compiled(x[1]).numpy(), F.softmax(x[1], 1).numpy(), rtol=1e-6)


def test_what_is_kept_has_a_limit():
    x = gl.randn(1, 300)
    for n in range(1, 300):
        for _ in range(2):
            F.softmax(x[:, :n].clone(), 1)
    assert all(len(kinds) <= 256 for kinds in plain(F.softmax).known.values())
