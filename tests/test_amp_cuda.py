"""Mixed precision on the (emulated) GPU: the same dtypes as on the CPU, training steps, eager and compiled."""

import math

import numpy as np
import pytest
from test_amp import KEPT, LOWERED, WIDE

import gradlab as gl
from gradlab import nn

F = nn.functional
pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture
def on_the_gpu():
    gl.set_default_device("cuda")
    yield
    gl.set_default_device("cpu")


def test_default_dtype_is_float16():
    x = gl.ones(4, 4, device="cuda")
    with gl.autocast("cuda"):
        assert (x @ x).dtype == gl.float16 and gl.is_autocast_enabled()
        assert (x.cpu() @ x.cpu()).dtype == gl.float32
        with gl.autocast("cpu"):
            assert (x.cpu() @ x.cpu()).dtype == gl.bfloat16 and (x @ x).dtype == gl.float16
    with gl.autocast("cuda", dtype=gl.bfloat16):
        assert (x @ x).dtype == gl.bfloat16


@pytest.mark.parametrize("name", ["matmul", "addmm", "linear", "conv2d", "conv_transpose2d", "attention", "lstm", "gru cell"])
def test_lowered(name, on_the_gpu):
    with gl.autocast("cuda"):
        y = LOWERED[name]()
    assert y.dtype == gl.float16 and y.device.type == "cuda"


@pytest.mark.parametrize("name", ["exp", "sum", "softmax", "layer_norm", "cross_entropy", "l1_loss", "dot", "scatter_add", "cdist"])
def test_in_float32(name, on_the_gpu):
    with gl.autocast("cuda"):
        y = WIDE[name]()
    assert y.dtype == gl.float32 and y.device.type == "cuda"


@pytest.mark.parametrize("name", ["relu", "mean", "batch_norm", "batch_norm, eval", "max_pool2d"])
def test_in_what_they_are_given(name, on_the_gpu):
    with gl.autocast("cuda"):
        assert KEPT[name]().dtype == gl.float16


def test_binary_cross_entropy_is_refused():
    x = gl.full((3,), 0.5, device="cuda")
    with gl.autocast("cuda"):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        assert F.binary_cross_entropy_with_logits(x, x).dtype == gl.float32
        with gl.autocast("cuda", enabled=False):
            assert F.binary_cross_entropy(x, x).dtype == gl.float32


def training(device, dtype, optimizer):
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.LayerNorm(12), nn.Linear(12, 3)).to(device)
    make = {"sgd": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9), "adam": lambda p: gl.optim.Adam(p, lr=0.02)}[optimizer]
    made, scaler = make(model.parameters()), gl.amp.GradScaler(device, init_scale=256.0, growth_interval=3)

    def step(x, y):
        made.zero_grad()
        with gl.autocast(device, dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(made)
        scaler.update()
        return loss

    return step, model, scaler


def run(step, scaler, device):
    rng = np.random.default_rng(0)
    x, y = gl.tensor(rng.standard_normal((6, 8)).astype(np.float32)).to(device), (gl.arange(6) % 3).to(device)
    found = []
    for i in range(8):
        loss = step(x * math.inf if i == 4 else x, y)
        found.append((loss.item(), scaler.get_scale()))
    return found


@pytest.mark.long
@pytest.mark.parametrize(("optimizer", "dtype", "mega"), [("sgd", gl.float16, "0"), ("adam", gl.bfloat16, "1")])
def test_training_equals_the_cpus(optimizer, dtype, mega, monkeypatch):
    monkeypatch.setenv("GRADLAB_MEGA", mega)
    step, model, scaler = training("cpu", dtype, optimizer)
    wanted = run(step, scaler, "cpu")
    step, eager, scaler = training("cuda", dtype, optimizer)
    found = run(step, scaler, "cuda")
    step, twin, scaler = training("cuda", dtype, optimizer)
    compiled = gl.compile(step)
    replayed = run(compiled, scaler, "cuda")
    assert len(compiled.programs) == 1 and scaler._tensors["scale"].device.type == "cuda"
    for other in (found, replayed):
        assert [o[1] for o in other] == [w[1] for w in wanted]
        np.testing.assert_allclose([o[0] for o in other], [w[0] for w in wanted], rtol=2e-2)
    for p, q, r in zip(model.parameters(), eager.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(q.detach().cpu().numpy(), p.detach().numpy(), rtol=0.1, atol=0.01)
        np.testing.assert_allclose(r.detach().cpu().numpy(), p.detach().numpy(), rtol=0.1, atol=0.01)
        assert r.grad.dtype == gl.float32


class Own(gl.optim.Optimizer):
    """An optimizer of a user's."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        with gl.no_grad():
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad)


MAKE = {
    "sgd": lambda p: gl.optim.SGD(p, lr=0.5),
    "momentum": lambda p: gl.optim.SGD(p, lr=0.5, momentum=0.9),
    "adam": lambda p: gl.optim.Adam(p, lr=0.5),
    "own": Own,
}


@pytest.mark.parametrize("name", list(MAKE))
@pytest.mark.parametrize("under_autocast", [False, True])
def test_an_eager_step_does_not_wait(name, under_autocast, monkeypatch):
    reads = []
    read = gl.Tensor.item
    monkeypatch.setattr(gl.Tensor, "item", lambda self: (reads.append(self), read(self))[1])
    w = gl.ones(3, 5, device="cuda", requires_grad=True)
    optimizer, scaler = MAKE[name]([w]), gl.amp.GradScaler("cuda", init_scale=4.0, growth_interval=2)
    twin = gl.ones(3, 5, requires_grad=True)
    other, other_scaler = MAKE[name]([twin]), gl.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    for i in range(7):
        for tensor, made, scales in ((w, optimizer, scaler), (twin, other, other_scaler)):
            made.zero_grad()
            scales.scale((tensor * tensor).sum()).backward()
            if i in (0, 3, 4):
                tensor.grad[1, 2] = math.nan
            reads.clear()
            with gl.autocast(tensor.device.type, enabled=under_autocast):
                scales.step(made)
            scales.update()
            waits = name == "own" or (name == "momentum" and i < 2)
            if tensor is w:
                assert len(reads) == waits
    assert scaler.state_dict() == other_scaler.state_dict()
    np.testing.assert_allclose(w.detach().cpu().numpy(), twin.detach().numpy(), rtol=1e-5, atol=1e-6)
    if name == "adam":
        assert optimizer.state[w]["step"].item() == other.state[twin]["step"].item() == 4
