"""Rows that look at their input's memory: all of them give that memory, in every dtype, written to as far as the input may be."""

import ml_dtypes
import numpy as np
import pytest

from gradlab.backends.cpu import CpuBackend
from gradlab.ops import ROWS
from gradlab.strides import repeated  # several elements are one place: nobody writes to them

from samples import SAMPLES

VIEWS = sorted(name for name, row in ROWS.items() if row.view and name in SAMPLES)
COPIES = {"view", "bits"}  # where no steps lead to the result, a copy is made
OWN_DTYPES = {"bits", "view_as_complex"}  # what they make of memory depends on the width of its elements


def made(name, dtype, writeable):
    """The input and the result of each sample."""
    for sample in SAMPLES[name]:
        (x,) = sample.inputs
        kind = x.dtype if dtype is None or x.dtype.kind != "f" else np.dtype(dtype)
        memory = np.array(x, kind)
        memory.flags.writeable = writeable
        yield memory, CpuBackend().run(ROWS[name], [memory], dict(sample.params))


def test_there_are_views():
    assert len(VIEWS) > 12


@pytest.mark.parametrize("name", VIEWS)
def test_memory_is_the_inputs_and_as_writeable(name):
    shared = 0
    for dtype in (None,) if name in OWN_DTYPES else (None, np.float64, np.float16, ml_dtypes.bfloat16):
        for writeable in (True, False):
            for x, y in made(name, dtype, writeable):
                if np.shares_memory(x, y):
                    shared += 1
                    assert y.flags.writeable == (writeable and name != "expand" and not repeated(y)), (dtype, x.shape)
                else:
                    assert not y.size or name in COPIES, f"{x.dtype} {x.shape}: a copy"
    assert shared
