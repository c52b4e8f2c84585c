"""Every module, exported and run by ONNX Runtime beside itself."""

from __future__ import annotations

import inspect

import pytest

import gradlab as gl
from gradlab import nn

from onnx_modules import cases

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CASES = list(cases())
OLDER = (11, 13, 15, 17)
ABSTRACT = {"Module", "RNNBase", "RNNCellBase"}  # nothing can be called
RANDOM = {"FractionalMaxPool2d", "FractionalMaxPool3d"}  # which windows, in evaluation, too
OTHERS = RANDOM | {"SyncBatchNorm", "DataParallel", "NLLLoss2d"}  # BatchNorm2d, the module in it and NLLLoss by other names


def test_every_module_is_in_the_table():
    modules = {n for n in nn.__all__ if inspect.isclass(getattr(nn, n)) and issubclass(getattr(nn, n), nn.Module)}
    assert modules - ABSTRACT - OTHERS <= {name for name, _, _ in CASES}


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def test_module(tmp_path, number):
    _, make, arguments = CASES[number]
    gl.manual_seed(1)
    model = make().eval()
    for opset in (20, OLDER[number % len(OLDER)]):
        found = gl.onnx.export(model, arguments, tmp_path / "m.onnx", opset=opset)
        assert found.opset == opset and found.deviation < 1e-4 and "Runtime" in found.checked_by and not found.unchecked
