"""Compiled programs on a GPU: what is written where it belongs and joined, so that a graph has fewer nodes; the results are eager's."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.cuda.gemm import rows as gemm_rows
from gradlab.graph.executables.cuda import sums_of_products

pytestmark = [pytest.mark.usefixtures("cuda")]
F = nn.functional


def slow(*dtypes):
    """Each has kernels of its own to compile."""
    return [pytest.param(dtype, marks=pytest.mark.slow) for dtype in dtypes]


@pytest.fixture(autouse=True)
def single_launches(monkeypatch):
    """Kernels of several stages take what is small out of sight."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


def normal(*shape, seed=0, dtype="float32"):
    return gl.tensor(np.random.default_rng(seed).normal(size=shape)).to(getattr(gl, dtype)).cuda()


def both(function, *given, tolerance=2e-5):
    """Three compiled runs compared with an eager one; the executable."""
    want = function(*given)
    compiled = gl.compile(function)
    for _ in range(3):
        got = compiled(*given)
        for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
            np.testing.assert_allclose(a.double().cpu().numpy(), b.double().cpu().numpy(), rtol=tolerance, atol=tolerance)
    executable = compiled.programs[0].runner.executable
    assert executable.why == ""
    return executable, compiled.stats()


@pytest.mark.parametrize("dtype", ["float32", *slow("bfloat16")])
@pytest.mark.parametrize("result", [True, False])
def test_parts_are_made_where_the_whole_lies(dtype, result):
    """Of an intermediate value and of a result; half types that NumPy does not know have memory of their own."""

    def function(a, b, w):
        whole = gl.cat([a @ w, b, b @ w, (a * 2) @ w])
        return whole if result else (whole.sum(0), whole @ w)

    given = normal(8, 16, dtype=dtype), normal(4, 16, seed=1, dtype=dtype), normal(16, 16, seed=2, dtype=dtype)
    executable, stats = both(function, *given, tolerance=2e-5 if dtype == "float32" else 3e-2)
    copies = [c for c in executable.line.calls if c.op.name == "cat"]
    assert len(copies) == 1 and stats.tasks == executable.launches
    eager = 3 + 1 + 4  # products, a doubled one, copies of the parts
    assert executable.launches == eager - 3 + (0 if result else 2)


def test_a_part_that_is_read_before_and_after():
    def function(a, w):
        first = a @ w
        second = first @ w
        whole = gl.cat([second, first])
        return whole * 2, first + second

    both(function, normal(8, 16), normal(16, 16, seed=1))


@pytest.mark.parametrize("causal", [True, False])
def test_attention_reads_and_writes_heads_beside_each_other(causal):
    def function(x, w, g):
        with gl.enable_grad():
            x = x.detach().requires_grad_()
            q, k, v = (t.view(2, 12, 2, 16).transpose(1, 2) for t in (x @ w).split(32, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(2, 12, 32)
            (dx,) = gl.autograd.grad(y, x, g)
        return y.detach(), dx

    executable, _ = both(function, normal(2, 12, 8), normal(8, 96, seed=1), normal(2, 12, 32, seed=2), tolerance=1e-4)
    names = [c.op.name for step in executable.report for c in step.calls]
    assert "view" not in names and "clone" not in names


@pytest.mark.parametrize("dtype", ["float32", *slow("float64", "float16")])
@pytest.mark.parametrize("shape", [(6, 24), (2, 3, 24)])
def test_what_is_added_to_a_product(dtype, shape, monkeypatch):
    """In one launch; in two where the library does not, or the other matrix lies otherwise."""
    given = normal(6, 16, dtype=dtype), normal(16, 24, seed=1, dtype=dtype), normal(*shape, seed=2, dtype=dtype)

    def function(a, b, c):
        return c + (a @ b).reshape(shape)

    tolerance = 4e-3 if dtype == "float16" else 2e-5
    executable, stats = both(function, *given, tolerance=tolerance)
    assert executable.launches == 1 and stats.epilogues["matmul + add: one kernel"] == 1
    executable, _ = both(lambda a, b, c: (a @ b).reshape(shape) + c.flip(0).flip(0), *given, tolerance=tolerance)
    monkeypatch.setattr(sums_of_products, "product_plus", lambda *_: None)
    executable, _ = both(function, *given, tolerance=tolerance)
    assert executable.launches == 2


def test_what_is_added_is_no_other_shape():
    a, b = normal(6, 16), normal(16, 24, seed=1)
    for c in (normal(24, seed=2), normal(1, 24, seed=2), normal(2, 6, 24, seed=2)):
        executable, _ = both(lambda a, b, c: a @ b + c, a, b, c)
        assert all(call.op.name != "matmul_plus" for call in executable.line.calls)
    executable, _ = both(lambda a, b: (a @ b + a @ b, a @ b), a, b)  # the product is read elsewhere, too
    assert gemm_rows.product_plus is sums_of_products.product_plus


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_that_only_launches_know(dtype):
    """A half type that NumPy does not know has intermediate memory of its own: freed, a product's sums went on with what came there."""
    w, b, x, slope = (normal(*shape, seed=i, dtype=dtype) for i, shape in enumerate([(16, 16), (16,), (8, 16), (8, 16)]))

    def function(x, slope):
        with gl.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (w, b)]
            return gl.autograd.grad(F.linear(F.linear(x, *leaves), *leaves), leaves, slope)

    _, stats = both(function, x, slope, tolerance=0.2 if dtype == "bfloat16" else 1e-4)
    assert stats.epilogues["matmul + sum: one kernel"] and stats.epilogues["matmul + add: one kernel"]


@pytest.mark.parametrize("dtype", ["float32", *slow("bfloat16", "float64")])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (16, 3), (4, 3, 40, 40), (3, 1, 7)])
def test_a_norm_and_its_relu(shape, dtype):
    """One kernel, one block or several for a channel; a NaN stays one."""
    x, weight, bias = normal(*shape, dtype=dtype), normal(shape[1], seed=1, dtype=dtype), normal(shape[1], seed=2, dtype=dtype)

    def function(x):
        with gl.enable_grad():
            x = x.detach().requires_grad_()
            y = F.relu(F.batch_norm(x, None, None, weight, bias, training=True))
            (dx,) = gl.autograd.grad((y * y).sum(), x)
        return y.detach(), dx

    executable, stats = both(function, x, tolerance=3e-2 if dtype == "bfloat16" else 1e-4)
    assert stats.epilogues["batch_norm + relu: one kernel"] == 1
    spoiled = x.clone()
    spoiled[0, 0] = float("nan")
    both(lambda x: F.relu(F.batch_norm(x, None, None, weight, bias, training=True)), spoiled, tolerance=3e-2)

    def twice(x):
        y = F.batch_norm(x, None, None, weight, bias, training=True)
        return F.relu(y), y

    assert "batch_norm + relu: one kernel" not in both(twice, x, tolerance=3e-2)[1].epilogues
    assert executable.why == ""


@pytest.mark.parametrize("dtype", ["float32", *slow("bfloat16", "float16", "float64")])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (16, 3), (4, 3, 40, 40)])
def test_a_norm_what_is_added_and_the_relu(shape, dtype):
    """What is added comes from before the norm, from behind it, or from another norm; a NaN stays one; the sum rounds as it did."""
    x, other = normal(*shape, dtype=dtype), normal(*shape, seed=3, dtype=dtype)
    weight, bias = normal(shape[1], seed=1, dtype=dtype), normal(shape[1], seed=2, dtype=dtype)
    exact = 0.0 if dtype != "float64" else 1e-14  # the sums of a channel are added in the same order

    def norm(x):
        return F.batch_norm(x, None, None, weight, bias, training=True)

    def count(function, *given, tolerance=exact):
        executable, stats = both(function, *given, tolerance=tolerance)
        return stats.epilogues.get("batch_norm + add + relu: one kernel", 0), executable

    assert count(lambda x, other: F.relu(norm(x) + other), x, other)[0] == 1
    assert count(lambda x, other: F.relu(other + norm(x)), x, other)[0] == 1
    found, executable = count(lambda x, other: F.relu(norm(x) + norm(other)), x, other)
    names = [call.op.name for call in executable.line.calls]
    assert found == 1 and names == ["batch_norm", "batch_norm_and_relu"]
    spoiled = other.clone()
    spoiled[0, 0] = float("nan")
    assert count(lambda x, other: F.relu(norm(x) + other), x, spoiled)[0] == 1
    # Apart: a sum, or a norm, that is read elsewhere; what a loop makes for the sum alone; what is smaller.
    assert not count(lambda x, other: (F.relu(both := norm(x) + other), both), x, other)[0]
    assert not count(lambda x, other: F.relu(norm(x) + gl.exp(other)), x, other, tolerance=3e-2)[0]
    assert not count(lambda x, other: F.relu(norm(x) + other[:1]), x, other)[0]
    assert executable.why == ""


@pytest.mark.parametrize("dtype", ["float32", *slow("bfloat16", "float16", "float64")])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (16, 3), (4, 3, 40, 40)])
def test_gradients_of_a_norm_and_its_relu(shape, dtype):
    """A block with a connection around it: the ReLU inside is masked in the norm's kernel, the one behind in a loop, since two read it."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) if len(shape) == 2 else nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    model = model.to(getattr(gl, dtype)).cuda()
    x, slope = normal(*shape, dtype=dtype), normal(*shape, seed=3, dtype=dtype)

    def function(x):
        with gl.enable_grad():
            x = x.detach().requires_grad_()
            y = F.relu(model(x))
            z = F.relu(model(y) + x)
            return gl.autograd.grad(z, [x, *model.parameters()], slope)

    executable, stats = both(function, x, tolerance={"float32": 1e-4, "float64": 1e-9}.get(dtype, 0.1))
    assert stats.epilogues["batch_norm + relu: one kernel"] == stats.epilogues["batch_norm + add + relu: one kernel"] == 1
    assert stats.epilogues["relu_backward + batch_norm_backward: one kernel"] == 1
    assert sum(call.op.name == "relu_backward" for call in executable.line.calls) == 1


def test_counters_and_running_statistics_are_one_launch(monkeypatch):
    monkeypatch.delenv("GRADLAB_MEGA")
    gl.manual_seed(0)
    models = [nn.Sequential(*(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)) for _ in range(4))).cuda() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    compiled = gl.compile(lambda x: models[0](x).sum())
    for seed in range(3):
        x = normal(2, 3, 6, 6, seed=seed)
        np.testing.assert_allclose(float(compiled(x)), float(models[1](x).sum()), rtol=1e-4, atol=1e-4)
    for (name, a), b in zip(models[0].named_buffers(), models[1].buffers(), strict=True):
        np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), rtol=1e-5, err_msg=name)
    executable = compiled.programs[0].runner.executable
    moving = [step for step in executable.report if any(c.op.name == "running" for c in step.calls)]
    assert executable.why == "" and len(moving) == 1 and sum(c.op.name == "running" for c in moving[0].calls) == 8
