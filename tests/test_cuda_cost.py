"""What an eager operation on a GPU costs the host, counted instead of timed: calls that the interpreter makes.

On a device that does nothing (bench/host_stub.py), in a process of its own. A change that raises one of the numbers needs a measurement
that pays for it (bench/launch_cost.py); a change that lowers one lowers the number here. Counted with Python 3.11.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"

COUNT = """
import gc, json, sys
from collections import Counter
sys.path.insert(0, sys.argv[1])
import host_stub, launch_cost
host_stub.install()
import gradlab as gl

def counted(run):
    for _ in range(12):
        run()
    events = Counter()
    gc.disable()
    sys.setprofile(lambda frame, event, argument: events.update((event,)))
    try:
        for _ in range(10):
            run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return events["call"] / 10

print(json.dumps({name: counted(run) for name, run in (launch_cost.operations(gl) | launch_cost.steps(gl)).items()}))
"""

# Calls of Python functions for one call of each operation and each step of bench/launch_cost.py, its own lambda and the stub's arrays
# included.
CALLS = {
    "add": 9, "mul by a number": 11, "tanh": 10, "sum": 11, "matmul": 11, "linear": 13, "softmax": 15, "layer norm": 17,
    "cross entropy": 21, "batch norm": 22, "argmax": 12, "rand": 25, "dropout": 23, "mul, recorded": 11,
    "mul, recorded, and backward": 50, "dropout, recorded, and backward": 68,
    "step: mlp": 460, "step: mlp-adam": 465, "step: conv net": 948, "step: gpt block, adamw": 2352,
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    done = subprocess.run([sys.executable, "-c", COUNT, str(BENCH)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CALLS)
def test_calls(found, name):
    assert found[name] <= CALLS[name] + 0.5, f"{name}: {found[name]:g} Python calls, {CALLS[name]} allowed"


def test_every_operation_of_the_benchmark_is_counted(found):
    assert set(found) == set(CALLS)
