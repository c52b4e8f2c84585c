"""Operands and results that begin anywhere: a GPU stops at a vector access that is no multiple of its size, and a plan that was made for
aligned memory is used again for other memory. And operands that are cut from a large tensor: along dimensions of one element they may have
steps that 32 bits do not hold, though nothing is ever that far away.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_cuda_rows import FIRST, close, on, run

import gradlab as gl
from gradlab import ops

from samples import SAMPLES

KNOWN = {
    "softmax", "layer_norm", "sum", "add", "dropout", "embedding_add", "max_pool2d", "cumsum", "index", "linear", "random_uniform", "irfft",
}  # fmt: skip


def beside(x):
    """An array as a tensor on the GPU that begins one element behind the start of its memory."""
    flat = np.concatenate([np.zeros(1, x.dtype), np.ascontiguousarray(x).reshape(-1)])
    return gl.tensor(flat, device="cuda")[1:].view(x.shape)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KNOWN else pytest.mark.whole) for n, _ in FIRST])
def test_inputs_that_begin_one_element_late(cuda, name):
    for sample in SAMPLES[name]:
        if not any(isinstance(x, np.ndarray) for x in sample.inputs):
            continue
        want = run(name, on("cpu", sample.inputs), sample.params)
        for tensors in (on("cuda", sample.inputs), [beside(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]):
            for got, expected in zip(run(name, tensors, sample.params), want, strict=True):  # the plan is that of the call before
                close(got, expected, "float32", name)


def far(x):
    """An array as a tensor on the GPU whose dimensions of one element have steps of 2^40."""
    x = np.array(x, order="C")
    steps = [1 << 40 if size == 1 else step // x.itemsize for size, step in zip(x.shape, x.strides, strict=True)]
    return gl.tensor(x, device="cuda").as_strided(x.shape, steps)


def has_single(sample):
    return any(isinstance(x, np.ndarray) and 1 in x.shape for x in sample.inputs)


SINGLE = {(n, i): sample for n, _ in FIRST for i, sample in enumerate(SAMPLES[n]) if has_single(sample)}
FEW_SINGLE = [("convolution_act", 6), ("convolution_dx", 7), ("convolution_dw", 3)]


@pytest.mark.parametrize(("name", "number"), [pytest.param(*one, marks=() if one in FEW_SINGLE else pytest.mark.whole) for one in SINGLE])
def test_steps_of_dimensions_of_one_element_mean_nothing(cuda, name, number):
    sample = SINGLE[name, number]
    want = run(name, on("cpu", sample.inputs), sample.params)
    tensors = [far(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
    for got, expected in zip(run(name, tensors, sample.params), want, strict=True):
        close(got, expected, "float32", name)


PREPARED = [n for n, _ in FIRST if not ops.ROWS[n].view and not ops.ROWS[n].dynamic]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KNOWN else pytest.mark.whole) for n in PREPARED])
def test_results_that_begin_one_element_late(cuda, name):
    """A prepared plan (what compiled programs run) writes where it is told to, whatever it was first shown."""
    sample = SAMPLES[name][0]
    if not any(isinstance(x, np.ndarray) for x in sample.inputs):
        pytest.skip("no inputs")
    want = run(name, on("cpu", sample.inputs), sample.params)
    inputs = [x._array if isinstance(x, gl.Tensor) else x for x in on("cuda", sample.inputs)]
    plan = cuda.prepared(ops.ROWS[name], inputs, sample.params)
    for late in (0, 0, 1, 0):
        rooms = [gl.zeros(w.numel() + late, device="cuda", dtype=w.dtype)[late:].view(w.shape) for w in want]
        plan(inputs, [room._array for room in rooms])
        for got, expected in zip(rooms, want, strict=True):
            close(got, expected, "float32", name)
