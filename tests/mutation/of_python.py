"""Mutants of Python: comparisons, arithmetic, logic, constants, guards, statements, keywords, arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutation.mutant import Mutant
from mutation.of_kernels import mutants as of_kernels

COMPARED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
COMPUTED = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.Pow: ("**", "*"),
}  # fmt: skip
NAMES = {
    "minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "amin": "amax", "amax": "amin", "argmin": "argmax",
    "argmax": "argmin", "zeros": "ones", "ones": "zeros", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any", "cos": "sin",
    "sin": "cos", "logical_and": "logical_or", "logical_or": "logical_and", "isnan": "isinf", "log": "exp", "cumsum": "cumprod",
    "less": "less_equal", "greater": "greater_equal", "new_zeros": "new_ones", "squeeze": "unsqueeze",
}  # fmt: skip
SYMMETRIC = {"isinstance", "issubclass", "zip", "max", "min", "getattr", "hasattr"}  # two names swapped say nothing there
CHECKS = ("strict", "stacklevel")  # they say what may not happen, and where a warning stands
EXPRESSIONS = ("Elementwise", "Reduction")  # their arguments are C++


class Finder(ast.NodeVisitor):
    """Walks a file's tree and notes mutants."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.found = file, text, list[Mutant]()
        self.starts = [0]
        for line in text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.lines = text.split("\n")

    def at(self, line: int, column: int) -> int:
        """The place in the text of what `ast` counts in bytes of a line."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def note(self, kind: str, start: int, end: int, after: str) -> None:
        self.found.append(Mutant(self.file, self.text.count("\n", 0, start) + 1, kind, start, end, after))

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> None:
        """Swaps an operator that stands between two nodes."""
        begin, finish = self.span(left)[1], self.span(right)[0]
        at = self.text.find(old, begin, finish)
        if at >= 0:
            self.note(kind, at, at + len(old), new)

    # ------------------------------------------------------------ what is left alone

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are tests of their own; which error is raised, `visit_If` asks."""

    visit_Assert = visit_Import = visit_ImportFrom = visit_JoinedStr = visit_Global = visit_Raise

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for value in (*node.defaults, *filter(None, node.kw_defaults)):
            self.visit(value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit(node.args)
        for statement in node.body:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            self.generic_visit(node)

    # ------------------------------------------------------------ what is changed

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
            self.between(left, right, *COMPARED[type(operator)], "comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        words = any(isinstance(x, (ast.JoinedStr, ast.List, ast.Tuple)) or (isinstance(x, ast.Constant) and isinstance(x.value, str))
                    for x in (node.left, node.right))  # fmt: skip
        if type(node.op) in COMPUTED and not words:
            self.between(node.left, node.right, *COMPUTED[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self.between(node.values[0], node.values[1], old, new, "logic")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub)) and not isinstance(node.operand, ast.Constant):
            start = self.span(node)[0]
            self.note("sign", start, start + (4 if isinstance(node.op, ast.Not) else 1), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value, (start, end) = node.value, self.span(node)
        if isinstance(value, bool):
            self.note("constant", start, end, str(not value))
        elif isinstance(value, int):
            self.note("constant", start, end, str(value + 1))
        elif isinstance(value, float):
            self.note("constant", start, end, repr(value * 2 or 1.0))

    def visit_If(self, node: ast.If) -> None:
        start, end = self.span(node.test)
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            leaves = not node.orelse and isinstance(node.body[-1], (ast.Raise, ast.Return, ast.Continue))
            self.note("guard", start, end, "False" if leaves else f"not ({self.text[start:end]})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        start, end = self.span(node.test)
        self.note("choice", start, end, f"not ({self.text[start:end]})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.note("statement", *self.span(node), "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.note("statement", *self.span(node), "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in EXPRESSIONS:
            for value in (*node.args, *(k.value for k in node.keywords)):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    start, end = self.span(value)
                    self.found += of_kernels(self.file, self.text, start + 1, end - 1)
            return
        for keyword in node.keywords:
            if keyword.arg not in (None, *CHECKS) and isinstance(keyword.value, (ast.Constant, ast.Name)):
                start, end = self.at(keyword.lineno, keyword.col_offset), self.span(keyword.value)[1]
                before = self.text[:start].rstrip()
                if before.endswith(","):
                    self.note("keyword", len(before) - 1, end, "")
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if len(node.args) == 2 and called not in SYMMETRIC and all(isinstance(a, ast.Name) for a in node.args):
            start, end = self.span(node.args[0])[0], self.span(node.args[1])[1]
            self.note("arguments", start, end, f"{node.args[1].id}, {node.args[0].id}")
        for part in (node.func, *node.args, *(k.value for k in node.keywords if k.arg not in CHECKS)):
            self.visit(part)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in NAMES:
            end = self.span(node)[1]
            self.note("name", end - len(node.attr), end, NAMES[node.attr])
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in ("min", "max", "any", "all") and isinstance(node.ctx, ast.Load):
            self.note("name", *self.span(node), NAMES[node.id])


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """All mutants of a file, in the order of its text; those that do not parse are left out by whoever runs them."""
    finder = Finder(file, text)
    finder.visit(ast.parse(text))
    yield from sorted(dict.fromkeys(finder.found), key=lambda m: (m.start, m.end, m.after))
