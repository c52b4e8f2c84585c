"""What the tests of matrix products share."""

from __future__ import annotations

import numpy as np

from gradlab.backends.cuda.gemm.binding import ComputeType
from gradlab.backends.cuda.gemm.operands import Problem
from gradlab.dtype import as_numpy

TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
DTYPES = tuple(TOLERANCE)
RNG = np.random.default_rng(0)
F32 = np.dtype("f4")
PLAIN = Problem(5, 3, 4, F32, F32, ComputeType.F32, False, False, 5, 4, 5)  # (3, 4) @ (4, 5) of ours


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(as_numpy(dtype))


def close(got, want, dtype):
    """A tensor's shape, dtype and values within the dtype's tolerance of the largest."""
    got = got.cpu().numpy()
    assert (got.shape, got.dtype) == (want.shape, as_numpy(dtype))
    want = want.astype(np.float64)
    scale = max(1.0, np.abs(want).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=TOLERANCE[dtype] * scale)


def wide(x):
    return x.astype(np.float64)
