"""What tests of eager machine code share: kernels that lie ready, and a switch between them and NumPy."""

import contextlib
import os

import pytest

from gradlab.backends.native import compiler, eager, ready, thresholds
from gradlab.backends.native.common import texts
from gradlab.ops import ROWS

needs_compiler = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")


@contextlib.contextmanager
def kernels(least=1):
    """Eager rows of at least so many elements use kernels, all of which are compiled first."""
    before, switch = {op.name: op.pays for op in ROWS.values()}, os.environ.get("GRADLAB_NATIVE")
    os.environ["GRADLAB_NATIVE"] = "1"
    if not ready.looked_up().libraries:
        ready.build(texts(ROWS.values()))
    ready.state.cache_clear()
    ready.address.cache_clear()
    eager.forget()
    try:
        thresholds.attach(ROWS.values())
        for op in ROWS.values():
            if op.pays != thresholds.NEVER:
                op.pays = least
        yield
    finally:
        for op in ROWS.values():
            op.pays = before[op.name]
        os.environ.pop("GRADLAB_NATIVE") if switch is None else os.environ.__setitem__("GRADLAB_NATIVE", switch)
        ready.state.cache_clear()
        eager.forget()


def used():
    """The names of rows that found a kernel since `kernels` began."""
    return {_row(key).name for key, plan in eager.plans.items() if plan}


def _row(key):
    """Of a key of `eager.plans`."""
    return _row(key[0]) if isinstance(key[0], tuple) else key[1] if isinstance(key[0], str) else key[0]
