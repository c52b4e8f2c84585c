"""The graphs of the workloads' steps: how many nodes, and that each is captured (bench/nodes.py)."""

import json
import subprocess
import sys

import pytest

from gradlab.testing.dry_gpu import parameters_of

from repository import ROOT


def test_the_workloads_graphs():
    """In a process of its own, since its GPU computes nothing. What changes a number changes bench/nodes.json, in the same commit."""
    command = [sys.executable, "bench/nodes.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, one in found.items() if one["why"]] == [], "steps that are not captured"
    assert found == json.loads((ROOT / "bench" / "nodes.json").read_text(encoding="utf-8")), "python bench/nodes.py --write"


READ = """
#define ROWS const void *i0, void *o0, \\
    int64 rows
// __global__ void no(int* x) {}
template <class P> __global__ void __launch_bounds__(256, 1) rows(ROWS) {}
__global__ void more(ROWS, const void* beside) {}
extern "C" __global__ void
    mixed(const float* __restrict__ x, float const* y, Layout<3, 4> layout, const Table<int*> table, float* __restrict__ z, int64 n) {}
"""


def test_a_kernels_parameters_are_read():
    read = parameters_of(READ)
    assert read["rows"] == (True, False, None) and "no" not in read
    assert read["more"] == (True, False, None, True)
    assert read["mixed"][:3] == (True, True, None) and read["mixed"][4:] == (False, None)


HAZARD = """
import gradlab as gl
from gradlab.backends.cuda.emulator import KernelFault
from gradlab.testing.dry_gpu import dry
with dry() as driver:
    x, side = gl.ones(4, device="cuda"), gl.cuda.Stream()
    x.add_(1)
    with gl.cuda.stream(side):
        try:
            {first}
            x.add_(1)
        except KernelFault as error:
            print("fault", error)
    gl.cuda.synchronize()
    print(driver.launches)
"""


@pytest.mark.parametrize("first", ["pass", "side.wait_stream(gl.cuda.default_stream())"])
def test_what_no_event_orders_is_a_fault_there_too(first):
    command = [sys.executable, "-c", HAZARD.format(first=first)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert ("no event orders them" in done.stdout) == (first == "pass")
