"""The small language of annotations in CUDA files: numbers, names, arithmetic, and some of NumPy's functions. Nothing else is evaluated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_BINARY: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv, ast.MatMult: operator.matmul,
}  # fmt: skip
_COMPARE: dict[type, Callable[..., Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in (
            "abs", "arange", "ceil", "clip", "cos", "cumsum", "exp", "floor", "log", "log1p", "max", "maximum", "mean", "min", "minimum",
            "prod", "reshape", "sin", "sort", "sqrt", "square", "sum", "tanh", "transpose", "var", "where",
        )
    },
    "cdiv": lambda a, b: -(-a // b),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


class AnnotationError(ValueError):
    """An annotation that cannot be read."""


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression. `/` of two integers divides as C does. AnnotationError for what the language does not have."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise AnnotationError(f"cannot read {text.strip()!r}") from None
    return _value(tree.body, names)


def comparison(text: str, names: Mapping[str, Any]) -> tuple[Any, Any]:
    """Both sides of `left == right`."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise AnnotationError(f"cannot read {text.strip()!r}") from None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or not isinstance(tree.ops[0], ast.Eq):
        raise AnnotationError(f"expect {text.strip()}: write `expect y == what it should be`")
    return _value(tree.left, names), _value(tree.comparators[0], names)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name):
            raise AnnotationError(f"there is no {name!r}; there are {', '.join(names) or 'no names'}")
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, names)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            a, b = _value(left, names), _value(right, names)
            return a // b if isinstance(a, int) and isinstance(b, int) else a / b
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left, names), _value(right, names))
        case ast.Tuple(elts=elements):
            return tuple(_value(e, names) for e in elements)
        case ast.Subscript(value=inner, slice=index):
            return _value(inner, names)[_index(index, names)]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in FUNCTIONS:
            return FUNCTIONS[name](*[_value(a, names) for a in args], **{k.arg: _value(k.value, names) for k in keywords if k.arg})
        case ast.Call(func=ast.Name(id=name)):
            raise AnnotationError(f"there is no function {name!r}; there are {', '.join(FUNCTIONS)}")
    raise AnnotationError(f"{ast.unparse(node)!r} is more than annotations can say")


def _index(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(None if part is None else _value(part, names) for part in (lower, upper, step)))
        case ast.Tuple(elts=elements):
            return tuple(_index(e, names) for e in elements)
    return _value(node, names)
