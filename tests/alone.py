"""Tests that count what their whole process does: `@pytest.mark.alone`.

Memory blocks, objects, open files and children are counted for a process, so a compiler that another test has left in the background, or
what xdist does in a thread of its own, would be counted, too. These tests run in one process in which nothing else does: the first of
them that comes starts it for all that were chosen, and the others, in whichever worker, find there what became of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

WHERE = "GRADLAB_ALONE"  # in that process: the file in which it leaves what became of the tests
_became: dict[str, list[str]] = {}


def is_alone(item):
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if WHERE in os.environ or not is_alone(pyfuncitem):
        return None
    outcome, text = _found(pyfuncitem.session).get(pyfuncitem.nodeid, ("failed", "it did not run in the process of its own"))
    if outcome == "skipped":
        pytest.skip(text)
    if outcome == "failed":
        pytest.fail(text, pytrace=False)
    return True


@cache
def _found(session):
    """What became of all tests of this kind that were chosen, by name; made once, whichever of the workers is first."""
    folder = session.config._tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # all workers'
    path = folder / "alone.json"
    with open(folder / "alone.lock", "w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _run(session, path)
        return json.loads(path.read_text())


def _run(session, path):
    chosen = sorted((item for item in session.items if is_alone(item)), key=lambda item: item.path.name != "test_cost.py")
    options = ["--full"] if session.config.getoption("--full") else []
    program = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "alone", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*program, *(item.nodeid for item in chosen)], cwd=session.config.rootpath, env={**environment, WHERE: str(path)},
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    if not path.exists():
        path.write_text(json.dumps({item.nodeid: ("failed", done.stdout[-3000:] + done.stderr[-3000:]) for item in chosen}))


def pytest_runtest_logreport(report):
    """In that process: notes what became of a test."""
    if WHERE not in os.environ or (report.passed and report.when != "call"):
        return
    text = str(report.longrepr[-1]) if report.skipped and isinstance(report.longrepr, tuple) else report.longreprtext
    if _became.get(report.nodeid, ["passed"])[0] == "passed":
        _became[report.nodeid] = [report.outcome, text]


def pytest_sessionfinish():
    if WHERE in os.environ:
        Path(os.environ[WHERE]).write_text(json.dumps(_became))
