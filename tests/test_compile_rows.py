"""Every row in compiled programs: all samples of a row as one program, on fresh inputs, in NumPy and as machine code.

Inputs, outputs and the arena lie between canaries (red_zones.py): nothing is written beside them, and what is read there is NaN.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from red_zones import Zones
from test_ops import leaves
from test_trace import outputs_and_gradients, shuffled

import gradlab as gl
from gradlab import ops
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable
from gradlab.graph.passes import optimize

from samples import SAMPLES

EXECUTABLES = {"numpy": NumpyExecutable, "native": NativeExecutable}


def narrow(inputs):
    """float64 as float32, which is what most kernels are for."""
    return tuple(x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x for x in inputs)


def programs(name, dtype):
    """For the samples of a row: the function, example arrays and fresh arrays."""
    for sample in SAMPLES[name]:
        if not any(isinstance(x, np.ndarray) for x in sample.inputs):
            continue
        if dtype == "float32" and "float32" not in sample.dtypes:
            continue
        cast = narrow if dtype == "float32" else tuple
        example = [t for t in leaves(cast(sample.inputs)) if isinstance(t, gl.Tensor)]
        fresh = [t for t in leaves(cast(shuffled(sample))) if isinstance(t, gl.Tensor)]
        yield outputs_and_gradients(name, sample), example, fresh


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", EXECUTABLES)
@pytest.mark.parametrize("name", [n for n in SAMPLES if not ops.ROWS[n].dynamic])
def test_compiled_programs_give_what_eager_gives(name, kind, dtype, monkeypatch):
    if kind == "native" and not compiler.available():
        pytest.skip("no C++ compiler")
    cases = list(programs(name, dtype))
    if not cases:
        pytest.skip("no inputs")

    def everything(*tensors):
        waiting = iter(tensors)
        return [compute(*[next(waiting) for _ in example]) for compute, example, _ in cases]

    program = trace(everything, *[t for _, example, _ in cases for t in example])
    graph = optimize(program.graph)
    zones = Zones()
    monkeypatch.setattr(sys.modules[EXECUTABLES[kind].__module__], "arena", zones.bytes)
    executable = EXECUTABLES[kind](Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    given = [t for _, _, fresh in cases for t in fresh]
    for _ in range(2):  # the second run finds the first one's values in the arena
        outs = [zones.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]  # whatever lies there must not matter
        executable.run([zones.around(t._array) for t in given], outs)
        zones.check()
    wanted = [t for outs_, gradients in everything(*given) for t in (*outs_, *gradients)]
    tolerance = {"float32": 2e-4, "float64": 1e-9}[dtype]
    for got, want in zip(outs, wanted, strict=True):
        expected = want.detach().numpy()
        scale = 1 + np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0)), initial=0) if expected.dtype.kind == "f" else 1
        limit = max(tolerance, 1e-6) if expected.dtype in (np.float32, np.complex64) else tolerance  # some samples hold narrow numbers
        wide = np.result_type(np.float64, expected.dtype) if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=limit, atol=limit * scale * 0.1)


def test_sums_of_few_columns_take_each_condition_for_its_own_element():
    """GNU 12 takes the first of several masks for all, where it makes masked loads of what a condition needs."""
    shapes = [(4, 4), (2, 6), (2, 8), (4, 3), (3, 4), (1, 16), (2, 7)]

    def slopes(*given):
        found = []
        for x, w in zip(given[::2], given[1::2]):
            half = w.shape[0] // 2
            for activation in (gl.relu, lambda t: gl.nn.functional.hardtanh(t, -0.5, 0.5), lambda t: t.clamp(min=0.1)):
                y = activation(x + w)
                turned = gl.cat([y[:, half:], y[:, :half]], 1)
                found += gl.autograd.grad(turned.square().sum(), w)
        return found

    given = []
    for i, shape in enumerate(shapes):
        numbers = np.random.default_rng(i)
        given += [gl.tensor(numbers.normal(size=shape).astype("float32")), gl.zeros(shape[1]).requires_grad_()]
    compiled, wanted = gl.compile(slopes), slopes(*given)
    for _ in range(2):
        found = compiled(*given)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
