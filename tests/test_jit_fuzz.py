"""Files that are nearly programs: each is refused by a clean error, or loads and runs with none but clean errors. In a process of its own,
with a limit on its memory. By hand for more: python tests/jit_files.py 30000 SEED 20
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repository import ROOT

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize(("cases", "every"), [(2000, 0), pytest.param(20_000, 20, marks=pytest.mark.slow)])
def test_nearly_programs(cases, every):
    if sys.platform == "win32":
        pytest.skip("no limit on memory here")
    command = [sys.executable, str(HERE / "jit_files.py"), str(cases), "7", str(every)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({} if every else {"GRADLAB_COMPILE": "0"})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes["refused"] > 0.5 * cases and outcomes["ran"] > 0.02 * cases
