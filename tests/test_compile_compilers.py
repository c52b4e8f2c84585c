"""Compiled programs with other compilers, and with none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = """
import numpy as np
import gradlab as gl
from gradlab import nn
gl.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
optimizer = gl.optim.AdamW(model.parameters(), lr=0.01)

def eager(x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

step = gl.compile(eager, check=True)
x, y = gl.randn(5, 4), gl.tensor([0, 1, 2, 0, 1])
losses = [step(x, y).item() for _ in range(5)]
assert losses == sorted(losses, reverse=True), losses
stats = step.stats()
print(type(step.programs[0].runner.executable).__name__, stats.tasks, len(step.kernels()))
"""
ROOT = Path(__file__).resolve().parent.parent


def run(**variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", STEP], capture_output=True, text=True, check=False, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_without_a_compiler_a_whole_step_runs_in_numpy():
    assert run(GRADLAB_COMPILER="none") == ["NumpyExecutable", "0", "0"]


def test_without_a_compiler_views_that_copy_are_taken_anew_in_each_run():
    script = (
        "import gradlab as gl\n"
        "f = lambda x: (x * 2).transpose(0, 1).reshape(-1) + 1\n"
        "g = gl.compile(f)\n"
        "for i in range(4):\n"
        "    x = gl.randn(3, 4)\n"
        "    assert (g(x) == f(x)).all(), i\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADLAB_COMPILER": "none"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_compiling_can_be_switched_off():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADLAB_COMPILE": "0"}
    script = "import gradlab as gl\nf = lambda x: print(x.item())\nassert gl.compile(f) is f\ngl.compile(f)(gl.ones(1))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "1.0\n"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the package ziglang is not installed")
def test_the_compiler_of_the_extra_makes_programs(tmp_path):
    name, tasks, kernels = run(CXX=f"{sys.executable} -m ziglang c++", GRADLAB_CACHE=str(tmp_path))
    assert name == "NativeExecutable"
    assert int(tasks) > 5
    assert int(kernels) > 3
