"""A GPU that is lost to a process: the process ends, the test is named, the others go on."""

import ast
import os
import re
import subprocess
import sys

from sticky_errors import EXIT, STATUSES, sticky

from repository import ROOT

LOST = """
import pytest
class CUDADriverError(RuntimeError):
    status = 719
@pytest.mark.parametrize("n", range(6))
def test_some(n):
    if n == 2:
        try:
            raise CUDADriverError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")
        except CUDADriverError as error:
            raise ValueError("the step failed") from error
"""


def run(folder, *options):
    plugin = "import sticky_errors\n\ndef pytest_configure(config): config.pluginmanager.register(sticky_errors)\n"
    (folder / "conftest.py").write_text(plugin)
    (folder / "test_lost.py").write_text(LOST)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT} {ROOT / 'tests'}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}  # this may be a worker
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_worker_ends_and_the_next_goes_on(tmp_path):
    done = run(tmp_path, "-n", "1")
    assert re.search(r"worker 'gw0' crashed while running 'test_lost\.py::test_some\[2\]'", done.stdout), done.stdout
    assert "the GPU is lost to this process: test_lost.py::test_some[2]: ValueError: the step failed" in done.stdout + done.stderr
    assert "1 failed, 5 passed" in done.stdout


def test_a_single_process_stops_and_says_where(tmp_path):
    done = run(tmp_path)
    assert done.returncode == EXIT and "the GPU is lost to this process: test_lost.py::test_some[2]" in done.stdout


def test_which_errors_stay():
    kinds = {name: type(name, (RuntimeError,), {}) for name in ("CUDARuntimeError", "CUDADriverError", "BlasError")}

    def made(name, text="", status=None):
        error = kinds[name](text)
        error.status = status
        return error

    assert all(sticky(made("CUDARuntimeError", status=s)) for s in STATUSES) and sticky(made("BlasError", status=13))
    assert sticky(made("CUDADriverError", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"))
    others = made("CUDARuntimeError", status=2), made("BlasError", status=15), ValueError("700"), AssertionError("cudaErrorAssert")
    assert not any(map(sticky, others))


def test_what_looks_into_the_emulated_driver_asks_first():
    """A test with the `cuda` fixture runs on a real GPU, too: where it looks into the emulated driver, it asks for its name."""
    inside = re.compile(r"driver\.(?:engine|order|replays|launches|_memory|_pools)\b|\._host\b")
    missing = []
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not inside.search(text) or "cuda" not in text:
            continue
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        for node in functions:
            body = ast.get_source_segment(text, node)
            given = {a.arg for a in node.args.args}
            if "cuda" in given and inside.search(body) and "driver.name" not in body and "emulated" not in body:
                missing.append(f"{path.name}::{node.name}")
    assert not missing


def test_the_marker_follows_the_fixture(request):
    for item in request.session.items:
        names = getattr(item, "fixturenames", ())
        assert (item.get_closest_marker("gpu") is not None) == ("cuda" in names), item.nodeid


def test_what_uses_a_device_is_marked_for_a_gpu(request, cuda):
    """`-m gpu` on a machine that has one runs these, whichever file they are in, and none of the others."""
    assert request.node.get_closest_marker("gpu") is not None
    for item in request.session.items:
        assert ("cuda" in getattr(item, "fixturenames", ())) == (item.get_closest_marker("gpu") is not None), item.nodeid
