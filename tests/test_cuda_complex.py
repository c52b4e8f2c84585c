"""Complex numbers on the (emulated) GPU: the rows' own expressions with the type of `kernels/complex_math.h`, beside the CPU's results."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

from kinds.catalogue.giving import words

rng = np.random.default_rng(0)
NUMBERS = rng.normal(size=(5, 5)) + 1j * rng.normal(size=(5, 5))
UNARY = words("""
    abs angle sgn conj exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sigmoid sin cos tan asin acos atan sinh cosh tanh
    asinh acosh atanh sinc neg real imag isnan isinf isfinite logical_not view_as_real
""")


def zeros(z):
    return gl.zeros(5, 5, dtype=gl.int64, device=z.device)


def gradient(z):
    x = z.detach().requires_grad_()
    ((x.exp() * x.conj() / (x.abs() + 1)).sum(0).abs() + (x @ x).imag.sum(1)).sum().backward()
    return x.grad


def written(z):
    x = z.clone()
    x.real = 1
    x[0] = 2j
    x.imag += 1
    return x


FUNCTIONS = {
    "arithmetic": lambda z: (z * z, z / (z + 1), z - 2j, z * 2.5 - 1, z**z, z**3, z**2.5, z ** (1 + 2j), gl.lerp(z, z * 2, 0.3)),
    "sums": lambda z: (z.sum(), z.sum(0), z.mean(1), z.prod(0), z.any(0), z.cumsum(0), z.cumprod(1), z.norm(), z.std(), z.var(0)),
    "choices": lambda z: (z == z.conj(), gl.where(z.real > 0, z, z * 2), z.masked_fill(z.imag > 0, 1j), gl.isclose(z, z), z.nonzero()),
    "making": lambda z: (gl.full((2,), 1j, device=z.device), z.zeros_like(), gl.complex(z.real, z.imag), gl.tensor([1j], device=z.device)),
    "casts": lambda z: (z.to(gl.complex128), z.real.to(z.dtype), z.to(gl.bool), gl.view_as_complex(gl.view_as_real(z) * 2)),
    "products": lambda z: (z @ z, gl.nn.functional.linear(z, z, z[0]), gl.einsum("ij,kj->ik", z, z), gl.vdot(z[0], z[1])),
    "places": lambda z: (z[[0, 2]], z[1:, ::2], z.t(), z.flip(0), gl.cat([z, z]), z.tril(), z.roll(1, 0), gl.nn.functional.pad(z, (1, 1))),
    "scattered": lambda z: (z.gather(1, zeros(z)), z.scatter_add(0, zeros(z), z), z.index_add(0, zeros(z)[0], z)),
    "matrices": lambda z: (gl.linalg.inv(z), gl.linalg.svd(z)[1], gl.linalg.det(z), gl.linalg.solve(z, z[0])),
    "gradients": gradient,
    "written": written,
    **{name: lambda z, name=name: getattr(gl, name)(z) for name in UNARY},
}


QUICK = {*FUNCTIONS} - {*UNARY} | {"abs", "exp", "sqrt", "asin", "sgn", "real"}  # each is a kernel to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FUNCTIONS])
def test_parity(cuda, name):
    z = gl.tensor(NUMBERS.astype(np.complex64))
    found, wanted = (r if isinstance(r, tuple) else (r,) for r in (FUNCTIONS[name](z.cuda()), FUNCTIONS[name](z)))
    for a, b in zip(found, wanted, strict=True):
        assert a.device.type == "cuda" and a.dtype is b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=3e-5, atol=3e-5)
