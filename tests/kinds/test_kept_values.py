"""What nodes keep is read, and nodes are called, without a backward: of every row, of checkpointed parts, of packed values."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd import graph
from gradlab.autograd.record import bind
from gradlab.ops import ROWS
from gradlab.utils.checkpoint import checkpoint

from samples import SAMPLES

INPUT = {"linear", "convolution", "layer_norm", "batch_norm"}  # rows whose first input is `input`, not `self`, and the second `weight`
SECOND = {"matmul": "mat2", "wide_matmul": "mat2", "pow_tensor": "exponent", "mse": "target"}
NAMES = sorted(n for n, row in ROWS.items() if row.steps and n in SAMPLES and not (row.variadic or row.together or row.view))


def shown(row, own):
    """PyTorch's name for what a row calls `own`."""
    if own in row.outputs:
        return "result" if len(row.outputs) == 1 else own
    at = row.inputs.index(own)
    first, second = ("input", "weight") if row.name in INPUT else ("self", SECOND.get(row.name, "other"))
    return (first, second)[at] if at < 2 else f"input{at}"


@pytest.mark.parametrize("packed", [False, True])
def test_kept_values_have_pytorchs_names(packed):
    seen = 0
    for name in NAMES:
        row, sample = ROWS[name], SAMPLES[name][0]
        inputs = [gl.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
        inputs = [x.requires_grad_() if isinstance(x, gl.Tensor) and x.is_floating_point() else x for x in inputs]
        with graph.saved_tensors_hooks(lambda x: x, lambda x: x) if packed else gl.enable_grad():
            found = bind(row)(*inputs, **sample.params)
        outs = found if isinstance(found, tuple) else (found,)
        node = next((out.grad_fn for out in outs if out.requires_grad), None)
        if node is None or any(x.dtype.is_complex for x in (*inputs, *outs) if isinstance(x, gl.Tensor)):
            continue
        for own, value in (*zip(row.inputs, inputs, strict=False), *zip(row.outputs, outs, strict=True)):
            if own not in (*row.kept_inputs, *row.kept_outputs):
                assert own in row.params or not hasattr(node, f"_saved_{shown(row, own)}")
                continue
            kept = getattr(node, f"_saved_{shown(row, own)}")
            if isinstance(value, gl.Tensor):
                assert kept is None or gl.equal(kept.double().nan_to_num(), value.double().nan_to_num()), (name, own)
                seen += kept is not None
        for own in row.params:
            assert getattr(node, f"_saved_{ {'lo': 'min', 'hi': 'max'}.get(own, own)}") == sample.params[own]
        with pytest.raises(AttributeError, match="_saved_nothing"):
            node._saved_nothing
    assert seen > 150


def test_what_a_checkpoint_keeps_outside_of_a_backward():
    x, ran = gl.tensor([0.5, 1.0], requires_grad=True), []

    def part(x):
        ran.append(1)
        return (x * x).exp()

    y = checkpoint(part, x, use_reentrant=False)
    node = y.grad_fn.next_functions[0][0]
    assert len(ran) == 1 and node._saved_self.tolist() == [0.5, 1.0] and len(ran) > 1
    assert [g.tolist() for g in node(gl.ones(2))] == [[0.5, 1.0]] * 2
    y.sum().backward()
    assert np.allclose(x.grad.numpy(), 2 * x.detach().numpy() * y.detach().numpy())

