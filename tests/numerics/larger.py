"""Operations whose results depend on many numbers, on data that cancel, and the scale by which each one's error is measured.

A sum of numbers that cancel has a small result and cannot have a small error relative to it: its error is measured in units of eps times
the sum of magnitudes. So for each entry `scale` says, from the arguments and the exact result, what eps is multiplied with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numerics.scalars import named

Scale = Callable[..., Any]


def magnitudes(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    """Of linear operations: the same operation on magnitudes."""
    return call(m, *(v.abs() if v.is_floating_point() else v for v in x))


def largest(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    """The largest magnitude of the result."""
    return want.abs().max()


def itself(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    """The result: units in the last place."""
    return want.abs()


def at_least_one(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    """The result, below one absolutely."""
    return want.abs().clamp(min=1)


SAYS = {magnitudes: "the same of magnitudes", largest: "largest result", itself: "the result", at_least_one: "max(1, the result)"}


@dataclass(frozen=True)
class Larger:
    """An operation.

    make    its arguments as float64 arrays, of a generator of random numbers; integers stay integers
    call    on a library and its tensors
    scale   what eps is multiplied with; `says` names it in the table
    slope   whether its gradients are measured too: each relative to its largest
    """

    name: str
    make: Callable[[np.random.Generator], list[np.ndarray]]
    call: Callable[..., Any]
    scale: Scale = largest
    says: str = ""
    slope: bool = True


def cancelling(r: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of both signs and of sizes from 1e-3 to 1e3 whose sum is far smaller than they are."""
    x = r.standard_normal(shape) * 10.0 ** r.uniform(-3, 3, shape)
    flat = x.reshape(-1)
    half = flat.size // 2
    flat[half : 2 * half] = -flat[:half] * (1 + 1e-3 * r.standard_normal(half))
    return x


def shifted(r: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers whose mean is a hundred times their deviation."""
    return r.standard_normal(shape) + 100


def spread(r: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of the size of logits."""
    return r.standard_normal(shape) * 10


def plain(r: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers."""
    return r.standard_normal(shape)


def given(kind: Callable[..., np.ndarray], *shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Arrays of these shapes."""
    return lambda r: [kind(r, *shape) for shape in shapes]


def f(name: str, *more: Any, **params: Any) -> Callable[..., Any]:
    """A function of torch.nn.functional; what follows the tensors."""
    return lambda m, *x: getattr(m.nn.functional, name)(*x, *more, **params)


def t(name: str, *more: Any, **params: Any) -> Callable[..., Any]:
    """A function of the library."""
    return lambda m, *x: named(name)(m, *x) if not (more or params) else _part(m, name)(*x, *more, **params)


def _part(m: Any, name: str) -> Any:
    for part in name.split("."):
        m = getattr(m, part)
    return m


def of_moments(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    """A variance of numbers far from 0 is as exact as they are: times the largest magnitude over the deviation."""
    return want.abs() * (1 + x[0].abs().max() / x[0].std())


def of_normalized(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    return want.abs().max() * (1 + x[0].abs().max() / x[0].std())


def of_softmax(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    return want * (1 + x[0].max(-1, keepdim=True).values - x[0])


ROWS, LONG = (31, 257), (70_001,)
REDUCTIONS = [
    *(Larger(f"{name} {'all' if dim is None else dim}", given(cancelling, ROWS if dim is not None else LONG),
             t(name) if dim is None else t(name, dim), magnitudes)
      for name in ("sum", "mean", "nansum", "nanmean") for dim in (None, 0, -1)),
    *(Larger(f"{name} {dim}", given(shifted, ROWS), t(name, dim), of_moments, "var·(1 + max/σ)")
      for name in ("var", "std") for dim in (0, -1)),
    *(Larger(f"linalg.vector_norm {p}", given(cancelling, ROWS), t("linalg.vector_norm", p, -1), itself) for p in (1, 2, 3, 0.5, np.inf)),
    Larger("logsumexp", given(spread, ROWS), t("logsumexp", -1), itself),
    Larger("prod", lambda r: [np.exp(r.standard_normal(ROWS) * 0.3) * r.choice([-1, 1], ROWS)], t("prod", -1), itself),
    Larger("cumsum", given(cancelling, ROWS), t("cumsum", -1), magnitudes),
    Larger("cumprod", given(plain, (7, 31)), t("cumprod", -1), itself),
    Larger("logcumsumexp", given(spread, ROWS), t("logcumsumexp", -1), at_least_one),
    Larger("cummax", given(spread, ROWS), lambda m, x: m.cummax(x, -1)[0], itself),
    Larger("amax", given(spread, ROWS), t("amax", -1), itself),
    Larger("median", given(spread, ROWS), lambda m, x: m.median(x, -1)[0], itself),
    Larger("quantile", given(spread, ROWS), t("quantile", 0.3, -1), itself),
    Larger("dist", given(spread, ROWS, ROWS), t("dist"), itself), Larger("cdist", given(shifted, (31, 5), (17, 5)), t("cdist"), largest),
    Larger("trapezoid", given(cancelling, ROWS), t("trapezoid"), magnitudes),
    Larger("cov", given(shifted, (5, 257)), t("cov"), of_moments, "cov·(1 + max/σ)"),
    Larger("corrcoef", given(shifted, (5, 257)), t("corrcoef"), largest),
]  # fmt: skip
NORMALIZED = [
    Larger("F.softmax", given(spread, ROWS), f("softmax", -1), of_softmax, "softmax·(1 + max - x)"),
    Larger("F.softmax 0", given(spread, ROWS), f("softmax", 0), largest),
    Larger("F.log_softmax", given(spread, ROWS), f("log_softmax", -1), at_least_one),
    Larger("F.softmin", given(spread, ROWS), f("softmin", -1), largest),
    Larger("F.layer_norm", given(shifted, ROWS), f("layer_norm", (257,)), of_normalized, "largest·(1 + max/σ)"),
    Larger("F.rms_norm", given(shifted, ROWS), f("rms_norm", (257,)), itself),
    Larger("F.group_norm", given(shifted, (5, 6, 31)), f("group_norm", 3), of_normalized, "largest·(1 + max/σ)"),
    Larger("F.batch_norm", given(shifted, (31, 6, 9)), lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True),
           of_normalized, "largest·(1 + max/σ)"),
    Larger("F.batch_norm evaluated", lambda r: [shifted(r, 31, 6, 9), r.uniform(99, 101, 6), r.uniform(0.5, 2, 6)], f("batch_norm"),
           of_normalized, "largest·(1 + max/σ)", slope=False),
    Larger("F.instance_norm", given(shifted, (5, 6, 31)), f("instance_norm"), of_normalized, "largest·(1 + max/σ)"),
    Larger("F.local_response_norm", given(plain, (3, 6, 9)), f("local_response_norm", 3), itself),
    Larger("F.normalize", given(cancelling, ROWS), f("normalize"), itself),
]  # fmt: skip


def labels(r: np.random.Generator) -> list[np.ndarray]:
    return [spread(r, *ROWS), r.integers(0, ROWS[1], ROWS[0])]


def chances(r: np.random.Generator) -> list[np.ndarray]:
    return [r.uniform(1e-6, 1 - 1e-3, ROWS), r.uniform(0, 1, ROWS)]


LOSSES = [
    Larger("F.cross_entropy", labels, f("cross_entropy"), at_least_one),
    Larger("F.cross_entropy smoothed", labels, f("cross_entropy", label_smoothing=0.1), at_least_one),
    Larger("F.nll_loss", labels, f("nll_loss"), largest), Larger("F.multi_margin_loss", labels, f("multi_margin_loss"), largest),
    *(Larger(f"F.{name}", given(shifted, ROWS, ROWS), f(name), largest)
      for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")),
    Larger("F.binary_cross_entropy", chances, f("binary_cross_entropy"), largest),
    Larger("F.binary_cross_entropy_with_logits", given(spread, ROWS, ROWS), f("binary_cross_entropy_with_logits"), magnitudes),
    Larger("F.kl_div", lambda r: [spread(r, *ROWS), r.uniform(0, 1, ROWS)], f("kl_div", reduction="batchmean"), magnitudes),
    Larger("F.gaussian_nll_loss", lambda r: [plain(r, *ROWS), plain(r, *ROWS), r.uniform(0.1, 2, ROWS)], f("gaussian_nll_loss"), largest),
    Larger("F.cosine_similarity", given(cancelling, ROWS, ROWS), f("cosine_similarity"), lambda m, c, x, w: m.ones_like(w), "1"),
    Larger("F.pairwise_distance", given(shifted, ROWS, ROWS), f("pairwise_distance"), itself),
    Larger("F.triplet_margin_loss", given(plain, ROWS, ROWS, ROWS), f("triplet_margin_loss"), largest),
    Larger("F.ctc_loss", lambda r: [spread(r, 30, 4, 7) / 4, r.integers(1, 7, (4, 8)), np.full(4, 30), np.full(4, 8)],
           lambda m, x, *rest: m.nn.functional.ctc_loss(m.nn.functional.log_softmax(x, -1), *rest), largest),
]  # fmt: skip


def _attention(m: Any, call: Callable[..., Any], x: Any, want: Any) -> Any:
    """Probabilities times |v|, and what the scores' own rounding makes of it."""
    q, k, v = x
    scores = q.abs() @ k.abs().mT / q.shape[-1] ** 0.5
    return m.nn.functional.scaled_dot_product_attention(q, k, v.abs()) * (1 + scores.max())


PRODUCTS = [
    Larger("matmul", given(cancelling, (33, 257), (257, 31)), t("matmul"), magnitudes),
    Larger("matmul of vectors", given(cancelling, (3000,), (3000,)), t("matmul"), magnitudes),
    Larger("matmul batched", given(cancelling, (5, 9, 100), (5, 100, 7)), t("matmul"), magnitudes),
    Larger("addmm", given(cancelling, (33, 31), (33, 257), (257, 31)), t("addmm"), magnitudes),
    Larger("einsum", given(cancelling, (5, 9, 100), (5, 100, 7)), lambda m, a, b: m.einsum("bij,bjk->bik", a, b), magnitudes),
    Larger("F.linear", given(cancelling, (33, 257), (31, 257), (31,)), f("linear"), magnitudes),
    Larger("F.bilinear", given(cancelling, (9, 31), (9, 17), (5, 31, 17)), f("bilinear"), magnitudes),
    Larger("F.conv1d", given(cancelling, (3, 8, 65), (6, 8, 5), (6,)), f("conv1d", padding=2), magnitudes),
    Larger("F.conv2d", given(cancelling, (3, 8, 17, 19), (6, 8, 3, 3), (6,)), f("conv2d", padding=1), magnitudes),
    Larger("F.conv2d of depth", given(cancelling, (3, 8, 17, 19), (8, 1, 3, 3)), f("conv2d", groups=8), magnitudes),
    Larger("F.conv2d of 16", given(plain, (3, 16, 20, 20), (16, 16, 3, 3)), f("conv2d", padding=1), magnitudes),
    Larger("F.conv3d", given(cancelling, (2, 4, 7, 8, 9), (3, 4, 3, 3, 3)), f("conv3d"), magnitudes),
    Larger("F.conv_transpose2d", given(cancelling, (3, 8, 9, 9), (8, 6, 3, 3)), f("conv_transpose2d", stride=2), magnitudes),
    Larger("F.scaled_dot_product_attention", lambda r: [plain(r, 2, 3, 33, 16) * 3 for _ in range(3)], f("scaled_dot_product_attention"),
           _attention, "P·|v|·(1 + max |q|·|k|)"),
    Larger("F.embedding_bag", lambda r: [r.integers(0, 50, (9, 100)), cancelling(r, 50, 7)], f("embedding_bag"), magnitudes),
    *(Larger(f"F.interpolate {mode}", given(cancelling, (2, 3, 9, 11)), f("interpolate", (17, 13), mode=mode), largest)
      for mode in ("nearest", "bilinear", "bicubic", "area")),
    Larger("F.grid_sample", lambda r: [cancelling(r, 2, 3, 9, 11), r.uniform(-1, 1, (2, 7, 8, 2))],
           f("grid_sample", align_corners=False), largest),
    Larger("F.avg_pool2d", given(cancelling, (2, 3, 17, 19)), f("avg_pool2d", 3), magnitudes),
    Larger("F.adaptive_avg_pool2d", given(cancelling, (2, 3, 17, 19)), f("adaptive_avg_pool2d", (5, 4)), magnitudes),
    Larger("F.lp_pool2d", given(plain, (2, 3, 17, 19)), f("lp_pool2d", 2, 3), largest),
    Larger("F.unfold", given(plain, (2, 3, 9, 9)), f("unfold", 3), itself),
    Larger("F.fold", given(cancelling, (2, 27, 49)), f("fold", (9, 9), 3), magnitudes),
    Larger("index_add", lambda r: [cancelling(r, 50, 7), r.integers(0, 50, 900), cancelling(r, 900, 7)],
           lambda m, x, i, s: m.index_add(x, 0, i, s), magnitudes),
    Larger("cross", given(cancelling, (50, 3), (50, 3)), t("linalg.cross"), largest),
    *(Larger(f"fft.{name} {n}", given(cancelling, (3, n)), lambda m, x, name=name: m.view_as_real(getattr(m.fft, name)(x)),
             lambda m, c, x, w: (w * w).mean().sqrt(), "root of the mean square")
      for name in ("fft", "rfft") for n in (256, 1000, 997)),
    Larger("fft.irfft", given(cancelling, (3, 257, 2)), lambda m, x: m.fft.irfft(m.view_as_complex(x)),
           lambda m, c, x, w: (w * w).mean().sqrt(),
           "root of the mean square"),
]  # fmt: skip


def _matrix(r: np.random.Generator, n: int = 31, symmetric: bool = False, positive: bool = False) -> np.ndarray:
    """A matrix of condition 1e3."""
    u, _ = np.linalg.qr(r.standard_normal((n, n)))
    v, _ = np.linalg.qr(r.standard_normal((n, n)))
    values = np.geomspace(1, 1e-3, n) * (1 if positive else np.where(np.arange(n) % 3, 1, -1))
    return u * values @ (u.T if symmetric or positive else v)


def _square(**how: Any) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda r: [_matrix(r, **how)]


def _complex(pairs: Any) -> Any:
    return pairs[..., 0] + 1j * pairs[..., 1]


# What is measured of these is a residual (the backward error) of float64 products of what comes out, in units of eps.
BACKWARD: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "linalg.solve": (lambda r: [_matrix(r), plain(r, 31, 5)], lambda m, a, b: (m.linalg.solve(a, b),),
                     lambda a, b, x: (a @ x - b).norm() / (a.norm() * x.norm())),
    "linalg.inv": (_square(), lambda m, a: (m.linalg.inv(a),), lambda a, x: (a @ x - (a @ a.inverse())).norm() / (a.norm() * x.norm())),
    "linalg.cholesky": (_square(positive=True), lambda m, a: (m.linalg.cholesky(a),), lambda a, x: (x @ x.mT - a).norm() / a.norm()),
    "linalg.qr": (_square(), lambda m, a: tuple(m.linalg.qr(a)), lambda a, q, r: (q @ r - a).norm() / a.norm()),
    "linalg.qr orthogonality": (_square(), lambda m, a: (m.linalg.qr(a)[0],), lambda a, q: (q.mT @ q - (q.mT @ q).round()).norm()),
    "linalg.svd": (_square(), lambda m, a: tuple(m.linalg.svd(a)), lambda a, u, s, v: ((u * s) @ v - a).norm() / a.norm()),
    "linalg.eigh": (_square(symmetric=True), lambda m, a: tuple(m.linalg.eigh(a)), lambda a, w, v: ((v * w) @ v.mT - a).norm() / a.norm()),
    "linalg.lu": (_square(), lambda m, a: tuple(m.linalg.lu(a)), lambda a, p, l, u: (p @ l @ u - a).norm() / a.norm()),
    "linalg.lstsq": (lambda r: [plain(r, 40, 9), plain(r, 40, 2)], lambda m, a, b: (m.linalg.lstsq(a, b)[0],),
                     lambda a, b, x: (a.mT @ (a @ x - b)).norm() / (a.norm() ** 2 * x.norm())),
    "linalg.solve_triangular": (lambda r: [np.triu(_matrix(r)) + np.eye(31), plain(r, 31, 5)],
                                lambda m, a, b: (m.linalg.solve_triangular(a, b, upper=True),),
                                lambda a, b, x: (a @ x - b).norm() / (a.norm() * x.norm())),
    "linalg.pinv": (lambda r: [plain(r, 40, 9)], lambda m, a: (m.linalg.pinv(a),), lambda a, x: (a @ x @ a - a).norm() / a.norm()),
    "linalg.eig": (_square(), lambda m, a: tuple(m.view_as_real(v) for v in m.linalg.eig(a)),
                   lambda a, w, v: ((a + 0j) @ _complex(v) - _complex(v) * _complex(w)).norm() / (a.norm() * v.norm())),
}  # fmt: skip
DETERMINANTS = [
    Larger("linalg.det", lambda r: [plain(r, 5, 9, 9)], t("linalg.det"), lambda m, c, x, w: w.abs().max(), "largest result"),
    Larger("linalg.slogdet", lambda r: [plain(r, 5, 9, 9)], lambda m, x: m.linalg.slogdet(x)[1], at_least_one),
    Larger("linalg.matrix_exp", lambda r: [plain(r, 5, 9, 9)], t("linalg.matrix_exp"), largest),
    Larger("linalg.matrix_power", lambda r: [plain(r, 5, 9, 9)], t("linalg.matrix_power", 5), largest),
]
LARGER = {entry.name: entry for entry in [*REDUCTIONS, *NORMALIZED, *LOSSES, *PRODUCTS, *DETERMINANTS]}
