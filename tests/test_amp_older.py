"""PyTorch's older names for mixed precision, `gl.cuda.amp` and `gl.cpu.amp`, and the room `gl.cpu`."""

from __future__ import annotations

import importlib

import pytest

import gradlab as gl
from gradlab import nn


def test_the_cpu_names_mean_the_new_ones():
    from_module = importlib.import_module("gradlab.cpu.amp")
    assert from_module.autocast is gl.cpu.amp.autocast
    x = gl.ones(2, 2)
    with gl.cpu.amp.autocast():
        assert (x @ x).dtype == gl.bfloat16 and gl.is_autocast_enabled("cpu")
        with gl.cpu.amp.autocast(enabled=False):
            assert (x @ x).dtype == gl.float32
    decorated = gl.cpu.amp.autocast(dtype=gl.float16)(lambda x: x @ x)
    assert decorated(x).dtype == gl.float16 and not gl.is_autocast_enabled("cpu")


def test_a_step_as_older_scripts_write_it():
    found = []
    for compiled in (False, True):
        gl.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer, scaler = gl.optim.SGD(model.parameters(), lr=0.1), gl.cpu.amp.GradScaler(init_scale=128.0)

        def step(x, model=model, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            with gl.cpu.amp.autocast(dtype=gl.float16):
                loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        run = gl.compile(step) if compiled else step
        found.append([run(gl.ones(3, 4)).item() for _ in range(5)])
    assert found[0] == pytest.approx(found[1], rel=1e-2) and found[0][-1] < found[0][0]


def test_without_a_gpu_the_cuda_names_warn_and_stay_off():
    if gl.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="autocast stays off"), gl.cuda.amp.autocast():
        assert (gl.ones(2, 2) @ gl.ones(2, 2)).dtype == gl.float32
    with pytest.warns(UserWarning, match="it is disabled"):
        scaler = gl.cuda.amp.GradScaler()
    assert not scaler.is_enabled()
    with gl.cuda.amp.autocast(enabled=False):
        pass


@pytest.mark.usefixtures("cuda")
def test_the_cuda_names_mean_the_new_ones():
    x = gl.ones(2, 2, device="cuda")
    with gl.cuda.amp.autocast():
        assert (x @ x).dtype == gl.float16
    with gl.cuda.amp.autocast(True, gl.bfloat16):
        assert (x @ x).dtype == gl.bfloat16
    assert gl.cuda.amp.GradScaler(4.0).get_scale() == 4.0

    class Double(gl.autograd.Function):
        @staticmethod
        @gl.cuda.amp.custom_fwd(cast_inputs=gl.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @gl.cuda.amp.custom_bwd
        def backward(ctx, g):
            return g * 2

    with gl.cuda.amp.autocast():
        assert Double.apply(x.half()).dtype == gl.float32


def test_other_names():
    assert gl.cpu.is_available() and gl.cpu.device_count() == 1 and gl.cpu.current_device() == "cpu"
    assert dir(gl.cuda.amp) == ["GradScaler", "autocast", "custom_bwd", "custom_fwd"] and "autocast" in dir(gl.cpu.amp)
    for module in (gl.cuda.amp, gl.cpu.amp):
        with pytest.raises(AttributeError, match=r"gl\.amp has all there is"):
            module.other
