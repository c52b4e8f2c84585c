"""Every module, exported and loaded again: the same results, and the same parameters."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph.staging.tree import flatten

from onnx_modules import cases

pytest.importorskip("onnx")

CASES = list(cases())


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def test_module(tmp_path, number):
    _, make, arguments = CASES[number]
    gl.manual_seed(1)
    model = make().eval()
    gl.onnx.export(model, arguments, tmp_path / "m.onnx", check=False)
    found, _ = flatten(gl.onnx.load(tmp_path / "m.onnx")(*flatten(arguments)[0]))
    wanted, _ = flatten(model(*arguments))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
