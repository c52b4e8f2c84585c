"""Every row that the C runner knows, on its first samples, many in one program; what it does not know is refused with all reasons."""

import numpy as np
import pytest
from deployed import compiled, compiler, ran

import gradlab as gl
from gradlab import nn, ops
from gradlab.deploy.emitter import EMIT
from gradlab.deploy.freezing import freeze
from gradlab.deploy.program import Refused, generate
from gradlab.graph import trace
from gradlab.nn import functional as F

from samples import SAMPLES

TOLERANCE = {"float32": 1e-5, "float64": 1e-9, "float16": 2e-3}


def cases(dtype, most):
    """For each row the first samples of a dtype that have arrays: name, function, tensors; and the rows that are refused."""
    found, refused = [], {}
    for name, samples in SAMPLES.items():
        op = ops.ROWS[name]
        if op.dynamic or name.endswith("_update") or "random" in name:
            continue
        taken = 0
        for sample in samples:
            if taken == most or (dtype != "float64" and dtype not in sample.dtypes):
                continue
            wide = [isinstance(x, np.ndarray) and x.dtype == np.float64 for x in sample.inputs]
            inputs = [x.astype(dtype) if w else x for x, w in zip(sample.inputs, wide, strict=True)]
            arrays = [x for x in inputs if isinstance(x, np.ndarray)]
            if not arrays or (dtype != "float32" and not any(wide)):
                continue

            def compute(*tensors, op=op, inputs=inputs, params=sample.params):
                waiting = iter(tensors)
                result = op(*[next(waiting) if isinstance(x, np.ndarray) else x for x in inputs], **params)
                return list(result) if op.result is not None else [result]

            tensors = [gl.tensor(a) for a in arrays]
            with gl.no_grad():
                graph = trace(compute, *tensors).graph
            try:
                generate(freeze(graph), "one")
            except Refused as error:
                refused[name] = str(error)
                continue
            taken += 1
            found.append((name, compute, tensors))
    return found, refused


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
@pytest.mark.parametrize(("dtype", "most"), [("float32", 2), ("float64", 1), ("float16", 1)])
def test_rows_give_what_eager_gives(dtype, most, tmp_path):
    found, _ = cases(dtype, most)
    assert len({name for name, _, _ in found}) > 150
    wrong = []
    for start in range(0, len(found), 90):
        part = found[start : start + 90]

        def everything(*tensors, part=part):
            waiting = iter(tensors)
            return [y for _, compute, example in part for y in compute(*[next(waiting) for _ in example])]

        given = [t for _, _, example in part for t in example]
        with gl.no_grad():
            program = trace(everything, *given)
        built = gl.deploy.build(program, tmp_path, name=f"rows{start}")
        results = iter(ran(compiled(built, "-O0"), built, given))
        for name, compute, example in part:
            for expected in (y.numpy() for y in compute(*example)):
                result = next(results)
                near = TOLERANCE[dtype]
                close = np.allclose(result.astype(float), expected.astype(float), rtol=near, atol=near, equal_nan=True)
                if result.shape != expected.shape or result.dtype != expected.dtype or not close:
                    wrong.append((name, result, expected))
    assert not wrong


def test_what_has_no_c_is_refused_by_name():
    _, refused = cases("float32", 1)
    fixed = {name for name, text in refused.items() if "a weight that is computed in the program" in text}
    assert set(refused) & set(EMIT) == fixed == {name for name in EMIT if name.startswith("quantized_")}  # packed before
    assert all(name in text for name, text in refused.items())


def test_all_reasons_at_once(tmp_path):
    def awkward(x):
        y = gl.linalg.cholesky(x)
        return gl.linalg.inv(y) + gl.median(x)

    program = gl.jit.trace(awkward, gl.eye(3))
    with pytest.raises(Refused, match=r"cholesky: .*test_deploy_rows.py:.*inverse: .*median_of_all: ") as caught:
        gl.deploy.build(program, tmp_path)
    assert "the runner has no C for it" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_training_and_random_numbers_are_refused(tmp_path):
    norm = nn.BatchNorm1d(3).train()
    with gl.no_grad():
        program = gl.jit.trace(norm, gl.randn(4, 3))
    with pytest.raises(Refused, match=r"outlive a run.*model.eval\(\)"):
        gl.deploy.build(program, tmp_path)
    program = gl.jit.trace(lambda x: x + gl.rand(3), gl.ones(3), check_trace=False)
    with pytest.raises(Refused, match=r"draws random numbers.*pass them in"):
        gl.deploy.build(program, tmp_path)


def test_unknown_sizes_are_given(tmp_path):
    program = gl.jit.trace(lambda x: (x * 2).sum(1), gl.ones(4, 3), dynamic={0: {0: "batch"}})
    with pytest.raises(ValueError, match=r"batch.*sizes=\{"):
        gl.deploy.build(program, tmp_path)
    assert gl.deploy.build(program, tmp_path, sizes={"batch": 5}).outputs == ("y0: float32[5]",)


@pytest.mark.parametrize("name", ["int", "exp", "1st", "a-b", "", "gl_x"])
def test_names_are_names_of_c(name, tmp_path):
    with pytest.raises(ValueError, match="no name for functions of C"):
        gl.deploy.build(gl.jit.trace(lambda x: x * 2, gl.ones(3)), tmp_path, name=name)


def test_what_is_no_program():
    with pytest.raises(TypeError, match="expected a traced program"):
        gl.deploy.build(nn.Linear(2, 2))


def test_constants_and_scales_are_folded(tmp_path):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    with gl.no_grad():
        program = trace(model, gl.randn(1, 2, 6, 6))
    frozen = freeze(program.graph)
    assert [c.op.name for c in frozen.calls] == ["convolution"]
    assert list(frozen.endings.values()) == [("relu", False)]


def test_equal_constants_are_kept_once(tmp_path):
    layer = nn.Linear(64, 64)
    once = gl.deploy.build(gl.jit.trace(lambda x: layer(x), gl.ones(1, 64)), tmp_path, name="once")
    twice = gl.deploy.build(gl.jit.trace(lambda x: layer(layer(x)), gl.ones(1, 64)), tmp_path, name="twice")
    assert twice.weights.stat().st_size == once.weights.stat().st_size


def test_results_that_nobody_takes_leave_no_variable_behind(tmp_path):
    """One of several results: any warning of the compiler fails."""
    def some(x):
        found = [f(x, dim=1) for f in (gl.max, gl.min, gl.sort, gl.cummax, gl.cummin)]
        found += [gl.topk(x, 2, dim=1), F.max_pool1d(x, 2, return_indices=True), F.adaptive_max_pool1d(x, 2, return_indices=True)]
        return [values for values, _ in found] + [f(x * 2, dim=1)[1] for f in (gl.max, gl.min, gl.sort, gl.cummin)] + [x.argmax(1)]

    x = gl.randn(3, 5)
    want = some(x)
    built = gl.deploy.build(trace(some, x), tmp_path, name="some")
    for got, wanted in zip(ran(compiled(built), built, [x]), want, strict=True):
        assert np.array_equal(got, wanted.numpy())
