"""Memory of compiled programs: the plan of the arena, results that lend theirs, what is computed again or looked up late."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from sys import getrefcount

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.planning import arrange
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.guards import accesses, attribute_lookup, bytecode, reads, unrepeatable
from gradlab.graph.ir.memory_plan import Moment, Room, arena, plan_buffers
from gradlab.graph.passes import PASSES
from gradlab.graph.passes.recomputation import peak
from gradlab.spec import Spec

F = nn.functional
FLOAT = np.dtype(np.float32)
needs_compiler = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


def sizes(*kilobytes):
    return {i: Spec((k * 256,), FLOAT) for i, k in enumerate(kilobytes)}


def chain(n):
    """n values, each made of the one before."""
    return [Moment([i - 1] if i else [], [i]) for i in range(n)]


# ---------------------------------------------------------------- the plan


def test_the_arena_is_written_and_read_as_bytes():
    for size in (0, 64, (4 << 20) + 64):
        memory = arena(size)
        assert memory.dtype == np.uint8
        assert memory.size == max(size, 1)
        memory[:] = 7
        assert memory.min() == 7


def test_values_lie_in_rooms_while_those_are_free():
    plan = plan_buffers(chain(6), sizes(64, 64, 64, 64, 64, 64), rooms=[Room(64 << 10, 0, 4)])
    assert plan_buffers(chain(5), sizes(64, 64, 64, 64, 64), rooms=[Room(64 << 10, 0, 4)]).size == 64 << 10  # of two that are alive
    assert plan.size == 128 << 10  # from moment 5 on the room is not free
    assert plan.guests
    assert not plan.guests.keys() & plan.places.keys()
    assert plan.guests.keys() | plan.places.keys() == set(range(6))
    for n in plan.guests:
        assert n + 1 <= 4  # read for the last time while the room is free


def test_no_two_guests_of_a_room_lie_over_each_other():
    r = np.random.default_rng(0)
    for _ in range(20):
        n = 40
        moments = [Moment(sorted({int(r.integers(0, i)) for _ in range(3)}) if i else [], [i]) for i in range(n)]
        specs = sizes(*(int(k) for k in r.integers(1, 100, n)))
        rooms = [Room(int(r.integers(10, 400)) << 10, int(r.integers(0, 10)), int(r.integers(20, n))) for _ in range(3)]
        plan = plan_buffers(moments, specs, rooms=rooms)
        last = {i: max([i, *(j for j, m in enumerate(moments) if i in m.reads)]) for i in range(n)}
        where = {i: (-1, o) for i, o in plan.places.items()} | plan.guests
        for i, (room, offset) in where.items():
            assert offset + specs[i].shape[0] * 4 <= (plan.size if room < 0 else rooms[room].size)
            assert room < 0 or rooms[room].first <= i <= last[i] <= rooms[room].last
        for i, j in itertools.combinations(range(n), 2):
            if where[i][0] == where[j][0] and i <= last[j] and j <= last[i]:
                a, b = where[i][1], where[j][1]
                assert a + specs[i].shape[0] * 4 <= b or b + specs[j].shape[0] * 4 <= a
        assert plan.size >= plan.least


def test_rooms_change_nothing_where_there_is_little_to_gain():
    moments, specs = chain(4), {i: Spec((8,), FLOAT) for i in range(4)}
    assert not plan_buffers(moments, specs, rooms=[Room(1 << 20, 0, 3)]).guests


def test_a_second_round_fills_what_the_largest_first_leaves_open():
    """The sizes and lives of a convolutional network's step, where the largest first alone needs an eighth more than what is alive."""
    lives = [(0, 21, 5408), (1, 2, 9216), (2, 17, 4608), (2, 16, 2304), (13, 16, 2304), (16, 17, 2304), (17, 20, 9216), (18, 21, 5408)]
    moments = []
    for i in range(22):
        dying = [n for n, (a, b, _) in enumerate(lives) if b == i != a]
        moments.append(Moment(dying, [n for n, (a, _, _) in enumerate(lives) if a == i]))
    plan = plan_buffers(moments, sizes(*(k for *_, k in lives)))
    assert plan.size == plan.least


# ---------------------------------------------------------------- results that lend their memory


def network(width=96):
    gl.manual_seed(3)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(approximate="tanh"), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))
    optimizer = gl.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


@needs_compiler
def test_gradients_lend_their_memory_until_they_are_made():
    (model, step), (other, eager) = network(), network()
    compiled = gl.compile(step)
    x, y = gl.randn(96, 96), gl.randint(0, 4, (96,))
    for _ in range(5):
        assert compiled(x, y).item() == pytest.approx(eager(x, y).item(), rel=1e-5)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-6)
    executable = compiled.programs[0].runner.executable
    assert executable.plan.guests
    found = compiled.stats()
    assert found.least <= found.arena
    assert found.lent > 0
    assert "lie in results that are made later" in str(found)
    line = executable.line
    alone = arrange(line, joined=True, halves=True, assembling=True).plan
    assert executable.plan.size < alone.size


@needs_compiler
def test_a_gradient_that_somebody_keeps_is_not_lent():
    model, step = network()
    compiled = gl.compile(step)
    x, y = gl.randn(96, 96), gl.randint(0, 4, (96,))
    for _ in range(3):
        compiled(x, y)
    kept = [p.grad for p in model.parameters()]
    copies = [g.numpy().copy() for g in kept]
    compiled(x, y)
    for g, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(g.numpy(), copy)


@needs_compiler
@pytest.mark.parametrize("bad", [4, -1])
def test_a_run_that_is_refused_leaves_gradients_and_parameters(bad):
    model, step = network()
    compiled = gl.compile(step)
    x, y = gl.randn(96, 96), gl.randint(0, 4, (96,))
    for _ in range(3):
        compiled(x, y)
    before = [(p.detach().numpy().copy(), p.grad.numpy().copy()) for p in model.parameters()]
    wrong = y.clone()
    wrong[95] = bad
    with pytest.raises(IndexError, match=r"not in \[0, 4\)"):
        compiled(x, wrong)
    for p, (value, gradient) in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), value)
        np.testing.assert_array_equal(p.grad.numpy(), gradient)
    y[0] = -100  # ignored
    assert np.isfinite(compiled(x, y).item())


@needs_compiler
def test_nothing_is_lent_before_what_can_fail_in_between():
    """The index is computed by the program, so that it cannot be checked before the rest."""

    def function(x, table, at):
        y = (x @ x).exp()
        picked = table[(at + 1) * 2]
        return (y @ x).sum() + picked.sum(), x @ y

    graph = trace(function, gl.randn(128, 128), gl.randn(9, 128), gl.tensor([1, 2])).graph
    arranged = arrange(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates), lending=True)
    fails = next(i for i, u in enumerate(arranged.units) if u.calls[0].op.name in ("index", "index_select", "gather", "embedding"))
    for n in arranged.plan.guests:
        assert next(i for i, u in enumerate(arranged.units) for c in u.calls for v in c.outputs if v.id == n) > fails


# ---------------------------------------------------------------- computed again


def layers(x, *ws):
    """Linear layers with GELU, and the gradients of all weights."""
    y = x
    for w in ws:
        y = F.gelu(y @ w, approximate="tanh")
    return gl.autograd.grad(y.sum(), ws)


def test_activations_are_computed_again_in_the_loop_of_their_gradient():
    example = [gl.randn(128, 128), *(gl.randn(128, 128, requires_grad=True) for _ in range(6))]
    before = trace(layers, *example).graph
    after = PASSES["recompute"](before)
    again = [c for c in after.calls if c.again]
    assert {c.op.name for c in again} == {"gelu_tanh"}
    assert len(after.calls) == len(before.calls) + len(again)
    assert peak(after) < peak(before)
    line = Line(after.calls, after.inputs, dict(after.state), after.outputs, after.updates)
    units = arrange(line, joined=True).units
    for call in again:
        unit = next(u for u in units if any(c is call for c in u.calls))
        assert "gelu_tanh_backward" in [c.op.name for c in unit.calls]


@needs_compiler
def test_what_is_computed_again_is_equal_to_the_last_bit():
    found = []
    for passes in ({}, {"recompute": False}):
        gl.manual_seed(0)
        example = [gl.randn(128, 128), *(gl.randn(128, 128, requires_grad=True) for _ in range(6))]
        compiled = gl.compile(layers, passes=passes)
        for _ in range(2):
            results = compiled(*example)
        found.append([t.numpy() for t in results])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- looked up late


def recurrent(x, table, w):
    """Eight steps over looked-up rows."""
    rows = F.embedding(x, table)
    h = gl.zeros(64, 1024)
    for t in range(8):
        h = (rows[64 * t : 64 * (t + 1)] + h @ w).tanh()
    return h


def test_rows_are_looked_up_slice_by_slice_before_their_use():
    gl.manual_seed(0)
    example = gl.randint(0, 9, (512,)), gl.randn(9, 1024), gl.randn(1024, 1024) * 0.01
    before = trace(recurrent, *example).graph
    after = PASSES["look_up_late"](before)
    found = [i for i, c in enumerate(after.calls) if c.op.name == "embedding"]
    assert [after.calls[i].outputs[0].spec.shape for i in found] == [(64, 1024)] * 8
    assert all(after.calls[i + 1].op.name != "embedding" for i in found)
    assert peak(after) < peak(before)
    for function in (recurrent, gl.compile(recurrent)):
        results = [function(*example).numpy() for _ in range(2)]
    np.testing.assert_allclose(results[1], recurrent(*example).numpy(), rtol=1e-5, atol=1e-6)


def test_rows_that_are_needed_whole_are_looked_up_once():
    def function(x, table):
        rows = F.embedding(x, table)
        return rows.sum() + sum(rows[64 * t : 64 * (t + 1)].exp().sum() for t in range(8))

    graph = trace(function, gl.randint(0, 9, (512,)), gl.randn(9, 1024)).graph
    assert PASSES["look_up_late"](graph) is graph


# ---------------------------------------------------------------- recurrent networks


@needs_compiler
def test_gradients_of_an_lstms_gates_lie_where_the_gates_lay():
    found = []
    for compiled in (False, True):
        gl.manual_seed(1)
        lstm, x = nn.LSTM(32, 64, batch_first=True), gl.randn(16, 12, 32)
        optimizer = gl.optim.SGD(lstm.parameters(), lr=0.1)

        def step(x, lstm=lstm, optimizer=optimizer):
            loss = lstm(x)[0].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = gl.compile(step) if compiled else step
        losses = [run(x).item() for _ in range(5)]
        found.append((losses, [p.grad.numpy().copy() for p in lstm.parameters()]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-7)
    executable = run.programs[0].runner.executable
    steps = [c for s in executable.report for c in s.calls if c.op.name == "lstm_cell_backward"]
    places = executable.arranged.places
    assert len(steps) == 12
    assert sum(places[c.inputs[2].id] == places[c.outputs[0].id] for c in steps) == 12


@needs_compiler
def test_the_gradients_of_the_eager_run_go_away():
    model, step = network()
    compiled = gl.compile(step)
    x, y = gl.randn(96, 96), gl.randint(0, 4, (96,))
    compiled(x, y)
    array = model[0].weight.grad._array
    compiled(x, y)
    assert model[0].weight.grad._array is not array
    assert getrefcount(array) == 2  # this one and the argument: no symbol, tracer or tensor


@needs_compiler
def test_a_program_writes_gradients_where_the_eager_run_did():
    model, step = network()
    compiled = gl.compile(step)
    x, y = gl.randn(96, 96), gl.randint(0, 4, (96,))
    compiled(x, y)
    arrays = [id(p.grad._array) for p in model.parameters()]
    gradients = [p.grad for p in model.parameters()][:1]  # somebody holds one of them
    values = gradients[0].numpy().copy()
    compiled(x, y)
    same = [id(p.grad._array) == before for p, before in zip(model.parameters(), arrays, strict=True)]
    assert same == [False, *[True] * (len(arrays) - 1)]
    np.testing.assert_array_equal(gradients[0].numpy(), values)


@needs_compiler
def test_what_the_trace_used_goes_away():
    _, step = network()
    compiled = gl.compile(step)
    x, y = gl.randn(96, 96), gl.randint(0, 4, (96,))
    compiled(x, y)
    compiled(x, y)
    staged = compiled.programs[0].staged
    tracer = staged.twins[0]._array.tracer
    assert not tracer.graph.calls
    assert not tracer.tensors and not tracer._values and not tracer._state


@needs_compiler
def test_a_compiled_function_takes_its_programs_with_it():
    _, step = network()
    x, y = gl.randn(8, 96), gl.randint(0, 4, (8,))
    compiled = gl.compile(step)
    compiled(x, y)
    compiled(x, y)
    gone = weakref.ref(compiled.programs[0].runner.executable)
    del compiled
    gc.collect()
    assert gone() is None


def test_of_very_many_programs_the_last_to_run_are_kept(monkeypatch):
    monkeypatch.setattr("gradlab.graph.calls.runner.MOST", 3)
    double = gl.compile(lambda x: x + x)
    for n in (1, 2, 3, 4, 5, 3, 6):
        for _ in range(2):
            assert double(gl.ones(n)).tolist() == [2.0] * n
    assert [p.staged.graph.inputs[0].spec.shape for p in double.programs] == [(6,), (3,), (5,)]


@needs_compiler
def test_programs_of_one_function_share_gradients_and_memory():
    r = np.random.default_rng(0)
    batches = [(r.normal(size=(n, 96)).astype("f"), r.integers(0, 4, n)) for n in (64, 48, 80, 64, 80, 48, 48, 64, 32, 64, 80, 80)]
    found = []
    for compiled in (False, True):
        gl.manual_seed(0)
        model, step = network()
        run = gl.compile(step) if compiled else step
        losses = [run(gl.from_numpy(x), gl.from_numpy(y)).item() for x, y in batches]
        arrays = {id(model[0].weight.grad._array)}
        for x, y in batches[-3:-7:-1]:
            losses.append(run(gl.from_numpy(x), gl.from_numpy(y)).item())
            arrays.add(id(model[0].weight.grad._array))
        found.append(losses)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
    assert len(arrays) == 1
    assert len(executables := [p.runner.executable for p in run.programs]) == 4
    assert sum(e._objects[-1] is not None for e in executables) == 1  # the others hold no arrays of their runs
    assert len({e._memory.ctypes.data for e in executables}) <= 2
    held = model[0].weight.grad
    values = held.numpy().copy()
    run(gl.from_numpy(batches[0][0]), gl.from_numpy(batches[0][1]))
    assert model[0].weight.grad is not held
    np.testing.assert_array_equal(held.numpy(), values)


WATCHING = (reads.Reads, unrepeatable.Young, unrepeatable.Iterators, bytecode.Following, attribute_lookup.Lookups, accesses.Taken)


@pytest.mark.alone
def test_what_watched_a_trace_is_let_go_and_little_else_stays():
    """A program keeps its guards and its tasks, not the tables by which these were found, as large as the process has young objects."""
    calls, taken = [(gl.compile(network()[1]), gl.randn(96, 96), gl.randint(0, 4, (96,))) for _ in range(2)], []
    calls += [(gl.compile(nn.Linear(3, 4)), gl.randn(2, 3)), (gl.compile(lambda x: (x * 2).sin()), gl.randn(3))]
    for call, *given in calls:
        tracemalloc.start()
        for _ in range(4):
            call(*given)
        gc.collect()
        found = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(False, np.lib.tracemalloc_domain)])
        tracemalloc.stop()
        taken.append(sum(trace.size for trace in found.traces))
    assert taken[1] < 450_000, taken  # the first has what all programs share
    assert not [type(o) for o in gc.get_objects() if type(o) in WATCHING]
