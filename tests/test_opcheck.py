"""`opcheck`: it passes what is right, and names what is wrong."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import gradlab as gl
from gradlab.library import CudaSource, Launch, Spec, custom_op
from gradlab.testing import OpCheckError, opcheck

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="the emulated GPU needs a C++ compiler")
HOST = ["value", "dtypes", "layouts", "empty", "gradcheck", "gradgradcheck", "trace", "vmap"]
ROW_SUM = """
template <class S> __global__ void row_sum(const S* x, S* y, long long columns) {
    __shared__ float part[32];
    float total = 0.0f;
    for (long long j = threadIdx.x; j < columns; j += 32) total += x[blockIdx.x * columns + j];
    part[threadIdx.x] = total;
    BARRIER
    if (threadIdx.x) return;
    for (int j = 1; j < 32; ++j) total += part[j];
    y[blockIdx.x] = total;
}
"""


def row_sum(name, barrier):
    source = CudaSource(ROW_SUM.replace("BARRIER", barrier), "row_sum<{x}>", lambda x: Launch(x.shape[0], 32, ("x", "y", x.shape[1])))
    return custom_op(f"checked::{name}", lambda x: x.sum(-1), cuda=source, infer=lambda x: Spec(x.shape[:1], x.dtype))


def test_a_right_operation_passes_on_the_host():
    product = custom_op("checked::product", lambda x, y: x * y, cuda="x * y", grad={"x": lambda g, y: g * y, "y": lambda g, x: g * x})
    report = opcheck(product, [(gl.randn(2, 3), gl.randn(3))], checks=HOST)
    assert report and all(o.status == "ok" for o in report.outcomes)
    assert "all is well" in str(report)


def test_wrong_operations_are_found():
    wrong = custom_op("checked::wrong", lambda x: x**2, grad=lambda g, x: g * x)
    with pytest.raises(OpCheckError, match="Jacobian mismatch") as caught:
        opcheck(wrong, [(gl.randn(3),)], checks=["value", "gradcheck"])
    assert [o.status for o in caught.value.report.outcomes] == ["ok", "FAILED"]

    def changing(x):
        x += 1
        return x

    report = opcheck(custom_op("checked::changing", changing), [(gl.randn(3),)], checks=["value"], raise_exception=False)
    assert "changed an input" in report["value"].detail


def test_misuse():
    with pytest.raises(TypeError, match="custom_op"):
        opcheck(np.exp, [(gl.ones(1),)])
    one = custom_op("checked::one", lambda x: x)
    with pytest.raises(ValueError, match="no check 'speed'"):
        opcheck(one, [(gl.ones(1),)], checks=["speed"])
    with pytest.raises(TypeError, match="list of samples"):
        opcheck(one, gl.ones(1))


@needs_compiler
def test_a_missing_barrier_is_found():
    sample = [(np.random.default_rng(0).normal(size=(2, 40)),)]
    right = opcheck(row_sum("right", "__syncthreads();"), sample, checks=["parity", "orders"], dtypes=["float32"])
    assert right["parity"].status == "ok"
    wrong = opcheck(row_sum("raced", ""), sample, checks=["orders", "sanitizers"], sanitize=["thread"], raise_exception=False)
    assert wrong["orders"].status == "FAILED"
    found = wrong["sanitizers"]
    assert found.status == "skipped" or "data race at row_sum.cu:" in found.detail
