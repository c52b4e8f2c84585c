"""Tensors without dimensions, of one element and of none: machine code computes what rows compute in NumPy, in every public function.

One element is where a kernel's index arithmetic, and the place of a part of an array, degenerate: `flip` of a 0-d tensor read memory
that was nobody's.
"""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler

import gradlab as gl
from gradlab.backends.native import thresholds

from kinds.calls import CALLS, converted, parts

SHAPES = {
    "without dimensions": lambda a: a.reshape(-1)[:1].reshape(()),
    "one element": lambda a: a[(slice(0, 1),) * a.ndim],
    "nothing along the first": lambda a: a[:0] if a.ndim else a,
    "nothing along the last": lambda a: a[..., :0] if a.ndim else a,
}


def results(call, change):
    """What a call gives, and its gradients; the name of the error where it has none."""

    def tensor(array):
        made = gl.tensor(np.ascontiguousarray(change(np.asarray(array))).reshape(change(np.asarray(array)).shape))
        return made.float().requires_grad_("plain" not in call.marks) if array.dtype == np.float64 else made

    args, options = converted(call.arguments, tensor), converted(call.options, tensor)
    gl.manual_seed(0)
    try:
        found = parts(call.on(args, options))
        leaves = [t for t in [*parts(args), *parts(options)] if t.requires_grad and t.is_leaf]
        roots = [p for p in found if p.requires_grad and p.grad_fn is not None]
        if roots and leaves:
            gradients = gl.autograd.grad(roots, leaves, [p.ones_like() for p in roots], allow_unused=True)
            found = [*found, *(g for g in gradients if g is not None)]
        return [p.detach().numpy() for p in found if p.dtype != gl.bfloat16]
    except Exception as error:
        return type(error).__name__


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES)
def test_machine_code_on_small_shapes(shape):
    calls = [c for c in CALLS if arrays(c) and c.name not in {"Tensor.data_ptr", "Tensor.new"} and "empty" not in c.name]
    with kernels(thresholds.NEVER):
        plain = [results(call, SHAPES[shape]) for call in calls]
    with kernels(1):
        machine = [results(call, SHAPES[shape]) for call in calls]
    wrong, answers = [], 0
    for call, a, b in zip(calls, plain, machine, strict=True):
        if isinstance(a, str) or isinstance(b, str):
            if a != b:
                wrong.append((repr(call), a, b))
            continue
        answers += 1
        for x, y in zip(a, b, strict=True):
            same = x.shape == y.shape and x.dtype == y.dtype and np.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
            if not same:
                wrong.append((repr(call), x.tolist(), y.tolist()))
    assert wrong == []
    assert answers > 200, answers


def arrays(call):
    return [a for a in [*call.arguments, *call.options.values()] if isinstance(a, np.ndarray)]


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "uint8", "int16"])
def test_a_reversed_number_is_the_number(dtype):
    x = gl.tensor(1).to(getattr(gl, dtype))
    reverse = gl.compile(lambda x: x.flip(0))
    with kernels(1):
        for _ in range(3):
            assert gl.flip(x, (0,)).item() == gl.flip(x, ()).item() == reverse(x).item() == 1
