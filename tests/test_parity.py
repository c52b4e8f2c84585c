"""The parity check: it agrees where devices agree, and names the operation where they do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.testing import parity
from gradlab.testing.parity import _noise, units

from repository import ROOT

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="the emulated GPU needs a C++ compiler")


def model():
    gl.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 2))


def test_the_cpu_agrees_with_itself_and_the_model_is_left_alone():
    net = model()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = gl.get_rng_state()
    report = parity(net, gl.randn(5, 3, requires_grad=True), device="cpu")
    assert report and report.operations > 40 and "agrees" in str(report)
    assert all((v == before[k]).all() for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert (gl.get_rng_state() != state).any()  # the input's randn was drawn; parity itself draws nothing


def test_functions_and_losses():
    a, b = gl.randn(4, 4, requires_grad=True), gl.randn(4, requires_grad=True)
    report = parity(
        lambda x, y: {"product": x @ y, "sums": [x.sum(), y.sum()]}, [a, b], loss=lambda out: out["product"].sum(), device="cpu"
    )
    assert report
    names = [r.what for r in report.results]
    assert "step 0: result['product']" in names and "gradient of input[0]" in names


def test_units_of_tolerance():
    one = np.ones(4, np.float32)
    assert units(one, one) == 0
    assert units(one * np.float32(1 + 1e-3), one) > 10
    assert units(one.astype(np.float64), one) == np.inf
    assert units(np.array([1, 2]), np.array([1, 3])) == np.inf
    assert units(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == 0
    assert units(np.array([np.nan, 1.0]), np.array([0.0, 1.0])) == np.inf


EMULATING = {**os.environ, "GRADLAB_CUDA": "emulated", "PYTHONPATH": str(ROOT)}
EMULATED = """
import gradlab as gl
from gradlab import nn, ops
from gradlab.kernel import Elementwise
from gradlab.testing import parity

def example():
    gl.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 2)), gl.randn(5, 3, requires_grad=True)

if __name__ == "__main__":
    report = parity(*example())
    print(report)
    assert report
    ops.elementwise.tanh_backward.cuda = Elementwise("dy * (T(1.001) - result * result)")
    def forward(x):
        return x.tanh().sum()
    report = parity(lambda x: forward(x), gl.randn(7, requires_grad=True))
    print(report)
    assert not report and "tanh_backward" in report.first.what and "return x.tanh().sum()" in report.first.place, report
"""


@needs_compiler
def test_the_emulated_gpu_agrees_and_a_wrong_kernel_is_named(tmp_path):
    script = tmp_path / "example.py"
    script.write_text(EMULATED)
    done = subprocess.run([sys.executable, script], env=EMULATING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, "-m", "gradlab", "parity", "example:example", "--emulated"]
    done = subprocess.run(command, env=EMULATING, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "agrees" in done.stdout, done.stdout + done.stderr


def test_the_command_refuses_what_leads_nowhere():
    for name, message in (("nonsense", "module:function"), ("no_such_module:f", "no module named"), ("math:nothing", "has no function")):
        done = subprocess.run([sys.executable, "-m", "gradlab", "parity", name], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and message in done.stderr and "Traceback" not in done.stderr


def test_what_cancels_is_compared_by_the_size_of_its_terms():
    """The gradient of a bias in front of a batch norm is 0 but for rounding, which differs from device to device."""
    terms = np.array([[1.0, -1.0 + 1e-7, 3.0, -3.0]], np.float32)
    noise = _noise("sum", [terms], terms.sum(1))
    assert units(np.float32([3e-7]), np.float32([1e-7])) > 1
    assert units(np.float32([3e-7]), np.float32([1e-7]), noise) < 0.1
    assert _noise("mean", [terms], terms.mean(1)) == pytest.approx(noise / 4)
    assert _noise("exp", [terms], terms) == 0.0
    gl.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2))
    report = parity(net, gl.randn(4, 1, 8, 8), device="cpu")
    assert report
    assert any("0.bias" in r.what for r in report.results)


FORGOTTEN = """
import gradlab as gl
from gradlab import nn
from gradlab.testing import parity
F = nn.functional

class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = gl.ones(3)
    def forward(self, x):
        return x * self.weights  # kept

class Made(nn.Module):
    def forward(self, x):
        return gl.cat([x, gl.zeros(2, 1)], 1)  # made

target = gl.tensor([0, 2])
CASES = {
    "targets": (nn.Linear(4, 3), gl.randn(2, 4), lambda out: F.cross_entropy(out, target)),
    "moved": (nn.Linear(4, 3), gl.randn(2, 4), lambda out: F.cross_entropy(out, target.to(out.device))),
    "kept": (Kept(), gl.randn(2, 3), None), "made": (Made(), gl.randn(2, 3), None),
}

if __name__ == "__main__":
    for name, (model, x, loss) in CASES.items():
        try:
            print(name, bool(parity(model, [x], loss)))
        except RuntimeError as error:
            print(name, error)

def example():
    model, x, loss = CASES["targets"]
    return model, (x,), loss
"""


@needs_compiler
def test_a_tensor_that_was_left_on_the_cpu_is_said_in_one_line(tmp_path):
    (tmp_path / "left.py").write_text(FORGOTTEN)
    done = subprocess.run([sys.executable, "left.py"], env=EMULATING, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    targets, moved, kept, made = done.stdout.splitlines()
    assert "the loss (left.py:20) leaves `target` of cross_entropy" in targets and "target.to(out.device)" in targets
    assert moved == "moved True"
    assert "the model (left.py:12) leaves `b` of mul" in kept and "register_buffer" in kept
    assert "the model (left.py:16) leaves `" in made and "of cat" in made and "device=x.device" in made
    command = [sys.executable, "-m", "gradlab", "parity", "left:example", "--emulated"]
    done = subprocess.run(command, env=EMULATING, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "target.to(out.device)" in done.stderr
