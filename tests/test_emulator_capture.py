"""Captures on the emulated GPU: what a capture cannot hold raises, branches need events, replays run in any order that edges allow. The
same through gl.cuda."""

import gc

import numpy as np
import pytest
from emulated import bench

import gradlab as gl
from gradlab.backends.cuda.emulator import KernelFault

N = 64


def captured(b, work, arena=True):
    """Capture work in a stream of its own; the graph."""
    s = b.stream()
    b.driver.synchronize()
    with b.on(s):
        b.driver.begin_capture(s, b.driver.new_arena() if arena else None)
        try:
            work(s)
        finally:
            graph = b.driver.end_capture(s)
    return b.driver.instantiate(graph)


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
def test_replays_compute_again(schedule):
    b = bench(schedule=schedule)
    x, kept = b.filled(N, 1), []
    graph = captured(b, lambda s: kept.append(b.add(b.add(x, 1), 1)))
    (y,) = kept
    assert np.isnan(b.seen(y))  # nothing has run
    for value in (1, 5):
        b.driver.fill_zero(x)
        b.work.launch(b.kernel, 1, N, x, x, np.float32(value), np.int32(N))
        b.driver.launch_graph(graph, b.driver.default_stream())
        b.driver.synchronize()
        assert b.seen(y) == value + 2


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
def test_branches(schedule):
    b = bench(schedule=schedule)
    x, side, kept = b.filled(N, 1), b.stream(), []

    def work(s):
        first = b.add(x, 1)
        b.wait(side, b.event())
        with b.on(side):
            right = b.add(first, 10)
            joined = b.event()
        left = b.add(first, 20)
        b.wait(s, joined)
        kept.extend([left, right, b.add(right, 1)])

    graph = captured(b, work)
    assert [sorted(node.after) for node in graph.nodes] == [[], [0], [0], [1, 2]]
    b.driver.launch_graph(graph, b.driver.default_stream())
    b.driver.synchronize()
    assert [b.seen(k) for k in kept] == [22, 12, 13]
    assert side.capture is None
    assert not b.driver.capturing()


def test_nodes_run_in_different_orders():
    found = set()
    for schedule in ("late", "random", "eager"):
        b = bench(schedule=schedule)
        order: list[int] = []
        sides = [b.stream() for _ in range(4)]

        def work(s, b=b, order=order, sides=sides):
            begun = b.event()
            for number, side in enumerate(sides):
                b.wait(side, begun)
                b.driver.engine.submit(side, "work", (), lambda number=number: order.append(number))
                b.wait(s, b.event(side))

        b.driver.launch_graph(captured(b, work), b.driver.default_stream())
        b.driver.synchronize()
        assert sorted(order) == [0, 1, 2, 3]
        found.add(tuple(order))
    assert len(found) == 3


REFUSED = {
    "a copy from the host": lambda b, x: b.filled(N, 1),
    "a copy to the host": lambda b, x: b.driver.download(x),
    "synchronize": lambda b, x: b.driver.synchronize(),
    "synchronize of a captured stream": lambda b, x: b.driver.synchronize_stream(b.driver.current_stream()),
    "query of a captured stream": lambda b, x: b.driver.stream_done(b.driver.current_stream()),
    "empty_cache": lambda b, x: b.driver.free_cached(),
    "loading a kernel": lambda b, x: b.driver.compile('extern "C" __global__ void other() {}', ["other"], "other.cu"),
    "allocating the host's memory": lambda b, x: b.driver.shared_words(1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_capture_cannot_hold(what):
    b = bench()
    x = b.filled(N, 1)

    def work(s):
        with pytest.raises(RuntimeError, match=rf"inside a CUDA graph's capture: {what}.*nothing runs before the graph is replayed"):
            REFUSED[what](b, x)

    with pytest.raises(RuntimeError, match=rf"the capture has failed before: inside a CUDA graph's capture: {what}"):
        captured(b, work)
    assert b.driver.download(b.add(x, 1))[0] == 2  # it goes on


def test_memory_in_a_capture_is_the_graphs():
    b = bench()
    x, kept = b.filled(N, 1), []
    with pytest.raises(RuntimeError, match=r"memory is allocated in a capture without an arena"):
        captured(b, lambda s: b.add(x, 1), arena=False)
    with pytest.raises(RuntimeError, match=r"memory is allocated in a stream that is not captured"):
        captured(b, lambda s: b.driver.use_stream(b.stream()) or b.add(x, 1))
    b.driver.use_stream(b.driver.default_stream())
    before = b.driver.memory(0)
    graph = captured(b, lambda s: kept.append(b.add(b.add(x, 1), 1)))
    held = b.driver.memory(0)
    assert (held.allocated - before.allocated, held.reserved - before.reserved) == (256, 512)
    address = b.driver.pointer(kept[0])
    del kept[:]
    b.driver.free_cached()
    assert b.driver.pointer(b.driver.empty((N,), np.dtype(np.float32))) != address  # still the graph's
    assert b.driver.memory(0).reserved >= 512
    del graph
    gc.collect()
    b.driver.free_cached()
    assert b.driver.memory(0).reserved <= before.reserved


def test_an_input_that_was_freed():
    b = bench()
    inputs = [b.filled(N, 1)]
    graph = captured(b, lambda s: b.add(inputs[0], 1))
    inputs.clear()
    with pytest.raises(KernelFault, match=r"a captured graph: it reads or writes memory of cuda:0 .256 bytes. that was freed after the"):
        b.driver.launch_graph(graph, b.driver.default_stream())


def test_branches_that_meet_in_memory():
    b = bench()
    x, side = b.filled(N, 1), b.stream()

    def work(s):
        b.wait(side, b.event())
        y = b.add(x, 1)
        with b.on(side), pytest.raises(KernelFault, match=r"add: it reads memory .* that add writes"):
            b.add(y, 1)
        b.wait(s, b.event(side))

    captured(b, work)


def test_how_streams_join_and_leave():
    b = bench()
    x, side = b.filled(N, 1), b.stream()

    def unjoined(s):
        b.wait(side, b.event())
        with b.on(side):
            b.add(x, 1)

    with pytest.raises(RuntimeError, match=r"end_capture: stream \d+ of cuda:0 has not waited for stream \d+ of cuda:0, which joined"):
        captured(b, unjoined)
    events = []
    captured(b, lambda s: events.append(b.event()))
    with pytest.raises(RuntimeError, match=r"the event was recorded in a capture that has ended"):
        b.wait(side, events[0])
    with pytest.raises(RuntimeError, match=r"synchronize: the event was recorded in a capture"):
        b.driver.synchronize_event(events[0])

    def default_joins(s):
        with pytest.raises(RuntimeError, match=r"the default stream cannot join"):
            b.wait(b.driver.default_stream(), b.event())

    captured(b, default_joins)
    outside = b.event()

    def outside_event(s):
        with pytest.raises(RuntimeError, match=r"recorded outside of its capture"):
            b.wait(s, outside)
        with pytest.raises(RuntimeError, match=r"a capture is going on already"):
            b.driver.begin_capture(side, None)

    captured(b, outside_event)
    with pytest.raises(RuntimeError, match=r"cannot begin in the default stream"):
        b.driver.begin_capture(b.driver.default_stream(), None)
    with pytest.raises(RuntimeError, match=r"no capture began in"):
        b.driver.end_capture(side)


# ---------------------------------------------------------------- gl.cuda


pytestmark = pytest.mark.usefixtures("cuda")


def test_a_training_step_is_captured_and_replayed():
    def training(capture):
        gl.manual_seed(5)
        model = gl.nn.Sequential(gl.nn.Linear(6, 8), gl.nn.ReLU(), gl.nn.Dropout(0.5), gl.nn.Linear(8, 3)).cuda()
        optimizer = gl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batches = [np.random.default_rng(i).normal(size=(4, 6)).astype(np.float32) for i in range(5)]
        x, target = gl.tensor(batches[0], device="cuda"), gl.arange(4, device="cuda") % 3

        def step():
            loss = gl.nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        losses, replay = [], None
        for number, batch in enumerate(batches):
            x.copy_(gl.tensor(batch, device="cuda"))
            if capture and number == 2:
                graph = gl.cuda.CUDAGraph()
                with gl.cuda.graph(graph):
                    loss = step()
                replay = graph.replay
            if replay is None:
                loss = step()
            else:
                replay()
            losses.append(loss.item())
        return losses, [p.detach().cpu().numpy() for p in model.parameters()]

    (want_losses, want), (losses, got) = training(False), training(True)
    assert losses == want_losses
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_random_numbers_are_new_in_each_replay():
    own = gl.Generator("cuda").manual_seed(9) if hasattr(gl, "Generator") else gl.random.Generator("cuda").manual_seed(9)
    graph = gl.cuda.CUDAGraph()
    graph.register_generator_state(own)
    gl.rand(10, device="cuda")
    with gl.cuda.graph(graph):
        a, c = gl.rand(10, device="cuda"), gl.rand(3, device="cuda", generator=own)
        b = gl.rand(10, device="cuda")
    gl.manual_seed(1)
    own.manual_seed(9)
    got = []
    for _ in range(2):
        graph.replay()
        got += [a.tolist(), b.tolist(), c.tolist()]
    gl.manual_seed(1)
    own.manual_seed(9)
    for place in (0, 3):
        want = [gl.rand(10).tolist(), gl.rand(10).tolist(), gl.rand(3, generator=own).tolist()]
        assert got[place : place + 3] == want
    with pytest.raises(RuntimeError, match=r"register_generator_state"), gl.cuda.graph(gl.cuda.CUDAGraph()):
        gl.rand(3, device="cuda", generator=gl.random.Generator("cuda"))


def test_replays_in_two_streams_draw_one_after_the_other():
    graph, first, second = gl.cuda.CUDAGraph(), gl.cuda.Stream(), gl.cuda.Stream()
    total = gl.zeros(10, device="cuda")
    total += gl.rand(10, device="cuda")
    with gl.cuda.graph(graph):
        for _ in range(3):
            total += gl.rand(10, device="cuda")
    total.zero_()
    gl.cuda.synchronize()
    gl.manual_seed(1)
    for stream in (first, second, second, first):  # nobody waits: the graph orders what its replays share
        with gl.cuda.stream(stream):
            graph.replay()
    gl.cuda.synchronize()
    gl.manual_seed(1)
    want = gl.zeros(10)
    for _ in range(12):
        want += gl.rand(10)
    assert total.tolist() == want.tolist()


def test_the_graph_object():
    graph, x = gl.cuda.CUDAGraph(), gl.ones(4, device="cuda")
    x + 1
    with pytest.raises(RuntimeError, match=r"replay: nothing has been captured"):
        graph.replay()
    assert not gl.cuda.is_current_stream_capturing()
    stream, pool = gl.cuda.Stream(), gl.cuda.graph_pool_handle()
    with gl.cuda.graph(graph, pool=pool, stream=stream):
        assert gl.cuda.is_current_stream_capturing()
        y = x + 1
    assert graph.pool() is pool
    with pytest.raises(RuntimeError, match=r"this graph has been captured"), gl.cuda.graph(graph):
        pass
    with gl.cuda.stream(stream):
        graph.replay()
    stream.synchronize()
    assert y.tolist() == [2, 2, 2, 2]
    graph.reset()
    with pytest.raises(ZeroDivisionError), gl.cuda.graph(graph):
        1 / 0
    with pytest.raises(RuntimeError, match=r"a copy to the host \(.cpu\(\), .item\(\)"), gl.cuda.graph(graph):
        y.item()
    with gl.cuda.graph(graph):
        y = x + 1
    with pytest.raises(ValueError, match=r"capture_error_mode is 'strict'"):
        gl.cuda.CUDAGraph().capture_begin(capture_error_mode="strict")
    with pytest.raises(TypeError, match=r"CUDAGraph, not str"):
        gl.cuda.graph("g")
    with pytest.raises(RuntimeError, match=r"default stream"):
        gl.cuda.CUDAGraph().capture_begin()


def test_products_are_captured():
    x, w = gl.ones(8, 16, device="cuda"), gl.ones(16, 8, device="cuda")
    x @ w
    graph = gl.cuda.CUDAGraph()
    with gl.cuda.graph(graph):
        y = x @ w
    w.fill_(2)
    graph.replay()
    assert y.tolist() == [[32.0] * 8] * 8


def test_checks_of_values_do_not_end_a_capture():
    """What eager code looks at, offsets and levels, a capture cannot read."""
    functional, table = gl.nn.functional, gl.arange(20.0, device="cuda").view(10, 2)
    bag, x, levels = gl.tensor([1, 2, 3, 4], device="cuda"), gl.arange(8.0, device="cuda"), gl.tensor([0.25, 0.5], device="cuda")
    starts, bounds = gl.tensor([0, 2], device="cuda"), gl.tensor([0, 3, 8], device="cuda")
    calls = [lambda: functional.embedding_bag(bag, table, starts, mode="sum"), lambda: gl.quantile(x, levels),
             lambda: gl.segment_reduce(x, "sum", offsets=bounds), lambda: gl.segment_reduce(x, "sum", lengths=bounds.diff())]  # fmt: skip
    for call in calls:
        want, graph = call().tolist(), gl.cuda.CUDAGraph()
        with gl.cuda.graph(graph):
            found = call()
        graph.replay()
        assert found.tolist() == want
