"""Wrong values that only a kernel can see raise the CPU's own error: at once on the emulated GPU, at the next wait on a real one."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops

STATE = np.array([1, 0], np.int64)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def far(*shape):
    index = np.zeros(shape, np.int64)
    index.reshape(-1)[-1] = 7
    return index


CASES = {
    "index": ((X, far(1, 2)), {"dims": (1,), "wrap": True}),
    "index-negative": ((X, -far(1, 2)), {"dims": (1,), "wrap": True}),
    "embedding": ((X, far(5)), {"padding_idx": None}),
    "embedding_add": ((X, X, far(2, 3)), {"padding_idx": None}),
    "gather": ((X, far(3, 2)), {"dim": 1}),
    "scatter": ((X, far(3, 2), X[:, :2].copy()), {"dim": 1}),
    "scatter_add": ((X, far(3, 90)[:, 88:], X[:, :2].copy()), {"dim": 1}),
    "scatter_reduce": ((X[:, :1].copy().repeat(90, 1), far(3, 90) * 100, np.ones((3, 90), np.float32)),
                       {"dim": 1, "reduce": "amax", "include_self": True}),
    "index_put": ((X, far(1, 2), X[:, :2].copy()), {"dims": (1,), "accumulate": False, "wrap": True}),
    "masked_scatter": ((X, X > 2, X[:1].copy()), {}),
    "bernoulli": ((X, STATE), {"dtype": np.dtype(np.float32), "offset": 0}),
    "normal_of": ((X, -X, STATE), {"dtype": np.dtype(np.float32), "offset": 0}),
    "poisson": ((-X, STATE), {"offset": 0}),
    "multinomial": ((X - 5, STATE), {"samples": 1, "replacement": True, "offset": 0}),
    "multinomial-few": ((np.eye(3, dtype=np.float32), STATE), {"samples": 2, "replacement": False, "offset": 0}),
}  # fmt: skip


def run(device, name, inputs, params):
    tensors = [gl.tensor(x, device=device) for x in inputs]
    return ops.ROWS[name](*tensors, **params).cpu()


@pytest.mark.parametrize("case", CASES)
def test_the_error_of_the_cpu(cuda, case):
    inputs, params = CASES[case]
    name = case.split("-")[0]
    with pytest.raises((IndexError, RuntimeError)) as want:
        run("cpu", name, inputs, params)
    with pytest.raises(type(want.value)) as got:
        run("cuda", name, inputs, params)
    assert str(got.value) == str(want.value)
    good = gl.tensor(X, device="cuda")  # the process goes on
    np.testing.assert_array_equal((good + 1).cpu().numpy(), X + 1)
