"""`gl.utils.fit_memory` and `gl.optim.offload_state`: memory is met, numbers stay the same, copies and compiled steps keep the plan."""

import copy
import os
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.models import GPT, GPTConfig, ResNet
from gradlab.nn import functional as F
from gradlab.utils import fit_memory
from gradlab.utils.memory_budget.fitting import in_bytes

MIB = 1 << 20


def chain(width=64, layers=8, device="cpu"):
    gl.manual_seed(0)
    layers = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(width, 1)).to(device)


def trained(model, optimizer, x, steps=2):
    """The losses of some steps."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def most_traced(run):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.alone
def test_a_chain_on_the_cpu():
    """What is counted here is counted apart from the plan: model, optimizer and input are made inside."""
    x = gl.ones(512, 64)
    model = chain()
    want = trained(model, gl.optim.Adam(model.parameters()), x)
    peaks = []
    for budget in (20 * MIB, int(2.2 * MIB)):

        def run(budget=budget):
            given = gl.ones(512, 64)
            model = chain()
            optimizer = gl.optim.Adam(model.parameters())
            plan = fit_memory(model, budget, given, optimizer=optimizer, loss=lambda y: y.square().mean())
            assert plan.peak <= budget and (budget < plan.peak_without) == bool(plan.checkpointed) and not plan.offloaded
            assert all(p.grad is None for p in model.parameters()) and not optimizer.state
            tracemalloc.reset_peak()  # the plan's own trials are not training
            assert trained(model, optimizer, given) == want

        peaks.append(most_traced(run))
        assert peaks[-1] <= budget + MIB // 4  # Python's objects
    assert peaks[0] > 2.6 * MIB  # it would not have fitted


def test_what_cannot_fit_is_said():
    model = chain()
    x = gl.ones(512, 64)
    with pytest.raises(MemoryError, match=r"at least.*budget is 1.00 MiB.*smaller batch"):
        fit_memory(model, "1 MiB", x)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_at_the_first_call():
    model = chain()
    x = gl.ones(512, 64)
    plan = fit_memory(model, int(2.2 * MIB))
    assert not plan.ready and "first call" in str(plan)
    with gl.no_grad():
        model(x[:2])
    model.eval()(x[:2])
    assert not plan.ready
    model.train()
    loss = model(x).square().mean()
    assert plan.ready and plan.checkpointed and plan.peak <= int(2.2 * MIB) and "predicted" in str(plan) and "measured" in str(plan)
    loss.backward()
    other = chain()
    other(x).square().mean().backward()
    for p, q in zip(model.parameters(), other.parameters()):
        assert gl.equal(p.grad, q.grad)


def test_removing_copying_pickling():
    x = gl.ones(512, 64)
    model = chain()
    plan = fit_memory(model, "2 MiB", x)
    with pytest.raises(RuntimeError, match="has a plan already"):
        fit_memory(model, "2 MiB", x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with gl.no_grad():
            for p in other.parameters():
                p.zero_()
        assert other(x).abs().sum().item() == 0 and model(x).abs().sum().item() > 0
        assert other.state_dict().keys() == model.state_dict().keys()
        planned = [m for m in other.modules() if "forward" in m.__dict__]
        assert planned and all(m.__dict__["forward"].module is m for m in planned)
    plan.remove()
    assert not any("forward" in module.__dict__ for module in model.modules())
    fit_memory(model, "2 MiB", x)


def models():
    gl.manual_seed(0)
    tokens = gl.randint(0, 65, (4, 64))
    config = GPTConfig(n_layer=6, n_embd=32, n_head=4, block_size=64)
    yield GPT(config), tokens, lambda y: F.cross_entropy(y.reshape(-1, 65), tokens.reshape(-1)), 0.65
    convolved = [layer for _ in range(6) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU())]
    yield nn.Sequential(*convolved), gl.randn(4, 4, 16, 16), None, 0.8
    inner = [nn.TransformerEncoderLayer(32, 4, 128, dropout=0.1, batch_first=True) for _ in range(6)]
    yield nn.Sequential(*inner), gl.randn(4, 64, 32), None, 0.65


@pytest.mark.slow
def test_models_train_as_without_a_plan():
    for given in models():
        check_model(*given)


@pytest.mark.slow
def test_a_residual_network():
    gl.manual_seed(0)
    check_model(ResNet(2), gl.randn(8, 3, 32, 32), lambda y: F.cross_entropy(y, gl.arange(8)), 0.8)


def check_model(model, x, loss, share):
    """Gradients are the same, statistics of batch norm move once, dropout falls the same."""
    other = copy.deepcopy(model)
    plan = fit_memory(other, 1 << 40, x, loss=loss)
    assert not plan.checkpointed and plan.extra_seconds == 0
    plan.remove()
    target = int(share * plan.peak)
    plan = fit_memory(other, target, x, loss=loss)
    assert plan.peak <= target and plan.checkpointed, plan
    for one in (model, other):
        gl.manual_seed(1)
        y = one(x)
        (y.square().mean() if loss is None else loss(y)).backward()
    for (name, p), (_, q) in zip(model.named_parameters(), other.named_parameters()):
        np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), atol=1e-6, err_msg=name)
    for (name, p), (_, q) in zip(model.named_buffers(), other.named_buffers()):
        np.testing.assert_array_equal(q.numpy(), p.numpy(), err_msg=name)


def test_a_compiled_step():
    x = gl.ones(256, 32)
    want_model, model = chain(32, 4), chain(32, 4)
    plan = fit_memory(model, 380_000, x)
    assert plan.checkpointed
    optimizers = [gl.optim.SGD(m.parameters(), lr=0.1) for m in (want_model, model)]
    want = trained(want_model, optimizers[0], x, 4)

    @gl.compile
    def step(x):
        optimizers[1].zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizers[1].step()
        return loss

    np.testing.assert_allclose([step(x).item() for _ in range(4)], want, rtol=1e-5)


def test_budgets():
    for given, want in ((5, 5), (2.5e3, 2500), ("2 GiB", 2 << 30), ("500MB", 500_000_000), ("1.5k", 1500), ("64 KiB", 1 << 16), ("12", 12)):
        assert in_bytes(given) == want
    for wrong in (0, -1, "much", None, True, float("nan")):
        with pytest.raises(TypeError if wrong in (None, True) else ValueError, match=r"budget|number of bytes"):
            in_bytes(wrong)
    with pytest.raises(TypeError, match=r"nn\.Module"):
        fit_memory(len, 1)
    with pytest.raises(TypeError, match="optimizer"):
        fit_memory(chain(), 1, optimizer=3)
    with pytest.raises(ValueError, match="requires a gradient"):
        fit_memory(chain(8, 2).requires_grad_(False), 1 << 30, gl.ones(2, 8))


# ---------------------------------------------------------------- on a GPU


@pytest.mark.slow
def test_offload_on_the_gpu(cuda):
    model = chain(32, 6, "cuda")
    x = gl.ones(256, 32, device="cuda")
    optimizer = gl.optim.Adam(model.parameters())
    want = trained(model, optimizer, x)
    del model, optimizer
    model = chain(32, 6, "cuda")
    optimizer = gl.optim.Adam(model.parameters())
    held = gl.cuda.memory_allocated()
    plan = fit_memory(model, held + 300_000, x, optimizer=optimizer)
    assert plan.offloaded or plan.checkpointed
    gl.cuda.synchronize()
    gl.cuda.reset_peak_memory_stats()
    assert trained(model, optimizer, x) == want
    assert gl.cuda.max_memory_allocated() <= held + 300_000 < plan.peak_without + held


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {"amsgrad": True}, "AdamW": {}, "Adagrad": {}, "RMSprop": {"momentum": 0.5}, "Lion": {},
    "Adadelta": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}, "Rprop": {}, "ASGD": {}, "Adafactor": {}, "Muon": {},
}  # fmt: skip


def test_state_on_the_host(cuda):
    check_state_on_the_host({"SGD": OPTIMIZERS["SGD"]})


@pytest.mark.slow
def test_state_of_every_optimizer_on_the_host(cuda):
    check_state_on_the_host(OPTIMIZERS)


def check_state_on_the_host(optimizers):
    """Steps as without, the state on the host in between, through state_dict too."""
    for name, options in optimizers.items():
        weights = [np.random.default_rng(i).normal(size=(4, 6)).astype(np.float32) for i in range(3)]
        found = []
        for offloaded in (False, True):
            params = [gl.tensor(w, device="cuda", requires_grad=True) for w in weights]
            optimizer = getattr(gl.optim, name)([{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.0}], **options)
            if offloaded:
                assert gl.optim.offload_state(optimizer, at_once=1) is optimizer
            for step in range(3):
                for i, p in enumerate(params):
                    p.grad = p.detach() * (i + step) if i != 1 or step else None
                loss = optimizer.step(lambda: 5)
                assert loss == 5
                if step == 1:
                    saved = optimizer.state_dict()
                    optimizer.load_state_dict(saved)
            found.append([p.detach().cpu().numpy() for p in params])
            assert [group["params"] for group in optimizer.param_groups] == [params[:1], params[1:]]
            kinds = {v.device.type for state in optimizer.state.values() for v in state.values() if isinstance(v, gl.Tensor) and v.shape}
            assert kinds == {"cpu" if offloaded else "cuda"}, name
        for a, b in zip(*found):
            np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.slow
def test_a_compiled_step_says_what_to_do(cuda):
    model = chain(8, 1, "cuda")
    optimizer = gl.optim.offload_state(gl.optim.Adam(model.parameters()))

    @gl.compile
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    with pytest.raises(Exception, match="outside of the compiled function"):
        for _ in range(3):
            step(gl.ones(2, 8, device="cuda"))
    with pytest.raises(TypeError, match="optimizer"):
        gl.optim.offload_state(model)
    with pytest.raises(ValueError, match="at_once"):
        gl.optim.offload_state(optimizer, 0)


@pytest.mark.slow
def test_save_on_cpu_in_a_compiled_step(cuda):
    """A compiled program is on one device: nothing is moved, and gradients are the same."""
    model, x = chain(8, 1, "cuda"), gl.ones(4, 8, device="cuda")
    model(x).sum().backward()
    want = [p.grad.cpu().numpy() for p in model.parameters()]

    @gl.compile
    def step(x):
        model.zero_grad()
        with gl.autograd.graph.save_on_cpu():
            loss = model(x).sum()
        loss.backward()

    for _ in range(3):
        step(x)
    for p, w in zip(model.parameters(), want):
        np.testing.assert_allclose(p.grad.cpu().numpy(), w, rtol=1e-5)


LIMITED = """
import sys
import gradlab as gl
from tests.test_memory_budget import chain, trained
model, x = chain(32, 8, "cuda"), gl.ones(256, 32, device="cuda")
optimizer = gl.optim.Adam(model.parameters())
if sys.argv[1] == "fit":
    gl.utils.fit_memory(model, 400_000, x, optimizer=optimizer)
try:
    print(trained(model, optimizer, x))
except gl.cuda.OutOfMemoryError:
    print("out of memory")
"""


@pytest.mark.alone
@pytest.mark.slow
def test_a_device_that_has_no_more():
    """The emulated GPU is given the budget's bytes: without a plan the step does not fit into it, with one it does."""
    environment = {**os.environ, "GRADLAB_CUDA": "emulated", "GRADLAB_EMULATED_MEMORY": "400000"}
    said = [
        subprocess.run([sys.executable, "-c", LIMITED, how], env=environment, capture_output=True, text=True, check=True).stdout.strip()
        for how in ("plain", "fit")
    ]
    model = chain(32, 8)
    assert said[0] == "out of memory"
    np.testing.assert_allclose(eval(said[1]), trained(model, gl.optim.Adam(model.parameters()), gl.ones(256, 32)), rtol=1e-5)
