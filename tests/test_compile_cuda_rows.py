"""Every row in programs on the (emulated) GPU: all samples of a row as one program, on fresh inputs, launched one by one and replayed."""

from __future__ import annotations

import numpy as np
import pytest
from test_ops import leaves
from test_trace import outputs_and_gradients, shuffled

import gradlab as gl
from gradlab import ops
from gradlab.graph import trace
from gradlab.graph.executables.cuda.executable import CudaExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.passes import optimize

from samples import SAMPLES

pytestmark = pytest.mark.usefixtures("cuda")


def check_row(name):
    cases = []
    for sample in SAMPLES[name]:
        if any(isinstance(x, np.ndarray) for x in sample.inputs) and "float32" in sample.dtypes:
            parts = []
            for inputs in (sample.inputs, shuffled(sample)):
                narrow = [x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x for x in inputs]
                parts.append([t.detach().cuda().requires_grad_(t.requires_grad) for t in leaves(narrow) if isinstance(t, gl.Tensor)])
            cases.append((outputs_and_gradients(name, sample), *parts))
    if not cases:
        pytest.skip("no inputs")

    def everything(*tensors):
        waiting = iter(tensors)
        return [compute(*[next(waiting) for _ in example]) for compute, example, _ in cases]

    with gl.device("cuda"):
        program = trace(everything, *[t for _, example, _ in cases for t in example])
    graph = optimize(program.graph)
    runner = CudaExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, [], graph.device))
    given = [t for _, _, fresh in cases for t in fresh]
    with gl.device("cuda"):
        wanted = [t.detach().cpu().numpy() for outs_, gradients in everything(*given) for t in (*outs_, *gradients)]
    for _ in range(3):
        outs = [runner.driver.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
        runner.run([t._array for t in given], outs)
    for got, want in zip(outs, wanted, strict=True):
        found = runner.driver.download(got)
        scale = 1 + np.nanmax(np.abs(np.where(np.isfinite(want), want, 0)), initial=0) if want.dtype.kind in "fc" else 1
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(found.astype(wide), want.astype(wide), rtol=2e-5, atol=2e-6 * scale)


SOME = (
    "add", "exp", "cast", "where", "sum", "matmul", "linear", "softmax", "layer_norm", "gather", "cat", "slice_backward", "cumsum", "sort",
)  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_some_rows(name):
    check_row(name)


@pytest.mark.whole
@pytest.mark.parametrize("name", [n for n in SAMPLES if not ops.ROWS[n].dynamic and n not in SOME])
def test_rows(name):
    check_row(name)
