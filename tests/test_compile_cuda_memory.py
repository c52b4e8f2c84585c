"""`gl.compile` on the (emulated) GPU: inputs, results, gradients and their memory; what is not captured, refused, guarded."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from test_compile_cuda import Mlp, batches, executable, same, training

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError
from gradlab.graph.executables.cuda.executable import CudaExecutable

F = nn.functional
pytestmark = pytest.mark.usefixtures("cuda", "single_launches")


@pytest.fixture
def single_launches(monkeypatch):
    """Models this small would be one kernel (see test_compile_mega.py)."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


def test_results_are_not_overwritten():
    step = gl.compile(lambda x: (x * 2, x.sum()))
    pairs = batches()
    kept = [step(x) for x, _ in pairs]
    for (x, _), (double, total) in zip(pairs, kept, strict=True):
        np.testing.assert_array_equal(double.cpu().numpy(), 2 * x.cpu().numpy())
        assert total.item() == x.sum().item()


def test_gradients_that_are_kept_keep_their_values():
    model, _, step = training()
    pairs = batches(count=9)
    for x, y in pairs[:3]:
        step(x, y)
    first = model.a.weight.grad
    seen = first.cpu().numpy()
    part = model.b.weight.grad[0]
    seen_part = part.cpu().numpy()
    for x, y in pairs[3:6]:
        step(x, y)
    np.testing.assert_array_equal(first.cpu().numpy(), seen)
    np.testing.assert_array_equal(part.cpu().numpy(), seen_part)
    assert not np.array_equal(model.a.weight.grad.cpu().numpy(), seen)
    assert executable(step).why == ""
    before = model.c.weight.grad.cpu().numpy()
    same_tensor = id(model.c.weight.grad)
    step(*pairs[6])
    assert id(model.c.weight.grad) == same_tensor  # nobody kept it: it was written in place
    assert not np.array_equal(model.c.weight.grad.cpu().numpy(), before)


def test_gradients_add_up():
    results = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(1)
        model = Mlp(0).cuda()

        @wrap
        def step(x, y, model=model):
            F.cross_entropy(model(x), y).backward()

        for x, y in batches():
            step(x, y)
        results.append({k: p.grad.cpu().numpy() for k, p in model.named_parameters()})
    same(results[1], results[0])


def test_inputs_from_the_host():
    results = []
    for wrap in (lambda f: f, gl.compile):
        model, update, _ = training()

        @wrap
        def step(x, y, model=model, update=update):
            x, y = x.to("cuda"), y.cuda()
            loss = F.cross_entropy(model(x), y)
            update.zero_grad()
            loss.backward()
            update.step()
            return loss

        gl.manual_seed(3)
        results.append([step(x, y).item() for x, y in batches(device="cpu")])
    assert results[0] == results[1]


def test_strided_arguments_and_written_ones():
    @gl.compile
    def double(x):
        x.mul_(2)
        return x + 1

    for _ in range(4):
        x = gl.arange(6, dtype=gl.float32, device="cuda").reshape(2, 3).t()
        y = double(x)
        np.testing.assert_array_equal(x.cpu().numpy(), np.arange(6).reshape(2, 3).T * 2)
        np.testing.assert_array_equal(y.cpu().numpy(), np.arange(6).reshape(2, 3).T * 2 + 1)


def test_random_numbers_go_on_and_repeat():
    @gl.compile
    def draw():
        return gl.rand(4, device="cuda") + 1

    gl.manual_seed(0)
    found = [draw().cpu().numpy() for _ in range(5)]
    gl.manual_seed(0)
    for one in found:
        np.testing.assert_array_equal((gl.rand(4, device="cuda") + 1).cpu().numpy(), one)
    assert draw.programs[0].staged.graph.device.type == "cuda"


def test_state_alone_says_where():
    model, update, _ = training("mlp", "AdamW")
    x, y = batches()[0]
    F.cross_entropy(model(x), y).backward()
    step = gl.compile(lambda: update.step())
    before = model.a.weight.cpu().detach().numpy().copy()
    for _ in range(4):
        step()
    assert isinstance(executable(step), CudaExecutable)
    assert not np.array_equal(model.a.weight.cpu().detach().numpy(), before)


def test_a_forward_is_differentiated_outside():
    results = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(1)
        model = Mlp(0).cuda()
        forward = wrap(model)
        for x, y in batches():
            model.zero_grad()
            F.cross_entropy(forward(x), y).backward()
        results.append({k: p.grad.cpu().numpy() for k, p in model.named_parameters()})
    same(results[1], results[0])


def test_check_compares_with_eager():
    _, _, step = training("mlp", "AdamW", wrap=lambda f: gl.compile(f, check=True))
    for x, y in batches():
        step(x, y)


# ---------------------------------------------------------------- what is not captured, refused, guarded


class Norms(nn.Module):
    """Two batch norms: their running statistics are kept in one kernel, beside the backward pass, which reads the same averages."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.a, self.b, self.head = nn.BatchNorm2d(16), nn.BatchNorm2d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(F.relu(self.b(self.second(F.relu(self.a(self.first(x)))))).mean((2, 3)))


def test_readers_in_kernels_of_several_stages_are_no_race(cuda, monkeypatch):
    """Such a kernel's parameters say what it only reads: two of them on two streams may read one array."""
    monkeypatch.setenv("GRADLAB_MEGA", "1")
    gl.manual_seed(0)
    model = Norms().cuda()
    update = gl.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    @gl.compile
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    x, y = gl.randn(16, 3, 32, 32).cuda(), gl.zeros(16, dtype=gl.int64).cuda()
    for _ in range(3):
        step(x, y).item()
    assert executable(step).why == "" and step.stats().uncaptured == []
    assert "const float*" in "".join(text for name, text in executable(step).sources.items() if name.startswith("mega"))


def test_rows_on_the_host_run_uncaptured(caplog, monkeypatch, cuda):
    monkeypatch.setattr(type(cuda), "why_on_host", lambda self, op, arrays, params: "it has no kernel" if op.name == "softmax" else "")

    def f(x):
        return F.softmax(x * 2, -1) + 1

    step = gl.compile(f)
    with caplog.at_level(logging.INFO, "gradlab.compile"):
        for x, _ in batches():
            np.testing.assert_allclose(step(x).cpu().numpy(), f(x).cpu().numpy(), rtol=1e-6)
    assert executable(step).why == "softmax runs on the host: it has no kernel"
    assert step.stats().uncaptured == ["softmax runs on the host: it has no kernel"]
    assert "  not captured, launched one by one: softmax runs on the host: it has no kernel\n" in str(step.stats())


def test_a_capture_that_fails_says_why(caplog, monkeypatch, cuda):
    def refused(self, stream, side):
        raise RuntimeError("not in a capture")

    monkeypatch.setattr(CudaExecutable, "_submit", refused)
    step = gl.compile(lambda x: x.exp() * 2)
    with caplog.at_level(logging.INFO, "gradlab.compile"):
        for x, _ in batches():
            np.testing.assert_allclose(step(x).cpu().numpy(), np.exp(x.cpu().numpy()) * 2, rtol=1e-5)
    assert "is not captured" in caplog.text
    assert "not in a capture" in caplog.text
    assert "not captured, launched one by one: not in a capture" in str(step.stats())


def test_a_run_in_somebody_elses_capture():
    step = gl.compile(lambda x: (x * 2).exp() + 1)
    x, other = (pair[0] for pair in batches(count=2))
    for _ in range(3):
        step(x)
    graph = gl.cuda.CUDAGraph()
    with gl.cuda.graph(graph):
        y = step(x)
    x.copy_(other)
    graph.replay()
    np.testing.assert_allclose(y.cpu().numpy(), np.exp(other.cpu().numpy() * 2) + 1, rtol=1e-5)


def test_a_wrong_index_is_found_in_replays():
    table = nn.Embedding(5, 3).cuda()
    step = gl.compile(lambda i: table(i) * 2)
    good = gl.tensor([0, 4], device="cuda")
    for _ in range(3):
        step(good)
    with pytest.raises(IndexError, match=r"embedding"):
        step(gl.tensor([0, 7], device="cuda")).detach().cpu()
    np.testing.assert_array_equal(step(good).detach().cpu().numpy(), table.weight.detach().cpu().numpy()[[0, 4]] * 2)


def test_several_devices_are_refused():
    weight = gl.ones(3, device="cuda")
    here = gl.ones(3)

    def mixed(x):
        return (x.cuda() * weight).cpu()

    def from_outside(x):
        return x * here.cuda()

    def made_elsewhere(x):
        return x * gl.zeros(3).exp().cuda()

    for function, x in ((mixed, gl.ones(3)), (from_outside, gl.ones(3, device="cuda")), (made_elsewhere, gl.ones(3, device="cuda"))):
        step = gl.compile(function)
        step(x)
        with pytest.raises(TraceError, match=r"uses several devices"):
            step(x)
    if gl.cuda.device_count() > 1:
        far = gl.ones(3, device="cuda:1")
        step = gl.compile(lambda x, y: (x + 1, y + 1))
        step(gl.ones(3, device="cuda:0"), far)
        with pytest.raises(TraceError, match=r"several devices"):
            step(gl.ones(3, device="cuda:0"), far)


def test_devices_are_guarded():
    step = gl.compile(lambda x: x * 2 + 1)
    places = ["cpu", "cuda:0", "cuda:1"] if gl.cuda.device_count() > 1 else ["cpu", "cuda:0"]
    for _ in range(3):
        for place in places:
            y = step(gl.ones(3, device=place))
            assert str(y.device) == place
            np.testing.assert_array_equal(y.cpu().numpy(), [3, 3, 3])
    assert len(step.programs) == len(places)


@pytest.mark.parametrize("what", ["program", "backward", "step"])
def test_streams_take_turns_with_what_a_program_keeps(what):
    """Buffers for inputs and results, intermediate values, learning rates and states of random numbers are a program's own: who calls it in
    two streams cannot let one wait for the other."""
    model, update, step = training("mlp", "SGD")
    if what == "program":
        step = gl.compile(lambda x, y: (model(x) @ model.c.weight).sum(1) + y)
    elif what == "backward":  # differentiated from outside
        forward = gl.compile(lambda x, y: (x @ x.t()).tanh().sum(1) * y)

        def step(x, y):
            x = x.detach().requires_grad_()
            return gl.autograd.grad(forward(x, y).sum(), x)[0]

    pairs = batches(count=8)

    def losses(streams):
        gl.manual_seed(3)
        found = []
        for i, pair in enumerate(pairs):
            update.param_groups[0]["lr"] = 0.01 / (1 + i)
            with gl.cuda.stream(streams[i % 2]):
                found.append(step(*pair))
        gl.cuda.synchronize()
        return [loss.detach().cpu().numpy() for loss in found]

    state = {k: v.clone() for k, v in model.state_dict().items()}
    alone = gl.cuda.Stream()
    gl.cuda.synchronize()
    for streams in ((alone, alone), (alone, alone), (gl.cuda.Stream(), gl.cuda.Stream())):  # the first staged
        found = losses(streams)
        if streams[0] is alone:
            wanted = found
        model.load_state_dict(state)
        gl.cuda.synchronize()
    np.testing.assert_array_equal(found, wanted)


def test_settings_are_followed():
    step = gl.compile(lambda x: x @ x.t())
    x = batches()[0][0]
    for _ in range(3):
        step(x)
    captured = executable(step)._graph
    before = gl.get_float32_matmul_precision()
    try:
        gl.set_float32_matmul_precision("high")
        step(x)
        assert executable(step)._graph is not captured
    finally:
        gl.set_float32_matmul_precision(before)
