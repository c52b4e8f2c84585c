"""The row of eigenvalues and eigenvectors of matrices that need not be symmetric: complex ones, of real matrices as well."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import complex_of
from gradlab.op import Op
from gradlab.ops.factorization import fixed_phase
from gradlab.ops.solve import lapack, solve, square, unit
from gradlab.spec import Spec


def eig_rule(x: Spec) -> tuple[Spec, Spec]:
    """Rule: the eigenvalues and a matrix of the eigenvectors, complex."""
    square(x)
    dtype = complex_of(x.dtype)
    return Spec(x.shape[:-1], dtype), Spec(x.shape, dtype)


def eig_cpu(x: Any, eigenvalues: Any, eigenvectors: Any) -> None:
    """Vectors of length 1 whose largest element is real: LAPACK's choice."""
    if x.size:
        eigenvalues[...], eigenvectors[...] = lapack("eig", "are all elements finite?", np.linalg.eig, x)


def _largest(v: Any) -> Any:
    """Which elements may be the real one."""
    if 0 in v.shape:
        return v
    size = v.abs()
    return (v.imag == 0) & (size >= 0.99 * size.amax(-2, keepdim=True))


def _eig_gradient(eigenvalues: Any, eigenvectors: Any, g_eigenvalues: Any = None, g_eigenvectors: Any = None) -> Any:
    """C. Boeddeker, P. Hanebrink, L. Drude, J. Heymann, R. Haeb-Umbach, "On the computation of complex-valued gradients with application
    to statistically optimum beamforming", arXiv:1701.00392 (2017), equation 4.77, for vectors of length 1."""
    v, g = eigenvectors, g_eigenvectors
    middle: Any = None if g_eigenvalues is None else g_eigenvalues.diag_embed(0, -2, -1)
    if g is not None:
        g = fixed_phase(v, g, (v.conj() * g).sum(-2).imag, _largest(v.detach()))
        inner = v.mH @ g
        gap = eigenvalues.unsqueeze(-2) - eigenvalues.unsqueeze(-1)
        one = unit(gap.real, v.shape[-1])
        lengths = inner.diagonal(0, -2, -1).real.unsqueeze(-2)
        turned = (inner - v.mH @ (v * lengths)) * (1 - one) / (gap.conj() + one)
        middle = turned if middle is None else middle + turned
    return solve(v.mH, middle @ v.mH)


eig = Op("eig", eig_rule, outputs=("eigenvalues", "eigenvectors"), cpu=eig_cpu, grad={"x": _eig_gradient})
