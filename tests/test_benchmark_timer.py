"""`utils.benchmark`: what is measured, and how it is shown."""

import pytest

import gradlab as gl
from gradlab.utils.benchmark import Compare, Measurement, TaskSpec, Timer, select_unit, trim_sigfig


class Clock:
    """A clock that moves on by the seconds that each call takes."""

    def __init__(self, steps):
        self.now, self.steps, self.calls = 0.0, steps, 0

    def work(self):
        self.now += self.steps[self.calls % len(self.steps)]
        self.calls += 1

    def __call__(self):
        return self.now


def timed(steps, **names):
    clock = Clock(steps)
    return clock, Timer("work()", globals={"work": clock.work}, timer=clock, **names)


def test_one_measurement():
    clock, timer = timed([0.5], label="label", sub_label="sub", description="here")
    found = timer.timeit(4)
    assert found.times == [0.5] and found.raw_times == [2.0] and found.number_per_run == 4 and clock.calls == 6  # two to warm up
    assert (found.mean, found.median, found.iqr, found.label, found.title) == (0.5, 0.5, 0.0, "label", "label: sub")
    assert "500.00 ms" in repr(found) and "4 runs per measurement" in repr(found) and not found.has_warnings


def test_blocks():
    timer = timed([0.001])[1]
    seen = []
    found = timer.blocked_autorange(lambda number, time: seen.append(number), min_run_time=0.1)
    assert found.number_per_run == 1 and found.median == pytest.approx(0.001) and len(seen) == len(found.times) >= 100
    assert timed([1e-6])[1].blocked_autorange(min_run_time=0.1).number_per_run == 1000


def test_until_it_is_steady():
    steady = timed([0.01])[1].adaptive_autorange(min_run_time=0.01)
    restless = timed([0.01, 0.05, 0.2, 0.4])[1].adaptive_autorange(min_run_time=0.01, max_run_time=3.0)
    assert len(steady.times) == 4 and sum(restless.raw_times) >= 3.0 and restless.has_warnings
    assert restless.significant_figures < steady.significant_figures


def test_a_table():
    def made(times, sub_label, description, label="adding"):
        return Measurement(1, times, TaskSpec("x", "", label, sub_label, description))

    compare = Compare([made([0.002], "small", "here"), made([0.004], "small", "here")])
    compare.extend_results([made([0.5], "large", "here"), made([0.1], "large", "there")])
    lines = str(compare).splitlines()
    assert [line.split("|")[0].strip() for line in lines[1:4]] == ["", "small", "large"]
    assert [[cell.strip() for cell in line.split("|")[1:]] for line in lines[2:4]] == [["3.0", ""], ["500.0", "100.0"]]
    compare.extend_results([made([1.0], "small", "here", label="other")])
    assert str(compare).count("Times are in") == 2
    with pytest.raises(ValueError, match="Measurement"):
        Compare([3])


def test_the_rest(capsys):
    assert select_unit(0.002) == ("ms", 1e-3) and select_unit(5e-10)[0] == "ns"
    assert trim_sigfig(1234.5, 2) == 1200 and trim_sigfig(0, 2) == 0
    with pytest.raises(NotImplementedError, match="Python"):
        Timer("x", language="cpp")
    with pytest.raises(NotImplementedError, match="not counted"):
        Timer("x").collect_callgrind()
    before = gl.get_num_threads()
    found = Timer("gl.ones(2) + y", setup="y = gl.ones(2)", globals={"gl": gl}).timeit(2)
    assert found.median > 0 and gl.get_num_threads() == before
    Compare([found]).print()
    assert "gl.ones(2) + y" in capsys.readouterr().out
