"""Every row in a program file: all samples of a row, with gradients, written, read as a stranger's file, and run on fresh inputs."""

from __future__ import annotations

import numpy as np
import pytest
from test_compile_rows import programs

import gradlab as gl
from gradlab import ops
from gradlab.jit.portable import LoadError
from gradlab.jit.reader import from_bytes
from gradlab.jit.schema import PARAMETERS, loose
from gradlab.jit.writer import to_bytes

from samples import SAMPLES

COLLECTIVES = [n for n in SAMPLES if "by" in ops.ROWS[n].params]  # what carries their values is of the running program
NAMES = [n for n in SAMPLES if not ops.ROWS[n].dynamic and n not in COLLECTIVES]


def test_every_parameter_has_a_kind():
    assert {p for name, row in ops.ROWS.items() if name not in COLLECTIVES for p in row.params} <= set(PARAMETERS)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_are_in_no_file(name):
    (compute, example, _), *_ = programs(name, "float64")
    program = gl.jit.trace(lambda *xs: compute(*xs), tuple(example), check_trace=False)
    with pytest.raises(TypeError, match=f"save: {name}: .*cannot be written"):
        to_bytes(program._plan, program.tensors())


def traced(name):
    """A program of all samples of a row, and fresh arguments."""
    cases = list(programs(name, "float64"))
    if not cases:
        pytest.skip("no inputs")

    def everything(*tensors):
        waiting = iter(tensors)
        return [compute(*[next(waiting) for _ in example]) for compute, example, _ in cases]

    program = gl.jit.trace(everything, [t for _, example, _ in cases for t in example], check_trace=False)
    return program, [t for _, _, fresh in cases for t in fresh]


def flat(value):
    return [t for part in value for t in flat(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_with_this_row_survives_its_file(name):
    program, fresh = traced(name)
    content = to_bytes(program._plan, program.tensors())
    loaded = from_bytes(content)
    assert to_bytes(loaded._plan, loaded.tensors()) == content
    gl.manual_seed(0)
    want = program._run(*fresh)
    gl.manual_seed(0)
    got = loaded(*fresh)
    for a, b in zip(flat(want), flat(got), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    if any(loose(c.op) for c in program.graph.calls):
        assert loaded._plan.careful and not from_bytes(content, trusted=True)._plan.careful
        with pytest.raises(LoadError, match="only NumPy checks"):
            from_bytes(content, device=gl.device("cuda"))
