"""What a profile counts: bytes, FLOPs, memory, modules; of rows and of compiled programs."""

from __future__ import annotations

import importlib
import json
import math
import pkgutil

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.profiler.counting import FORMULAS
from gradlab.profiler.memory import thinned
from gradlab.profiler.table import unit_text

N, K, M = 4, 5, 6
F = nn.functional
COUNTED = {  # FLOPs by hand: what runs, the row, its count
    "matmul": (lambda: gl.ones(N, K) @ gl.ones(K, M), 2 * N * K * M),
    "linear": (lambda: F.linear(gl.ones(N, K), gl.ones(M, K), gl.ones(M)), 2 * N * K * M + N * M),
    "convolution": (lambda: F.conv2d(gl.ones(2, 3, 8, 8), gl.ones(4, 3, 3, 3)), 2 * (2 * 4 * 6 * 6) * 27),
    "convolution_dx": (lambda: F.conv_transpose2d(gl.ones(2, 3, 4, 4), gl.ones(3, 5, 2, 2)), 2 * (2 * 3 * 4 * 4) * 5 * 4),
    "scaled_dot_product_attention": (
        lambda: F.scaled_dot_product_attention(gl.ones(2, 3, 4, 8), gl.ones(2, 3, 6, 8), gl.ones(2, 3, 6, 8)), 2 * 6 * 4 * 6 * (8 + 8),
    ),
    "exp": (lambda: gl.ones(N, K).exp(), N * K),
    "sum": (lambda: gl.ones(N, K).sum(), N * K),
    "softmax": (lambda: gl.ones(N, K).softmax(1), 4 * N * K),
    "where": (lambda: gl.where(gl.ones(3) > 0, 1.0, 2.0), 0),
    "transpose": (lambda: gl.ones(N, K).transpose(0, 1), 0),
}  # fmt: skip


def found(prof):
    return {e.key: e for e in prof.key_averages()}


@pytest.mark.parametrize("name", COUNTED)
def test_flops_as_counted_by_hand(name):
    run, count = COUNTED[name]
    with gl.profiler.profile() as prof:
        run()
    assert found(prof)[name].flops == count


def test_flops_of_gradients_are_twice_those_of_a_product():
    x, w = gl.ones(2, 3, 8, 8, requires_grad=True), gl.ones(4, 3, 3, 3, requires_grad=True)
    q, k, v = (gl.ones(2, 3, 4, 8, requires_grad=True) for _ in range(3))
    with gl.profiler.profile() as prof:
        F.conv2d(x, w).sum().backward()
        F.scaled_dot_product_attention(q, k, v).sum().backward()
    rows = found(prof)
    assert rows["convolution_dx"].flops == rows["convolution_dw"].flops == rows["convolution"].flops
    assert rows["scaled_dot_product_attention_backward"].flops == 2.5 * rows["scaled_dot_product_attention"].flops


def test_formulas_are_of_rows_that_exist():
    rows = set()
    for module in pkgutil.walk_packages(gl.ops.__path__, "gradlab.ops."):
        rows |= {v.name for v in vars(importlib.import_module(module.name)).values() if isinstance(v, gl.op.Op)}
    assert set(FORMULAS) <= rows, set(FORMULAS) - rows


def test_bytes_are_those_of_operands_and_views_move_none():
    x, y = gl.ones(100), gl.ones(100)
    with gl.profiler.profile() as prof:
        (x + y).view(10, 10)
    assert found(prof)["add"].bytes == 1200 and found(prof)["view"].bytes == 0


def test_memory_is_that_of_arrays_alive():
    x = gl.ones(1000)
    with gl.profiler.profile(profile_memory=True) as prof:
        a = x * 2
        b = a + 1
        del a
        c = b.view(10, 100)
        del b
        d = c * c
    assert found(prof)["mul"].memory == 8000 and found(prof)["add"].memory == 4000
    held = [total for _, total in prof._timeline()]
    assert held == [4000, 8000, 12000, 8000, 12000] and prof.peak_memory == 12000 and d is not None


def test_the_timeline_as_a_picture_and_as_numbers(tmp_path):
    with gl.profiler.profile(profile_memory=True) as prof:
        y = (gl.ones(1 << 18) * 2).sum()
    prof.export_memory_timeline(tmp_path / "memory.svg")
    prof.export_memory_timeline(str(tmp_path / "memory.json"), device="cpu")
    picture = (tmp_path / "memory.svg").read_text()
    assert picture.startswith("<svg") and "at most 2 MiB" in picture and "in mul" in picture and y.item() == 2 << 18
    assert max(total for _, total in json.loads((tmp_path / "memory.json").read_text())) == prof.peak_memory
    with pytest.raises(ValueError, match="\\.svg or \\.json"):
        prof.export_memory_timeline(tmp_path / "memory.html")
    with gl.profiler.profile() as plain:
        pass
    with pytest.raises(RuntimeError, match="profile_memory=True"):
        plain.export_memory_timeline(tmp_path / "none.svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["memory.json", "memory.svg"]
    assert thinned([(0.0, 1), (1.0, 5), (2.0, 2), (3.0, 3)], 2) == [(1.0, 5), (3.0, 3)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.second = nn.Linear(8, 2)

    def forward(self, x):
        return self.second(self.first(x))


def training(model):
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


@pytest.mark.parametrize("compiled", [False, True])
def test_modules_forward_and_backward(compiled):
    step, x = training(Net()), gl.ones(16, 4)
    step = gl.compile(step) if compiled else step
    for _ in range(3):
        step(x)
    with gl.profiler.profile() as prof:
        step(x)
    modules = {e.key: e for e in prof.module_averages()}
    assert {"Net", "Net.first", "Net.second"} <= set(modules)
    inner = modules["Net.first"].flops + modules["Net.second"].flops
    assert modules["Net"].flops >= inner > 2 * (16 * 4 * 8 + 16 * 8 * 2) * 2  # the forward, and more than once that for the gradients
    assert math.isclose(prof.module_averages().total().cpu_time_total, prof.total_average().cpu_time_total)
    assert "Net.first" in prof.module_averages().table()


def test_a_compiled_step_runs_as_compiled():
    """The same numbers as without a profile, its program's steps as events, and no program more."""
    gl.manual_seed(0)
    models = [Net(), Net()]
    models[1].load_state_dict(models[0].state_dict())
    x = gl.randn(16, 4)
    plain, watched = (gl.compile(training(model)) for model in models)
    losses = [[plain(x).item() for _ in range(6)], [watched(x).item() for _ in range(3)]]
    programs = len(watched.programs)
    with gl.profiler.profile(profile_memory=True) as prof:
        losses[1] += [watched(x).item() for _ in range(2)]
    losses[1].append(watched(x).item())
    assert losses[0] == losses[1] and len(watched.programs) == programs
    names = [e.name for e in prof.events()]
    assert all(name.startswith("compiled ") for name in names if name != "item"), names
    assert any("linear" in name for name in names) and sum(e.flops for e in prof.events()) > 0


def test_compiled_within_a_profile_from_its_first_call_on():
    step, x = gl.compile(training(Net())), gl.ones(16, 4)
    with gl.profiler.profile() as prof:
        for _ in range(3):
            step(x)
    names = [e.name for e in prof.events()]
    assert "linear" in names and sum("compiled" in name and "linear" in name for name in names) >= 2


def test_a_compiled_function_differentiated_from_outside():
    model, x = Net(), gl.ones(16, 4)
    function = gl.compile(lambda x: model(x).sum())
    for _ in range(3):
        function(x).backward()
    before = model.second.weight.grad.clone()
    model.zero_grad()
    with gl.profiler.profile() as prof:
        function(x).backward()
    assert gl.allclose(3 * model.second.weight.grad, before)
    assert any(e.name.startswith("compiled") and "matmul" in e.name for e in prof.events())


@pytest.mark.usefixtures("cuda")
def test_a_compiled_step_on_the_device():
    step, x = gl.compile(training(Net().to("cuda"))), gl.ones(16, 4, device="cuda")
    for _ in range(3):
        step(x)
    with gl.profiler.profile() as prof:
        step(x)
    steps = [e for e in prof.events() if e.kind == "compiled"]
    assert steps and sum(e.device for e in steps) > 0


class TestAsPyTorchHasIt:
    def test_the_table(self):
        with gl.profiler.profile(with_stack=True, record_shapes=True, with_flops=True) as prof:
            (gl.ones(3, 4) @ gl.ones(4, 5)).exp()
        shown = prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=1, header="mine", top_level_events_only=True)
        assert shown.splitlines()[0] == "mine" and shown.splitlines()[-1].startswith("Self CPU time total")
        assert len(shown.splitlines()) == 4
        assert "test_profiler_numbers.py" in prof.key_averages(group_by_stack_n=5).table(sort_by="flops")
        assert prof.key_averages().total_average().count == len(prof.events()) == len(prof.function_events)
        assert prof.self_cpu_time_total == pytest.approx(sum(e.end - e.start for e in prof.events()))
        with pytest.raises(TypeError, match="unexpected arguments sorted"):
            prof.key_averages().table(sorted="x")

    @pytest.mark.parametrize("use", [{"use_cuda": False}, {"use_cuda": True}, {"use_cpu": True, "use_device": None}, {"use_kineto": True}])
    def test_older_arguments(self, use):
        with gl.profiler.profile(**use) as prof:
            gl.ones(3).exp()
        assert "exp" in prof.table()

    def test_not_enabled(self):
        with gl.profiler.profile(False) as prof, gl.profiler.profile(enabled=True) as inner:
            gl.ones(3).exp()
        assert prof.events() == [] and len(inner.events()) == 1

    def test_metadata(self, tmp_path):
        with gl.profiler.profile(profile_memory=True) as prof:
            gl.ones(3).exp()
        prof.add_metadata("who", "me")
        prof.add_metadata_json("sizes", "[1, 2]")
        prof.export_chrome_trace(tmp_path / "trace.json")
        trace = json.loads((tmp_path / "trace.json").read_text())
        assert trace["who"] == "me" and trace["sizes"] == [1, 2] and any(e["ph"] == "C" for e in trace["traceEvents"])

    def test_events(self):
        with gl.profiler.profile(record_shapes=True) as prof, gl.profiler.record_function("mine"):
            gl.ones(3).exp()
        exp, mine = prof.events()
        assert (exp.key, exp.input_shapes, exp.cpu_time_total) == ("exp", ((3,),), exp.self_cpu_time_total) and exp.cpu_time_total > 0
        assert mine.key == "range mine" and mine.cpu_time_total > exp.cpu_time_total and mine.self_cpu_time_total == 0
        (line,) = [line for line in prof.table().splitlines() if "range mine" in line]
        assert "%" not in line  # its share is that of what ran in it

    def test_activities(self):
        assert gl.profiler.ProfilerActivity.CPU in gl.profiler.supported_activities()

    def test_a_function_that_calls_itself_as_a_range(self):
        @gl.profiler.record_function("down")
        def down(n):
            return n if n == 0 else down(n - 1)

        with gl.profiler.profile() as prof:
            assert down(3) == 0
        assert found(prof)["range down"].count == 4 and down(1) == 0
        assert prof.total_average().count == 0  # ranges are not counted twice


def test_numbers_with_units():
    assert [unit_text(n, "B", 1024) for n in (0, 3, 2048, 3 << 20)] == ["-", "3 B", "2 KiB", "3 MiB"]
    assert [unit_text(n, "", 1000) for n in (12, 1500, 2.5e9, 3e15)] == ["12", "1.5 k", "2.5 G", "3 P"]
