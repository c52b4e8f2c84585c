"""Functions of elements: of one tensor, of pairs, comparisons, integers and bits."""

from __future__ import annotations

from kinds.catalogue.giving import AT, MASK, B, C, I, J, P, Q, V, W, X, Y, distinct, fixed, given, words

SIGNED = words("""
abs absolute ceil fix floor frac neg negative positive relu round selu sgn sign signbit square trunc sigmoid tanh sin cos tan sinh cosh
asinh arcsinh atan arctan exp exp2 expm1 erf erfc deg2rad rad2deg sinc nan_to_num i0 isfinite isinf isnan isneginf isposinf isreal real conj
angle conj_physical
celu hardshrink entr erfcx expit i0e i1 i1e log_ndtr modified_bessel_i0 modified_bessel_i1 ndtr
elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 rrelu silu softplus softshrink softsign tanhshrink
""")
WITHIN = words("""
acos arccos asin arcsin atanh arctanh digamma erfinv lgamma log log10 log1p log2 logit reciprocal rsqrt sqrt gammaln psi ndtri
""")
PAIRS = words("""
add sub subtract mul multiply div divide true_divide rsub maximum minimum fmax fmin hypot atan2 arctan2 copysign nextafter logaddexp
logaddexp2 fmod remainder floor_divide
""")
TENSORS = words("maximum minimum fmax fmin hypot atan2 arctan2 nextafter logaddexp logaddexp2")
COMPARISONS = words("eq ne not_equal lt less le less_equal gt greater ge greater_equal")
BITS = words("bitwise_and bitwise_or bitwise_xor")
LOGICAL = words("logical_and logical_or logical_xor")
SHIFTS = words("bitwise_left_shift bitwise_right_shift gcd lcm")

CALLS = {
    **{name: [given(X)] for name in SIGNED},
    **{name: [given(P)] for name in WITHIN},
    **{name: [given(X, Y), given(X, 0.5), given(X, Y[0])] for name in PAIRS},
    **{name: [given(X, Y), given(X, 0.5)] for name in COMPARISONS},
    **{name: [given(I, J), given(I, 3)] for name in BITS},
    **{name: [given(B, C), given(X, C)] for name in LOGICAL},
    **{name: [given(I, J % 3 + 1)] for name in SHIFTS},
    **{name: [given(X, Y), given(X, Y[0])] for name in TENSORS},
    "acosh": [given(P + 1.2)], "arccosh": [given(P + 1.2)], "logical_not": [given(B), given(X)], "bitwise_not": [given(I), given(B)],
    "pow": [given(P, Q), given(X, 2), given(P, 0.5)], "Tensor.__rpow__": [given(X, 2.0)],
    "gl.pow": [given(P, Q), given(X, 2), given(2.0, X)],
    "float_power": [given(P, Q), given(X, 2)], "ldexp": [given(X, J)], "xlogy": [given(X, P), given(X, 0.5)],
    "special.xlog1py": [given(X, P)], "special.zeta": [given(fixed(I + 1.0), P), given(3.0, P)], "airy_ai": [given(X)],
    "bessel_j0": [given(X)],
    "bessel_j1": [given(X)], "bessel_y0": [given(P)], "bessel_y1": [given(P)], "modified_bessel_k0": [given(P)],
    "modified_bessel_k1": [given(P)],
    "scaled_modified_bessel_k0": [given(P)], "scaled_modified_bessel_k1": [given(P)], "spherical_bessel_j0": [given(X)],
    **{name: [given(X, J), given(X, 3)] for name in words("""
        chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h
        hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
    """)}, "heaviside": [given(X, Y)],
    "igamma": [given(fixed(P + 1), Q + 1)], "igammac": [given(fixed(P + 1), Q + 1)], "gammainc": [given(fixed(P + 1), Q + 1)],
    "gammaincc": [given(fixed(P + 1), Q + 1)],
    "polygamma": [given(1, P)], "Tensor.polygamma": [given(P, 1)], "Tensor.polygamma_": [given(P, 1)],
    "mvlgamma": [given(P + 3, 2)], "multigammaln": [given(P + 3, 2)],
    "clamp": [given(X, -0.4, 0.6), given(X, Y - 0.5, Y + 0.5), given(X, 0.1)], "clip": [given(X, -0.4, 0.6)],
    "clamp_min": [given(X, 0.1), given(X, Y)], "clamp_max": [given(X, 0.1), given(X, Y)],
    "lerp": [given(X, Y, 0.3), given(X, Y, P)], "addcmul": [given(X, Y, P), given(X, Y, P, value=0.5)],
    "addcdiv": [given(X, Y, P), given(X, Y, P, value=0.5)], "where": [given(MASK, X, Y), given(MASK, X, 0.5)],
    "gl.where": [given(MASK, X, Y), given(MASK, X, 0.5), given(MASK)], "Tensor.where": [given(X, MASK, Y)],
    "threshold": [given(X, 0.1, 0.7)], "prelu": [given(X, V[:1]), given(X, V)], "isclose": [given(X, Y)], "isin": [given(I, AT)],
    "gl.isin": [given(I, AT), given(X, V)], "fill": [given(X, 0.5)], "hardtanh": [given(X), given(X, -0.3, 0.4)],
    "Tensor.fill_": [given(X, 0.5)], "Tensor.zero_": [given(X)], "Tensor.copy_": [given(X, Y), given(X, Y[0]), given(X, 2.0)],
    "Tensor.__divmod__": [given(X, Y), given(I, J)], "Tensor.__rdivmod__": [given(X, 2.0)],
    "Tensor.__radd__": [given(X, 2.0)], "Tensor.__rsub__": [given(X, 2.0)], "Tensor.__rmul__": [given(X, 2.0)],
    "Tensor.__rdiv__": [given(P, 2.0)], "Tensor.__rtruediv__": [given(P, 2.0)], "Tensor.__rfloordiv__": [given(X, 2.0)],
    "Tensor.__rmod__": [given(X, 2.0)], "Tensor.__rlshift__": [given(J, 2)], "Tensor.__rrshift__": [given(J, 8)],
    "Tensor.__rand__": [given(I, 3)], "Tensor.__ror__": [given(I, 3)], "Tensor.__rxor__": [given(I, 3)],
    "F.glu": [given(X)], "F.softmin": [given(X, 1)], "F.gumbel_softmax": [given(X), given(X, hard=True)],
    "F.gelu": [given(X), given(X, approximate="tanh")], "F.rrelu": [given(X), given(X, training=True)],
    "F.relu": [given(X), given(X, inplace=True)], "F.elu": [given(X), given(X, 0.7), given(X, inplace=True)],
    "F.elu_": [given(X)], "F.hardtanh_": [given(X)], "F.leaky_relu_": [given(X)], "F.rrelu_": [given(X), given(X, training=True)],
    "F.celu": [given(X), given(X, 0.7), given(X, inplace=True)],
    **{f"F.{name}": [given(X), given(X, inplace=True)]
       for name in words("hardsigmoid hardswish hardtanh leaky_relu mish relu6 selu silu")},
    "F.threshold": [given(X, 0.1, 0.7), given(X, 0.1, 0.7, inplace=True)],
    "fake_quantize_per_tensor_affine": [given(X, 0.1, 3, -8, 7)],
    "fake_quantize_per_channel_affine": [given(X, fixed(P[:, 0] + 0.1), fixed(P[:, 0] * 0), 0, -8, 7)],
    "cartesian_prod": [given(V, W)], "allclose": [given(X, Y)], "equal": [given(X, Y)], "dist": [given(X, Y), given(X, Y, 1)],
    "is_same_size": [given(X, Y)], "histc": [given(distinct(12, gap=0.3), 4, -1.0, 1.0)],
}  # fmt: skip
