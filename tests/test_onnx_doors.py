"""ONNX's own node tests through every door: compiled, traced and saved, exported again, as C, on a GPU, with gradients."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from deployed import compiler
from onnx_doors import DOORS, FEW, REFUSALS, Subject, cases

# What has to get through, of the cases that load, at least; what does not is refused by name, with the way out, and never wrong.
THROUGH = {
    "traced": 0.97, "exported": 0.96, "exported_open": 0.95, "c_text": 0.94, "compiled": 0.97, "gradients": 0.98,
    "c_program": 0.93, "on_gpu": 0.95,
}  # fmt: skip
ENDLESS = {"test_acosh_example", "test_acosh"}  # a slope that is infinite at 1


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_node_tests(door, tmp_path, request):
    if door == "on_gpu":
        request.getfixturevalue("cuda")
    if door == "c_program" and compiler() is None:
        pytest.skip("no C compiler")
    found, wrong, seen = Counter(), [], set()
    for case in cases():
        kinds = tuple(sorted({n.op_type for n in case.model.graph.node}))
        if door in FEW and (kinds in seen or "expanded" in case.name):
            continue
        seen.add(kinds)
        try:
            subject = Subject(case)
        except Exception:  # what test_onnx_load.py looks at
            found["not loaded"] += 1
            continue
        try:
            DOORS[door](subject, tmp_path)
            found["through"] += 1
        except REFUSALS as error:
            found["refused"] += 1
            if len(str(error)) < 40:
                wrong.append(f"{case.name}: refused without a reason: {error}")
        except Exception as error:
            if not (door == "gradients" and case.name in ENDLESS):
                wrong.append(f"{case.name}: {type(error).__name__}: {error}"[:300])
    print(door, dict(found))
    assert not wrong
    assert found["through"] >= THROUGH[door] * (found["through"] + found["refused"])
