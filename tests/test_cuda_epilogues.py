"""The epilogues of matrix products, forward and backward, against NumPy. A real library that lacks one skips its test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gradlab.backends.cuda.gemm import library
from gradlab.backends.cuda.gemm.binding import ComputeType, Epilogue
from gradlab.backends.cuda.gemm.operands import Problem, arrange
from gradlab.dtype import as_numpy

from products import TOLERANCE, normal, wide


@pytest.fixture
def blas(cuda):
    found = library.blas_of(cuda.driver)
    if found is None:
        pytest.skip("no cuBLASLt")
    return found


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slope(x):
    h = 1e-5
    return (gelu(x + h) - gelu(x - h)) / (2 * h)


class Problems:
    """One product by columns with all that its epilogue needs, on the device."""

    m, n, k = 24, 8, 16

    def __init__(self, cuda, blas, dtype, batch):
        self.cuda, self.blas, self.dtype, self.batch = cuda, blas, as_numpy(dtype), batch
        self.tolerance = 8 * TOLERANCE[dtype]
        self.a, self.b = normal(batch, self.m, self.k, dtype=dtype), normal(batch, self.k, self.n, dtype=dtype)
        self.bias = normal(batch, 32, dtype=dtype)  # padded, so that each one is aligned
        self.zeros = np.zeros_like(self.bias)
        self.plain = wide(self.a) @ wide(self.b)
        self.biased = self.plain + wide(self.bias)[:, : self.m, None]

    def put(self, array):
        return self.cuda.driver.upload(np.ascontiguousarray(array))

    def run(self, epilogue, bias=None, aux=None, aux_ld=0):
        """D, and the arrays of bias and aux afterwards. aux_ld: for one column, in bits or elements."""
        m, n, k = self.m, self.n, self.k
        problem = Problem(
            m, n, k, self.dtype, self.dtype, ComputeType.F32, False, False, m, k, m, self.batch, m * k, k * n, m * n, epilogue=epilogue,
            ld_aux=aux_ld, stride_aux=aux_ld * n, stride_bias=0 if bias is None else bias.shape[-1],
        )  # fmt: skip
        prepared = self.blas.prepare(problem, 256)
        if prepared is None:
            assert self.cuda.driver.name != "emulated"
            pytest.skip(f"this library has no {epilogue.name} in {self.dtype}, {self.batch} at once")
        driver = self.cuda.driver
        on = [self.put(np.swapaxes(x, 1, 2)) for x in (self.a, self.b)]
        d = driver.empty((self.batch, n, m), self.dtype)
        extra = [None if x is None else self.put(x) for x in (bias, aux)]
        prepared.run(*map(driver.pointer, (*on, d)), *(0 if x is None else driver.pointer(x) for x in extra))
        return np.swapaxes(driver.download(d), 1, 2), *(None if x is None else driver.download(x) for x in extra)

    def near(self, got, want):
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=self.tolerance, atol=self.tolerance)


@pytest.fixture(params=list(itertools.product(["float32", "float16", "bfloat16"], [1, 2])), ids="{0[0]}-{0[1]}".format)
def problems(request, cuda, blas):
    return Problems(cuda, blas, *request.param)


def test_epilogues(problems):
    plain, biased, bias, run, near = problems.plain, problems.biased, problems.bias, problems.run, problems.near
    near(run(Epilogue.DEFAULT)[0], plain)
    near(run(Epilogue.BIAS, bias)[0], biased)
    near(run(Epilogue.RELU)[0], np.maximum(plain, 0))
    near(run(Epilogue.RELU_BIAS, bias)[0], np.maximum(biased, 0))
    near(run(Epilogue.GELU)[0], gelu(plain))
    near(run(Epilogue.GELU_BIAS, bias)[0], gelu(biased))


def test_epilogues_of_relu(problems):
    plain, run, near, m = problems.plain, problems.run, problems.near, problems.m
    empty = np.zeros((problems.batch, problems.n, 16), np.uint8)
    for epilogue, before, bias in ((Epilogue.RELU_AUX, plain, None), (Epilogue.RELU_AUX_BIAS, problems.biased, problems.bias)):
        d, _, bits = run(epilogue, bias, empty, 128)
        near(d, np.maximum(before, 0))
        kept = np.unpackbits(bits, axis=2, bitorder="little")[:, :, :m].swapaxes(1, 2)
        np.testing.assert_array_equal(kept, before > 0)
        near(run(Epilogue.DRELU, None, bits, 128)[0], plain * kept)
        d, gradient, _ = run(Epilogue.DRELU_BGRAD, problems.zeros, bits, 128)
        near(d, plain * kept)
        near(gradient[:, :m], (plain * kept).sum(2))


def test_epilogues_of_gelu(problems):
    plain, run, near, m = problems.plain, problems.run, problems.near, problems.m
    empty = np.zeros((problems.batch, problems.n, 32), problems.dtype)
    for epilogue, before, bias in ((Epilogue.GELU_AUX, plain, None), (Epilogue.GELU_AUX_BIAS, problems.biased, problems.bias)):
        d, _, inputs = run(epilogue, bias, empty, 32)
        near(d, gelu(before))
        near(inputs[:, :, :m].swapaxes(1, 2), before)
        steps = slope(wide(inputs[:, :, :m].swapaxes(1, 2)))
        near(run(Epilogue.DGELU, None, inputs, 32)[0], plain * steps)
        d, gradient, _ = run(Epilogue.DGELU_BGRAD, problems.zeros, inputs, 32)
        near(d, plain * steps)
        near(gradient[:, :m], (plain * steps).sum(2))


@pytest.mark.parametrize("epilogue", [Epilogue.BGRADA, Epilogue.BGRADB])
def test_epilogues_of_bias(problems, epilogue):
    d, gradient, _ = problems.run(epilogue, problems.zeros)
    problems.near(d, problems.plain)
    want = wide(problems.a).sum(2) if epilogue is Epilogue.BGRADA else wide(problems.b).sum(1)
    problems.near(gradient[:, : want.shape[1]], want)


def test_half_factors_into_float32(cuda, blas):
    a, b = normal(5, 4, dtype="float16"), normal(4, 3, dtype="float16")
    half, single = as_numpy("float16"), as_numpy("float32")
    made = arrange((5, 4), (4, 1), (4, 3), (3, 1), (), half, single, ComputeType.F32)
    x, y, z = cuda.driver.upload(a), cuda.driver.upload(b), cuda.driver.empty((5, 3), single)
    blas.prepare(made.problem, 256).run(*map(cuda.driver.pointer, (y, x, z)))
    np.testing.assert_allclose(cuda.driver.download(z), wide(a) @ wide(b), rtol=1e-5, atol=1e-5)
