"""Tracing: every sample of every row through traced replay on fresh inputs, and whole training steps."""

from __future__ import annotations

import numpy as np
import pytest
from test_ops import CASES, leaves, objective

import gradlab as gl
from gradlab import ops
from gradlab.graph import TraceError, trace

from samples import SAMPLES

each_sample = pytest.mark.parametrize(("name", "number"), CASES, ids=lambda value: str(value))


def shuffled(sample):
    """Other inputs of the same Specs: the same elements, reversed along the last axis, so that indices and domains stay valid."""
    if sample.fresh is not None:
        return sample.fresh(np.random.default_rng(11))
    return tuple(x[..., ::-1].copy() if isinstance(x, np.ndarray) and x.ndim else x for x in sample.inputs)


def outputs_and_gradients(name, sample):
    """A function of the sample's arrays as tensors: all outputs, and the gradients of a weighted sum of them."""

    def compute(*tensors):
        waiting = iter(tensors)
        inputs = [next(waiting) if isinstance(x, np.ndarray) else x for x in sample.inputs]
        result = ops.ROWS[name](*inputs, **sample.params)
        outs = list(result) if isinstance(result, tuple) else [result]
        wanted = [x for x in tensors if x.requires_grad]
        total = objective(name, inputs, sample.params) if wanted and ops.ROWS[name].steps and sample.gradients else None
        gradients = gl.autograd.grad(total, wanted, materialize_grads=True) if total is not None else ()
        return outs, list(gradients)

    return compute


@each_sample
def test_traced_replay_on_fresh_inputs(name, number):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    if not any(isinstance(x, np.ndarray) for x in sample.inputs):
        pytest.skip("no inputs")
    compute = outputs_and_gradients(name, sample)
    tensors = [t for t in leaves(sample.inputs) if isinstance(t, gl.Tensor)]
    if row.dynamic:
        with pytest.raises(TraceError, match="use "):
            trace(compute, *tensors)
        return
    program = trace(compute, *tensors)
    other = [t for t in leaves(shuffled(sample)) if isinstance(t, gl.Tensor)]
    for got, want in zip(program(*other)[0] + program(*other)[1], compute(*other)[0] + compute(*other)[1], strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got.tolist(), want.tolist(), rtol=1e-12, atol=1e-12)
    assert all(
        (a.detach() == b).all() or np.isnan(b).any()
        for a, b in zip(tensors, [x for x in sample.inputs if isinstance(x, np.ndarray)], strict=True)
    )


def test_a_whole_step_replays_as_it_runs():
    """Momentum SGD with a view written in place: state, updates, gradients and losses equal eager's bit for bit."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 4))
    batches = [(gl.tensor(rng.normal(size=(5, 4))), gl.tensor(rng.normal(size=(5, 3)))) for _ in range(4)]

    def make():
        weight, momentum = gl.tensor(start, requires_grad=True), gl.zeros(3, 4, dtype=gl.float64)

        def step(x, y):
            weight.grad = None
            loss = ((x @ weight.t() - y) ** 2).mean()
            loss.backward()
            with gl.no_grad():
                momentum.mul_(0.9).add_(weight.grad)
                weight.sub_(0.1 * momentum)
                weight[0].mul_(0.99)
            return loss

        return weight, momentum, step

    eager_weight, eager_momentum, eager_step = make()
    weight, momentum, step = make()
    program = trace(step, *batches[0])
    np.testing.assert_array_equal(weight.detach().numpy(), start)  # the trace changed nothing
    assert weight.grad is None and weight.requires_grad and weight.is_leaf
    memory = weight.data_ptr()
    for x, y in batches:
        assert program(x, y).item() == eager_step(x, y).item()
    for traced, eager in ((weight, eager_weight), (momentum, eager_momentum), (weight.grad, eager_weight.grad)):
        np.testing.assert_array_equal(traced.detach().numpy(), eager.detach().numpy())
    assert weight.data_ptr() == memory


def test_gradients_accumulate_over_replays():
    w = gl.tensor([1.0, 2.0], requires_grad=True)
    (w * 1.0).sum().backward()
    program = trace(lambda x: (w * x).sum().backward() or w.sum(), gl.tensor([3.0, 4.0]))
    program(gl.tensor([5.0, 6.0]))
    assert w.grad.tolist() == [6.0, 7.0]


@pytest.mark.parametrize(
    "read",
    [lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: 1 if x.sum() > 0 else 2, lambda x: x.numpy(), lambda x: x.tolist()],
)
def test_reading_a_value_is_an_error_that_names_the_line(read):
    w = gl.tensor([1.0])
    with pytest.raises(TraceError, match=r"(?s)value was read while tracing.*test_trace\.py"):
        trace(lambda x: w.add_(1) * read(x), gl.ones(3))
    assert w.tolist() == [1.0]  # the failed trace left state as it was


def test_other_shapes_are_refused():
    program = trace(lambda x: x * 2, gl.ones(3))
    with pytest.raises(ValueError, match="traced for"):
        program(gl.ones(4))


def test_nested_arguments_and_results():
    program = trace(lambda d, xs: {"sum": d["a"] + xs[0], "pair": (xs[1] * 2, "text")}, {"a": gl.ones(2)}, [gl.ones(2), gl.ones(1)])
    found = program({"a": gl.zeros(2)}, [gl.ones(2) * 3, gl.ones(1) * 4])
    assert found["sum"].tolist() == [3.0, 3.0] and found["pair"][0].tolist() == [8.0] and found["pair"][1] == "text"


def test_detached_and_aliased_state_is_one_memory():
    w = gl.tensor([1.0, 2.0])

    def step(x):
        w.detach().add_(x)
        w.data.mul_(2.0)
        return w * 1.0

    program = trace(step, gl.ones(2))
    assert program(gl.ones(2)).tolist() == [4.0, 6.0]
    assert program(gl.ones(2)).tolist() == [10.0, 14.0]
    assert w.tolist() == [10.0, 14.0]


def test_a_tensor_of_a_finished_trace_is_refused():
    kept = []
    trace(lambda x: kept.append(x * 2) or x, gl.ones(2))
    with pytest.raises(TraceError, match="after the trace"):
        kept[0] + 1


def test_the_graph_reads():
    program = trace(lambda x: (x * 2).sum(), gl.ones(2))
    line = program.graph.calls[0].position[0].co_firstlineno
    assert str(program.graph).splitlines() == [
        "graph(%1: float32[2]):",
        f"  # test_trace.py:{line}: program = trace(lambda x: (x * 2).sum(), gl.ones(2))",
        "  %2: float32[2] = mul(%1, 2)",
        "  %3: float32[] = sum(%2, dim=(0,), keepdim=False)",
        "  return %3",
    ]


def test_products_of_vectors_are_traced_as_they_run():
    m, v = gl.tensor([[1.0, 2.0], [3.0, 4.0]]), gl.tensor([5.0, 6.0])
    program = trace(lambda m, v: [m @ v, v @ m, v @ v, m @ m], m, v)
    for got, want in zip(program(m, v), [m @ v, v @ m, v @ v, m @ m], strict=True):
        assert got.tolist() == want.tolist()
