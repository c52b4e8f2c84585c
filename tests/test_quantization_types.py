"""Quantised models whose numbers are not float32: made of such a model, or converted afterwards."""

import copy

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.ao import quantization as Q


@pytest.mark.parametrize("dtype", [gl.bfloat16, gl.float16, gl.float64])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_models_of_other_types(dtype, kind):
    """Made of such a model, or made such: the inputs' type comes out, near what float32 gives."""
    layers = (nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)) if kind == "linear" else (nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 3, 1))
    model, x = nn.Sequential(*layers).eval(), gl.linspace(-1, 1, 144).reshape((18, 8) if kind == "linear" else (2, 2, 6, 6))
    want = model(x)

    def static(model, given):
        prepared = Q.prepare(copy.deepcopy(model))
        prepared(given)
        return Q.convert(prepared)

    def trained(model, given):
        prepared = Q.prepare_qat(copy.deepcopy(model).train())
        prepared(given)
        return Q.convert(prepared.eval())

    def four(model, given):
        return Q.quantize_dynamic(copy.deepcopy(model), bits=4) if kind == "linear" else Q.quantize_dynamic(copy.deepcopy(model))

    for make in (static, trained, four, lambda model, given: Q.quantize_dynamic(copy.deepcopy(model))):
        for small in (make(copy.deepcopy(model).to(dtype), x.to(dtype)), make(model, x).to(dtype)):
            found = small(x.to(dtype))
            assert found.dtype == dtype
            assert (found.float() - want).abs().max() < (0.2 if make is four else 0.03)
