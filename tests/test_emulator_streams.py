"""The emulated GPU's streams run late, in an order that only events constrain; memory that they share without an event is found."""

from functools import partial

import numpy as np
import pytest
from emulated import Bench, bench

from gradlab.backends.cuda.emulator import KernelFault

SCHEDULES = ("late", "random", "eager")
N = 64


@pytest.fixture(params=SCHEDULES)
def each_schedule(request) -> Bench:
    return bench(schedule=request.param)


def test_work_runs_when_somebody_waits():
    b = bench()
    x, s = b.filled(N, 1), b.stream()
    b.driver.synchronize()
    with b.on(s):
        y = b.add(x, 1)
    assert not b.driver.stream_done(s)  # asking lets one piece of work run
    assert b.driver.stream_done(s)
    assert b.seen(y) == 2
    with b.on(s):
        for _ in range(3):
            y = b.add(y, 1)
    assert not b.driver.stream_done(s)
    b.driver.synchronize_stream(s)
    assert b.driver.stream_done(s)
    assert b.seen(y) == 5


def test_a_wait_runs_only_what_it_needs():
    b = bench()
    x, first, second = b.filled(N, 1), b.stream(), b.stream()
    b.driver.synchronize()
    with b.on(first):
        early = b.add(x, 1)
        event = b.event()
        b.add(early, 1)
    with b.on(second):
        other = b.add(x, 5)
    b.driver.synchronize_event(event)
    assert b.seen(early) == 2
    assert len(first.waiting) == 1
    assert np.isnan(b.seen(other))
    assert len(second.waiting) == 1
    b.driver.synchronize()
    assert b.seen(other) == 6


def test_events_order_streams(each_schedule):
    b = each_schedule
    x, first, second = b.filled(N, 1), b.stream(), b.stream()
    b.wait(first, b.event())
    with b.on(first):
        y = b.add(x, 1)
    b.wait(second, b.event(first))
    with b.on(second):
        z = b.add(y, 1)
    b.wait(first, b.event(second))  # streams that wait for one another in turn
    with b.on(first):
        z = b.add(z, 1)
    b.driver.synchronize_stream(first)
    assert b.seen(z) == 4


def test_an_event_that_is_recorded_anew(each_schedule):
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    event = b.driver.new_event(True)
    assert b.driver.event_done(event)
    b.wait(s, event)  # never recorded: no wait
    b.driver.record_event(event, b.driver.current_stream())
    b.wait(s, event)
    with b.on(s):
        x = b.add(x, 1)
        b.driver.record_event(event, s)
    while not b.driver.event_done(event):
        pass
    assert b.seen(x) == 2
    later = b.event(s)
    b.driver.synchronize_event(later)
    assert b.driver.elapsed(event, later) >= 0


def test_streams_go_on_in_any_order():
    """Of many streams that are free, the schedules choose differently; each keeps its own order."""
    found = set()
    for schedule in SCHEDULES:
        b = bench(schedule=schedule)
        order: list[tuple[int, int]] = []
        streams = [b.stream() for _ in range(4)]
        for turn in range(3):
            for number, s in enumerate(streams):
                b.driver.engine.submit(s, "work", (), partial(order.append, (number, turn)))
        b.driver.synchronize()
        assert all([t for n, t in order if n == number] == [0, 1, 2] for number in range(4))
        found.add(tuple(order))
    assert len(found) == len(SCHEDULES)


def test_a_full_stream_runs():
    b = bench()
    ran: list[int] = []
    s = b.stream()
    for number in range(1100):
        b.driver.engine.submit(s, "work", (), lambda number=number: ran.append(number))
    assert 0 < len(ran) < 1100
    b.driver.synchronize()
    assert ran == list(range(1100))
    b.add(b.filled(N, 1), 1)
    events = [b.event() for _ in range(1000)]  # they come with the work before them
    b.driver.synchronize_event(events[0])
    assert all(map(b.driver.event_done, events))


# ---------------------------------------------------------------- planted: memory without an event


def test_a_stream_reads_what_another_writes(each_schedule):
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    b.driver.synchronize()
    y = b.add(x, 1)
    words = r"add: it reads memory of cuda:0 .256 bytes. in stream \d+ of cuda:0 that add writes in the default stream of cuda:0, and no"
    with b.on(s), pytest.raises(KernelFault, match=words):
        b.add(y, 1)
    b.driver.synchronize()  # the host has waited: that is an order too
    with b.on(s):
        z = b.add(y, 1)
    b.driver.synchronize()
    assert b.seen(z) == 3


def test_a_stream_writes_what_another_reads(each_schedule):
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    b.driver.synchronize()
    with b.on(s):
        b.add(x, 1)
    with pytest.raises(KernelFault, match=r"fill_zero: it writes .* that add reads in stream"):
        b.driver.fill_zero(x)


def test_the_host_reads_through_the_wrong_stream(each_schedule):
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    b.driver.synchronize()
    with b.on(s):
        y = b.add(x, 1)
    with pytest.raises(KernelFault, match=r"a copy to the host: it reads"):
        b.driver.download(y)


def test_a_buffer_is_reused_before_its_stream_has_run(each_schedule):
    """A block that was freed goes to the next allocation of its own stream, while another stream still works with it."""
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    b.driver.synchronize()
    with b.on(s):
        y = b.add(x, 1)
    del x
    reused = b.driver.empty((N,), np.dtype(np.float32))
    words = r"fill_zero: memory of cuda:0 .256 bytes. is reused in the default stream of cuda:0 before its user add in stream \d+ of cuda:0"
    with pytest.raises(KernelFault, match=words):
        b.driver.fill_zero(reused)
    b.driver.synchronize()
    assert b.seen(y) == 2


def test_a_buffer_that_is_freed_after_an_event(each_schedule):
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    address = b.driver.pointer(x)
    b.driver.synchronize()
    with b.on(s):
        y = b.add(x, 1)
    b.wait(b.driver.default_stream(), b.event(s))
    del x
    reused = b.driver.empty((N,), np.dtype(np.float32))
    assert b.driver.pointer(reused) == address
    b.driver.fill_zero(reused)
    b.driver.synchronize()
    assert b.seen(y) == 2
    assert b.seen(reused) == 0


def test_a_buffer_that_waits_for_a_recorded_stream(each_schedule):
    """The fault of above, avoided by record_stream: the memory comes back when the stream is done, and not before."""
    b = each_schedule
    x, s = b.filled(N, 1), b.stream()
    address = b.driver.pointer(x)
    b.driver.synchronize()
    with b.on(s):
        y = b.add(x, 1)
    b.driver.record_stream(x[1:], s)
    b.driver.record_stream(x, s)
    del x
    others = []
    for _ in range(4):  # each allocation asks, and asking lets a little of the stream's work run
        others.append(b.driver.empty((N,), np.dtype(np.float32)))
        b.driver.fill_zero(others[-1])
    b.driver.synchronize()
    assert b.seen(y) == 2
    others.append(b.driver.empty((N,), np.dtype(np.float32)))
    assert address in map(b.driver.pointer, others)
    assert not b.driver._lingering.waiting


def test_a_recorded_stream_is_waited_for_where_memory_is_short():
    b = bench(memory=3 * 4 * N)
    x, s = b.filled(N, 1), b.stream()
    b.driver.synchronize()
    with b.on(s):
        y = b.add(x, 1)
    b.driver.record_stream(x, s)
    del x
    one, two = (b.driver.empty((N,), np.dtype(np.float32)) for _ in range(2))
    b.driver.fill_zero(one)
    b.driver.fill_zero(two)
    b.driver.synchronize()
    assert b.seen(y) == 2


def test_a_freed_block_goes_back_to_its_stream():
    b = bench()
    s = b.stream()
    with b.on(s):
        x = b.driver.empty((N,), np.dtype(np.float32))
    address = b.driver.pointer(x)
    del x
    assert b.driver.pointer(b.driver.empty((N,), np.dtype(np.float32))) != address
    with b.on(s):
        assert b.driver.pointer(b.driver.empty((N,), np.dtype(np.float32))) == address


def test_reused_memory_reads_as_nan():
    b = bench()
    x = b.filled(N, 1)
    b.driver.synchronize()
    del x
    y = b.driver.empty((N,), np.dtype(np.float32))
    z = b.add(y, 1)
    b.driver.synchronize()
    assert np.isnan(b.seen(z))


# ---------------------------------------------------------------- launches


def test_arguments_are_checked():
    b = bench()
    x, y = b.filled(N, 1), b.driver.empty((N,), np.dtype(np.float32))
    with pytest.raises(KernelFault, match=r"add: it takes 4 parameters, not 3"):
        b.work.launch(b.kernel, 1, N, x, y, np.float32(1))
    with pytest.raises(KernelFault, match=r"add: parameter 2: a value of float64 for float32"):
        b.work.launch(b.kernel, 1, N, x, y, 1.0, np.int32(N))
    with pytest.raises(KernelFault, match=r"add: parameter 0: a value of int64 for const float32\*"):
        b.work.launch(b.kernel, 1, N, 5, y, np.float32(1), np.int32(N))
    with pytest.raises(KernelFault, match=r"add: parameter 3: an address for int32"):
        b.work.launch(b.kernel, 1, N, x, y, np.float32(1), x)
    wrong = b.driver.upload(np.zeros(N))
    with pytest.raises(KernelFault, match=r"add: parameter 1: elements of float64 for float32\*"):
        b.work.launch(b.kernel, 1, N, x, wrong, np.float32(1), np.int32(N))
    with pytest.raises(KernelFault, match=r"block .2048, 1, 1. is not within"):
        b.work.launch(b.kernel, 1, 2048, x, y, np.float32(1), np.int32(N))
    packed = b.work.driver.launches
    b.work.launch(b.kernel, 1, N, x, y, np.float32(1), np.int32(N))
    assert b.work.driver.launches == packed + 1
    b.driver.synchronize()
    assert b.seen(y) == 2


def test_addresses_are_checked():
    b = bench(devices=2)
    x = b.filled(N, 1)
    with pytest.raises(KernelFault, match=r"add: parameter 1: 0x123450000 is no memory of the device"):
        b.launch_raw(b.driver.pointer(x), 0x123450000)
    gone = b.driver.empty((N,), np.dtype(np.float32))
    address = b.driver.pointer(gone)
    del gone
    with pytest.raises(KernelFault, match=r"add: parameter 1: an address of memory of cuda:0 .256 bytes. that was freed"):
        b.launch_raw(b.driver.pointer(x), address)
    b.driver.set_device(1)
    y = b.driver.empty((N,), np.dtype(np.float32))
    with pytest.raises(KernelFault, match=r"add: parameter 0: an address of cuda:0 in a launch on cuda:1"):
        b.work.launch(b.kernel, 1, N, x, y, np.float32(1), np.int32(N))


def test_a_write_beside_an_array_is_found_when_the_kernel_runs():
    b = bench()
    x, y = b.filled(2 * N, 1), b.driver.empty((N,), np.dtype(np.float32))
    b.work.launch(b.kernel, 1, 2 * N, x, y, np.float32(1), np.int32(N + 1))
    with pytest.raises(KernelFault, match=r"add: parameter 1: a write after an array of 256 bytes"):
        b.driver.synchronize()
    b.driver.synchronize()  # it was mended, and reported once


def test_damage_that_no_kernel_is_known_for():
    b = bench()
    x = b.filled(N, 1)
    b.driver.synchronize()
    np.lib.stride_tricks.as_strided(x._host, (N + 1,))[N] = 3
    with pytest.raises(KernelFault, match=r"a write after an array of 256 bytes of cuda:0, found by synchronize"):
        b.driver.synchronize()


def test_an_unknown_schedule():
    with pytest.raises(RuntimeError, match=r"GRADLAB_EMULATED_STREAMS is 'soon'; it may be late, random, eager"):
        bench(schedule="soon")
