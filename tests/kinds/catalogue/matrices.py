"""Products of matrices, factorings, solving."""

from __future__ import annotations

import numpy as np

from kinds.catalogue.giving import BATCH, CUBE, POSITIVE, SQUARE, SYMMETRIC, Q, V, W, X, Y, fixed, given, normal

LOWER = np.linalg.cholesky(POSITIVE)
BACK = CUBE.transpose(0, 2, 1) + 0.3  # what CUBE can be multiplied by
WIDE = normal(3, 3, seed=3)

CALLS = {
    "matmul": [given(X, Y.T), given(CUBE, BACK), given(X, W), given(V, W)], "mm": [given(X, Y.T)], "bmm": [given(CUBE, BACK)],
    "mv": [given(X, W)], "dot": [given(V, W)], "vdot": [given(V, W)], "inner": [given(X, Y)], "outer": [given(V, W)], "ger": [given(V, W)],
    "linalg.vecdot": [given(X, Y)], "kron": [given(X, Y)], "chain_matmul": [given(X, Y.T, X)], "multi_dot": [given([X, Y.T, X])],
    "tensordot": [given(X, Y.T, 1), given(CUBE, CUBE, ([0, 1], [0, 1]))], "einsum": [given("ij,kj->ik", X, Y)],
    "addmm": [given(SQUARE, X, Y.T), given(SQUARE, X, Y.T, beta=0.5, alpha=2.0)], "addmv": [given(V[:3], X, W)],
    "addr": [given(X, V[:3], W)], "baddbmm": [given(BATCH, CUBE, BACK)], "addbmm": [given(SQUARE, CUBE, BACK)],
    "cross": [given(X[:, :3], Y[:, :3])], "cdist": [given(X, Y), given(X, Y, 1.0)],
    "matrix_power": [given(SQUARE, 3), given(SQUARE, 0), given(SQUARE, -1)], "matrix_exp": [given(SQUARE / 4)],
    "cholesky": [given(POSITIVE)], "cholesky_inverse": [given(LOWER)], "cholesky_solve": [given(X, LOWER)],
    "inverse": [given(SQUARE)], "inv": [given(SQUARE), given(BATCH)], "det": [given(SQUARE), given(BATCH)], "logdet": [given(POSITIVE)],
    "slogdet": [given(SQUARE)], "pinverse": [given(X)], "pinv": [given(X), given(X, rtol=1e-6)], "cond": [given(SQUARE)],
    "linalg.cond": [given(SQUARE), given(SQUARE, 1)], "linalg.diagonal": [given(CUBE)], "eigh": [given(SYMMETRIC)],
    "eigvalsh": [given(SYMMETRIC)], "lstsq": [given(X.T, Y.T)], "linalg.lu": [given(SQUARE)], "linalg.cholesky_ex": [given(POSITIVE)],
    "linalg.inv_ex": [given(SQUARE)], "linalg.solve_ex": [given(SQUARE, SQUARE)], "linalg.lu_factor": [given(SQUARE)],
    "linalg.lu_factor_ex": [given(SQUARE)], "linalg.lu_solve": [given(SQUARE, np.array([1, 3, 3], np.int32), X)],
    "matrix_norm": [given(X), given(X, 1)],
    "matrix_rank": [given(X), given(X, atol=0.1)], "linalg.norm": [given(X), given(V, 3), given(X, "nuc")], "linalg.qr": [given(X.T)],
    "linalg.solve": [given(SQUARE, X)], "solve_triangular": [given(LOWER, X, upper=False)],
    "linalg.svd": [given(X, full_matrices=False)], "gl.svd": [given(X)], "Tensor.svd": [given(X)],
    "gl.svd_lowrank": [given(X, 2), given(X, 2, 1, Y)], "gl.pca_lowrank": [given(X, 2), given(X, 2, False)],
    "gl.norm_except_dim": [given(X), given(X, 2, 1)],
    "svdvals": [given(X)], "tensorinv": [given(WIDE.reshape(3, 1, 3), ind=1)],
    "tensorsolve": [given(WIDE.reshape(3, 1, 3), V[:3].reshape(3, 1))], "vector_norm": [given(X), given(X, 3, 1), given(X, 1)],
    "linalg.vander": [given(V)], "geqrf": [given(X.T)], "householder_product": [given(X.T, Q[0, :3])], "orgqr": [given(X.T, Q[0, :3])],
    "ormqr": [given(X.T, Q[0, :3], X.T), given(X.T, Q[0, :3], X.T, True, True)], "linalg.ldl_factor": [given(SYMMETRIC)],
    "linalg.ldl_factor_ex": [given(SYMMETRIC)], "linalg.ldl_solve": [given(fixed(SYMMETRIC), np.array([1, 2, 3], np.int32), X)],
    "gl.lu": [given(SQUARE)], "Tensor.lu": [given(SQUARE)],
    "lu_unpack": [given(SQUARE, np.array([1, 3, 3], np.int32))], "gl.lu_solve": [given(X, SQUARE, np.array([1, 3, 3], np.int32))],
    "Tensor.lu_solve": [given(X, SQUARE, np.array([1, 3, 3], np.int32))],
}  # fmt: skip
