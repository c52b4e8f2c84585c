"""gradlab.linalg: values against NumPy or the definition, gradients against finite differences, errors."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import linalg

from samples.base import normal
from slopes import check_slopes

WELL = normal(4, 4) + 4 * np.eye(4)
BATCH = normal(2, 3, 3, seed=1) + 3 * np.eye(3)
TALL, WIDE = normal(5, 3), normal(3, 5)


def same(got, want, tolerance=1e-10):
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


def symmetric(x):
    return x + x.mT


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdim", [False, True])
def test_matrix_norms(ord, keepdim):
    for x in (TALL, WIDE):
        same(linalg.matrix_norm(gl.tensor(x), ord, keepdim=keepdim), np.linalg.norm(x, ord, keepdims=keepdim))
        same(linalg.norm(gl.tensor(x), ord), np.linalg.norm(x, ord))
        check_slopes(lambda t: linalg.matrix_norm(t, ord), x)


def test_matrix_norms_over_chosen_dimensions():
    x = normal(3, 2, 4)
    for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for dim in ((0, 2), (2, 0), (-1, 1)):
            for keepdim in (False, True):
                same(linalg.matrix_norm(gl.tensor(x), ord, dim, keepdim), np.linalg.norm(x, ord, dim, keepdim))


@pytest.mark.parametrize("ord", [2, 1, 3, 0.5, 0, -1, np.inf, -np.inf])
def test_vector_norms(ord):
    x = normal(3, 4)
    same(linalg.vector_norm(gl.tensor(x), ord, 1), np.linalg.norm(x, ord, 1))
    same(linalg.vector_norm(gl.tensor(x), ord), np.linalg.norm(x.reshape(-1), ord))
    same(linalg.norm(gl.tensor(x), ord, 1), np.linalg.norm(x, ord, 1))


def test_norm_chooses():
    x = normal(2, 3, 4)
    same(linalg.norm(gl.tensor(x)), np.sqrt((x * x).sum()))
    same(linalg.norm(gl.tensor(x), dim=(0, 1)), np.sqrt((x * x).sum((0, 1))))
    same(linalg.norm(gl.tensor(x[0]), 1), abs(x[0]).sum(0).max())
    same(linalg.norm(gl.tensor(x[0, 0]), 1), abs(x[0, 0]).sum())


def test_norms_at_zero_have_a_gradient():
    for norm in (linalg.norm, linalg.matrix_norm, linalg.vector_norm):
        x = gl.zeros(2, 2, requires_grad=True)
        norm(x).backward()
        same(x.grad, np.zeros((2, 2)))


def test_norms_of_nothing():
    x = gl.zeros(0, 3)
    for ord in ("fro", "nuc", 1, 2, np.inf):
        assert linalg.matrix_norm(x, ord).item() == 0
    with pytest.raises(RuntimeError, match="no value for no elements"):
        linalg.matrix_norm(x, -2)
    with pytest.raises(RuntimeError, match="no value for no elements"):
        linalg.vector_norm(x, np.inf)


def test_norms_refuse():
    x = gl.ones(2, 3)
    for wrong in (lambda: linalg.norm(gl.ones(2, 2, 2), 1), lambda: linalg.norm(x, "fro", 0), lambda: linalg.matrix_norm(x, 3),
                  lambda: linalg.matrix_norm(x, dim=(0, 0)), lambda: linalg.matrix_norm(x[0]),
                  lambda: linalg.vector_norm(x.long()), lambda: linalg.vector_norm(x.double(), dtype=gl.float32)):  # fmt: skip
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(ValueError, match="ord is"):
        linalg.matrix_norm(x, "no")
    with pytest.raises(TypeError, match="vector_norm: ord is a number, not str: 'fro'"):
        linalg.vector_norm(x, "fro")


# ---------------------------------------------------------------- systems


def test_solve_forms():
    a = gl.tensor(BATCH)
    for b in (normal(2, 3, 2), normal(3, 2), normal(2, 3), normal(3)):
        vector = b.ndim == 1 or b.shape == (2, 3)
        got = linalg.solve(a, gl.tensor(b))
        back = np.matmul(BATCH, got.numpy()[..., None])[..., 0] if vector else BATCH @ got.numpy()
        np.testing.assert_allclose(back, np.broadcast_to(b, back.shape), atol=1e-12)
    b = normal(2, 4, 3)
    same(linalg.solve(a, gl.tensor(b), left=False) @ a, b)
    check_slopes(lambda x, y: linalg.solve(x, y, left=False), BATCH, b)
    check_slopes(linalg.solve, BATCH, normal(2, 3))


def test_solve_triangular_sides():
    for upper in (False, True):
        for unit in (False, True):
            half = np.triu(WELL) if upper else np.tril(WELL)
            half = half - np.diag(np.diag(half)) + np.eye(4) if unit else half
            for left in (False, True):
                b = normal(4, 4)
                got = linalg.solve_triangular(gl.tensor(WELL), gl.tensor(b), upper=upper, left=left, unitriangular=unit)
                same(gl.tensor(half) @ got if left else got @ gl.tensor(half), b, 1e-8)


def test_cholesky_and_its_solutions():
    positive = WELL @ WELL.T
    for upper in (False, True):
        factor = linalg.cholesky(gl.tensor(positive), upper=upper)
        same(factor.mT @ factor if upper else factor @ factor.mT, positive)
        b = normal(4, 2)
        same(gl.cholesky_solve(gl.tensor(b), factor, upper), np.linalg.solve(positive, b), 1e-8)
        same(gl.cholesky_inverse(factor, upper), np.linalg.inv(positive), 1e-8)
        check_slopes(lambda x, upper=upper: linalg.cholesky(x @ x.mT, upper=upper), WELL)


def test_cholesky_gradient_is_symmetric():
    x = gl.tensor(WELL @ WELL.T, requires_grad=True)
    linalg.cholesky(x).sum().backward()
    same(x.grad, x.grad.mT.numpy())


def test_singular_matrices_say_so():
    for name in ("inv", "cholesky"):
        with pytest.raises(linalg.LinAlgError, match=name):
            getattr(linalg, name)(gl.zeros(2, 2))
    with pytest.raises(RuntimeError, match="lstsq"):
        linalg.solve(gl.zeros(2, 2), gl.ones(2, 1))


def test_determinants():
    for x in (WELL, -BATCH, np.zeros((0, 0))):
        same(linalg.det(gl.tensor(x)), np.linalg.det(x))
    sign, size = linalg.slogdet(gl.tensor(-BATCH))
    same(sign * size.exp(), np.linalg.det(-BATCH))
    same(gl.logdet(gl.tensor(np.diag([2.0, 3.0]))), np.log(6))
    assert np.isnan(gl.logdet(gl.tensor(np.diag([-2.0, 3.0]))).item())
    assert gl.logdet(gl.zeros(2, 2)).item() == -np.inf


def test_the_determinant_of_a_singular_matrix_has_a_gradient():
    x = gl.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    linalg.det(x).backward()
    same(x.grad, [[4, -2], [-2, 1]], 1e-5)


def test_pinv():
    for x in (TALL, WIDE, normal(2, 3, 4)):
        same(linalg.pinv(gl.tensor(x)), np.linalg.pinv(x))
    lowest = np.diag([3.0, 1.0, 1e-9])
    same(linalg.pinv(gl.tensor(lowest), rtol=1e-6), np.diag([1 / 3, 1, 0]))
    same(linalg.pinv(gl.tensor(lowest), atol=2.0), np.diag([1 / 3, 0, 0]))
    check_slopes(lambda x: linalg.pinv(symmetric(x), hermitian=True), normal(3, 3) + 3 * np.eye(3))


def test_lstsq():
    b = normal(5, 2)
    for driver in (None, "gels", "gelsd", "gelss"):
        found = linalg.lstsq(gl.tensor(TALL), gl.tensor(b), driver=driver)
        want = np.linalg.lstsq(TALL, b)
        same(found.solution, want[0])
        if driver is not None:
            same(found.residuals, want[1])
        if driver != "gels":
            assert found.rank.item() == 3
        assert found.singular_values.shape == ((3,) if driver in ("gelsd", "gelss") else (0,))
    check_slopes(lambda x, y: linalg.lstsq(x, y)[0], TALL, b)
    check_slopes(lambda x, y: linalg.lstsq(x, y)[0], WIDE, normal(3, 2))
    with pytest.raises(RuntimeError, match="driver"):
        linalg.lstsq(gl.tensor(TALL), gl.tensor(b), driver="no")


def test_matrix_exp_of_large_matrices():
    x = gl.tensor([[0.0, 30.0], [-30.0, 0.0]], dtype=gl.float64)
    same(gl.matrix_exp(x), [[np.cos(30), np.sin(30)], [-np.sin(30), np.cos(30)]])


def test_tensor_systems():
    a = gl.tensor(normal(6, 2, 3))
    same(gl.tensordot(linalg.tensorinv(a, 1), a, 1).reshape(6, 6), np.eye(6), 1e-8)
    b = normal(6)
    same(gl.tensordot(a, linalg.tensorsolve(a, gl.tensor(b)), 2), b, 1e-8)


def test_powers_and_products():
    same(linalg.matrix_power(gl.tensor(WELL), -2), np.linalg.matrix_power(WELL, -2))
    same(linalg.multi_dot([gl.tensor(x) for x in (TALL, WIDE, TALL)]), TALL @ WIDE @ TALL)
    same(linalg.vander(gl.tensor([1.0, 2.0, 3.0])), np.vander([1.0, 2.0, 3.0], increasing=True))
    same(linalg.vecdot(gl.tensor(TALL), gl.tensor(TALL)), (TALL * TALL).sum(-1))
    same(linalg.cross(gl.tensor(TALL), gl.tensor(TALL[::-1].copy())), np.cross(TALL, TALL[::-1]))


# ---------------------------------------------------------------- factors


def test_qr_modes():
    for x in (TALL, WIDE):
        q, r = linalg.qr(gl.tensor(x))
        same(q @ r, x)
        same(q.mT @ q, np.eye(3))
        full = linalg.qr(gl.tensor(x), "complete")
        same(full.Q @ full.R, x)
        alone = linalg.qr(gl.tensor(x), mode="r")
        assert alone.Q.shape == (0,)
        same(alone.R, r.numpy())
    with pytest.raises(RuntimeError, match="mode"):
        linalg.qr(gl.tensor(TALL), "no")
    tall = gl.tensor(TALL, requires_grad=True)
    with pytest.raises(RuntimeError, match="not unique"):
        linalg.qr(tall, "complete").R.sum().backward()


def test_eigenvalues():
    same(linalg.eigvalsh(gl.tensor(BATCH + BATCH.swapaxes(-1, -2))), np.linalg.eigvalsh(BATCH + BATCH.swapaxes(-1, -2)))
    upper = linalg.eigvalsh(gl.tensor(np.triu(BATCH)), "U")
    same(upper, linalg.eigvalsh(gl.tensor(np.triu(BATCH).swapaxes(-1, -2))).numpy())
    check_slopes(lambda x: linalg.eigvalsh(symmetric(x)), BATCH)
    check_slopes(lambda x: linalg.eigh(symmetric(x)).eigenvectors ** 2, BATCH)
    with pytest.raises(RuntimeError, match="UPLO"):
        linalg.eigh(gl.tensor(WELL), "X")


def test_singular_values():
    for x in (TALL, WIDE):
        u, s, vh = linalg.svd(gl.tensor(x))
        assert u.shape == (x.shape[0],) * 2
        assert vh.shape == (x.shape[1],) * 2
        same(s, np.linalg.svd(x)[1])
        same(linalg.svdvals(gl.tensor(x)), np.linalg.svd(x)[1])
        check_slopes(linalg.svdvals, x)
        check_slopes(lambda t: linalg.svd(t, full_matrices=False)[0] ** 2, x)


def test_equal_singular_values_have_gradients():
    x = gl.eye(3).requires_grad_()
    linalg.matrix_norm(x, "nuc").backward()
    same(x.grad, np.eye(3), 1e-6)


def test_lu():
    for x in (WELL, BATCH, TALL, WIDE):
        p, lower, upper = linalg.lu(gl.tensor(x))
        same(p @ lower @ upper, x)
        check_slopes(lambda t: linalg.lu(t).L, x)
        check_slopes(lambda t: linalg.lu(t).U, x)
    singular = linalg.lu(gl.tensor([[0.0, 1.0], [0.0, 2.0]]))
    same(singular.P @ singular.L @ singular.U, [[0, 1], [0, 2]])


def test_rank_and_condition():
    low = np.outer([1.0, 2.0, 3.0], [1.0, 0.0, 1.0])
    assert linalg.matrix_rank(gl.tensor(low)).item() == 1
    assert linalg.matrix_rank(gl.tensor(low + low.T), hermitian=True).item() == 2
    assert linalg.matrix_rank(gl.tensor(np.stack([low, np.eye(3)])), atol=gl.tensor([0.1, 2.0])).tolist() == [1, 0]
    assert linalg.matrix_rank(gl.zeros(2, 0, 3)).tolist() == [0, 0]
    for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"):
        same(linalg.cond(gl.tensor(WELL), p), np.linalg.cond(WELL, p))


TOLERANCES = {
    "rtol": ({"rtol": [0.5, 0.1, 0.3]}, 3), "atol": ({"atol": [2.0, 0.5, 1.0]}, 3),
    "both": ({"atol": [2.0, 0.0, 1.0], "rtol": [0.1, 0.5, 0.0]}, 3),
    "atol 0": ({"atol": [0.0, 2.0, 0.0]}, 3), "of all": ({"rtol": [0.5]}, 3), "a number": ({"rtol": 0.3}, 3),
    "and a number": ({"atol": [2.0, 0.5, 1.0], "rtol": 0.3}, 3), "number and": ({"atol": 0.7, "rtol": [0.5, 0.1, 0.3]}, 3),
    "of one matrix": ({"rtol": [0.5, 0.1]}, 2), "none": ({"rtol": [0.0, 0.0, 0.0]}, 3), "everything": ({"atol": [99.0, 0.0, 99.0]}, 3),
}  # fmt: skip


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("case", TOLERANCES)
def test_a_tolerance_for_each_matrix(case, hermitian):
    """As one call for each matrix with its own number, to the second derivative."""
    given, size = TOLERANCES[case]
    stacked = np.stack([np.diag([4.0, 1.0, 0.6]) + 0.1, np.diag([3.0, 0.5, 0.2]), np.diag([2.0, 1.0, 1e-12])])
    x = stacked if size == 3 else stacked[0]
    options = {k: gl.tensor(v, dtype=gl.float64) if isinstance(v, list) else v for k, v in given.items()}
    single = [{k: np.broadcast_to(v, size)[i] for k, v in given.items()} for i in range(size)]
    alone = [gl.tensor(stacked[i] if size == 3 else x) for i in range(size)]
    found = linalg.pinv(gl.tensor(x), hermitian=hermitian, **options)
    same(found, np.stack([linalg.pinv(m, hermitian=hermitian, **o).numpy() for m, o in zip(alone, single, strict=True)]))
    ranks = linalg.matrix_rank(gl.tensor(x), hermitian=hermitian, **options)
    assert ranks.tolist() == [linalg.matrix_rank(m, hermitian=hermitian, **o).item() for m, o in zip(alone, single, strict=True)]

    def slopes(function):
        leaf = gl.tensor(x, requires_grad=True)
        first = gl.autograd.grad((function(leaf) ** 2).sum(), leaf, create_graph=True)[0]
        return first.detach(), gl.autograd.grad((first**2).sum(), leaf)[0]

    def one_by_one(leaf):
        return gl.stack([linalg.pinv(leaf[i] if size == 3 else leaf, hermitian=hermitian, **o) for i, o in enumerate(single)])

    for got, want in zip(slopes(lambda leaf: linalg.pinv(leaf, hermitian=hermitian, **options)), slopes(one_by_one), strict=True):
        same(got / want.abs().max().clamp(min=1), (want / want.abs().max().clamp(min=1)).numpy(), 1e-8)


def test_tolerances_of_matrices_without_elements():
    none = gl.zeros(3, 0, 2)
    assert linalg.pinv(none, rtol=gl.ones(3)).shape == (3, 2, 0) and linalg.matrix_rank(none, rtol=gl.ones(3)).tolist() == [0, 0, 0]
    assert linalg.pinv(gl.zeros(0, 2, 2), rtol=gl.ones(0)).shape == (0, 2, 2)
    assert linalg.pinv(gl.zeros(2, 3), rtol=gl.tensor(0.1)).eq(0).all()
    with pytest.raises(RuntimeError, match="broadcast"):
        linalg.pinv(gl.ones(3, 2, 2), rtol=gl.ones(2))


@pytest.mark.parametrize("name", ["inv", "det", "cholesky", "qr", "eigh", "svd", "pinv", "matrix_exp", "slogdet", "lu", "eigvalsh"])
def test_wrong_inputs_are_refused(name):
    function = getattr(linalg, name)
    for dtype in (gl.int64, gl.float16)[: 1 if name == "matrix_exp" else 2]:  # products only: of half types in float32
        with pytest.raises(RuntimeError, match="float32 or float64"):
            function(gl.ones(2, 2, dtype=dtype))
    with pytest.raises(RuntimeError, match="at least two dimensions"):
        function(gl.ones(2))
    with pytest.raises(TypeError):
        function(2.0)
    if name not in ("qr", "svd", "pinv", "lu"):
        with pytest.raises(RuntimeError, match="square"):
            function(gl.ones(2, 3))


def test_every_name_is_there():
    assert all(callable(getattr(linalg, name)) for name in linalg.__all__)


BROKEN = [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]]  # the second is not positive definite


def test_ex_functions_say_by_a_number_which_matrix_has_no_result():
    found, info = gl.linalg.cholesky_ex(gl.tensor(BROKEN))
    assert info.tolist() == [0, 2] and info.dtype is gl.int32 and found[1].isnan().all()
    assert gl.equal(found[0], gl.linalg.cholesky(gl.tensor(BROKEN[0])))
    singular = gl.stack([gl.eye(2), gl.ones(2, 2)])
    inverse, info = gl.linalg.inv_ex(singular)
    assert info.tolist() == [0, 2] and gl.equal(inverse[0], gl.eye(2)) and inverse[1].isnan().all()
    result, info = gl.linalg.solve_ex(singular, gl.ones(2, 2, 1))
    assert info.tolist() == [0, 2] and result[0].tolist() == [[1.0], [1.0]]
    for function in (gl.linalg.cholesky_ex, gl.linalg.inv_ex, gl.linalg.lu_factor_ex):
        with pytest.raises(gl.linalg.LinAlgError):
            function(gl.zeros(2, 2), check_errors=True)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 3, 3), (2, 4, 2), (0, 0), (0, 3), (2, 0, 0)])
def test_lu_factors_are_those_of_lu(shape):
    a = gl.randn(*shape, dtype=gl.float64)
    _, lower, upper = gl.linalg.lu(a)
    packed, pivots, info = gl.linalg.lu_factor_ex(a)
    size = min(shape[-2:])
    assert info.shape == shape[:-2] and not info.any()
    assert packed.shape == shape and pivots.shape == (*shape[:-2], size)
    assert gl.allclose(packed[..., :size, :].triu(), upper) and gl.allclose(packed[..., :size].tril(-1), lower.tril(-1))
    if shape[-1] == shape[-2]:
        b = gl.randn(*shape[:-1], 2, dtype=gl.float64)
        assert gl.allclose(a @ gl.linalg.lu_solve(packed, pivots, b), b)
        assert gl.allclose(a.mT @ gl.linalg.lu_solve(packed, pivots, b, adjoint=True), b)
        assert gl.allclose(gl.linalg.lu_solve(packed, pivots, b.mT, left=False) @ a, b.mT)


def test_few_singular_values_of_large_matrices():
    gl.manual_seed(0)
    full = gl.randn(2, 40, 3, dtype=gl.float64) @ gl.randn(3, 25, dtype=gl.float64)
    for a in (full, full.mT):
        u, s, v = gl.svd_lowrank(a, q=3)
        assert u.shape == (*a.shape[:-1], 3) and v.shape == (2, a.shape[-1], 3)
        np.testing.assert_allclose((u * s[:, None] @ v.mT).numpy(), a.numpy(), atol=1e-10)
        np.testing.assert_allclose(s.numpy(), gl.linalg.svdvals(a)[:, :3].numpy(), rtol=1e-10)
    noisy = full[0] + 1e-3 * gl.randn(40, 25, dtype=gl.float64)
    np.testing.assert_allclose(gl.svd_lowrank(noisy, q=6, niter=4).S[:3].numpy(), gl.linalg.svdvals(noisy)[:3].numpy(), rtol=1e-9)
    lowered = gl.svd_lowrank(full + 1, q=3, M=gl.ones(1, 25, dtype=gl.float64))
    np.testing.assert_allclose(lowered.S.numpy(), gl.svd_lowrank(full, 3).S.numpy())


def test_main_directions():
    gl.manual_seed(0)
    rows = gl.randn(60, 2) @ gl.randn(2, 7) + 5
    centred = rows - rows.mean(0)
    u, s, v = gl.pca_lowrank(rows, q=2)
    np.testing.assert_allclose((u * s @ v.mT).numpy(), centred.numpy(), atol=1e-4)
    np.testing.assert_allclose((s**2 / 59).numpy(), (centred @ v).var(0).numpy(), rtol=1e-4)
    assert gl.pca_lowrank(gl.randn(4, 9)).S.shape == (4,) and gl.pca_lowrank(rows, 1, center=False).S[0] > s[0]
    scale = gl.tensor(2.0, requires_grad=True)
    gl.pca_lowrank(rows * scale, 2).S.sum().backward()
    np.testing.assert_allclose(scale.grad.item(), s.sum().item(), rtol=1e-4)
    for call in (lambda: gl.svd_lowrank(rows, q=-1), lambda: gl.pca_lowrank(rows, q=8), lambda: gl.pca_lowrank(rows, niter=-1)):
        with pytest.raises(ValueError, match=r"lowrank: (q|niter) is"):
            call()
