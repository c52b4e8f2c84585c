"""Passes of compiled programs: a graph in, a graph out, the same results; each can be switched off by name."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import trace
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable
from gradlab.graph.passes import PASSES, optimize
from gradlab.graph.passes.recomputation import peak

F = nn.functional


def rows(graph):
    return [c.op.name for c in graph.calls]


def run(graph, arrays):
    executable = NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates))
    outs = [np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
    executable.run(arrays, outs)
    return outs


def passed(name, function, *example):
    """The graphs before and after one pass; their results are equal to the last bit."""
    before = trace(function, *example).graph
    after = PASSES[name](before)
    arrays = [t.numpy() for t in example]
    for a, b in zip(run(before, arrays), run(after, arrays), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.view(np.uint8) if a.ndim else a, b.view(np.uint8) if b.ndim else b)
    return before, after


def test_what_is_large_is_computed_in_each_run():
    """Up to a mebibyte is kept, as its like is computed in no time."""
    for size, kept in ((1 << 18, True), ((1 << 18) + 1, False), (3 << 17, False)):
        graph = PASSES["fold_constants"](trace(lambda x, size=size: x + gl.arange(size, dtype=gl.float32).exp(), gl.ones(1)).graph)
        assert ("exp" not in rows(graph)) == kept, size


def test_numbers_go_into_the_kernels_that_use_them():
    before, after = passed("fold_constants", lambda x: x * (gl.full((1,), 3.0) * 2 - 1).expand(4), gl.ones(2, 4))
    assert len(before.calls) > 1
    assert repr(after.calls[-1]) == "%6: float32[2, 4] = mul(%1, 5.0)"
    assert rows(after) == ["mul"]


def test_what_comes_of_arange_alone_is_computed_once():
    def masked(x):
        i = gl.arange(4)
        return x.masked_fill(i[:, None] < i, 0)

    before, after = passed("fold_constants", masked, gl.ones(4, 4))
    assert "arange" in rows(before) and "lt" in rows(before)
    assert not {"arange", "lt"} & set(rows(after))
    assert [a.shape for a in after.state.values()] == [(4, 4)]


def test_constants_that_leave_the_program_are_made_anew():
    _, after = passed("fold_constants", lambda x: (gl.arange(3), x * 2), gl.ones(2))
    assert rows(after) == ["arange", "mul"]
    assert not after.state


def test_random_numbers_are_no_constants():
    graph = PASSES["fold_constants"](trace(lambda x: x + gl.rand(3), gl.ones(3)).graph)
    assert not graph.state
    assert len(graph.random) == 1
    assert len(graph.calls) == 2


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: (x * 1 + 2) * 1, ["add"]),
        (lambda x: 1 * (x / 1) + 2, ["add"]),
        (lambda x: x.neg().neg() + 2, ["add"]),
        (lambda x: (x - 0.0) + 2, ["add"]),
        (lambda x: x + 0.0 + 2, ["add", "add"]),  # −0 + 0 is +0
        (lambda x: x - (-0.0) + 2, ["sub", "add"]),
        (lambda x: x.t().t() + 2, ["add"]),
        (lambda x: x.permute(1, 0).transpose(0, 1) + 2, ["add"]),
        (lambda x: x.view(6).view(2, 3) + 2, ["add"]),
        (lambda x: x.expand(2, 3) + 2, ["add"]),
        (lambda x: x[:, :] + 2, ["add"]),
        (lambda x: x.flip(0)[:, 1:] + 2, ["flip", "slice", "add"]),
        (lambda x: x.double().float() + 2, ["add"]),
        (lambda x: x.half().float() + 2, ["cast", "cast", "add"]),
        (lambda x: x[None].permute(2, 0, 1).permute(1, 0, 2) + 2, ["unsqueeze", "permute", "add"]),
    ],
)
def test_rewrites_that_keep_every_bit(function, left):
    x = gl.tensor([[-0.0, 1.5, float("nan")], [float("inf"), -2.25, 0.0]])
    _, after = passed("rewrite", function, x)
    found = ["unsqueeze" if name == "slice" and "unsqueeze" in left else name for name in rows(after)]
    assert found == left


def test_an_argument_that_is_returned_is_a_copy():
    _, after = passed("rewrite", lambda x: x * 1, gl.ones(3))
    assert rows(after) == ["mul"]


def test_equal_calls_are_computed_once():
    _, after = passed("common_subexpressions", lambda x: x.exp() + x.exp() * x.sum(0) - x.sum(1), gl.ones(3, 3))
    assert sorted(rows(after)) == ["add", "exp", "mul", "sub", "sum", "sum"]


def test_different_numbers_are_different_calls():
    _, after = passed("common_subexpressions", lambda x: (x * 0.0) / (x * -0.0) + x * 1 + (x * True), gl.ones(3))
    assert rows(after).count("mul") == 4


def test_what_a_checkpoint_computes_again_is_not_kept_instead():
    w = gl.randn(256, 256, requires_grad=True)

    def block(x):
        return (x @ w).relu() * 2

    def step(x):
        for _ in range(3):
            x = gl.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        x.sum().backward()
        return x

    before, after = passed("common_subexpressions", step, gl.randn(256, 256))
    assert rows(after).count("matmul") == rows(before).count("matmul")


def test_cheap_values_are_computed_again_where_that_saves_memory():
    def step(x, *ws):
        """A chain in which `wide` is needed at both ends, and all that it is made of too."""
        wide = x + ws[0]
        y = wide.exp()
        for w in (*ws, *ws):
            y = y + (y @ w).tanh()
        return (y * wide).sum() + (x * ws[0]).sum()

    example = [gl.randn(256, 256) * 0.01 for _ in range(9)]
    before, after = passed("recompute", step, *example)
    assert len(after.calls) == len(before.calls) + 1
    assert peak(after)[1] < peak(before)[1]


def test_recomputing_is_left_alone_where_it_would_keep_more():
    def step(x, *ws):
        wide = (x.exp() + ws[0].exp()).relu()
        y = wide
        for w in (*ws, *ws):
            y = (y @ w).tanh()
        return (y * wide).sum()

    before, after = passed("recompute", step, *[gl.randn(256, 256) * 0.01 for _ in range(9)])
    assert rows(after) == rows(before)


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_has_a_switch(name):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = gl.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        loss = F.cross_entropy(model(x), y) * 1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x, y = gl.randn(5, 6), gl.tensor([0, 2, 1, 0, 1])
    state = {k: v.clone() for k, v in model.state_dict().items()}
    losses = []
    for passes in ({}, {name: False}):
        model.load_state_dict(state)
        optimizer = gl.optim.AdamW(model.parameters(), lr=0.01)
        compiled = gl.compile(step, passes=passes)
        losses.append([compiled(x, y).item() for _ in range(4)])
        ran = [r.name for r in compiled.programs[0].staged.passes]
        assert ran == [n for n in PASSES if n not in passes]
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_an_unknown_pass_is_an_error():
    with pytest.raises(ValueError, match="no pass is called nothing; there are widen_lowered, drop_clones"):
        optimize(trace(lambda x: x, gl.ones(1)).graph, {"nothing": False})


def test_gradients_from_outside_survive_the_passes():
    w = gl.randn(4, 4, requires_grad=True)

    @gl.compile
    def forward(x):
        return ((x @ w) * 1).t().t().clone()

    def eager(x):
        return x @ w

    for seed in range(3):
        gl.manual_seed(seed)
        x = gl.randn(3, 4, requires_grad=True)
        found = []
        for function in (forward, eager):
            w.grad = x.grad = None
            y = function(x)
            (y * y).sum().backward()
            found.append((y.detach().numpy().copy(), x.grad.numpy().copy(), w.grad.numpy().copy()))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def looked_up(padding_idx=None, turned=True):
    """A step's worth of a recurrent network's input side: the result and the gradients of table, weight and bias."""

    def function(table, weight, bias, at, g):
        found = F.embedding(at, table, padding_idx=padding_idx)
        if turned:
            found = found.transpose(0, 1)
        made = F.linear(found.reshape(-1, table.shape[1]), weight, bias)
        return made, *gl.autograd.grad((made * g).sum(), (table, weight, bias))

    return function


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_looked_up_rows_are_those_of_their_table(padding_idx, turned):
    gl.manual_seed(0)
    table, weight, bias = (gl.randn(*shape, dtype=gl.float64, requires_grad=True) for shape in ((5, 4), (6, 4), (6,)))
    at, g = gl.randint(0, 5, (3, 8)), gl.randn(24, 6, dtype=gl.float64)
    before = trace(looked_up(padding_idx, turned), table, weight, bias, at, g).graph
    after = PASSES["project_tables"](PASSES["drop_clones"](before))
    assert [c.outputs[0].spec.shape for c in after.calls if c.op.name == "linear"] == [(5, 6)]
    assert {c.outputs[0].spec.shape for c in after.calls if c.op.name == "embedding_backward"} == {(5, 6)}
    arrays = [t.detach().numpy() for t in (table, weight, bias, at, g)]
    for a, b in zip(run(before, arrays), run(after, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def relative(found, exact):
    """The distance from float64, in parts of the largest number."""
    return np.abs(np.asarray(found, np.float64) - exact).max() / np.abs(exact).max()


@pytest.mark.parametrize("own", [False, True])  # the table is of a half type, or is cast by autocast
@pytest.mark.parametrize("dtype", [gl.bfloat16, gl.float16])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_looked_up_rows_of_half_types_are_those_of_their_table(turned, dtype, own):
    gl.manual_seed(0)
    exact = [gl.randn(*shape, dtype=gl.float64, requires_grad=True) for shape in ((5, 4), (6, 4), (6,))]
    at, g = gl.randint(0, 5, (3, 8)), gl.randn(24, 6, dtype=gl.float64)
    wanted = [x.detach().numpy() for x in looked_up(None, turned)(*exact, at, g)]
    table, weight, bias = (x.detach().to(dtype if own else gl.float32).requires_grad_() for x in exact)
    plain = looked_up(None, turned)

    def under(*arguments):
        with gl.autocast("cpu", dtype):
            return plain(*arguments)

    before = trace(plain if own else under, table, weight, bias, at, g.to(dtype)).graph
    after = PASSES["project_tables"](PASSES["drop_clones"](before))
    assert [c.outputs[0].spec.shape for c in after.calls if c.op.name == "linear"] == [(5, 6)]
    assert {c.outputs[0].spec.shape for c in after.calls if c.op.name == "embedding_backward"} == {(5, 6)}
    arrays = [t.detach().numpy() for t in (table, weight, bias, at, g.to(dtype))]
    room = 4 * gl.finfo(dtype).eps
    for a, b, exact_one in zip(run(before, arrays), run(after, arrays), wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert relative(b, exact_one) <= max(room, 1.1 * relative(a, exact_one))


def test_casts_around_a_table_keep_their_roundings():
    table, weight, at = gl.randn(5, 4), gl.randn(6, 4), gl.randint(0, 5, (3, 8))

    def function(table, weight, at):
        return F.linear(F.embedding(at, table).bfloat16().float(), weight)

    before = trace(function, table, weight, at).graph
    after = PASSES["project_tables"](before)
    assert [c.outputs[0].spec.shape for c in after.calls if c.op.name == "linear"] == [(5, 6)]
    for a, b in zip(*(run(graph, [table.numpy(), weight.numpy(), at.numpy()]) for graph in (before, after)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("half", [gl.bfloat16, gl.float16])
def test_slices_of_a_half_type_are_put_together_in_it_where_their_wide_sum_is_cast_back(half):
    def function(x, a, b):
        parts = x * a
        return gl.autograd.grad((parts[:3] * b + parts[3:] * b.exp()).sum(), x)

    x, a, b = gl.randn(6, 2).to(half).requires_grad_(), gl.randn(6, 2).to(half), gl.randn(3, 2).to(half)
    before = trace(function, x, a, b).graph
    after = PASSES["assemble"](PASSES["drop_clones"](before))
    assert [c.outputs[0].spec.dtype.name for c in after.calls if c.op.name == "cat"] == [str(half).split(".")[-1]]
    assert not any(c.op.name == "slice_backward" for c in after.calls)
    for one, other in zip(*(run(graph, [t.detach().numpy() for t in (x, a, b)]) for graph in (before, after)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_table_as_long_as_what_is_looked_up_stays():
    table, weight, bias = (gl.randn(*shape, requires_grad=True) for shape in ((20, 4), (6, 4), (6,)))
    graph = trace(looked_up(), table, weight, bias, gl.randint(0, 20, (3, 8)), gl.randn(24, 6)).graph
    assert rows(PASSES["project_tables"](graph)) == rows(graph)


def test_a_result_that_is_a_copy_of_written_state_keeps_its_copy():
    p = gl.ones(2)

    def step(x):
        before = p.clone()
        p.add_(x)
        return before

    compiled = gl.compile(step)
    assert [compiled(gl.ones(2)).tolist() for _ in range(4)] == [[float(i)] * 2 for i in (1, 2, 3, 4)]
