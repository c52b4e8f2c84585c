"""`gl.profiler`: operations are counted and timed, on both devices; NVTX ranges nest without a GPU."""

from __future__ import annotations

import json

import pytest

import gradlab as gl
from gradlab import dispatch, nn


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU())


def test_operations_modules_and_ranges(tmp_path):
    model, before = net(), dict(dispatch._by_type)
    with gl.profiler.profile(with_modules=True, record_shapes=True) as prof:
        with gl.profiler.record_function("forward"):
            loss = model(gl.ones(2, 3)).sum()
        loss.backward()
    found = {e.key: e for e in prof.key_averages()}
    assert found["linear"].count == 1 and found["module Sequential"].count == 1 and found["range forward"].count == 1
    assert found["linear"].cpu_time_total > 0 and found["module Sequential"].cpu_time_total >= found["linear"].cpu_time_total
    assert any(e.kind == "backward" for e in prof.events())
    assert "((2, 3), (4, 3), (4,))" in prof.key_averages(group_by_input_shape=True).table(sort_by="count")
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == len(prof.events()) and all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert dispatch._by_type == before and model[0].weight.grad is not None


@pytest.mark.usefixtures("cuda")
def test_device_times():
    model = net().cuda()
    with gl.profiler.profile() as prof:
        model(gl.ones(2, 3, device="cuda"))
    (linear,) = [e for e in prof.key_averages() if e.key == "linear"]
    assert linear.device_time_total > 0


def test_misuse():
    with gl.profiler.profile() as prof, pytest.raises(RuntimeError, match="on already"), gl.profiler.profile():
        pass
    with pytest.raises(ValueError, match="sort_by"):
        prof.key_averages().table(sort_by="speed")
    with gl.profiler.record_function("nothing is on"):
        pass


def test_nvtx_ranges():
    nvtx = gl.cuda.nvtx
    assert nvtx.range_push("outer") == 0
    with nvtx.range("inner {}", 1):
        nvtx.mark("here")
    assert nvtx.range_pop() == 0
    with pytest.raises(RuntimeError, match="no range"):
        nvtx.range_pop()
    x = gl.ones(2, 3)
    with gl.profiler.emit_nvtx():
        assert net()(x).shape == (2, 4)


def test_nvtx_names_modules_operations_and_backward(monkeypatch):
    """What CuPy's NVTX is told; on a machine without it nothing is."""
    told: list[str] = []

    class Nvtx:
        def RangePush(self, msg, id_color=-1):
            told.append(msg)

        def RangePop(self):
            told.append("end")

        def Mark(self, msg, id_color=-1):
            told.append(f"mark {msg}")

    monkeypatch.setattr(gl.cuda.nvtx, "_library", Nvtx)
    model = net()
    with gl.profiler.emit_nvtx():
        with gl.profiler.record_function("step"):
            loss = model(gl.ones(2, 3)).sum()
        gl.cuda.nvtx.mark("backward")
        loss.backward()
    begun = [t for t in told if t != "end" and not t.startswith("mark")]
    assert len(begun) == told.count("end")
    assert begun[0] == "range step" and "module Sequential" in begun and "linear" in begun
    assert told.index("module Sequential") < told.index("linear") < told.index("mark backward")
    assert [t for t in told[told.index("mark backward") :] if "matmul" in t]


@pytest.mark.usefixtures("cuda")
def test_calls_that_repeat_themselves_are_timed_too():
    model, x = net().cuda(), gl.ones(2, 3, device="cuda")
    for _ in range(3):
        model(x)
    with gl.profiler.profile(with_modules=True) as prof:
        for _ in range(4):
            model(x)
    found = {e.key: e for e in prof.key_averages()}
    assert found["linear"].count == found["module Sequential"].count == 4
    assert found["linear"].device_time_total > 0
