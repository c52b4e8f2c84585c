"""The error function, its complement and its inverse. NumPy has none of them, so they are computed here from rational approximations.

Sources: float64 erf and erfc are W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969); erfinv is
M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Appl. Statist. 37 (1988). float32 erf
and Φ are our own minimax fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.spec import same

# erf(a) = a + a·P(a²) below 1, 1 - e^Q(a) from there on, coefficients from the highest power down
INNER_32 = (7.920368080e-05, -8.030761383e-04, 5.190733820e-03, -2.685512602e-02, 1.128361821e-01, -3.761262894e-01, 1.283791661e-01)
OUTER_32 = (1.863801735e-04, -2.947674599e-03, 2.183814161e-02, -1.031069160e-01, -6.381446719e-01, -1.127089262e00, -3.415129613e-04)

# e^(a²/2)·2Φ(-a) of 0 <= a <= TAIL_32, where Φ(-a) rounds to 0, coefficients from the highest power down
TAIL_P_32 = (0.0342369945, 0.239659968, 0.72498015, 0.999999609)
TAIL_Q_32 = (0.0429145488, 0.300171146, 0.954867525, 1.52284538, 1.0)
TAIL_32 = 14.28
SIGN, HALF = np.int32(-(1 << 31)), np.int32(0x3F000000)

# Cody's three ranges, coefficients from the highest power down: erf below 0.46875, erfc below 4, erfc above
CODY_A = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
CODY_B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
CODY_C = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
          8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)  # fmt: skip
CODY_D = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3, 3.29079923573345963e3,
          4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip
CODY_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1, 1.60837851487422766e-2,
          6.58749161529837803e-4)  # fmt: skip
CODY_Q = (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3)

# Wichura's PPND16, from the highest power down: the centre, |x| <= 0.85, and two ranges of the tails
WICHURA_A = (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
             1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0)  # fmt: skip
WICHURA_B = (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
             5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0)  # fmt: skip
WICHURA_C = (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
             3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0)  # fmt: skip
WICHURA_D = (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
             6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0)  # fmt: skip
WICHURA_E = (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
             2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0)  # fmt: skip
WICHURA_F = (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
             1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0)  # fmt: skip

BLOCK = 1 << 14  # elements that are computed at a time, so that the work space stays in the cache


def horner(t: Any, coefficients: tuple[float, ...], out: Any = None) -> Any:
    """The polynomial of `t`, coefficients from the highest power down."""
    out = np.multiply(t, t.dtype.type(coefficients[0]), out)
    for c in coefficients[1:-1]:
        out += t.dtype.type(c)
        out *= t
    out += t.dtype.type(coefficients[-1])
    return out


def horner_of(t: Any, coefficients: tuple[float, ...]) -> Any:
    """The same of a tensor, in new memory."""
    found = t * coefficients[0]
    for c in coefficients[1:-1]:
        found = (found + c) * t
    return found + coefficients[-1]


def blocks(x: Any, y: Any) -> Iterator[tuple[Any, Any]]:
    """Flat pieces of `x` and of the contiguous `y`."""
    flat, out = x.reshape(-1), y.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        yield flat[start : start + BLOCK], out[start : start + BLOCK]


def erf_32(x: Any, y: Any) -> None:
    """At most 1.3 units in the last place off: below 1 an odd polynomial, above 1 - e^-q, where few of the exponential's digits count."""
    a = np.minimum(np.abs(x), np.float32(4))  # erf(4) rounds to 1
    outer = np.exp(horner(a, OUTER_32))
    np.subtract(np.float32(1), outer, outer)
    near = a < 1
    t = np.minimum(a, np.float32(1))
    t *= t
    t = horner(t, INNER_32)
    t *= a
    t += a
    np.copyto(outer, t, where=near)
    np.copysign(outer, x, y)


def normal_32(x: Any, y: Any) -> None:
    """Φ(x), by erfc of |x|/√2 so that the lower tail is as good as its exponent: 1e-6 off at -5, 1e-5 at -13."""
    a = np.clip(x, np.float32(-TAIL_32), np.float32(TAIL_32))
    half = np.bitwise_and(a.view(np.int32), SIGN)
    half |= HALF  # ±1/2 with the sign of x; np.copysign takes twice as long
    sign = half.view(np.float32)
    np.absolute(a, a)
    np.true_divide(horner(a, TAIL_P_32, y), horner(a, TAIL_Q_32), y)
    a *= a
    a *= np.float32(-0.5)
    y *= np.exp(a, a)
    y *= sign
    sign += np.float32(0.5)
    np.subtract(sign, y, y)


def normal_cpu(x: Any, y: Any) -> None:
    """The normal distribution Φ(x) = erfc(-x/√2)/2."""
    for part, out in blocks(x, y):
        if part.dtype == np.float32:
            normal_32(part, out)
        else:
            erf_64(part * -math.sqrt(0.5), out, True)
            out *= 0.5


def scaled_tail(a: Any) -> Any:
    """e^(a²)·erfc(a) of float64 numbers a >= 0.46875."""
    middle = np.minimum(a, 4.0)
    scaled = horner(middle, CODY_C) / horner(middle, CODY_D)
    far = a > 4
    if far.any():
        t = 1 / np.square(a[far])
        scaled[far] = (1 / math.sqrt(math.pi) - t * horner(t, CODY_P) / horner(t, CODY_Q)) / a[far]
    return scaled


def erfc_tail(a: Any) -> Any:
    """erfc of float64 numbers a >= 0.46875. The exponent a² is split as Cody does: 1/16ths square exactly, the rest is small."""
    scaled = scaled_tail(a)
    a = np.minimum(a, 30.0)
    whole = np.trunc(a * 16) / 16
    scaled *= np.exp(-whole * whole) * np.exp(-(a - whole) * (a + whole))
    return scaled


def erf_64(x: Any, y: Any, complement: bool) -> None:
    """erf or erfc by Cody's three ranges."""
    a = np.abs(x)
    t = np.square(np.minimum(a, 0.46875))
    centre = x * (horner(t, CODY_A) / horner(t, CODY_B))
    np.copyto(y, 1 - centre if complement else centre)
    outer = a > 0.46875
    if outer.any():
        tail, negative = erfc_tail(a[outer]), x[outer] < 0
        y[outer] = np.where(negative, 2 - tail, tail) if complement else np.where(negative, tail - 1, 1 - tail)


def erf_cpu(x: Any, y: Any) -> None:
    for part, out in blocks(x, y):
        if part.dtype == np.float32:
            erf_32(part, out)
        else:
            erf_64(part, out, False)


def erfc_cpu(x: Any, y: Any) -> None:
    """float32 is computed in float64: the complement's relative error in the tail has no cheap float32 form."""
    for part, out in blocks(x, y):
        if part.dtype == np.float32:
            wide = np.empty(part.shape)
            erf_64(part.astype(np.float64), wide, True)
            np.copyto(out, wide, casting="same_kind")
        else:
            erf_64(part, out, True)


def erfinv_cpu(x: Any, y: Any) -> None:
    """x = 2p - 1 has the normal quantile of p over √2; ±inf at ±1, NaN beyond."""
    for part, out in blocks(x, y):
        z = part.astype(np.float64)
        q = 0.5 * z
        r = 0.180625 - q * q
        central = q * horner(r, WICHURA_A) / horner(r, WICHURA_B)
        tail = np.abs(q) > 0.425
        if tail.any():
            s = np.sqrt(-np.log(0.5 - np.abs(q[tail])))
            near, far = s - 1.6, np.minimum(s, 27.0) - 5.0
            value = np.where(s <= 5, horner(near, WICHURA_C) / horner(near, WICHURA_D), horner(far, WICHURA_E) / horner(far, WICHURA_F))
            value[np.isinf(s)] = np.inf
            central[tail] = np.copysign(value, q[tail])
        np.copyto(out, central * math.sqrt(0.5), casting="same_kind")


def erfcx_wide(x: Any) -> Any:
    """e^(x²)·erfc(x) of float64 numbers; the exponent is split as in `erfc_tail`."""
    tail = x >= 0.46875
    found = np.empty_like(x)
    found[tail] = scaled_tail(x[tail])
    rest = x[~tail]
    below = np.empty_like(rest)
    erf_64(rest, below, True)
    near = np.maximum(rest, -30.0)
    whole = np.trunc(near * 16) / 16
    found[~tail] = np.exp(whole * whole) * np.exp((near - whole) * (near + whole)) * below
    return found


def erfcx_cpu(x: Any, y: Any) -> None:
    for part, out in blocks(x, y):
        np.copyto(out, erfcx_wide(part.astype(np.float64)), casting="same_kind")


def log_ndtr_cpu(x: Any, y: Any) -> None:
    """The logarithm of the normal distribution: from -1 down of the scaled complement, whose exponent comes back exactly."""
    for part, out in blocks(x, y):
        z = part.astype(np.float64)
        low = z < -1
        found = np.empty_like(z)
        found[low] = np.log(0.5 * erfcx_wide(-z[low] * math.sqrt(0.5))) - 0.5 * np.square(z[low])
        upper = np.empty_like(z[~low])
        erf_64(z[~low] * math.sqrt(0.5), upper, True)
        found[~low] = np.log1p(-0.5 * upper)
        np.copyto(out, found, casting="same_kind")


def ndtri_cpu(x: Any, y: Any) -> None:
    """The normal quantile by Wichura's algorithm; ±inf at 1 and 0, NaN beyond."""
    for part, out in blocks(x, y):
        p = part.astype(np.float64)
        q = p - 0.5
        r = 0.180625 - q * q
        found = q * horner(r, WICHURA_A) / horner(r, WICHURA_B)
        tail = ~(np.abs(q) <= 0.425)
        if tail.any():
            s = np.sqrt(-np.log(np.minimum(p[tail], 1 - p[tail])))
            near, far = s - 1.6, np.minimum(s, 28.0) - 5.0
            value = np.where(s <= 5, horner(near, WICHURA_C) / horner(near, WICHURA_D), horner(far, WICHURA_E) / horner(far, WICHURA_F))
            value[np.isinf(s)] = np.inf
            found[tail] = np.copysign(value, q[tail])
        np.copyto(out, found, casting="same_kind")


erf = Op("erf", same, cpu=erf_cpu, cuda=Elementwise("erf(x)"), promote="float",
         grad={"x": lambda g, x: g * ((x * x).neg().exp() * (2 / math.sqrt(math.pi)))})  # fmt: skip
erfc = Op("erfc", same, cpu=erfc_cpu, cuda=Elementwise("erfc(x)"), promote="float",
          grad={"x": lambda g, x: g * ((x * x).neg().exp() * (-2 / math.sqrt(math.pi)))})  # fmt: skip
erfinv = Op("erfinv", same, cpu=erfinv_cpu, cuda=Elementwise("erfinv(x)"), promote="float", autocast="float32", sharp=True,
            grad={"x": lambda g, y: g * ((y * y).exp() * (math.sqrt(math.pi) / 2))})  # fmt: skip


def _erfcx_gradient(g: Any, x: Any, y: Any) -> Any:
    """2x·erfcx(x) - 2/√π; beyond 4, where the two nearly cancel, the rest of Cody's third range, which is left of them."""
    far = (x > 4) & x.isfinite()
    t = x.masked_fill(~far, 4).square().reciprocal()
    rest = t * horner_of(t, CODY_P) / horner_of(t, CODY_Q)
    return g * (2 * x.masked_fill(far, 0) * y - 2 / math.sqrt(math.pi)).where(~far, rest * -2)


erfcx: Op = Op("erfcx", same, cpu=erfcx_cpu, cuda=Elementwise("erfcx(x)"), promote="float", sharp=True,
               grad={"x": _erfcx_gradient})  # fmt: skip
log_ndtr = Op("log_ndtr", same, cpu=log_ndtr_cpu, cuda=Elementwise("log_ndtr(x)"), promote="float",
              grad={"x": lambda g, x: g * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)))})  # fmt: skip
ndtri = Op("ndtri", same, cpu=ndtri_cpu, cuda=Elementwise("ndtri(x)"), promote="float", sharp=True,
           grad={"x": lambda g, y: g * ((0.5 * (y * y)).exp() * math.sqrt(2 * math.pi))})  # fmt: skip
