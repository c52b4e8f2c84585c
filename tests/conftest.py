"""Options of the test suite.

--device cuda   the parity tests run every sample, dtype, layout and gradient; without it a part of them.
--full          the same.
--rotating HASH  of what is left out without these two a sixth, chosen by the hash of a commit (rotation.py).
--shuffled SEED  the tests in an order by chance, those of all files mixed: none may need another before it.

Where there is no cupy, or GRADLAB_CUDA=emulated says so, "cuda" is the emulated GPU.
"""

import gc
import importlib.util
import os
import random
import sys

import alone
import pytest
import rotation
import sticky_errors

os.environ.setdefault("GRADLAB_NATIVE", "0")  # NumPy is the reference; tests/test_native_eager*.py switch kernels on
if importlib.util.find_spec("cupy") is None:
    os.environ.setdefault("GRADLAB_CUDA", "emulated")


# `pytest -m quick`: what most changes break first, in two minutes on one core. Of parametrized tests over all rows the first sample.
QUICK = """
    autograd compile compile_guards conv creation errors func hooks house import indexing inplace layout linalg loss module
    new_row nn norm ops optim passes pool printing serialization tensor trace vmap
"""


def is_quick(item):
    """Whether a test belongs to the selection: by its file, and no further sample, order or size of the same."""
    name = item.path.stem.removeprefix("test_")
    values = getattr(item, "callspec", None)
    further = values is not None and values.params.get("number", 0) != 0
    slow = any(map(item.get_closest_marker, ("slow", "long", "torch")))
    return name in QUICK.split() and item.path.parent.name == "tests" and not further and not slow


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: run the whole parity suite")
    parser.addoption("--full", action="store_true", help="run the whole parity suite")
    parser.addoption("--rotating", default="", metavar="HASH", help="run a sixth of what is left out, chosen by a commit's hash")
    parser.addoption("--shuffled", default="", metavar="SEED", help="run the tests in an order by chance, which the seed repeats")
    parser.addoption("--rotating-seconds", type=float, default=0, help="begin none of them after so many seconds")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes seconds; comes last")
    config.addinivalue_line("markers", "whole: part of the whole parity suite (--full or --device cuda)")
    config.addinivalue_line("markers", "alone: counts what its process does, and runs in one of its own (tests/alone.py)")
    config.pluginmanager.register(sticky_errors)
    config.pluginmanager.register(alone)
    if config.getoption("--rotating"):
        config.option.markexpr = ""
        if seconds := config.getoption("--rotating-seconds"):
            config.pluginmanager.register(rotation.Clock(seconds))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Eighty thousand tests are some millions of objects, all of which stay: the collector would walk over them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by markers
def pytest_collection_modifyitems(config, items):
    if addresses := [item.nodeid for item in items if " at 0x" in item.nodeid]:  # pytest-xdist needs the same names in each process
        raise pytest.UsageError(f"tests are named by what changes from process to process: {addresses[0]}; give ids")
    for item in items:
        if is_quick(item):
            item.add_marker(pytest.mark.quick)
        if "cuda" in getattr(item, "fixturenames", ()):  # those that look into the emulated driver skip themselves on a real one
            item.add_marker(pytest.mark.gpu)
    # Several processes are handed large pieces first, small ones at the end: there the few long tests are shared out evenly.
    if seed := config.getoption("--shuffled"):
        random.Random(seed).shuffle(items)
    else:
        items.sort(key=lambda item: item.get_closest_marker("long") is not None)
    if config.getoption("--rotating"):
        rotation.select(config, items)
        return
    if config.getoption("--full") or config.getoption("--device") == "cuda":
        return
    left_out = [item for item in items if item.get_closest_marker("whole") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("whole") is None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """A file of tests that leaves PyTorch's name taken, or another default dtype or device, would make later ones fail instead."""
    result = yield
    if (gl := sys.modules.get("gradlab")) and (nextitem is None or nextitem.path != item.path):
        state = gl.dtype.package, gl.get_default_dtype(), gl.get_default_device()
        whole = state == ("gradlab", gl.float32, gl.device("cpu"))
        assert whole, f"{item.path.name} leaves {state} behind; what takes names runs in a process"
    return result


@pytest.fixture(scope="session")
def cuda():
    """The CUDA backend; skips where there is none (no driver, or no C++ compiler for the emulated one)."""
    from gradlab import ops
    from gradlab.backends.cuda.loading import load

    try:
        backend = load()
    except RuntimeError as error:
        pytest.skip(str(error))
    below = sys.modules.get("gradlab.testing.emulated_cuda.installing")
    emulated = backend.driver.name == "emulated" or (below is not None and below.installed is not None)
    if emulated:  # starting a C++ compiler costs more than compiling one kernel
        backend.compiler.rows = tuple(ops.ROWS.values())
    return backend
