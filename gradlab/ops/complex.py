"""Complex numbers: their own rows, and which of the others take them.

The gradient of a real loss L by z is ∂L/∂Re z + i ∂L/∂Im z, PyTorch's convention: the direction of steepest ascent. For a function between
complex numbers it is the adjoint for the real inner product Re(conj(a) b): for a holomorphic one, g times the conjugate of the derivative.
(K. Kreutz-Delgado, "The complex gradient operator and the CR-calculus", arXiv:0906.4835, 2009.)

`Op.complex` of a row says what becomes of complex inputs:
- "holomorphic": it computes them as they are, and its gradient formulas get what they ask for conjugated (`autograd/formulas.py`);
- "own": its formulas are written for complex numbers, or it has none;
- another row, or a function of rows, which is run in its place;
- None: they are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, NO_HALF, complex_of, real_of
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.movement import cat
from gradlab.spec import ShapeError, Spec, broadcast_shapes

# ---------------------------------------------------------------- parts


def parts_rule(x: Spec) -> Spec:
    """Rule: a real number for each complex one."""
    if x.dtype not in COMPLEX:
        raise TypeError(f"takes complex numbers, not {x.dtype}")
    return Spec(x.shape, real_of(x.dtype))


def complex_rule(x: Spec) -> Spec:
    """Rule: the output is like the one input, complex."""
    parts_rule(x)
    return x


def joined_rule(re: Spec, im: Spec) -> Spec:
    """Rule: two real inputs of one dtype, broadcast to complex numbers."""
    if re.dtype != im.dtype or re.dtype not in (FLOAT32, FLOAT64):
        hint = f" ({NO_HALF})" if re.dtype == im.dtype and re.dtype.itemsize == 2 else ""
        raise TypeError(f"real and imaginary parts are both float32 or both float64, not {re.dtype} and {im.dtype}{hint}")
    return Spec(broadcast_shapes(re.shape, im.shape), complex_of(re.dtype))


def joined_cpu(re: Any, im: Any, y: Any) -> None:
    y.real, y.imag = re, im


def pairs_view(x: Any) -> Any:
    """Real and imaginary parts in a last dimension, of any library's array."""
    return x[..., None].view(real_of(x.dtype))


def real_view(x: Any) -> Any:
    return x.real if type(x) is np.ndarray else pairs_view(x)[..., 0]


def imag_view(x: Any) -> Any:
    return x.imag if type(x) is np.ndarray else pairs_view(x)[..., 1]


def _each(op: Op, size: int, mapped: Any, values: Any, params: Any) -> Any:
    """The vmap rule: the batch stays in front."""
    return op(*values)


conj = Op("conj", complex_rule, cpu=np.conjugate, cuda=Elementwise("conj(x)"), promote="same", grad={"x": lambda g: g.conj()})
joined = Op("complex", joined_rule, cpu=joined_cpu, cuda=Elementwise("joined(re, im)"),
            grad={"re": lambda g: g.real, "im": lambda g: g.imag})  # fmt: skip
real = Op("real", parts_rule, view=True, batch=_each, cpu=real_view,
          grad={"x": lambda g: joined(g, g.zeros_like())},
          inverse=lambda base, value: joined(value, base.imag))  # fmt: skip
imag = Op("imag", parts_rule, view=True, batch=_each, cpu=imag_view,
          grad={"x": lambda g: joined(g.zeros_like(), g)},
          inverse=lambda base, value: joined(base.real, value))  # fmt: skip


def pairs_rule(x: Spec) -> Spec:
    """Rule: real and imaginary part side by side, in one more dimension."""
    return Spec((*x.shape, 2), parts_rule(x).dtype)


def _pairs_last(x: Any) -> None:
    if not x.shape or x.shape[-1] != 2:
        raise ShapeError(f"the last dimension holds real and imaginary part, 2 elements, but the shape is {x.shape}")


def numbers_rule(x: Spec) -> Spec:
    """Rule: one complex number for each pair of the last dimension."""
    if x.dtype not in (FLOAT32, FLOAT64):
        raise TypeError(f"takes float32 or float64, not {x.dtype}")
    _pairs_last(x)
    return Spec(x.shape[:-1], complex_of(x.dtype))


def numbers_view(x: Any) -> Any:
    """A view; a pair lies side by side, and all else in steps of whole pairs."""
    _pairs_last(x)
    size = x.dtype.itemsize
    if x.size and (x.strides[-1] != size or any(s % (2 * size) for s, n in zip(x.strides[:-1], x.shape[:-1], strict=True) if n > 1)):
        steps = tuple(s // size for s in x.strides)
        raise ShapeError(
            f"view_as_complex: real and imaginary part must lie side by side, and steps be of whole pairs; shape {x.shape} lies in steps "
            f"{steps}: use contiguous()"
        )
    return x.view(complex_of(x.dtype))[..., 0]


def _pairs(op: Op, size: int, mapped: Any, values: Any, params: Any) -> Any:
    """The vmap rule: the same, of pairs that lie side by side."""
    return op(values[0].contiguous())


view_as_real = Op("view_as_real", pairs_rule, view=True, batch=_each, cpu=pairs_view,
                  grad={"x": lambda g: view_as_complex(g.contiguous())},
                  inverse=lambda base, value: view_as_complex(value.contiguous()))  # fmt: skip
view_as_complex: Op = Op("view_as_complex", numbers_rule, view=True, batch=_pairs, cpu=numbers_view,
                         grad={"x": lambda g: view_as_real(g)},
                         inverse=lambda base, value: view_as_real(value))  # fmt: skip

# ---------------------------------------------------------------- size and direction


def sgn_cpu(x: Any, y: Any) -> None:
    """x / |x|, and 0 at 0. What is scaled to a size near 1 first has a size that neither overflows nor loses digits."""
    size = np.maximum(np.abs(x.real), np.abs(x.imag))
    np.true_divide(x, np.where((size == 0) | ~np.isfinite(size), 1, size), y)
    length = np.abs(y)
    np.true_divide(y, np.where(length == 0, 1, length), y)


def _sgn_gradient(g: Any, x: Any, y: Any) -> Any:
    """What of g turns x, divided by |x|."""
    size = x.abs()
    return (g - y * (y.conj() * g).real) / size.masked_fill(size == 0, float("inf"))


def _angle_gradient(g: Any, x: Any) -> Any:
    """i x / |x|²; 0 at 0."""
    size = x.abs()
    size = size.masked_fill(size == 0, float("inf"))
    return (g / size) * (x / size * 1j)


complex_abs = Op("complex_abs", parts_rule, cpu=np.absolute, cuda=Elementwise("abs(x)"), grad={"x": lambda g, x: g * x.sgn()})
complex_sgn = Op("complex_sgn", complex_rule, cpu=sgn_cpu, cuda=Elementwise("sgn(x)"), grad={"x": _sgn_gradient})
complex_angle = Op("complex_angle", parts_rule, cpu=lambda x, y: np.arctan2(x.imag, x.real, y), cuda=Elementwise("angle(x)"),
                   grad={"x": _angle_gradient})  # fmt: skip

# ---------------------------------------------------------------- which rows take complex numbers

HOLOMORPHIC = """
    add sub mul div pow_tensor pow exp log sqrt sin cos tanh tanh_backward reciprocal rsqrt sigmoid sigmoid_backward neg square where cast
    exp2 expm1 log2 log10 log1p tan asin acos atan sinh cosh asinh acosh atanh sinc lerp
    sum mean prod cumsum cumprod recurrence matmul wide_matmul linear convolution convolution_dx convolution_dw convolution_transpose
    clone full view permute transpose t expand squeeze unsqueeze slice slice_backward slice_scatter cat flip
    diagonal diagonal_embed diagonal_scatter tril triu unfold unfold_backward as_strided bits pad im2col col2im
    index index_backward index_put embedding embedding_backward resample resample_backward
    masked_scatter masked_gather gather gather_backward scatter scatter_add scatter_reduce
    inverse solve solve_triangular det cofactor matrix_exp ldl_solve
    all_reduce reduce broadcast all_gather reduce_scatter all_to_all all_reduce_begin all_reduce_end
"""
OWN = """
    conj complex real imag view_as_real view_as_complex complex_abs complex_sgn complex_angle eq ne logical_and logical_or logical_xor
    fft rfft irfft logical_not isnan isinf isfinite all any nonzero cholesky qr lu ldl eig eigh svd slogdet pinv
"""


def _logaddexp(a: Any, b: Any) -> Any:
    """From the one with the larger real part, so that nothing overflows."""
    larger = a.real >= b.real
    top, low = a.where(larger, b), b.where(larger, a)
    return top + (low - top).masked_fill(low.real == -math.inf, -math.inf).exp().log1p()


def _logcumsumexp(x: Any, dim: int) -> Any:
    """In log n steps, each of which joins sums of twice as many elements (Hillis and Steele, 1986)."""
    step = 1
    while x.shape and step < x.shape[dim]:
        n = x.shape[dim]
        x = cat(x.narrow(dim, 0, step), _logaddexp(x.narrow(dim, step, n - step), x.narrow(dim, 0, n - step)), dim=dim)
        step *= 2
    return x


def _rms_norm(x: Any, weight: Any, k: int, eps: float) -> Any:
    """By the mean of x², not of |x|², as PyTorch takes it."""
    rstd = (x.square().mean(tuple(range(-k, 0)), keepdim=True) + eps).rsqrt()
    return (x * rstd if weight is None else x * rstd * weight), rstd


INSTEAD = {"abs": complex_abs, "silu": lambda x: x * x.sigmoid(), "logaddexp": _logaddexp, "logcumsumexp": _logcumsumexp,
           "rms_norm": _rms_norm}  # fmt: skip


def attach(rows: Mapping[str, Op]) -> None:
    """Say of all rows what they do with complex numbers."""
    for kind, names in (("holomorphic", HOLOMORPHIC), ("own", OWN)):
        for name in names.split():
            rows[name].complex = kind
    for name, row in INSTEAD.items():
        rows[name].complex = row
