"""Complex numbers: making them, their parts as views, size, angle, conjugate. Real tensors have the same functions, trivial ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, COMPLEX, COMPLEX64, COMPLEX128, INEXACT, NO_HALF, as_numpy, get_default_dtype
from gradlab.named_errors import explain, named_functions
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.where import filled

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "adjoint", "angle", "complex", "conj", "conj_physical", "imag", "is_conj", "is_neg", "isreal", "polar", "real", "resolve_conj",
    "resolve_neg", "view_as_complex", "view_as_real",
]  # fmt: skip

_rows = ops.complex
_conj, _joined, _real, _imag, _angle = map(bind, (_rows.conj, _rows.joined, _rows.real, _rows.imag, _rows.complex_angle))
_pairs, _numbers = map(bind, (_rows.view_as_real, _rows.view_as_complex))


def complex(real: Tensor, imag: Tensor, *, out: Any = None) -> Tensor:
    """Complex numbers of real and imaginary parts, both float32 or both float64 (RuntimeError otherwise).

    >>> gl.complex(gl.tensor([1.0, 2.0]), gl.tensor([0.5, -1.0]))
    tensor([1.+0.5000j, 2.-1.0000j])
    """
    _both("complex", real, imag)
    return _joined(real, imag) if out is None else into("complex", out, _joined(real, imag))


def polar(abs: Tensor, angle: Tensor, *, out: Any = None) -> Tensor:
    """Complex numbers of sizes and angles in radians, both float32 or both float64 (RuntimeError otherwise).

    >>> gl.polar(gl.tensor([1.0, 2.0]), gl.tensor([0.0, gl.pi]))
    tensor([ 1.+0.0000e+00j, -2.-1.7485e-07j])
    """
    _both("polar", abs, angle)
    result = _joined(abs * angle.cos(), abs * angle.sin())
    return result if out is None else into("polar", out, result)


def _both(name: str, a: Any, b: Any) -> None:
    only_tensors(name, a, b)
    if a._array.dtype != b._array.dtype or a._array.dtype.kind != "f" or a._array.dtype.itemsize == 2:
        hint = f"; {NO_HALF}" if a._array.dtype.itemsize == 2 else ""
        raise RuntimeError(f"{name}: takes two tensors of float32, or two of float64, not {a.dtype} and {b.dtype}{hint}")


def real(input: Tensor) -> Tensor:
    """The real parts: a view, which may be written. A real tensor itself.

    >>> gl.real(gl.tensor([1 + 2j, 3 - 1j]))
    tensor([1., 3.])
    """
    try:
        return _real(input) if input._array.dtype in COMPLEX else input
    except Exception as error:
        explain(error, "real", real, (input,))


def imag(input: Tensor) -> Tensor:
    """The imaginary parts: a view, which may be written. RuntimeError for a real tensor.

    >>> gl.imag(gl.tensor([1 + 2j, 3 - 1j]))
    tensor([ 2., -1.])
    """
    try:
        if input._array.dtype not in COMPLEX:
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes")
        return _imag(input)
    except Exception as error:
        explain(error, "imag", imag, (input,))


def angle(input: Tensor, *, out: Any = None) -> Tensor:
    """The angle in radians, from -π to π; of a real number 0, or π below 0. Its gradient at 0 is 0.

    >>> gl.angle(gl.tensor([1 + 1j, -1 + 0j]))
    tensor([0.7854, 3.1416])
    """
    if out is not None:
        return into("angle", out, angle(input))
    dtype = input._array.dtype
    if dtype in COMPLEX:
        return _angle(input)
    x: Any = input.to(as_numpy(get_default_dtype())) if dtype not in INEXACT else input
    return filled(filled(x, ~x.isnan(), 0), x < 0, 3.141592653589793)


def conj(input: Tensor) -> Tensor:
    """The conjugates, in new memory; a real tensor itself.

    >>> gl.conj(gl.tensor([1 + 2j, 3 - 1j]))
    tensor([1.-2.j, 3.+1.j])
    """
    return _conj(input) if input._array.dtype in COMPLEX else input


def conj_physical(input: Tensor, *, out: Any = None) -> Tensor:
    """As `conj`, which is computed at once anyway.

    >>> gl.conj_physical(gl.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return conj(input) if out is None else into("conj_physical", out, conj(input))


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates are computed at once.

    >>> gl.resolve_conj(gl.tensor([1 + 2j]).conj())
    tensor([1.-2.j])
    """
    only_tensors("resolve_conj", input)
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: a negated one is computed at once.

    >>> gl.resolve_neg(-gl.ones(1))
    tensor([-1.])
    """
    only_tensors("resolve_neg", input)
    return input


def is_conj(input: Tensor) -> bool:
    """False: conjugates are computed at once.

    >>> gl.is_conj(gl.tensor([1 + 2j]).conj())
    False
    """
    only_tensors("is_conj", input)
    return False


def is_neg(input: Tensor) -> bool:
    """False: a negated tensor is computed at once.

    >>> gl.is_neg(-gl.ones(1))
    False
    """
    only_tensors("is_neg", input)
    return False


def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0.

    >>> gl.isreal(gl.tensor([1 + 0j, 2 + 1j]))
    tensor([ True, False])
    """
    return imag(input) == 0 if input._array.dtype in COMPLEX else input.new_ones(input.shape, dtype=BOOL)


def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose, of the last two dimensions.

    >>> gl.adjoint(gl.tensor([[1 + 1j, 2j]]))
    tensor([[1.-1.j],
            [0.-2.j]])
    """
    return conj(input.mT)


def view_as_real(input: Tensor) -> Tensor:
    """The same memory as pairs of real and imaginary part, in one more dimension. RuntimeError for a real tensor.

    >>> gl.view_as_real(gl.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    try:
        if input._array.dtype not in COMPLEX:
            raise RuntimeError(f"view_as_real is only supported for complex tensors, not for {input.dtype}")
        return _pairs(input)
    except Exception as error:
        explain(error, "view_as_real", view_as_real, (input,))


def view_as_complex(input: Tensor) -> Tensor:
    """The same memory as complex numbers: the last dimension, of size 2, holds real and imaginary part side by side. RuntimeError for
    another last size, for memory in other steps, and for dtypes but float32 and float64.

    >>> gl.view_as_complex(gl.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1.+2.j, 3.+4.j])
    """
    try:
        if input._array.dtype.kind != "f" or input._array.dtype.itemsize == 2:
            raise RuntimeError(f"view_as_complex is only supported for float32 and float64, not for {input.dtype}")
        return _numbers(input)
    except Exception as error:
        explain(error, "view_as_complex", view_as_complex, (input,))


named_functions(__name__)


class ComplexMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    angle, conj, conj_physical, resolve_conj, resolve_neg = angle, conj, conj_physical, resolve_conj, resolve_neg
    is_conj, is_neg, isreal, adjoint = is_conj, is_neg, isreal, adjoint
    if TYPE_CHECKING:

        @property
        def mT(self) -> Tensor: ...

    @property
    def real(self) -> Any:
        """The real parts: a view, which may be written. A real tensor itself.

        >>> gl.tensor([1 + 2j]).real
        tensor([1.])
        """
        return _real(self) if self._array.dtype in COMPLEX else self

    @real.setter
    def real(self, value: Any) -> None:
        real(self)[...] = value  # type: ignore[arg-type]

    @property
    def imag(self) -> Any:
        """The imaginary parts: a view, which may be written. RuntimeError for a real tensor.

        >>> gl.tensor([1 + 2j]).imag
        tensor([2.])
        """
        return imag(self)  # type: ignore[arg-type]

    @imag.setter
    def imag(self, value: Any) -> None:
        imag(self)[...] = value  # type: ignore[arg-type]

    @property
    def mH(self) -> Tensor:
        """The conjugate transpose, of the last two dimensions.

        >>> gl.ones(2, 3, 4).mH.shape
        (2, 4, 3)
        """
        return conj(self.mT)

    @property
    def H(self) -> Tensor:
        """The conjugate transpose of a matrix; a number's conjugate. RuntimeError for other dimensions.

        >>> gl.ones(2, 3).H.shape
        (3, 2)
        """
        if len(self._array.shape) not in (0, 2):
            raise RuntimeError(f"H: only of a matrix, not of shape {self._array.shape}; use mH for a batch of them")
        return conj(self.mT)

    def is_complex(self) -> bool:
        """Whether the dtype is complex64 or complex128.

        >>> gl.ones(1).is_complex(), gl.tensor([1j]).is_complex()
        (False, True)
        """
        return self._array.dtype in COMPLEX

    def cfloat(self: Any, memory_format: Any = None) -> Tensor:
        """As complex64.

        >>> gl.tensor([1.5]).cfloat()
        tensor([1.5000+0.j])
        """
        return self.to(memory_format=memory_format, dtype=COMPLEX64)

    def cdouble(self: Any, memory_format: Any = None) -> Tensor:
        """As complex128.

        >>> gl.tensor([1.5]).cdouble()
        tensor([1.5000+0.j], dtype=gradlab.complex128)
        """
        return self.to(memory_format=memory_format, dtype=COMPLEX128)
