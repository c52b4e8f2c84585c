"""Small programs in the idioms of PyTorch's users, run as they are by `gradlab run`, give PyTorch's numbers.

`script_idioms.json` holds what PyTorch prints: `python tests/script_idioms.py > tests/script_idioms.json` writes it anew where PyTorch is
installed, with the package tensorboard.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "script_idioms.json").read_text())
PYTORCH = """
import runpy, sys, types
sys.path.insert(0, {folder!r})
sys.modules["torch.utils.tensorboard"] = types.SimpleNamespace(SummaryWriter=None)
import script_idioms_more
script_idioms_more.PROGRAMS.pop("told_to_tensorboard")
runpy.run_path({file!r}, run_name="__main__")
"""


def printed(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ours():
    return printed("-m", "gradlab", "run", "--device", "cpu", str(HERE / "script_idioms.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_pytorchs_numbers(ours, name):
    cancelling = 4e-6 * np.abs(EXPECTED[name]).max()  # sums of large terms, which BLAS adds up in an order that depends on the processor
    np.testing.assert_allclose(ours[name], EXPECTED[name], rtol=1e-5, atol=max(1e-6, cancelling))


def test_all_are_compared(ours):
    assert list(ours) == list(EXPECTED) and len(ours) >= 27


@pytest.mark.torch
def test_the_numbers_are_pytorchs():
    theirs = printed("-c", PYTORCH.format(folder=str(HERE), file=str(HERE / "script_idioms.py")))
    for name, numbers in theirs.items():
        np.testing.assert_allclose(EXPECTED[name], numbers, rtol=1e-5, atol=1e-6)
