"""Prebuilt kernels for Linux on aarch64, run by qemu-user.

By hand: it takes `apt-get install qemu-user-static libc6-arm64-cross` and ziglang.
"""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradlab.backends.native.lowerings.vector_functions import function
from gradlab.ops import ROWS

from repository import ROOT

SYSTEM = Path("/usr/aarch64-linux-gnu")  # the C library of that machine
QEMU = shutil.which("qemu-aarch64-static")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(QEMU is None or not SYSTEM.is_dir(), reason="needs qemu-user-static and libc6-arm64-cross"),
]
FUNCTIONS = {"exp": math.exp, "tanh": math.tanh, "erf": math.erf, "square": lambda x: x * x, "sigmoid": lambda x: 1 / (1 + math.exp(-x))}


def test_kernels_run_on_an_emulated_aarch64(tmp_path):
    """A softmax on two threads of the pool, and vector functions beside the C library of this machine."""
    pytest.importorskip("ziglang")
    named = os.environ.get("GRADLAB_TEST_PREBUILT_AARCH64")
    folder = Path(named) if named else tmp_path / "aarch64-linux"
    if not named:
        command = [sys.executable, "-m", "gradlab.testing.prebuilt", "aarch64-linux", "--out", str(folder)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    program, source = tmp_path / "check", ROOT / "tests" / "prebuilt_check.cpp"
    build = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu.2.28", "-O1", "-nostdlib++", source, "-o", program]
    subprocess.run(build, check=True)
    single = np.dtype(np.float32)
    names = {name: function(ROWS[name], [single], single).name for name in FUNCTIONS}
    done = subprocess.run([QEMU, "-L", SYSTEM, program, folder, "neon", *names.values()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said["level"] == "1"
    second = math.sin(1.0) * 5
    for name, exact in FUNCTIONS.items():
        first, other = map(float, said[names[name]].split())
        assert math.isclose(first, exact(0.0), rel_tol=1e-6), name
        assert math.isclose(other, exact(second), rel_tol=2e-6), name
