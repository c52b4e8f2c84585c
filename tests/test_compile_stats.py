"""What a compiled function says about itself, and the plan of its memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph.ir.memory_plan import Moment, plan_buffers
from gradlab.spec import Spec

FLOAT = np.dtype(np.float32)
needs_compiler = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


@pytest.fixture(scope="module")
def step():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    compiled = gl.compile(step)
    for _ in range(3):
        compiled(gl.ones(5, 4), gl.tensor([0, 1, 2, 0, 1]))
    return compiled


def test_the_graph_shows_the_users_lines(step):
    text = str(step.graph)
    assert "# test_compile_stats.py:" in text
    assert "loss.backward()" in text
    assert "linear(" in text


def test_the_graph_is_a_picture(step):
    assert step.graph.svg().startswith("<svg")
    assert "</svg>" in step.graph.svg()
    assert step.graph.picture().to_mermaid().startswith("flowchart")


def test_many_programs_are_told_once(monkeypatch):
    """When there are more than usual, and when the first has to go."""
    monkeypatch.setattr("gradlab.graph.calls.compiled.MANY", 2)
    for module in ("compiled", "runner"):
        monkeypatch.setattr(f"gradlab.graph.calls.{module}.MOST", 3)
    step, told = gl.compile(lambda x: x * 2), []
    for size in range(1, 7):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            step(gl.ones(size)), step(gl.ones(size))
        told.append([str(w.message) for w in found])
    assert [len(t) for t in told] == [0, 0, 1, 1, 0, 0] and len(step.programs) == 3
    assert "has 2 programs already" in told[2][0] and "shape" in told[2][0]
    assert "has 3 programs, as many as are kept" in told[3][0]


def test_stats_count_what_became_of_the_operations(step):
    found = step.stats()
    assert found.traced > found.operations > found.views
    assert found.passes["drop_clones"][0] == found.traced
    assert found.programs == 1
    assert found.guards == len(step.programs[0].guards.conditions)
    assert 0 < found.arena < found.unshared
    assert min(found.trace_seconds, found.passes_seconds, found.compile_seconds) > 0
    assert sum(found.kinds.values()) > 0
    text = str(found)
    assert text.splitlines()[0] == f"operations  {found.traced} traced, {found.operations} after the passes ({found.views} views)"
    assert "guards" in text


@needs_compiler
def test_what_runs_in_numpy_says_why():
    compiled = gl.compile(lambda x: (x.logcumsumexp(0), x.half() * 2, gl.linalg.det(x)))
    for _ in range(2):
        compiled(gl.ones(3, 3))
    found = compiled.stats()
    assert found.numpy["logcumsumexp"] == (1, "its row has no CPU kernel")
    assert "mul" not in found.numpy
    assert all(why for _, why in found.numpy.values())
    assert "logcumsumexp: its row has no CPU kernel" in str(found)


@needs_compiler
def test_kernels_are_text_under_the_calls_they_compute():
    compiled = gl.compile(lambda x, y: (x @ y).exp() * 3 + 1)
    for _ in range(2):
        compiled(gl.ones(4, 4), gl.ones(4, 4))
    found = compiled.kernels()
    loop = next(text for text in found.values() if "= exp(" in text)
    assert "// %4: float32[4, 4] = exp(%3)  # test_compile_stats.py:" in loop
    assert "GRADLAB_KERNEL" in loop
    assert "for (int64_t" in loop
    assert "matmul" in found["gradlab_product_float"]
    assert compiled.stats().tasks == 2


def test_explain_lists_the_conditions(step):
    found = step.explain()
    assert "argument 0's shape: (5, 4)" in found
    assert "grad mode: True" in found
    assert len(found) == len(set(found))


def test_there_is_nothing_to_tell_before_the_trace():
    compiled = gl.compile(lambda x: x)
    with pytest.raises(RuntimeError, match="no program yet"):
        compiled.stats()


def test_functions_that_are_differentiated_from_outside_have_two_halves():
    w = gl.ones(3, 3, requires_grad=True)
    compiled = gl.compile(lambda x: (x @ w).tanh())
    for _ in range(2):
        compiled(gl.ones(2, 3)).sum().backward()
    assert compiled.stats().operations == len(compiled.graph.calls)
    if compiler.available():
        assert "tanh_backward" in "\n".join(compiled.kernels().values())


def test_modules_tell_through_compiled():
    module = gl.compile(nn.Linear(2, 2))
    for _ in range(2):
        module(gl.ones(1, 2))
    assert module.compiled.stats().operations >= 1


# ---------------------------------------------------------------- memory


def spec(n):
    return Spec((n,), FLOAT)


def test_a_value_is_written_over_one_that_dies_there():
    moments = [Moment([], [1]), Moment([1], [2], {2: [1]}), Moment([2], [3], {3: [2]})]
    specs = {n: spec(64) for n in (1, 2, 3)}
    plan = plan_buffers(moments, specs, [3])
    assert (plan.size, plan.unshared) == (256, 768)
    assert len(set(plan.places.values())) == 1


def test_what_is_needed_later_is_not_written_over():
    moments = [Moment([], [1]), Moment([1], [2], {2: [1]}), Moment([1, 2], [3], {3: [1, 2]})]
    plan = plan_buffers(moments, {n: spec(64) for n in (1, 2, 3)}, [3])
    assert plan.places[1] != plan.places[2]
    assert plan.size == 512


def test_one_place_is_taken_once():
    moments = [Moment([], [1]), Moment([1], [2, 3], {2: [1], 3: [1]}), Moment([2, 3], [4])]
    plan = plan_buffers(moments, {n: spec(64) for n in (1, 2, 3, 4)}, [4])
    assert plan.places[2] != plan.places[3]


def test_other_sizes_are_not_written_over():
    moments = [Moment([], [1]), Moment([1], [2], {2: [1]})]
    plan = plan_buffers(moments, {1: spec(64), 2: spec(65)}, [2])
    assert plan.size == 256 + 320


def test_large_buffers_are_placed_first_where_that_needs_less():
    # In order of birth, small ones that live long stand between the large ones.
    moments = [Moment([], [1]), Moment([1], [2]), Moment([2], [3]), Moment([3], [4]), Moment([2, 4], [5]), Moment([5, 3], [6])]
    sizes = {1: 1000, 2: 16, 3: 1500, 4: 16, 5: 2600, 6: 16}
    plan = plan_buffers(moments, {n: spec(k) for n, k in sizes.items()}, [6])
    alive = max(a + b for a, b in [(6016, 64), (6016, 10432)])
    assert plan.size <= alive + 3 * 64 + 4096
    places = sorted((plan.places[n], plan.places[n] + 4 * sizes[n]) for n in (3, 5))
    assert places[0][1] <= places[1][0]


@needs_compiler
@pytest.mark.parametrize("seed", range(6))
def test_programs_with_shared_memory_give_what_eager_gives(seed):
    r = np.random.default_rng(seed)
    choices = r.integers(0, 6, 30).tolist()
    picks = r.integers(0, 4, (30, 2)).tolist()

    def compute(x, w):
        values = [x, x * 2, w.t() + x, x - w]
        for c, (i, j) in zip(choices, picks):
            a, b = values[i], values[j]
            new = [a + b, a * 0.5, a.tanh(), a @ b * 0.1, a.t() - b, (a + b.sum(0)).tanh()][c]
            values[j] = new.reshape(16).view(4, 4) if c == 1 else new
        return values

    compiled = gl.compile(compute)
    x, w = gl.tensor(r.normal(size=(4, 4)).astype("f")), gl.tensor(r.normal(size=(4, 4)).astype("f"))
    for _ in range(3):
        found = compiled(x, w)
    for a, b in zip(found, compute(x, w), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- loops in reductions


@needs_compiler
@pytest.mark.parametrize("shape", [(5, 7), (64, 300), (300, 70), (1, 40)])
def test_reductions_take_the_loop_along_that_makes_their_input(shape):
    r = np.random.default_rng(0)

    def compute(x, y, s):
        return (x * s + y).sum(0), (x * y).relu().sum(1), (x - 1).abs().amax(1), (x * 2).amin((0, 1)), (x + y).mean(1, keepdim=True) * 2

    x, y, s = (gl.tensor(r.normal(size=n).astype("f")) for n in (shape, shape, ()))
    compiled = gl.compile(compute)
    for _ in range(3):
        found = compiled(x, y, s)
    for a, b in zip(found, compute(x, y, s), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=1e-5)
    loops = compiled.stats().loops
    assert "mul add sum" in loops
    assert "mul relu sum" in loops
    if shape[0] > 1:
        assert "sub abs amax" in loops
    # Nothing of the inputs' size is stored.
    assert compiled.stats().unshared < 4 * shape[0] * shape[1] or shape[0] == 1


@needs_compiler
def test_a_value_that_others_need_is_stored():
    compiled = gl.compile(lambda x: ((x * 2).sum(0), x * 2 + 1))
    x = gl.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(2):
        total, more = compiled(x)
    assert total.tolist() == [8.0, 12.0]
    assert more.tolist() == [[3.0, 5.0], [7.0, 9.0]]


@needs_compiler
def test_a_joined_reduction_reads_state_before_it_is_written():
    state = gl.ones(4, 3)

    @gl.compile
    def step(x):
        total = (state * x).sum(0)
        state.add_(1)
        return total

    found = [step(gl.ones(4, 3)).tolist() for _ in range(4)]
    assert found == [[4.0] * 3, [8.0] * 3, [12.0] * 3, [16.0] * 3]


@needs_compiler
def test_operands_that_lie_in_one_place_one_after_the_other_are_told_apart():
    def compute(x):
        y = x
        for i in range(8):
            y = (x @ (y * 0.5 + i)).tanh()
        return y

    compiled = gl.compile(compute)
    x = gl.tensor(np.random.default_rng(0).normal(size=(16, 16)).astype("f"))
    for _ in range(2):
        found = compiled(x)
    np.testing.assert_allclose(found.numpy(), compute(x).numpy(), rtol=1e-4, atol=1e-5)
