"""Sizes that are not known while a graph is made: a batch size, a sequence's length.

A `Dim` is an int whose value is a hint, a prime of its own for each symbol, and which remembers the expression it was computed by. Shape
rules and users' code compute with it as with any int; `gradlab.graph.ir.specialize` puts actual sizes in. `int(n)` and `float(n)` raise;
where the expression gets lost unnoticed (`range(n)`, `0.5 * n`), the number that is left is a multiple of the prime, and is found.
A `Dim` equals its prime and has its hash, so a cache keyed by sizes takes one for the other: `spec.cached_sizes` does not.

Expressions are plain data: an int, a symbol's name (str), or a tuple (operation, operand, …) with the operations of `OPERATIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from gradlab.graph.staging.symbol import TraceError
from gradlab.spec import unknown_sizes

Expression = Any  # int | float | str | tuple[str, Expression, ...]
Poly = dict[tuple[Any, ...], int]  # a sum: for each product of symbols (and of what is no sum or product) its coefficient

OPERATIONS: dict[str, Any] = {
    "add": lambda *xs: sum(xs[1:], xs[0]),
    "mul": lambda *xs: math.prod(xs[1:], start=xs[0]),
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "truediv": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}


def evaluate(expression: Expression, sizes: Mapping[str, int]) -> Any:
    """The expression's number. Raises KeyError for a symbol that `sizes` lacks."""
    if isinstance(expression, str):
        return sizes[expression]
    if isinstance(expression, (tuple, list)):
        return OPERATIONS[expression[0]](*[evaluate(e, sizes) for e in expression[1:]])
    return expression


def symbols(expression: Expression) -> Iterator[str]:
    """The names of the symbols in an expression."""
    if isinstance(expression, str):
        yield expression
    elif isinstance(expression, (tuple, list)):
        for part in expression[1:]:
            yield from symbols(part)


def text(expression: Expression) -> str:
    """The expression for people: ?0*4 + 1."""
    if not isinstance(expression, (tuple, list)):
        return str(expression)
    name, *parts = expression
    signs = {"add": " + ", "mul": "*", "sub": " - ", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**"}

    def part(p: Expression) -> str:
        grouped = isinstance(p, (tuple, list)) and p[0] in signs and (name, p[0]) != ("add", "mul")
        return f"({text(p)})" if grouped else text(p)

    inner = list(map(part, parts))
    if name == "neg":
        return f"-{inner[0]}"
    return signs[name].join(inner) if name in signs else f"{name}({text(parts[0])})"


# ---------------------------------------------------------------- sums of products, so that equal sizes have equal expressions


def _poly(e: Expression) -> Poly:
    if isinstance(e, int):
        return {(): int(e)} if e else {}
    if isinstance(e, tuple) and e[0] == "add":
        return _added([_poly(p) for p in e[1:]])
    if isinstance(e, tuple) and e[0] == "mul":
        found: Poly = {(): 1}
        for p in e[1:]:
            found = _multiplied(found, _poly(p))
        return found
    return {(e,): 1}


def _added(polys: Iterable[Poly]) -> Poly:
    total: Poly = {}
    for poly in polys:
        for key, factor in poly.items():
            total[key] = total.get(key, 0) + factor
    return {k: c for k, c in total.items() if c}


def _multiplied(a: Poly, b: Poly) -> Poly:
    return _added([{tuple(sorted((*x, *y), key=repr)): p * q} for x, p in a.items() for y, q in b.items()])


def _expression(poly: Poly) -> Expression:
    terms: list[Expression] = []
    for key, factor in sorted(poly.items(), key=lambda item: (not item[0], repr(item[0]))):
        parts = (*key, factor) if factor != 1 or not key else key
        terms.append(parts[0] if len(parts) == 1 else ("mul", *parts))
    return 0 if not terms else terms[0] if len(terms) == 1 else ("add", *terms)


def _divided(a: Poly, b: Poly) -> tuple[Poly, Poly]:
    """The part of `a` that `b` divides whatever the sizes are, divided; and the rest."""
    if len(b) != 1:
        return {}, a
    ((by, factor),) = b.items()
    whole: Poly = {}
    rest: Poly = {}
    for key, c in a.items():
        left = list(key)
        for atom in by:
            if atom in left:
                left.remove(atom)
            else:
                break
        else:
            if c % factor == 0:
                whole[tuple(left)] = c // factor
                continue
        rest[key] = c
    return whole, rest


def _whole(name: str, a: Expression, b: Expression) -> Expression:
    """An operation on whole numbers."""
    p, q = _poly(a), _poly(b)
    if name == "add":
        return _expression(_added([p, q]))
    if name == "sub":
        return _expression(_added([p, _multiplied({(): -1}, q)]))
    if name == "mul":
        return _expression(_multiplied(p, q))
    whole, rest = _divided(p, q)
    left = _expression(rest)
    if not rest or not (isinstance(left, int) and isinstance(b, int)):
        remains = 0 if not rest else (name, left, b)
    else:
        remains = OPERATIONS[name](left, b)
    return remains if name == "mod" else _expression(_added([whole, _poly(remains)]))


# ---------------------------------------------------------------- the numbers


def expression_of(value: Any) -> Expression:
    """The expression of a number: its own, or the number."""
    return getattr(value, "expr", value)


def _made(value: Any, expression: Expression) -> Any:
    if not isinstance(expression, (str, tuple)):
        return expression  # all symbols cancelled
    return Dim(value, expression) if isinstance(value, int) else Ratio(value, expression)


def _binary(name: str, a: Any, b: Any) -> Any:
    for x in (a, b):
        if not isinstance(x, (int, float)) and not (hasattr(x, "__index__") and getattr(x, "ndim", 0) == 0 and not hasattr(x, "_edge")):
            return NotImplemented
    a, b = (x if isinstance(x, (int, float)) else x.__index__() for x in (a, b))
    plain = OPERATIONS[name](_plain(a), _plain(b))
    x, y = expression_of(a), expression_of(b)
    if isinstance(plain, int) and isinstance(a, int) and isinstance(b, int):
        if name == "pow":
            return math.prod([a] * _plain(b)) if b < 64 else plain
        return _made(plain, _whole(name, x, y))
    return _made(plain, (name, x, y))


def hint(value: Any) -> Any:
    """What comparisons see of a number: a plain int or float."""
    return _plain(value)


def _plain(value: Any) -> Any:
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _operator(name: str) -> tuple[Any, Any]:
    def forward(self: Any, other: Any) -> Any:
        return _binary(name, self, other)

    def reflected(self: Any, other: Any) -> Any:
        return _binary(name, other, self)

    return forward, reflected


_FIXED = (
    "{0}() of a size that is not known while the graph is made ({1}) would fix it; compute with the size itself (+ - * / // % **, "
    "n * 1.0 for a float), or use a tensor operation"
)


class _Tracked:
    """The arithmetic of numbers with an expression."""

    expr: Expression

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __floordiv__, __rfloordiv__ = _operator("floordiv")
    __mod__, __rmod__ = _operator("mod")
    __truediv__, __rtruediv__ = _operator("truediv")
    __pow__, __rpow__ = _operator("pow")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __neg__(self) -> Any:
        return _binary("mul", self, -1) if isinstance(self, int) else _made(-_plain(self), ("neg", self.expr))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if _plain(self) >= 0 else -self

    def __repr__(self) -> str:
        return text(self.expr)

    def __str__(self) -> str:
        return text(self.expr)

    def __format__(self, spec: str) -> str:
        return format(text(self.expr) if not spec or spec[-1] in "<>^s" or spec[-1].isdigit() else _plain(self), spec)

    def __deepcopy__(self, _: Any) -> Any:
        return self

    def __copy__(self) -> Any:
        return self

    def __int__(self) -> NoReturn:
        raise TraceError(_FIXED.format("int", self))

    def __float__(self) -> NoReturn:
        raise TraceError(_FIXED.format("float", self))


class Dim(_Tracked, int):
    """A size that is not known yet: an int (the hint) with an expression."""

    def __new__(cls, hint: int, expression: Expression) -> Dim:
        unknown_sizes()
        self = int.__new__(cls, hint)
        self.expr = expression
        return self

    def __getnewargs__(self) -> tuple[int, Expression]:  # type: ignore[override]
        return _plain(self), self.expr

    def __index__(self) -> Dim:  # for code that asks for it by name; Python's own range() and len() take the hint
        return self


class Ratio(_Tracked, float):
    """A float computed from unknown sizes, such as 1 / n."""

    def __new__(cls, hint: float, expression: Expression) -> Ratio:
        self = float.__new__(cls, hint)
        self.expr = expression
        return self

    def __getnewargs__(self) -> tuple[float, Expression]:  # type: ignore[override]
        return _plain(self), self.expr

    def __floor__(self) -> Any:
        return _made(math.floor(_plain(self)), ("floor", self.expr))

    def __ceil__(self) -> Any:
        return _made(math.ceil(_plain(self)), ("ceil", self.expr))

    def __trunc__(self) -> Any:
        return _made(math.trunc(_plain(self)), ("trunc", self.expr))


# ---------------------------------------------------------------- symbols

_hints: dict[str, int] = {}  # of each symbol that has a prime
_FINE = 72_072_000  # 100 times the least common multiple of 1 … 16: times this, decimal numbers and small fractions are integers
_FIRST = 104_729  # a prime far from round numbers; larger than sizes mostly are; the product of three is far from 2^63


def unknown(name: str, hint: int | None = None) -> Dim:
    """The size called `name`, the same in the whole graph.

    A float on the left of it (`0.5 * n`, `1.0 / n`) makes a plain float, which is found later; `n * 0.5` and `1 / n` keep the expression.

    hint: what comparisons in the traced code see, where that matters (a length below a model's largest). By default a large prime of its
    own, by which numbers that lost their expression are found.
    """
    if not name or not isinstance(name, str):
        raise TypeError(f"an unknown size is named by a string, not {name!r}")
    if hint is not None:
        if hint < 1:
            raise ValueError(f"unknown size {name}: a hint is at least 1, not {hint}")
        return Dim(hint, name)
    if name not in _hints:
        number = max(_hints.values(), default=_FIRST - 202) + 202
        while any(number % d == 0 for d in range(3, math.isqrt(number) + 1, 2)):
            number += 2
        _hints[name] = number
    return Dim(_hints[name], name)


def is_unknown(shape: Iterable[Any]) -> bool:
    """Whether a shape has unknown sizes."""
    return any(isinstance(size, Dim) for size in shape)


def known_sizes(shape: Iterable[Any], actual: Iterable[int], sizes: dict[str, int]) -> bool:
    """Read the symbols of `shape` off an actual shape, into `sizes`. False where they do not fit one another."""
    shape, actual = tuple(shape), tuple(actual)
    if len(shape) != len(actual):
        return False
    for size, found in zip(shape, actual, strict=True):
        if isinstance(size, Dim) and isinstance(size.expr, str):
            if sizes.setdefault(size.expr, found) != found:
                return False
        elif not isinstance(size, Dim) and size != found:
            return False
    return True


def lost(value: Any, hints: Iterable[int]) -> bool:
    """Whether a plain number looks as if it was computed from an unknown size without anyone noticing."""
    if isinstance(value, (_Tracked, bool)) or not value:
        return False
    if isinstance(value, int):
        return abs(value) < 1e13 and any(_near(value, h) for h in hints)
    if not isinstance(value, float) or not math.isfinite(value):
        return False
    square = value * value
    for w in (value, 1 / value, square, 1 / square if square > 1e-100 else 0.0):  # n, 1/n, √n, 1/√n, times a number with few digits
        for h in hints:
            x = w / h * _FINE
            if abs(w) < 1e13 and round(w) and abs(w - round(w)) < 1e-9 * abs(w) and _near(round(w), h):
                return True
            if abs(x) < 1e9 and round(x) and abs(x - round(x)) < 1e-6:
                return True
    return False


def _near(value: int, hint: int) -> bool:
    """A multiple of the hint, or one or two more or less: n - 1, 2 * n + 1."""
    return abs(value) > hint // 2 and (value + 2) % hint < 5


def hints_of(names: Iterable[str]) -> list[int]:
    """The primes of these symbols."""
    return [_hints[n] for n in set(names) if n in _hints]
