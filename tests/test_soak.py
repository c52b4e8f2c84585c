"""A shortened long run (`soak.py`): memory, files and threads stay as they are, with the garbage collector off."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import gradlab as gl
from gradlab.graph.calls import gc_pause

MOST = 12  # for these tests; what one function keeps otherwise is 64


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read in /proc")
@pytest.mark.parametrize("compiler", ["none", ""])
def test_a_shortened_run(compiler):
    program = [sys.executable, str(Path(__file__).with_name("soak.py"))]
    sizes = ["--seconds", "60", "--steps", "50000", "--traces", "1000" if compiler else "100"]
    environment = {**os.environ, "GRADLAB_COMPILER": compiler}
    done = subprocess.run([*program, *sizes], capture_output=True, text=True, env=environment, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 4 and not any(one["wrong"] for one in found.values()), found


def test_traces_are_collected_where_the_collector_is_off(monkeypatch):
    """A program that goes is a cycle: without a collection 300 of them took 109 MB, and went on."""
    collected = []
    monkeypatch.setattr(gc_pause, "EVERY", 3)
    monkeypatch.setattr(gc_pause.gc, "collect", lambda *generation: collected.append(generation))
    counting = gl.compile(lambda x: x * 2)
    for off in (False, True):
        (gc.disable if off else gc.enable)()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of many programs
                for n in range(1, 10):
                    counting(gl.ones(n + 10 * off))
                    counting(gl.ones(n + 10 * off))
        finally:
            gc.enable()
        assert (() in collected) == off


def test_that_no_more_programs_are_kept_is_said_once(monkeypatch):
    for place in ("compiled", "runner"):
        monkeypatch.setattr(f"gradlab.graph.calls.{place}.MOST", MOST)
    step = gl.compile(lambda x: x * 2)
    said = []
    for n in range(1, MOST + 6):
        for _ in range(2):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                step(gl.ones(n))
            said += [str(w.message) for w in found if "as many as are kept" in str(w.message)]
    assert len(said) == 1 and f"has {MOST} programs" in said[0] and len(step.programs) == MOST
