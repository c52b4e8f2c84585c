"""Slices of the differential fuzzer of `tests/fuzz`, every way of comparing, and that it finds a fault, makes it small and prints it.

By hand for more, or to look at one: `python -m tests.fuzz torch --seeds 17:18`; the long run is in `.ci/full`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import gradlab as gl
from gradlab.backends.native import compiler

from fuzz import __main__ as fuzzer, comparing, programs, shrinking
from repository import ROOT

SLICES = {"float64": (4, 150), "compiled": (4, 50), "machine": (2, 10), "gpu": (2, 8)}  # shards, and programs in each


def check(way, seeds):
    for seed in seeds:
        found = fuzzer.failing(way, seed)
        assert found is None, f"{way}, seed {seed}: {found[1]}\n{found[0].script()}"


@pytest.mark.parametrize(("way", "shard"), [(way, shard) for way, (shards, _) in SLICES.items() for shard in range(shards)])
def test_random_programs(way, shard, monkeypatch, request):
    if way == "compiled":  # all of it one NumPy function: machine code takes most of the time to make
        monkeypatch.setattr(compiler, "available", lambda: False)
    if way == "gpu":
        request.getfixturevalue("cuda")
    size = SLICES[way][1]
    check(way, range(shard * size, (shard + 1) * size))


@pytest.mark.torch
@pytest.mark.parametrize("shard", range(4))
def test_random_programs_in_pytorch(shard):
    pytest.importorskip("torch")
    check("torch", range(1000 * shard, 1000 * shard + 1000))


def test_a_seed_is_one_program():
    assert [programs.draw(seed) for seed in range(20)] == [programs.draw(seed) for seed in range(20)]


def test_a_fault_is_found_made_small_and_printed(monkeypatch):
    right = gl.Tensor.tanh
    monkeypatch.setattr(gl.Tensor, "tanh", lambda x: right(x) * (1 + 1e-3 * (x.dtype is gl.float32)))
    failures = filter(None, (fuzzer.failing("float64", seed) for seed in range(400)))
    program, problem = next((p, why) for p, why in failures if "tanh" in "".join(p.lines))
    assert len(program.lines) <= 4
    assert fuzzer.problem_of("float64", program) == problem
    printed: dict = {}
    exec(program.script(), printed)
    assert printed["torch"] is gl


def test_what_the_reasons_excuse_is_written_down():
    assert comparing.reason("RuntimeError: not implemented for 'Half'") and not comparing.reason("RuntimeError: anything else")
    assert shrinking.kind("t3: [1. 2.], reference [1.]") == shrinking.kind("t12: [7.], reference [0.]")


@pytest.mark.slow
def test_the_command_reports_what_it_did():
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "float64", "--seeds", "0:20"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "20 programs, 0 differ" in done.stdout
