"""What the passes make of programs is what is written down, and gives the same results: an improvement that is lost shows in no number."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable

from kinds.programs_after_passes import FILE, graphs, line, programs

NAMES = [text.partition(":")[0] for text in FILE.read_text(encoding="utf-8").splitlines() if text[0] not in "# "]


def test_all_programs_are_written_down():
    assert [*programs()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_program(name):
    assert f"\n{line(name)}\n" in FILE.read_text(encoding="utf-8"), "python -m tests.kinds.programs_after_passes"


def results(graph, arrays):
    state = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in graph.state.items()}
    outs = [np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
    NumpyExecutable(Line(graph.calls, graph.inputs, state, graph.outputs, graph.updates)).run(arrays, outs)
    return outs


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for name in NAMES if name != "dropout"])  # whose mask is another in each run
def test_its_results(name):
    traced, graph, _ = graphs(name)
    arrays = [t.numpy() for t in programs()[name][1]]
    for want, got in zip(results(traced, arrays), results(graph, arrays), strict=True):
        assert want.dtype == got.dtype and want.shape == got.shape
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * max(np.abs(want).max(initial=0), 1e-3))
