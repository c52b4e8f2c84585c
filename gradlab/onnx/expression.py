"""A row's scalar expression (`gradlab.kernel.Elementwise`, in the terms of kernels/scalar_math.h) as ONNX nodes.

It is how elementwise rows without an ONNX operator of their own are exported: the text that is compiled for the GPU is read here as a
Python expression, `&&` as `and`, and each function it calls is one of `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import Any

from gradlab.dtype import BOOL
from gradlab.onnx.emitter import Emitter, Unsupported, Wire

BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div"}
BITS = {ast.BitAnd: "BitwiseAnd", ast.BitOr: "BitwiseOr", ast.BitXor: "BitwiseXor"}
LOGIC = {ast.BitAnd: "And", ast.BitOr: "Or", ast.BitXor: "Xor"}
ORDER = {ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater", ast.GtE: "GreaterOrEqual"}


def translate(e: Emitter, expression: str, names: dict[str, Any], dtype: Any) -> Wire:
    """The nodes of an expression. names: wires and Python numbers; dtype: the compute type T. Raises Unsupported."""
    text = re.sub(r"!(?!=)", " not ", conditions(expression).replace("&&", " and ").replace("||", " or ")).strip()
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise Unsupported(f"its expression cannot be read: {expression}") from None
    found = Translation(e, names, dtype).visit(tree)
    return found if isinstance(found, Wire) else e.number(found, dtype)


def conditions(text: str) -> str:
    """C's `c ? a : b` as Python's `a if c else b`: also in parentheses, among arguments and inside one another."""
    held: list[str] = []  # what stood in parentheses, by number, while the text around it is looked at

    def hold(match: re.Match[str]) -> str:
        held.append(f"({','.join(map(choice, match[1].split(',')))})")
        return f"@{len(held) - 1}@"

    def choice(part: str) -> str:
        condition, mark, rest = part.partition("?")
        if not mark:
            return part
        at = depth = 0
        while depth or rest[at] != ":":
            depth += (rest[at] == "?") - (rest[at] == ":")
            at += 1
        return f"(({choice(rest[:at])}) if ({condition}) else ({choice(rest[at + 1 :])}))"

    while "(" in text:
        text = re.sub(r"\(([^()]*)\)", hold, text)
    text = choice(text)
    while "@" in text:
        text = re.sub(r"@(\d+)@", lambda match: held[int(match[1])], text)
    return text


class Translation:
    """Walks the syntax tree; numbers stay Python numbers as long as they can."""

    def __init__(self, e: Emitter, names: dict[str, Any], dtype: Any) -> None:
        self.e, self.names, self.dtype = e, names, dtype

    def visit(self, node: ast.AST) -> Any:
        """The value of a sub-expression."""
        method: Callable[[Any], Any] | None = getattr(self, type(node).__name__.lower(), None)
        if method is None:
            raise Unsupported(f"its expression holds a {type(node).__name__}")
        return method(node)

    def constant(self, node: ast.Constant) -> Any:
        """A literal."""
        return node.value

    def name(self, node: ast.Name) -> Any:
        """An input or a parameter."""
        return self.names[node.id] if node.id in self.names else {"true": True, "false": False}[node.id]

    def wire(self, value: Any) -> Wire:
        """A value as a wire of the compute type."""
        return value if isinstance(value, Wire) else self.e.number(value, self.dtype)

    def truth(self, value: Any) -> Wire:
        """A value as a truth value."""
        wire = self.wire(value)
        return wire if wire.dtype == BOOL else self.e.cast(wire, BOOL)

    def binop(self, node: ast.BinOp) -> Any:
        """Arithmetic; on bits where the values are integers."""
        a, b = self.visit(node.left), self.visit(node.right)
        kind = type(node.op)
        if not isinstance(a, Wire) and not isinstance(b, Wire):
            return {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b}[kind] if kind is not ast.Div else a / b
        a, b = self.wire(a), self.wire(b)
        if kind in BITS:
            return self.e((LOGIC if a.dtype == BOOL else BITS)[kind], a, b)
        return self.e(BINARY[kind], a, b)

    def unaryop(self, node: ast.UnaryOp) -> Any:
        """A sign, or not."""
        x = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self.e("Not", self.truth(x))
        return self.e("Neg", x) if isinstance(x, Wire) else -x

    def boolop(self, node: ast.BoolOp) -> Any:
        """and, or."""
        kind = "And" if isinstance(node.op, ast.And) else "Or"
        found = self.truth(self.visit(node.values[0]))
        for part in node.values[1:]:
            found = self.e(kind, found, self.truth(self.visit(part)))
        return found

    def ifexp(self, node: ast.IfExp) -> Any:
        """A choice; by a parameter it is made here."""
        condition = self.visit(node.test)
        if not isinstance(condition, Wire):
            return self.visit(node.body if condition else node.orelse)
        return self.e.where(self.truth(condition), self.wire(self.visit(node.body)), self.wire(self.visit(node.orelse)))

    def compare(self, node: ast.Compare) -> Any:
        """One comparison."""
        a, b = self.wire(self.visit(node.left)), self.wire(self.visit(node.comparators[0]))
        kind = type(node.ops[0])
        if kind is ast.Eq:
            return self.e("Equal", a, b)
        if kind is ast.NotEq:
            return self.e("Xor", a, b) if a.dtype == BOOL else self.e("Not", self.e("Equal", a, b))
        return self.e(ORDER[kind], a, b)

    def call(self, node: ast.Call) -> Any:
        """A function of scalar_math.h, or a conversion."""
        name = node.func.id if isinstance(node.func, ast.Name) else "?"
        values = [self.visit(a) for a in node.args]
        if name == "T":
            (x,) = values
            return self.e.cast(x, self.dtype) if isinstance(x, Wire) else x
        if name == "bool":
            return self.truth(values[0])
        if name == "int":
            return values[0]
        if name == "where":
            condition = self.truth(values[0])
            return self.e.where(condition, self.wire(values[1]), self.wire(values[2]))
        if name not in FUNCTIONS:
            raise Unsupported(f"its expression calls {name}, which is made of no ONNX operators")
        return FUNCTIONS[name](self.e, *map(self.wire, values))


# ---------------------------------------------------------------- the functions


def plain(kind: str) -> Callable[..., Wire]:
    """A function that is one operator."""
    return lambda e, *xs: e(kind, *xs)


def greater(e: Emitter, a: Wire, b: Any) -> Wire:
    """a > b"""
    found: Wire = e("Greater", a, b)
    return found


def log1p(e: Emitter, x: Wire) -> Wire:
    """log(1 + x), with u = 1 + x rounded and to first order what that lost: log(u) + (x - (u - 1)) / u."""
    u = x + 1.0
    inside = e("And", greater(e, u, 0.0), e("Less", u, math.inf))
    y = e("Log", u)
    return e.where(inside, y + (x - (u - 1.0)) / u, y)


def expm1(e: Emitter, x: Wire) -> Wire:
    """e^x - 1: near 0 as 2t / (1 - t) with t = tanh(x / 2)."""
    t = e("Tanh", e("Min", e("Max", x, -1.0), 1.0) * 0.5)
    return e.where(e("Less", e("Abs", x), 1.0), (t + t) / (1.0 - t), e("Exp", x) - 1.0)


def erfc(e: Emitter, x: Wire) -> Wire:
    """1 - erf(x); for x >= 0.5 Chebyshev's fit of W. H. Press and others, "Numerical Recipes" (2nd edition, 1992), section 6.2, whose
    relative error stays below 1.2e-7 far out, where 1 - erf(x) would lose all digits."""
    z = e("Abs", x)
    t = 1.0 / (z * 0.5 + 1.0)
    coefficients = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368)
    total: Any = t * coefficients[0]
    for c in coefficients[1:-1]:
        total = (total + c) * t
    total = (total + coefficients[-1]) * t - 1.26551223
    tail = t * e("Exp", total - z * z)
    return e.where(greater(e, x, 0.5), tail, 1.0 - e("Erf", x))


def copysign(e: Emitter, a: Wire, b: Wire) -> Wire:
    """|a| with the sign of b; that of a zero is found by 1 / b."""
    size = e("Abs", a)
    return e.where(signbit(e, b), -size, size)


def signbit(e: Emitter, x: Wire) -> Wire:
    """Whether the sign is minus, also of a zero; a NaN's sign cannot be seen and counts as plus."""
    below: Wire = e("Less", x, 0)
    if x.dtype.kind != "f":
        return below
    zero: Wire = e("Equal", x, 0.0)
    return e("Or", below, e("And", zero, e("Less", e("Reciprocal", x), 0.0)))


def remainder(e: Emitter, a: Wire, b: Wire) -> Wire:
    """The remainder with the divisor's sign. Floating point: fmod, moved by b where the signs differ."""
    if a.dtype.kind != "f":
        return e("Mod", a, b)
    r = e("Mod", a, b, fmod=1)
    differs = e("And", e("Not", e("Equal", r, 0.0)), e("Xor", e("Less", r, 0.0), e("Less", b, 0.0)))
    return e.where(differs, r + b, r)


def floor_divide(e: Emitter, a: Wire, b: Wire) -> Wire:
    """The quotient rounded down. Integers: ONNX's Div cuts, so one less where the signs differ and a remainder is left. Floating point:
    (a - remainder) / b, to the nearest integer, as NumPy."""
    if a.dtype.kind != "f":
        q = e("Div", a, b)
        rest = a - q * b
        return q - e.cast(e("And", e("Not", e("Equal", rest, 0)), e("Xor", e("Less", rest, 0), e("Less", b, 0))), a.dtype)
    exact = a / b
    return e.where(e("Equal", b, 0.0), exact, e("Round", (a - remainder(e, a, b)) / b))


def fmod(e: Emitter, a: Wire, b: Wire) -> Wire:
    """The remainder with the dividend's sign."""
    return e("Mod", a, b, fmod=1)


def logaddexp(e: Emitter, a: Wire, b: Wire) -> Wire:
    """log(e^a + e^b)"""
    gap = e.where(e("Equal", a, b), 0.0, e("Abs", a - b))
    return e("Max", a, b) + log1p(e, e("Exp", -gap))


def hypot(e: Emitter, a: Wire, b: Wire) -> Wire:
    """sqrt(a² + b²), scaled by the larger."""
    a, b = e("Abs", a), e("Abs", b)
    top, low = e("Max", a, b), e("Min", a, b)
    ratio = e.where(e("Equal", top, 0.0), 0.0, low / top)
    found = top * e("Sqrt", ratio * ratio + 1.0)
    infinite = e("Or", e("IsInf", a), e("IsInf", b))
    return e.where(infinite, math.inf, found)


def fmax(e: Emitter, a: Wire, b: Wire, kind: str = "Max") -> Wire:
    """The larger; a number where the other is a NaN."""
    found: Wire = e(kind, a, b)
    if a.dtype.kind != "f":
        return found
    return e.where(e("IsNaN", a), b, e.where(e("IsNaN", b), a, found))


def atan2(e: Emitter, a: Wire, b: Wire) -> Wire:
    """The angle of (b, a): atan(a / b), turned by π in the left half; infinite pairs lie on diagonals."""
    both = e("And", e("IsInf", a), e("IsInf", b))
    zero = e("And", e("Equal", a, 0.0), e("Equal", b, 0.0))
    right = e.where(e("Or", both, zero), copysign(e, e.cast(both, a.dtype), a), a)
    below = e.where(both, e("Sign", b), e.where(zero, 1.0, b))
    angle = e("Atan", right / below)
    left = signbit(e, b)
    turned = e.where(left, angle + copysign(e, e.number(math.pi, a.dtype), a), angle)
    minus = e("And", zero, left)
    return e.where(minus, copysign(e, e.number(math.pi, a.dtype), a), turned)


def lerp(e: Emitter, a: Wire, b: Wire, weight: Wire) -> Wire:
    """From a to b, exact at both ends."""
    gap = b - a
    return e.where(e("Less", e("Abs", weight), 0.5), a + weight * gap, b - gap * (1.0 - weight))


def trunc(e: Emitter, x: Wire) -> Wire:
    """Rounded towards 0."""
    return e.where(e("Less", x, 0.0), e("Ceil", x), e("Floor", x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": plain("Abs"), "exp": plain("Exp"), "log": plain("Log"), "sqrt": plain("Sqrt"), "sin": plain("Sin"), "cos": plain("Cos"),
    "tan": plain("Tan"), "tanh": plain("Tanh"), "sinh": plain("Sinh"), "cosh": plain("Cosh"), "asin": plain("Asin"),
    "acos": plain("Acos"), "atan": plain("Atan"), "asinh": plain("Asinh"), "acosh": plain("Acosh"), "atanh": plain("Atanh"),
    "erf": plain("Erf"), "sigmoid": plain("Sigmoid"), "sign": plain("Sign"), "floor": plain("Floor"), "ceil": plain("Ceil"),
    "round": plain("Round"), "maximum": plain("Max"), "minimum": plain("Min"), "isnan": plain("IsNaN"), "isinf": plain("IsInf"),
    "pow": plain("Pow"), "log1p": log1p, "expm1": expm1, "erfc": erfc, "copysign": copysign, "signbit": signbit, "fmod": fmod,
    "remainder": remainder, "floor_divide": floor_divide, "logaddexp": logaddexp, "hypot": hypot, "fmax": fmax, "atan2": atan2,
    "lerp": lerp, "trunc": trunc, "fmin": lambda e, a, b: fmax(e, a, b, "Min"), "square": lambda e, x: x * x,
    "rsqrt": lambda e, x: e("Reciprocal", e("Sqrt", x)), "clamp": lambda e, x, lo, hi: e("Min", e("Max", x, lo), hi),
    "exp2": lambda e, x: e("Pow", e.number(2.0, x.dtype), x), "log2": lambda e, x: e("Log", x) * (1 / math.log(2)),
    "log10": lambda e, x: e("Log", x) * (1 / math.log(10)),
    "isfinite": lambda e, x: e("Not", e("Or", e("IsNaN", x), e("IsInf", x))), "bitwise_not": lambda e, x: e("BitwiseNot", x),
}  # fmt: skip
