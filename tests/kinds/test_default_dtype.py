"""What integers, numbers and nothing at all give where the result is of floating point: the default dtype, in every public function."""

import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph.staging.tree import flatten

from kinds.calls import CALLS

# Of these the result is float32 whatever the default is, as in PyTorch.
FLOAT32 = {"Tensor.float", "Tensor.__array__", "masked.std", "masked.var"}


def dtypes(call, default):
    """The dtypes of the second call's results, with integers in the place of its floating point tensors; None where it takes none."""
    gl.set_default_dtype(default)
    try:
        gl.manual_seed(0)
        args, options = call.tensors(gl.int64)
        if any(t.is_floating_point() or t.is_complex() for t in flatten([args, options])[0]):
            return None
        call.on(args, options)
        return [t.dtype for t in flatten(call.on(*call.tensors(gl.int64)))[0]]
    except Exception:
        return None
    finally:
        gl.set_default_dtype(gl.float32)


@pytest.mark.parametrize("default", [gl.float64, gl.bfloat16], ids=str)
def test_the_default_dtype_is_given(default):
    wrong, number = [], 0
    wanted = {gl.float32: default, gl.complex64: gl.complex128 if default == gl.float64 else None}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for call in CALLS:
            named = any(isinstance(value, gl.dtype) for value in (*call.arguments, *call.options.values()))
            if named or call.name in FLOAT32 or (call.name.startswith("fft.") and default != gl.float64):
                continue
            plain = dtypes(call, gl.float32)
            if not plain or not any(d in wanted for d in plain):
                continue
            found = dtypes(call, default)
            if found is None and default != gl.float64:
                continue
            number += 1
            if found is None or any(wanted.get(a, a) not in (None, b) for a, b in zip(plain, found)):
                wrong.append((call, plain, found))
    assert not wrong, chr(10).join(map(str, wrong))
    assert number > 100, number
