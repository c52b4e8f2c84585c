"""Linear algebra: one block of threads for each matrix, which lies in shared memory where it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.kernel_faults import Site
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.spec import LinAlgError, Spec, count

SHARED = 47 << 10  # bytes of shared memory that a matrix may take
LEAST = 8  # a kernel that names shared memory has some
LARGEST = 1 << 15  # rows and columns: elements of a matrix are numbered in 32 bits
FINITE = "are all elements finite?"
SINGULAR = "a matrix that may be singular needs pinv or lstsq"
POSITIVE = "a symmetric positive definite matrix is needed; add a small multiple of the unit matrix"


def threads(size: int) -> int:
    """How many threads work on a matrix with that many columns."""
    return 32 if size <= 8 else 64 if size <= 16 else 128 if size <= 32 else 256 if size <= 96 else 512


def room(work: Work, batch: int, numbers: int, dtype: Any) -> tuple[Any, int]:
    """Work space of so many numbers for each matrix: global memory (or None) and bytes of shared memory."""
    if numbers * dtype.itemsize <= SHARED:
        return None, max(numbers * dtype.itemsize, LEAST)
    return work.empty((batch, numbers), dtype), LEAST


def site(work: Work, name: str, problem: str, advice: str, *shapes: tuple[int, ...]) -> int:
    """The site of a matrix that an operation cannot take."""
    text = f"{name}: {problem} (shape {', '.join(map(str, shapes))}); {advice}"
    return work.faults.sites(("linalg", text), Site(LinAlgError, lambda _: text))


def over_batch(work: Work, x: Any, batch: tuple[int, ...]) -> Any:
    """The matrices, contiguous, broadcast to a batch."""
    shape = (*batch, *x.shape[-2:])
    return work.contiguous(x if x.shape == shape else work.broadcast(x, shape))


def unit_matrices(work: Work, y: Any) -> None:
    """Write unit matrices."""
    if y.size:
        work.copy(y, work.zeros(y.shape, y.dtype))
        one = work.number(1.0, Spec((), y.dtype))
        diagonal = y.diagonal(0, len(y.shape) - 2, len(y.shape) - 1)
        work.copy(diagonal, work.broadcast(one, diagonal.shape))


# ---------------------------------------------------------------- elimination and substitution


def cholesky(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (y,) = work.contiguous(inputs[0]), outputs
    if not y.size:
        return
    n = y.shape[-1]
    inside = n * n * y.dtype.itemsize <= SHARED
    shared = max(n * n * y.dtype.itemsize, LEAST) if inside else LEAST
    wrong = site(work, "cholesky", "Matrix is not positive definite", POSITIVE, x.shape)
    function = work.kernel("cholesky.cu", "cholesky", y.dtype)
    work.launch(function, count(y.shape[:-2]), threads(n), x, y, int(inside), work.faults.record, wrong, n, shared=shared)
    work.faults.check()


def solve_triangular(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (y,) = outputs
    if not y.size:
        return
    batch, (n, columns) = y.shape[:-2], y.shape[-2:]
    a, b = (over_batch(work, x, batch) for x in inputs)
    flags = int(params["upper"]), int(params["unitriangular"])
    function = work.kernel("solve.cu", "solve_triangular", y.dtype)
    work.launch(function, count(batch), threads(n), a, b, y, *flags, n, columns, rows=-(-columns // 32))


def solved(work: Work, name: str, a: Any, b: Any, y: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    """y of a @ y = b; without b the inverse."""
    if not y.size:
        return
    n, columns = y.shape[-2:]
    batch = count(y.shape[:-2])
    scratch, shared = room(work, batch, n * n, y.dtype)
    wrong = site(work, name, "Singular matrix", SINGULAR, *shapes)
    function = work.kernel("solve.cu", "solve", y.dtype)
    work.launch(function, batch, threads(n + columns), a, b, y, scratch, work.faults.record, wrong, n, columns, shared=shared)
    work.faults.check()


def solve(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (y,) = outputs
    a, b = (over_batch(work, x, y.shape[:-2]) for x in inputs)
    solved(work, "solve", a, b, y, tuple(x.shape for x in inputs))


def inverse(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    solved(work, "inv", work.contiguous(inputs[0]), None, outputs[0], (inputs[0].shape,))


def determinants(work: Work, x: Any, y: Any, logarithm: Any) -> None:
    """The determinants, or their signs and logarithms."""
    if not y.size:
        return
    n = x.shape[-1]
    scratch, shared = room(work, y.size, n * n, y.dtype)
    work.launch(work.kernel("solve.cu", "det", y.dtype), y.size, threads(n), x, y, logarithm, scratch, n, shared=shared)


def det(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    determinants(work, work.contiguous(inputs[0]), *outputs, *[None] * (2 - len(outputs)))


def lu(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (order, lower, upper) = work.contiguous(inputs[0]), outputs
    m, n = x.shape[-2:]
    batch = count(x.shape[:-2])
    if batch and m:
        scratch, shared = room(work, batch, m * n, x.dtype)
        function = work.kernel("solve.cu", "lu", x.dtype)
        work.launch(function, batch, threads(n), x, order, lower, upper, scratch, m, n, shared=shared)


# ---------------------------------------------------------------- orthogonal factors


def reflected(work: Work, x: Any, q: Any, r: Any) -> None:
    """x = q @ r of contiguous matrices that are not empty; q may have all columns."""
    m, n = x.shape[-2:]
    batch = count(x.shape[:-2])
    scratch, shared = room(work, batch, m * n, x.dtype)
    taus = work.empty((batch, min(m, n)), x.dtype)
    function = work.kernel("qr.cu", "qr", x.dtype)
    work.launch(function, batch, threads(max(n, q.shape[-1])), x, q, r, taus, scratch, m, n, q.shape[-1], shared=shared)


def qr(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (q, r) = work.contiguous(inputs[0]), outputs
    if x.size:
        reflected(work, x, q, r)
    else:
        unit_matrices(work, q)


def eigh(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (values, vectors) = work.contiguous(inputs[0]), outputs
    if not x.size:
        return
    n = x.shape[-1]
    batch = count(x.shape[:-2])
    scratch, shared = room(work, batch, 2 * n * n + n + n % 2, x.dtype)
    wrong = site(work, "eigh", "Eigenvalues did not converge", FINITE, x.shape)
    function = work.kernel("eigh.cu", "eigh", x.dtype)
    flag, record = int(params["lower"]), work.faults.record
    work.launch(function, batch, threads(n), x, values, vectors, scratch, flag, record, wrong, n, shared=shared)
    work.faults.check()


def turned(work: Work, name: str, x: Any, u: Any, s: Any, vh: Any) -> None:
    """x = u @ diag(s) @ vh of contiguous matrices that are not empty."""
    m, n = x.shape[-2:]
    k, batch = min(m, n), count(x.shape[:-2])
    scratch, shared = room(work, batch, k * (m + n + 3), x.dtype)
    wrong = site(work, name, "SVD did not converge", FINITE, x.shape)
    function = work.kernel("svd.cu", "svd", x.dtype)
    work.launch(function, batch, threads(8 * k), x, u, s, vh, scratch, work.faults.record, wrong, m, n, shared=shared)
    work.faults.check()


def reduced(work: Work, name: str, x: Any) -> tuple[Any, Any, Any]:
    """Its parts, without what fills U or Vh up to a square."""
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    k = min(m, n)
    u, s, vh = (work.empty((*batch, *shape), x.dtype) for shape in ((m, k), (k,), (k, n)))
    turned(work, name, x, u, s, vh)
    return u, s, vh


def svd(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """What fills U or Vh are the last columns of the complete Q of their first."""
    x, (u, s, vh) = work.contiguous(inputs[0]), outputs
    if not x.size:
        unit_matrices(work, u)
        unit_matrices(work, vh)
        return
    m, n = x.shape[-2:]
    k = min(m, n)
    if not params["full"] or m == n:
        turned(work, "svd", x, u, s, vh)
        return
    first, values, second = reduced(work, "svd", x)
    work.copy(s, values)
    work.copy(u[..., :, :k], first)
    work.copy(vh[..., :k, :], second)
    size, columns = (m, first) if m > n else (n, work.contiguous(second.swapaxes(-1, -2)))
    q, r = (work.empty((*x.shape[:-2], size, width), x.dtype) for width in (size, k))
    reflected(work, columns, q, r)
    rest = q[..., :, k:]
    if m > n:
        work.copy(u[..., :, k:], rest)
    else:
        work.copy(vh[..., k:, :], rest.swapaxes(-1, -2))


def scaled(work: Work, y: Any, a: Any, s: Any, b: Any, strides: tuple[int, int, int, int]) -> None:
    """y = a @ diag(s) @ b; the strides are those of the rows and columns of a and of b."""
    p, q = y.shape[-2:]
    work.each(work.kernel("svd.cu", "scaled_product", y.dtype), y.size, a, s, b, y, *strides, p, q, s.shape[-1])


def pinv(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (y,) = work.contiguous(inputs[0]), outputs
    if not y.size:
        return
    m, n = x.shape[-2:]
    k = min(m, n)
    u, s, vh = reduced(work, "pinv", x)
    inverted = work.empty(s.shape, s.dtype)
    limits = np.float64(params["atol"]), np.float64(params["rtol"])
    work.each(work.kernel("svd.cu", "reciprocals", s.dtype), s.size, s, inverted, *limits, k)
    scaled(work, y, vh, inverted, u, (1, n, 1, k))


def cofactor(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (y,) = work.contiguous(inputs[0]), outputs
    if not y.size:
        return
    n = x.shape[-1]
    u, s, vh = reduced(work, "det", x)
    signs = [work.empty(x.shape[:-2], x.dtype) for _ in range(2)]
    for part, found in zip((u, vh), signs, strict=True):
        determinants(work, part, found, None)
    others = work.empty(s.shape, s.dtype)
    work.each(work.kernel("svd.cu", "products", s.dtype), s.size, s, *signs, others, n)
    scaled(work, y, u, others, vh, (n, 1, n, 1))


def matrix_exp(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (y,) = work.contiguous(inputs[0]), outputs
    if y.size:
        n, batch = y.shape[-1], count(y.shape[:-2])
        scratch = work.empty((batch, 7 * n * n), FLOAT64)
        work.launch(work.kernel("expm.cu", "matrix_exp", y.dtype), batch, threads(4 * n), x, y, scratch, n)


def matrices(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """float32 or float64, of sizes whose elements 32 bits can number."""
    given = [s for s in specs if s is not None]
    return given[0].dtype in (FLOAT32, FLOAT64) and all(max(s.shape[-2:]) <= LARGEST for s in given)


def _rule(run: Callable[..., None]) -> Rule:
    return Rule(run, matrices)


RULES = {
    ("cholesky.cu", "cholesky"): _rule(cholesky), ("solve.cu", "solve_triangular"): _rule(solve_triangular),
    ("solve.cu", "solve"): _rule(solve), ("solve.cu", "inverse"): _rule(inverse), ("solve.cu", "det"): _rule(det),
    ("solve.cu", "slogdet"): _rule(det), ("solve.cu", "lu"): _rule(lu), ("qr.cu", "qr"): _rule(qr), ("eigh.cu", "eigh"): _rule(eigh),
    ("svd.cu", "svd"): _rule(svd), ("svd.cu", "pinv"): _rule(pinv), ("svd.cu", "cofactor"): _rule(cofactor),
    ("expm.cu", "matrix_exp"): _rule(matrix_exp),
}  # fmt: skip
