"""The table of scalar functions that are measured: how each is called in either library, and what it is to be at the edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

INF, NAN = np.inf, np.nan
ODD, EVEN = "odd", "even"


@dataclass(frozen=True)
class Scalar:
    """A function of real numbers, element by element.

    name    of the public function; a word behind a blank tells two calls of one function apart
    call    on a library (gradlab or torch) and its tensors
    exact   the name of the function in `exact.py` or mpmath, or an expression over its arguments there
    edges   of one argument: at -∞, -0, 0 and ∞; of two: a NumPy function (or the name of SciPy's) for where one of them is 0 or ∞;
            None where nobody says what is to be there
    count   of arguments
    slope   whether its derivatives are measured too
    span    the largest magnitude
    near    values around which it is measured closely
    """

    name: str
    call: Callable[..., Any]
    exact: str
    edges: Any
    count: int = 1
    slope: bool = True
    span: float = INF
    near: tuple[float, ...] = ()
    positive: bool = False


def named(path: str) -> Callable[..., Any]:
    """The function of that name in a library."""

    def call(m: Any, *x: Any) -> Any:
        found = m
        for part in path.replace("F.", "nn.functional.").split("."):
            found = getattr(found, part)
        return found(*x)

    return call


def one(name: str, exact: str, edges: tuple[float, ...] | None, call: Callable[..., Any] | None = None, **how: Any) -> Scalar:
    """An entry of one argument."""
    return Scalar(name, call or named(name), exact, edges, **how)


def two(name: str, exact: str, edges: Any, call: Callable[..., Any] | None = None, **how: Any) -> Scalar:
    """An entry of two arguments."""
    return Scalar(name, call or named(name), exact, edges, 2, **how)


PLAIN = [
    one("exp", "mp.exp(x)", (0, 1, 1, INF)),
    one("exp2", "mp.power(2, x)", (0, 1, 1, INF)),
    one("expm1", "mp.expm1(x)", (-1, -0.0, 0, INF)),
    one("log", "mp.log(x)", (NAN, -INF, -INF, INF), near=(1,)),
    one("log2", "mp.log(x) / mp.log(2)", (NAN, -INF, -INF, INF), near=(1,)),
    one("log10", "mp.log(x) / mp.log(10)", (NAN, -INF, -INF, INF), near=(1,)),
    one("log1p", "mp.log1p(x)", (NAN, -0.0, 0, INF), near=(-1,)),
    one("sqrt", "mp.sqrt(x)", (NAN, -0.0, 0, INF)),
    one("rsqrt", "1 / mp.sqrt(x)", (NAN, -INF, INF, 0)),
    one("reciprocal", "1 / x", (-0.0, -INF, INF, 0)),
    one("square", "x * x", (INF, 0, 0, INF)),
    one("sin", "mp.sin(x)", (NAN, -0.0, 0, NAN), near=(np.pi, 2 * np.pi, 355)),
    one("cos", "mp.cos(x)", (NAN, 1, 1, NAN), near=(np.pi / 2, 1.5 * np.pi)),
    one("tan", "mp.tan(x)", (NAN, -0.0, 0, NAN), near=(np.pi / 2, np.pi)),
    one("asin", "mp.asin(x)", (NAN, -0.0, 0, NAN), near=(1, -1, 0.5)),
    one("acos", "mp.acos(x)", (NAN, np.pi / 2, np.pi / 2, NAN), near=(1, -1, 0.5)),
    one("atan", "mp.atan(x)", (-np.pi / 2, -0.0, 0, np.pi / 2)),
    one("sinh", "mp.sinh(x)", (-INF, -0.0, 0, INF)),
    one("cosh", "mp.cosh(x)", (INF, 1, 1, INF)),
    one("tanh", "mp.tanh(x)", (-1, -0.0, 0, 1)),
    one("asinh", "mp.asinh(x)", (-INF, -0.0, 0, INF)),
    one("acosh", "mp.acosh(x)", (NAN, NAN, NAN, INF), near=(1,)),
    one("atanh", "mp.atanh(x) if abs(x) != 1 else x * mp.inf", (NAN, -0.0, 0, NAN), near=(1, -1)),
    one("sinc", "mp.sincpi(x)", (NAN, 1, 1, NAN), near=(1, 2), span=1e6),
    one("sigmoid", "sigmoid(x)", (0, 0.5, 0.5, 1)),
    one("logit", "logit(x)", (NAN, -INF, -INF, NAN), near=(0.5, 1)),
    one("erf", "mp.erf(x) if abs(x) < LARGE else mp.sign(x)", (-1, -0.0, 0, 1)),
    one("erfc", "erfc(x)", (2, 1, 1, 0)),
    one("erfinv", "erfinv(x)", (NAN, -0.0, 0, NAN), near=(1, -1)),
    one("lgamma", "lgamma(x)", (INF, INF, INF, INF), near=(1, 2), span=1e30),
    one("digamma", "exact.polygamma(0, x)", (NAN, INF, -INF, INF), near=(1.4616321449683623,), span=1e15),
    *(one(f"polygamma {n}", f"exact.polygamma({n}, x)", (*[INF if n % 2 else -INF] * 3, 0 if n % 2 else -0.0),
          lambda m, x, n=n: m.polygamma(n, x), span=1e15) for n in (1, 2, 4)),
    one("mvlgamma 3", "mp.log(pi) * 1.5 + lgamma(x) + lgamma(x - mp.mpf(1) / 2) + lgamma(x - 1) if x > 1 else mp.nan", None,
        lambda m, x: m.mvlgamma(x, 3), span=1e30, positive=True),
    one("special.ndtr", "ndtr(x)", (0, 0.5, 0.5, 1)),
    one("special.log_ndtr", "log_ndtr(x)", (-INF, -np.log(2), -np.log(2), -0.0)),
    one("special.ndtri", "ndtri(x)", (NAN, -INF, -INF, NAN), near=(0.5, 1)),
    one("special.erfcx", "erfcx(x)", (INF, 1, 1, 0)),
    one("special.entr", "-x * mp.log(x) if x > 0 else -mp.inf", (-INF, 0, 0, -INF), near=(1,)),
    one("special.i0", "i(0)(x)", (INF, 1, 1, INF)),
    one("special.i0e", "ie(0)(x)", (0, 1, 1, 0)),
    one("special.i1", "i(1)(x)", (-INF, -0.0, 0, INF)),
    one("special.i1e", "ie(1)(x)", (-0.0, -0.0, 0, 0)),
    one("special.bessel_j0", "mp.besselj(0, x)", (0, 1, 1, 0), span=1e4, slope=False),
    one("special.bessel_j1", "mp.besselj(1, x)", (0, -0.0, 0, 0), span=1e4, slope=False),
    one("special.bessel_y0", "exact.y(0)(x)", (NAN, -INF, -INF, -0.0), span=1e4, slope=False),
    one("special.bessel_y1", "exact.y(1)(x)", (NAN, -INF, -INF, -0.0), span=1e4, slope=False),
    one("special.modified_bessel_k0", "k(0)(x)", (NAN, INF, INF, 0), slope=False),
    one("special.modified_bessel_k1", "k(1)(x)", (NAN, INF, INF, 0), slope=False),
    one("special.scaled_modified_bessel_k0", "ke(0)(x)", (NAN, INF, INF, 0), slope=False),
    one("special.scaled_modified_bessel_k1", "ke(1)(x)", (NAN, INF, INF, 0), slope=False),
    one("special.spherical_bessel_j0", "mp.sinc(x)", (0, 1, 1, 0), span=1e6, slope=False),
    one("special.airy_ai", "mp.airyai(x)", (0, 0.3550280538878172, 0.3550280538878172, 0), span=1e3, slope=False),
    one("floor", "mp.floor(x)", (-INF, -0.0, 0, INF), slope=False),
    one("ceil", "mp.ceil(x)", (-INF, -0.0, 0, INF), slope=False),
    one("trunc", "exact._whole(x)", (-INF, -0.0, 0, INF), slope=False),
    one("round", "round_even(x)", (-INF, -0.0, 0, INF), slope=False),
    one("frac", "x - exact._whole(x)", (NAN, -0.0, 0, NAN), slope=False),
    one("abs", "abs(x)", (INF, 0, 0, INF)),
    one("neg", "-x", (INF, 0, -0.0, -INF)),
    one("sign", "mp.sign(x)", (-1, -0.0, 0, 1), slope=False),
    one("rad2deg", "x * 180 / pi", (-INF, -0.0, 0, INF)),
    one("deg2rad", "x * pi / 180", (-INF, -0.0, 0, INF)),
    *(one(f"pow {e}", f"exact.power(x, mp.mpf({e}))", edges, lambda m, x, e=e: m.pow(x, e), near=(1,)) for e, edges in {
        2: (INF, 0, 0, INF), 3: (-INF, -0.0, 0, INF), 0.5: (NAN, -0.0, 0, INF), -0.5: (NAN, -INF, INF, 0), -1: (-0.0, -INF, INF, 0),
        -2: (0, INF, INF, 0), 2.5: (INF, 0, 0, INF), 7: (-INF, -0.0, 0, INF), -30: (0, INF, INF, 0)}.items()),
]  # fmt: skip

ACTIVATIONS = [
    one("F.gelu", "gelu(x)", (-0.0, -0.0, 0, INF)),
    one("F.gelu tanh", "gelu_tanh(x)", (-0.0, -0.0, 0, INF), lambda m, x: m.nn.functional.gelu(x, approximate="tanh")),
    one("F.silu", "x * sigmoid(x)", (-0.0, -0.0, 0, INF)),
    one("F.mish", "mish(x)", (-0.0, -0.0, 0, INF)),
    one("F.softplus", "softplus(x) if x <= 20 else x", (0, np.log(2), np.log(2), INF)),
    one("F.softplus beta=2", "softplus(2 * x) / 2 if x <= 10 else x", (0, np.log(2) / 2, np.log(2) / 2, INF),
        lambda m, x: m.nn.functional.softplus(x, 2.0)),
    one("F.logsigmoid", "-softplus(-x)", (-INF, -np.log(2), -np.log(2), 0)),
    one("F.elu", "x if x > 0 else mp.expm1(x)", (-1, -0.0, 0, INF)),
    one("F.celu alpha=2", "x if x > 0 else 2 * mp.expm1(x / 2)", (-2, -0.0, 0, INF), lambda m, x: m.nn.functional.celu(x, 2.0)),
    one("F.selu", "SCALE * x if x > 0 else SCALE * ALPHA * mp.expm1(x)", (-1.7580993408473766, -0.0, 0, INF)),
    one("F.relu", "max(x, mp.mpf(0))", (0, 0, 0, INF)),
    one("F.relu6", "min(max(x, mp.mpf(0)), mp.mpf(6))", (0, 0, 0, 6)),
    one("F.leaky_relu", "x if x > 0 else x * mp.mpf(0.01)", (-INF, -0.0, 0, INF)),
    one("F.hardtanh", "min(max(x, mp.mpf(-1)), mp.mpf(1))", (-1, -0.0, 0, 1)),
    one("F.hardswish", "x * min(max(x + 3, mp.mpf(0)), mp.mpf(6)) / 6", (-0.0, -0.0, 0, INF)),
    one("F.hardsigmoid", "min(max(x + 3, mp.mpf(0)), mp.mpf(6)) / 6", (0, 0.5, 0.5, 1)),
    one("F.softsign", "x / (1 + abs(x))", (-1, -0.0, 0, 1)),
    one("F.tanhshrink", "x - mp.tanh(x)", (-INF, -0.0, 0, INF)),
    one("F.softshrink", "x - mp.sign(x) / 2 if abs(x) > 0.5 else mp.mpf(0)", (-INF, 0, 0, INF)),
    one("F.hardshrink", "x if abs(x) > 0.5 else mp.mpf(0)", (-INF, 0, 0, INF)),
]  # fmt: skip

POLYNOMIALS = [
    one(f"special.{name} {n}", exact.replace("N", str(n)), None,
        lambda m, x, name=name, n=n: getattr(m.special, name)(x, n), span=1e3, slope=False)
    for n in (3, 12) for name, exact in {
        "chebyshev_polynomial_t": "mp.chebyt(N, x)", "chebyshev_polynomial_u": "mp.chebyu(N, x)",
        "chebyshev_polynomial_v": "(mp.chebyu(N, x) - mp.chebyu(N - 1, x))",
        "chebyshev_polynomial_w": "(mp.chebyu(N, x) + mp.chebyu(N - 1, x))",
        "shifted_chebyshev_polynomial_t": "mp.chebyt(N, 2 * x - 1)", "shifted_chebyshev_polynomial_u": "mp.chebyu(N, 2 * x - 1)",
        "hermite_polynomial_h": "mp.hermite(N, x)", "hermite_polynomial_he": "mp.hermite(N, x / mp.sqrt(2)) / mp.sqrt(2) ** N",
        "laguerre_polynomial_l": "mp.laguerre(N, 0, x)", "legendre_polynomial_p": "mp.legendre(N, x)"}.items()
]  # fmt: skip


def _bce(m: Any, x: Any, t: Any) -> Any:
    return m.nn.functional.binary_cross_entropy(x, t, reduction="none")


def _loss(name: str, **params: Any) -> Callable[..., Any]:
    return lambda m, x, t: getattr(m.nn.functional, name)(x, t, reduction="none", **params)


PAIRS = [
    two("add", "a + b", np.add), two("sub", "a - b", np.subtract), two("mul", "a * b", np.multiply), two("div", "a / b", np.true_divide),
    two("pow", "exact.power(a, b)", np.power, near=(1,)),
    two("atan2", "mp.atan2(a, b)", np.arctan2),
    two("hypot", "mp.sqrt(a * a + b * b)", np.hypot),
    two("fmod", "exact.fmod(a, b)", np.fmod, slope=False),
    two("remainder", "exact.remainder(a, b)", np.remainder, slope=False),
    two("floor_divide", "exact.floor_divide(a, b)", np.floor_divide, slope=False),
    two("copysign", "mp.mpf(np.copysign(float(a), float(b)))", np.copysign, slope=False),
    two("maximum", "max(a, b)", np.maximum, slope=False), two("minimum", "min(a, b)", np.minimum, slope=False),
    two("fmax", "max(a, b)", np.fmax, slope=False), two("fmin", "min(a, b)", np.fmin, slope=False),
    two("logaddexp", "exact.logaddexp(a, b)", np.logaddexp),
    two("logaddexp2", "exact.logaddexp(a * mp.log(2), b * mp.log(2)) / mp.log(2)", np.logaddexp2),
    two("xlogy", "a * mp.log(b) if b > 0 else mp.nan", "xlogy", near=(1,)),
    two("special.xlog1py", "a * mp.log1p(b) if b > -1 else mp.nan", "xlog1py", near=(-1,)),
    two("special.zeta", "exact.zeta(a, b)", "zeta", slope=False, positive=True, span=1e4),
    two("special.gammainc", "exact.gammainc(a, b)", "gammainc", slope=False, positive=True, span=1e3),
    two("special.gammaincc", "exact.gammaincc(a, b)", "gammaincc", slope=False, positive=True, span=1e3),
    two("F.binary_cross_entropy", "-(b * max(mp.log(a), mp.mpf(-100)) + (1 - b) * max(mp.log1p(-a), mp.mpf(-100)))",
        None, _bce, span=1, positive=True),
    two("F.binary_cross_entropy_with_logits", "(1 - b) * a + softplus(-a)", None, _loss("binary_cross_entropy_with_logits"), span=1e4),
    two("F.mse_loss", "(a - b) ** 2", None, _loss("mse_loss")),
    two("F.l1_loss", "abs(a - b)", None, _loss("l1_loss")),
    two("F.smooth_l1_loss", "(a - b) ** 2 / 2 if abs(a - b) < 1 else abs(a - b) - mp.mpf(1) / 2", None, _loss("smooth_l1_loss")),
    two("F.huber_loss", "(a - b) ** 2 / 2 if abs(a - b) < 1 else abs(a - b) - mp.mpf(1) / 2", None, _loss("huber_loss")),
    two("F.soft_margin_loss", "softplus(-a * b)", None, _loss("soft_margin_loss")),
    two("F.poisson_nll_loss", "mp.exp(a) - b * a", None, _loss("poisson_nll_loss"), span=1e4),
    two("F.kl_div", "b * (mp.log(b) - a) if b > 0 else mp.mpf(0)", None, _loss("kl_div"), positive=True),
]  # fmt: skip

SCALARS = {entry.name: entry for entry in [*PLAIN, *ACTIVATIONS, *POLYNOMIALS, *PAIRS]}
