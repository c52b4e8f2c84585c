"""The in-place twins of arithmetic: `x.add_(y)` is `x = x + y` in x's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.tensor.pointwise import add, clamp, div, exp, masked_fill, mul, neg, pow, relu, sigmoid, sqrt, sub, tanh
from gradlab.tensor.update import update

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

Operand = Any  # a Tensor or a Python number


class PointwiseInPlaceMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def add_(self, other: Operand, *, alpha: float = 1) -> Any:
        """self += alpha · other."""
        return update("add_", self, add, other, alpha=alpha)

    def sub_(self, other: Operand, *, alpha: float = 1) -> Any:
        """self -= alpha · other."""
        return update("sub_", self, sub, other, alpha=alpha)

    def mul_(self, other: Operand) -> Any:
        """self *= other."""
        return update("mul_", self, mul, other)

    def div_(self, other: Operand, *, rounding_mode: str | None = None) -> Any:
        """self /= other."""
        return update("div_", self, div, other, rounding_mode=rounding_mode)

    def pow_(self, exponent: Operand) -> Any:
        """self **= exponent."""
        return update("pow_", self, pow, exponent)

    def clamp_(self, min: Operand = None, max: Operand = None) -> Any:
        """Limit self to [min, max]."""
        return update("clamp_", self, clamp, min, max)

    def masked_fill_(self, mask: Tensor, value: Operand) -> Any:
        """Write `value` where `mask` is true."""
        return update("masked_fill_", self, masked_fill, mask, value)

    def exp_(self) -> Any:
        """e to the power of self, in place."""
        return update("exp_", self, exp)

    def sqrt_(self) -> Any:
        """Square root, in place."""
        return update("sqrt_", self, sqrt)

    def tanh_(self) -> Any:
        """Hyperbolic tangent, in place."""
        return update("tanh_", self, tanh)

    def sigmoid_(self) -> Any:
        """1 / (1 + e^-x), in place."""
        return update("sigmoid_", self, sigmoid)

    def relu_(self) -> Any:
        """max(x, 0), in place."""
        return update("relu_", self, relu)

    def neg_(self) -> Any:
        """-x, in place."""
        return update("neg_", self, neg)

    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Any:
        """self += value · tensor1 · tensor2."""
        return update("addcmul_", self, add, mul(tensor1, tensor2), alpha=value)

    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Any:
        """self += value · tensor1 / tensor2."""
        return update("addcdiv_", self, add, div(tensor1, tensor2), alpha=value)

    __iadd__, __isub__, __imul__, __itruediv__, __ipow__ = add_, sub_, mul_, div_, pow_
