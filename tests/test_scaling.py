"""The model of `bench/scaling.py`: what it says where the answer is known."""

import sys

import pytest

from repository import ROOT

sys.path.insert(0, str(ROOT / "bench"))
try:
    import scaling
finally:
    sys.path.remove(str(ROOT / "bench"))


def test_alpha_and_beta_are_found_again():
    for ranks in (2, 4, 16):
        alpha, beta = 3e-5, 2e9
        share = 2 * (ranks - 1) / ranks
        points = [(count, size, count * (alpha + share * size / beta)) for count in scaling.COUNTS for size in scaling.SIZES]
        assert scaling.fitted(points, ranks) == pytest.approx((alpha, beta), rel=1e-6)
        free = [(count, size, count * share * size / beta - 1e-6) for count, size, _ in points]
        assert scaling.fitted(free, ranks)[0] == 0.0


def test_a_line_of_the_table():
    """Work that grows with the processes, messages beside it, and a step that is what the model says."""
    alpha, beta, work, gradients = 1e-3, 1e9, 0.05, [1e6] * 4
    times = {"work": work, "step": work + 4 * (alpha + 1e6 / beta)}
    for count in scaling.COUNTS:
        for size in scaling.SIZES:
            times[f"beside {count} {size}"] = work + count * (alpha + size / beta)
            times[f"alone {count} {size}"] = 2 * count * (alpha + size / beta)
    line, ratio = scaling.line_of(2, {"times": times, "gradients": gradients}, 0.04)
    assert ratio == pytest.approx(1.0) and line.startswith("| 2 | 50 | 1.25 | 2000 µs, 500 MB/s | 1000 µs, 1000 MB/s |")
    assert line.endswith("| 1.00 | 50% |")


def test_the_page_has_the_place_for_the_table():
    text = scaling.PAGE.read_text(encoding="utf-8")
    assert text.index(scaling.BEGIN) < text.index(scaling.END)


def test_what_waits():
    """All of it where nothing overlaps; else the last bucket at least, and no more than all of it."""
    step = scaling.Step(1.0, 2.0, 0.5, [10.0, 10.0, 20.0])
    for second in (0.0, 0.01, 0.05, 1.0):
        total, exposed = scaling.step_time(step, lambda size, s=second: s * size, False)
        assert total == pytest.approx(3.5 + 40 * second) and exposed == pytest.approx(40 * second)
        total, exposed = scaling.step_time(step, lambda size, s=second: s * size, True)
        assert total == pytest.approx(3.5 + exposed) and 20 * second <= exposed <= 40 * second
    assert scaling.step_time(step, lambda size: 0.05 * size, True)[1] == pytest.approx(1.0)  # the last one, begun when backward ends
    assert scaling.step_time(step, lambda size: size, True)[1] == pytest.approx(40 - 1.5)  # all, but for what the first waited for


def test_gpus():
    sizes = [1e3, 1e6, 1e8, 1e10]
    for gpus in scaling.GPUS[1:]:
        times = [scaling.nccl_time(size, gpus) for size in sizes]
        assert times == sorted(times) and times[-1] >= 2 * (gpus - 1) / gpus * 1e10 / scaling.IN_NODE
    assert scaling.nccl_time(1e6, 1) == 0.0
    for parameters in scaling.MODELS.values():
        parts = [scaling.efficiency(parameters, gpus, 524288 / gpus)[2] for gpus in scaling.GPUS]
        assert parts[0] == 1.0 and parts == sorted(parts, reverse=True) and parts[-1] < 0.5
        step = scaling.gpu_step(parameters, 16384)
        assert sum(step.gradients) == pytest.approx(2 * parameters) and step.backward == pytest.approx(2 * step.forward)
