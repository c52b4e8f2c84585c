"""Einstein sums and products of vectors and matrices against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.tensor.products import multi_dot

from slopes import check_slopes

RNG = np.random.default_rng(0)


def arrays(*shapes):
    return [RNG.normal(size=s) for s in shapes]


EQUATIONS = [
    ("ii->", [(3, 3)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iij->ij", [(2, 2, 3)]), ("iij,j->ij", [(2, 2, 3), (3,)]),
    ("nd,nn->d", [(3, 2), (3, 3)]), ("abcb->ac", [(2, 3, 2, 3)]), ("ij->", [(2, 3)]), ("ij", [(2, 3)]), ("ji", [(2, 3)]),
    ("...ij,jk->...ik", [(2, 2, 3), (3, 2)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij,jk->ki", [(2, 3), (3, 4)]), ("i,j->ij", [(2,), (3,)]),
    ("i,i->", [(3,), (3,)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("...i,...i->...", [(2, 3, 4), (3, 4)]), ("ij,kj,kl->il", [(2, 3), (4, 3), (4, 5)]), ("ijk,jil->kl", [(2, 3, 4), (3, 2, 5)]),
    ("i...->...", [(2, 3, 4)]), ("a...,a...->a...", [(2, 3), (2, 1)]), (" i j , j -> i ", [(2, 3), (3,)]), ("ij,ij,ij->i", [(2, 3)] * 3),
    ("Ab,bC", [(2, 3), (3, 4)]), ("ik,jk,lk->ijl", [(2, 3), (4, 3), (5, 3)]), (",i->i", [(), (3,)]), ("iijj->", [(2, 2, 3, 3)]),
    ("abc,cde,ea->bd", [(2, 3, 4), (4, 5, 2), (2, 2)]), ("ij,k->ij", [(2, 3), (4,)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation, shapes):
    inputs = arrays(*shapes)
    np.testing.assert_allclose(gl.einsum(equation, *map(gl.tensor, inputs)).numpy(), np.einsum(equation, *inputs), rtol=1e-10, atol=1e-12)
    check_slopes(lambda *x: gl.einsum(equation, *x), *inputs)


def test_einsum_forms():
    a, b = arrays((2, 3), (3, 4))
    want = np.einsum("ij,jk->ki", a, b)
    np.testing.assert_allclose(gl.einsum(gl.tensor(a), [0, 1], gl.tensor(b), [1, 2], [2, 0]).numpy(), want)
    np.testing.assert_allclose(gl.einsum(gl.tensor(a), [5, 1], gl.tensor(b), [1, 7]).numpy(), a @ b)
    np.testing.assert_allclose(gl.einsum("ij,jk->ki", [gl.tensor(a), gl.tensor(b)]).numpy(), want)
    np.testing.assert_allclose(gl.einsum(gl.tensor(a), [..., 0], [0, ...]).numpy(), a.T)
    ones = gl.einsum("i,i->", gl.tensor([1.0, 2.0, 3.0]), gl.tensor([2.0]))  # a size of 1 broadcasts
    assert ones.item() == 12
    assert gl.einsum("ij,jk->ik", gl.ones(2, 3).long(), gl.ones(3, 2)).dtype == gl.float32
    assert gl.einsum("...ij->ij", gl.ones(4, 2, 3)).tolist() == [[4.0] * 3] * 2
    assert gl.einsum("ij,jk->ik", gl.ones(2, 0), gl.ones(0, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]), ("ij->ik", [(2, 3)]), ("ij->ii", [(2, 3)]), ("ijk", [(2, 3)]), ("ij,jk", [(2, 3)]),
        ("i1", [(2, 3)]), ("......", [(2, 3)]), ("ii", [(2, 3)]), ("i.j", [(2, 3)]),
    ],
)  # fmt: skip
def test_einsum_refuses(equation, shapes):
    with pytest.raises(RuntimeError, match="einsum"):
        gl.einsum(equation, *(gl.ones(s) for s in shapes))


def test_einsum_of_numbers():
    with pytest.raises(TypeError):
        gl.einsum("i,i", gl.ones(2), 3)


V, W, A, B, C = arrays((4,), (4,), (3, 4), (4, 5), (3, 5))
BATCH1, BATCH2, BATCH3 = arrays((2, 3, 4), (2, 4, 5), (2, 3, 5))
CASES = {
    "outer": (gl.outer, (V, W), lambda: np.outer(V, W)),
    "dot": (gl.dot, (V, W), lambda: V @ W),
    "vdot": (gl.vdot, (V, W), lambda: V @ W),
    "mv": (gl.mv, (A, V), lambda: A @ V),
    "inner": (gl.inner, (BATCH1, A), lambda: np.inner(BATCH1, A)),
    "tensordot": (lambda a, b: gl.tensordot(a, b, 1), (A, B), lambda: A @ B),
    "tensordot of pairs": (
        lambda a, b: gl.tensordot(a, b, ([0, 1], [0, 1])), (BATCH1, BATCH3), lambda: np.tensordot(BATCH1, BATCH3, ([0, 1], [0, 1])),
    ),
    "addmm": (lambda c, a, b: gl.addmm(c, a, b, beta=2.0, alpha=0.5), (C, A, B), lambda: 2 * C + 0.5 * (A @ B)),
    "addmv": (gl.addmv, (C[:, 0], A, V), lambda: C[:, 0] + A @ V),
    "addr": (lambda c, a, b: gl.addr(c, a, b, alpha=3.0), (A, A[:, 0], V), lambda: A + 3 * np.outer(A[:, 0], V)),
    "baddbmm": (gl.baddbmm, (C, BATCH1, BATCH2), lambda: C + BATCH1 @ BATCH2),
    "addbmm": (gl.addbmm, (C, BATCH1, BATCH2), lambda: C + (BATCH1 @ BATCH2).sum(0)),
    "chain_matmul": (gl.chain_matmul, (A, B, C.T), lambda: A @ B @ C.T),
    "multi_dot": (lambda *x: multi_dot(x), (V, B, C.T, C[:, 0]), lambda: V @ B @ C.T @ C[:, 0]),
    "matrix_power": (lambda x: gl.matrix_power(x, 5), (C @ C.T,), lambda: np.linalg.matrix_power(C @ C.T, 5)),
    "matrix_power 0": (lambda x: gl.matrix_power(x, 0) * x, (C @ C.T,), lambda: np.eye(3) * (C @ C.T)),
    "cross": (gl.cross, (A, A[:, ::-1].copy()), lambda: np.cross(A, A[:, ::-1], axis=0)),
    "cdist": (gl.cdist, (A, B.T.copy()), lambda: np.linalg.norm(A[:, None] - B.T[None], axis=-1)),
    "cdist 1": (lambda a, b: gl.cdist(a, b, 1), (A, B.T.copy()), lambda: np.abs(A[:, None] - B.T[None]).sum(-1)),
    "cdist by products": (
        lambda a, b: gl.cdist(a, b, compute_mode="use_mm_for_euclid_dist"), (A, B.T.copy()),
        lambda: np.linalg.norm(A[:, None] - B.T[None], axis=-1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_products(case):
    function, inputs, want = CASES[case]
    np.testing.assert_allclose(function(*map(gl.tensor, inputs)).numpy(), want(), rtol=1e-9, atol=1e-10)
    check_slopes(function, *inputs)


def test_beta_of_zero_passes_over_nan():
    nan = gl.full((3, 5), float("nan"))
    assert not gl.addmm(nan, gl.tensor(A).float(), gl.tensor(B).float(), beta=0).isnan().any()


def test_distance_of_a_point_from_itself():
    x = gl.tensor(A, requires_grad=True)
    gl.cdist(x, x).sum().backward()
    assert not x.grad.isnan().any()
    assert gl.cdist(gl.ones(2, 0), gl.ones(3, 0)).tolist() == [[0.0] * 3] * 2


WRONG = {
    "dot shapes": lambda: gl.dot(gl.ones(2), gl.ones(3)),
    "dot ranks": lambda: gl.dot(gl.ones(2, 2), gl.ones(2)),
    "dot dtypes": lambda: gl.dot(gl.ones(2), gl.ones(2, dtype=gl.float64)),
    "mv": lambda: gl.mv(gl.ones(2), gl.ones(2)),
    "outer": lambda: gl.outer(gl.ones(2, 2), gl.ones(2)),
    "tensordot": lambda: gl.tensordot(gl.ones(2, 3), gl.ones(4, 5), 1),
    "addmm": lambda: gl.addmm(gl.ones(7), gl.ones(2, 3), gl.ones(3, 2)),
    "baddbmm": lambda: gl.baddbmm(gl.ones(1), gl.ones(2, 3, 4), gl.ones(3, 4, 5)),
    "matrix_power": lambda: gl.matrix_power(gl.ones(2, 3), 2),
    "cross": lambda: gl.cross(gl.ones(2), gl.ones(2)),
    "cdist": lambda: gl.cdist(gl.ones(2, 3), gl.ones(2, 4)),
    "multi_dot": lambda: multi_dot([gl.ones(2, 2)]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    with pytest.raises((RuntimeError, ValueError)):
        WRONG[case]()


def test_distances_by_products_lose_nothing():
    """float32 on the CPU, enough points that they come from a product: also those of points that are nearly, or exactly, the same."""
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(60, 7)) + 100).astype(np.float32)
    b = a[:40] + rng.choice([0.0, 1e-5, 1e-3, 1.0], size=(40, 1)).astype(np.float32) * rng.normal(size=(40, 7)).astype(np.float32)
    want = np.sqrt(np.square(a[:, None].astype(np.float64) - b[None]).sum(-1))
    x, y = gl.tensor(a, requires_grad=True), gl.tensor(b)
    found = gl.cdist(x, y)
    np.testing.assert_allclose(found.detach().numpy(), want, rtol=1e-5, atol=1e-6)
    assert found.dtype == gl.float32
    found.sum().backward()
    far = want > 1e-3
    slopes = np.where(far, 1, 0)[..., None] * (a[:, None] - b[None]).astype(np.float64) / np.where(far, want, 1)[..., None]
    sure = (far | (want == 0)).all(1)
    np.testing.assert_allclose(x.grad.numpy()[sure], slopes.sum(1)[sure], rtol=1e-4, atol=1e-4)
