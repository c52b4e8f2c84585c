"""From the source of a function to one whose blocks are functions that the runtime calls.

    if t > 0:                         def if_true_1(y): y = x; return (y,)
        y = x              becomes    def if_false_1(y): y = -x; return (y,)
    else:                             (y,) = _script.branch(t > 0, if_true_1, if_false_1, (y,), ('y',), 1)
        y = -x

Returns inside ifs are first moved to the end: what follows such an if goes into the branches that reach it. Loops with break, continue or
return, and ifs around these, stay Python's own, and refuse a tensor of a trace. Every line keeps its number.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy

from gradlab.jit.scripting.check import refuse
from gradlab.jit.scripting.names import assigned, base, bound, changed, head, leaves, live, returns

RUNTIME = "_script"
LARGEST = 3000  # nodes that a function may have after returns were moved, beside four times those of its source
CHANGES = frozenset(
    ["append", "extend", "insert", "pop", "remove", "clear", "update", "add", "discard", "setdefault", "popitem", "sort", "reverse"]
)


def at_the_end(statements: list[ast.stmt], last: ast.stmt | None) -> list[ast.stmt]:
    """The statements with every return that is not in a loop or a with at the end of its branch. last: the function, for its line."""
    for i, s in enumerate(statements):
        if isinstance(s, ast.Return):
            return statements[: i + 1]
        if isinstance(s, ast.If) and returns(s):
            rest = statements[i + 1 :]
            s.body = at_the_end([*s.body, *deepcopy(rest)], s)
            s.orelse = at_the_end([*s.orelse, *rest], s)
            s.at_end = True  # type: ignore[attr-defined]
            return statements[: i + 1]
    end = statements[-1] if statements else last
    return [*statements, ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), end)), end)] if end is not None else statements


class Rewriter:
    """Rewrites one function."""

    def __init__(self, file: str, function: ast.FunctionDef) -> None:
        self.file = file
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self.sure = {a.arg for a in every if a is not None}
        self.parameters = frozenset(self.sure)
        self.passed: set[str] = set()  # names that blocks get before they may have a value
        self.count = 0
        size = sum(1 for _ in ast.walk(function))
        function.body = at_the_end(function.body, function)
        if sum(1 for _ in ast.walk(function)) > LARGEST + 4 * size:
            refuse(file, function, "so many returns inside of ifs", "assign the result to one variable, and return it at the end")
        self.locals = assigned(function.body) | self.parameters
        body = self.block(function.body, set(), frozenset())
        first = function.body[0]
        early = sorted(self.passed - self.parameters)
        start = [ast.Assign([ast.Name(n, ast.Store())], self.call("undefined", [ast.Constant(n)], first)) for n in early]
        function.body = [*(ast.copy_location(s, first) for s in start), *body]
        function.decorator_list, function.returns = [], None
        for a in every:
            if a is not None:
                a.annotation = None
        ast.fix_missing_locations(function)

    # ------------------------------------------------------------ pieces of code

    def call(self, name: str, arguments: Sequence[ast.expr], node: ast.AST) -> ast.expr:
        made = ast.Call(ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load()), list(arguments), [])
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        for n in ast.walk(made):
            if isinstance(n, ast.expr) and not hasattr(n, "lineno"):  # on one line: a call of several is reported at its last
                n.lineno = n.end_lineno = line
                n.col_offset = n.end_col_offset = column
        return made

    def names(self, names: Sequence[str]) -> ast.expr:
        return ast.Tuple([ast.Constant(n) for n in names], ast.Load())

    def values(self, names: Sequence[str]) -> ast.expr:
        self.passed |= {n for n in names if n not in self.sure}
        return ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load())

    def function(self, title: str, parameters: Sequence[str], body: list[ast.stmt], node: ast.AST) -> tuple[ast.stmt, ast.expr]:
        name = f"{title}_{self.count}"
        arguments = ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])
        made = ast.FunctionDef(name, arguments, body, [], None)
        return ast.copy_location(made, node), ast.Name(name, ast.Load())

    def giving(self, names: Sequence[str], node: ast.AST) -> ast.stmt:
        end = ast.Return(ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load()))
        return ast.copy_location(end, node)

    def assign(self, names: Sequence[str], value: ast.expr, node: ast.AST) -> ast.stmt:
        targets = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        return ast.copy_location(ast.Assign([targets], value) if names else ast.Expr(value), node)

    def line(self, node: ast.AST) -> ast.expr:
        return ast.Constant(getattr(node, "lineno", 0))

    # ------------------------------------------------------------ statements

    def block(self, statements: Sequence[ast.stmt], after: set[str], loop: frozenset[str]) -> list[ast.stmt]:
        """Statements, where the names `after` are read behind them."""
        found: list[ast.stmt] = []
        for i, s in enumerate(statements):
            behind = live(statements[i + 1 :], after, loop)
            found += self.statement(s, behind, loop)
        return found

    def statement(self, s: ast.stmt, behind: set[str], loop: frozenset[str]) -> list[ast.stmt]:
        if isinstance(s, ast.If):
            return self.choice(s, behind, loop)
        if isinstance(s, (ast.For, ast.While)):
            return self.repetition(s, behind)
        if isinstance(s, ast.With):
            for item in s.items:
                item.context_expr = self.expression(item.context_expr)
                self.sure |= bound(item.optional_vars) if item.optional_vars is not None else set()
            s.body = self.block(s.body, behind, loop)
            return [s]
        if isinstance(s, ast.FunctionDef):
            self.sure.add(s.name)
            return [s]
        if isinstance(s, ast.Assert):
            s.test = self.call("decided", [self.expression(s.test), ast.Constant("assert"), self.line(s)], s)
            return [s]
        effects = self.effects(s)
        if isinstance(s, ast.Raise):
            effects.append(ast.copy_location(ast.Expr(self.call("raises", [self.line(s)], s)), s))
        for name, value in ast.iter_fields(s):
            if isinstance(value, ast.expr):
                setattr(s, name, self.expression(value))
            elif isinstance(value, list):
                setattr(s, name, [self.expression(v) if isinstance(v, ast.expr) else v for v in value])
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            name = s.target.id
            old = self.expression(ast.copy_location(ast.Name(name, ast.Load()), s))
            self.sure.add(name)
            value = self.call("augmented", [ast.Constant(type(s.op).__name__), old, s.value], s)
            return [ast.copy_location(ast.Assign([s.target], value), s)]
        targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AnnAssign) and s.value is not None else []
        self.sure |= {n for t in targets for n in bound(t)}
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            if s.value is None:
                return [ast.copy_location(ast.Pass(), s)]
            return [*effects, ast.copy_location(ast.Assign([s.target], s.value), s)]
        return [*effects, s]

    def effects(self, s: ast.stmt) -> list[ast.stmt]:
        """Looks at what a statement changes that is no variable: only a tensor may be changed where a trace decides."""
        changing: list[ast.expr] = []
        elements: list[str] = []  # names of variables that an element is assigned of
        targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, (ast.AugAssign, ast.AnnAssign)) else []
        pending: list[ast.AST] = list(targets)
        while pending:
            t = pending.pop()
            if isinstance(t, (ast.Attribute, ast.Subscript)):
                changing.append(t.value)
                name = base(t)
                elements += [name] if name in self.locals and name is not None else []
            elif isinstance(t, (ast.Tuple, ast.List)):
                pending += t.elts
        called = s.value.func if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in CHANGES:
            changing.append(called.value)
        looks = [self.call("changes", [self.expression(deepcopy(c)), self.line(s)], s) for c in changing]
        own = [self.call("own", [self.expression(ast.copy_location(ast.Name(n, ast.Load()), s))], s) for n in elements]
        copies = [ast.copy_location(ast.Assign([ast.Name(n, ast.Store())], c), s) for n, c in zip(elements, own, strict=True)]
        self.sure |= set(elements)
        return [*(ast.copy_location(ast.Expr(look), s) for look in looks), *copies]

    def variables(self, statements: Sequence[ast.stmt]) -> set[str]:
        """The variables that a block gives new values: an element assigned is a new value too, where a trace decides."""
        return assigned(statements) | (changed(statements) & self.locals)

    def choice(self, s: ast.If, behind: set[str], loop: frozenset[str]) -> list[ast.stmt]:
        self.count += 1
        number, test, before = self.count, self.expression(s.test), set(self.sure)
        at_end = getattr(s, "at_end", False)
        if not at_end and (leaves(s.body) or leaves(s.orelse)):  # Python's own
            s.test = self.call("decided", [test, ast.Constant("an if with break, continue or return"), self.line(s)], s)
            s.body = self.block(s.body, behind, loop)
            after_body, self.sure = self.sure, set(before)
            s.orelse = self.block(s.orelse, behind, loop)
            self.sure = self.sure & after_body
            return [s]
        parameters = sorted(self.variables(s.body) | self.variables(s.orelse))
        results = [] if at_end else [n for n in parameters if n in behind]
        values = self.values(parameters)
        after = set() if at_end else set(results)
        found: list[ast.stmt] = []
        functions: list[ast.expr] = []
        sure: list[set[str]] = []
        for title, statements in (("if_true", s.body), ("if_false", s.orelse)):
            self.sure = set(before)
            body = self.block(statements, after, frozenset())
            if not at_end:
                self.passed |= {n for n in results if n not in self.sure}
                body.append(self.giving(results, statements[-1] if statements else s))
            sure.append(self.sure)
            kept, self.count = self.count, number
            made, name = self.function(title, parameters, body or [ast.Pass()], s)
            self.count = kept
            found.append(made)
            functions.append(name)
        self.sure = before | (sure[0] & sure[1])
        arguments = [test, *functions, values]
        if at_end:
            value = self.call("ending", [*arguments, self.line(s)], s)
            return [*found, ast.copy_location(ast.Return(value), s)]
        return [*found, self.assign(results, self.call("branch", [*arguments, self.names(results), self.line(s)], s), s)]

    def repetition(self, s: ast.For | ast.While, behind: set[str]) -> list[ast.stmt]:
        self.count += 1
        number, before = self.count, set(self.sure)
        start = head(s, behind)
        around = frozenset(start | behind)
        if leaves([s]) or any(leaves([b]) for b in s.body):  # Python's own
            if isinstance(s, ast.While):
                what = ast.Constant("a loop with break, continue or return")
                s.test = self.call("decided", [self.expression(s.test), what, self.line(s)], s)
            else:
                s.iter = self.call("plain", [self.iterable(s.iter), self.line(s)], s)
                self.sure |= bound(s.target)
            s.body = self.block(s.body, set(around), around)
            self.sure = before
            return [s]
        targets = bound(s.target) if isinstance(s, ast.For) else set()
        names = self.variables(s.body) | targets
        carried = sorted(n for n in names if n in around)
        source = self.iterable(s.iter) if isinstance(s, ast.For) else None
        values = self.values(carried)
        found: list[ast.stmt] = []
        if isinstance(s, ast.While):
            self.sure = set(before)
            asking = ast.copy_location(ast.Return(self.expression(s.test)), s)
            test, test_name = self.function("while_test", carried, [asking], s)
            found.append(test)
        self.sure = before | targets
        inner = self.block(s.body, set(around), frozenset())
        end = self.giving(carried, s.body[-1])
        if isinstance(s, ast.For):
            inner.insert(0, ast.copy_location(ast.Assign([s.target], ast.Name("_item", ast.Load())), s))
        kept, self.count = self.count, number
        parameters = ["_item", *carried] if isinstance(s, ast.For) else carried
        body, body_name = self.function("for_body" if isinstance(s, ast.For) else "while_body", parameters, [*inner, end], s)
        self.count = kept
        found.append(body)
        self.sure = before
        if source is None:
            value = self.call("loop", [test_name, body_name, self.names(carried), values, self.line(s)], s)
        else:
            own = self.names(sorted(targets & set(carried)))
            value = self.call("each", [source, body_name, self.names(carried), values, own, self.line(s)], s)
        return [*found, self.assign(carried, value, s)]

    def iterable(self, node: ast.expr) -> ast.expr:
        """What a for goes through; `range` takes tensors."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "range" or "range" in self.locals:
            return self.expression(node)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            return self.expression(node)
        return self.call("range", [*map(self.expression, node.args)], node)

    # ------------------------------------------------------------ expressions

    def expression(self, node: ast.expr) -> ast.expr:
        """An expression whose `and`, `or`, `not`, chains of comparisons and `a if c else b` work on tensors of a trace."""
        made = _Expressions(self).visit(node)
        assert isinstance(made, ast.expr)
        return made


class _Expressions(ast.NodeTransformer):
    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.hidden: set[str] = set()  # arguments of functions inside, and variables of comprehensions

    def later(self, node: ast.expr) -> ast.expr:
        arguments = ast.arguments([], [], None, [], [], None, [])
        return ast.copy_location(ast.Lambda(arguments, node), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        own = self.rewriter
        if isinstance(node.ctx, ast.Load) and node.id in own.locals and node.id not in own.sure and node.id not in self.hidden:
            own.passed.add(node.id)
            return own.call("defined", [node, ast.Constant(node.id), own.line(node)], node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def _comprehension(self, node: ast.expr) -> ast.expr:
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        before = set(self.hidden)
        self.hidden |= {n for g in generators for n in bound(g.target)}
        self.generic_visit(node)
        self.hidden = before
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        name = "every" if isinstance(node.op, ast.And) else "some"
        return self.rewriter.call(name, [*map(self.later, node.values), self.rewriter.line(node)], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self.rewriter.call("negated", [node.operand, self.rewriter.line(node)], node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        left = [node.left, *node.comparators[:-1]]
        steps = zip(left, node.ops, node.comparators, strict=True)
        pairs = [ast.copy_location(ast.Compare(deepcopy(a), [op], [b]), node) for a, op, b in steps]
        return self.rewriter.call("every", [*map(self.later, pairs), self.rewriter.line(node)], node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return self.rewriter.call("either", [node.test, self.later(node.body), self.later(node.orelse), self.rewriter.line(node)], node)
