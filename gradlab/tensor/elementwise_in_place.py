"""The in-place twins of arithmetic: `x.add_(y)` is `x = x + y` in x's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy import add as np_add, divide, multiply, subtract

from gradlab.autograd.base import Differentiable, reflecting
from gradlab.named_errors import explain
from gradlab.tensor.common_arguments import only_tensors
from gradlab.tensor.elementwise import add, div, exp, mul, neg, pow, relu, sigmoid, sqrt, sub, tanh
from gradlab.tensor.in_place_methods import direct, ordinary, unrepeated, update
from gradlab.tensor.math_pairs import addcdiv, addcmul
from gradlab.tensor.where import clamp, masked_fill

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

Operand = Any  # a Tensor or a Python number


class ElementwiseInPlaceMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def add_(self, other: Operand, *old: Any, alpha: float = 1) -> Any:
        """self += alpha · other.

        >>> gl.tensor([1.0, 2.0]).add_(1, alpha=10)
        tensor([11., 12.])
        """
        try:
            if not old and direct(np_add, self, other, alpha):
                return self
            return update("add_", self, add, other, *old, alpha=alpha)
        except Exception as error:
            explain(error, "add_", type(self).add_, (self, other, *old), {"alpha": alpha})

    def sub_(self, other: Operand, *old: Any, alpha: float = 1) -> Any:
        """self -= alpha · other.

        >>> gl.tensor([1.0, 2.0]).sub_(1)
        tensor([0., 1.])
        """
        try:
            if not old and direct(subtract, self, other, alpha):
                return self
            return update("sub_", self, sub, other, *old, alpha=alpha)
        except Exception as error:
            explain(error, "sub_", type(self).sub_, (self, other, *old), {"alpha": alpha})

    def mul_(self, other: Operand) -> Any:
        """self *= other.

        >>> gl.tensor([1.0, 2.0]).mul_(3)
        tensor([3., 6.])
        """
        try:
            return self if direct(multiply, self, other) else update("mul_", self, mul, other)
        except Exception as error:
            explain(error, "mul_", type(self).mul_, (self, other))

    def div_(self, other: Operand, *, rounding_mode: str | None = None) -> Any:
        """self /= other.

        >>> gl.tensor([1.0, 2.0]).div_(2)
        tensor([0.5000, 1.0000])
        """
        try:
            if rounding_mode is None and direct(divide, self, other):
                return self
            return update("div_", self, div, other, rounding_mode=rounding_mode)
        except Exception as error:
            explain(error, "div_", type(self).div_, (self, other), {"rounding_mode": rounding_mode})

    def pow_(self, exponent: Operand) -> Any:
        """self **= exponent.

        >>> gl.tensor([1.0, 2.0]).pow_(3)
        tensor([1., 8.])
        """
        return update("pow_", self, pow, exponent)

    def clamp_(self, min: Operand = None, max: Operand = None) -> Any:
        """Limit self to [min, max].

        >>> gl.tensor([-1.0, 2.0]).clamp_(0, 1)
        tensor([0., 1.])
        """
        return update("clamp_", self, clamp, min, max)

    def masked_fill_(self, mask: Tensor, value: Operand) -> Any:
        """Write `value` where `mask` is true.

        >>> gl.ones(2).masked_fill_(gl.tensor([True, False]), 0)
        tensor([0., 1.])
        """
        if (part := unrepeated(self)) is not None:
            update("masked_fill_", part, masked_fill, mask.expand(self._array.shape).sum_to_size(part._array.shape).bool(), value)
            return self
        return update("masked_fill_", self, masked_fill, mask, value)

    def exp_(self) -> Any:
        """e to the power of self, in place.

        >>> gl.tensor([0.0, 1.0]).exp_()
        tensor([1.0000, 2.7183])
        """
        return update("exp_", self, exp)

    def sqrt_(self) -> Any:
        """Square root, in place.

        >>> gl.tensor([4.0]).sqrt_()
        tensor([2.])
        """
        return update("sqrt_", self, sqrt)

    def tanh_(self) -> Any:
        """Hyperbolic tangent, in place.

        >>> gl.tensor([0.0, 1.0]).tanh_()
        tensor([0.0000, 0.7616])
        """
        return update("tanh_", self, tanh)

    def sigmoid_(self) -> Any:
        """1 / (1 + e^-x), in place.

        >>> gl.tensor([0.0, 1.0]).sigmoid_()
        tensor([0.5000, 0.7311])
        """
        return update("sigmoid_", self, sigmoid)

    def relu_(self) -> Any:
        """max(x, 0), in place.

        >>> gl.tensor([-1.0, 1.0]).relu_()
        tensor([0., 1.])
        """
        return update("relu_", self, relu)

    def neg_(self) -> Any:
        """-x, in place.

        >>> gl.tensor([-1.0, 1.0]).neg_()
        tensor([ 1., -1.])
        """
        return update("neg_", self, neg)

    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *old: Any, value: float = 1) -> Any:
        """self += value · tensor1 · tensor2.

        >>> gl.tensor([1.0]).addcmul_(gl.tensor([2.0]), gl.tensor([3.0]))
        tensor([7.])
        """
        only_tensors("addcmul_", *() if old else (tensor1, tensor2))
        if not old and ordinary(self, tensor1) and ordinary(self, tensor2) and direct(np_add, self, mul(tensor1, tensor2), value):
            return self
        return update("addcmul_", self, addcmul, tensor1, tensor2, *old, value=value)

    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *old: Any, value: float = 1) -> Any:
        """self += value · tensor1 / tensor2.

        >>> gl.tensor([1.0]).addcdiv_(gl.tensor([6.0]), gl.tensor([3.0]))
        tensor([3.])
        """
        only_tensors("addcdiv_", *() if old else (tensor1, tensor2))
        if not old and ordinary(self, tensor1) and ordinary(self, tensor2) and direct(np_add, self, div(tensor1, tensor2), value):
            return self
        return update("addcdiv_", self, addcdiv, tensor1, tensor2, *old, value=value)

    __iadd__, __isub__, __imul__ = reflecting(add_, "__radd__"), reflecting(sub_, "__rsub__"), reflecting(mul_, "__rmul__")
    __itruediv__, __ipow__ = reflecting(div_, "__rtruediv__"), reflecting(pow_, "__rpow__")
