"""Which names statements read and bind, and which are still read afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

LOOPS = (ast.For, ast.While)
SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ClassDef, ast.AsyncFunctionDef)


def read(*nodes: ast.AST | None) -> set[str]:
    """The names that are read anywhere in these nodes."""
    return {n.id for node in nodes if node is not None for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def bound(target: ast.AST) -> set[str]:
    """The names that an assignment's target binds: not x[0] or x.a."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, (ast.Tuple, ast.List)):
        return {n for part in target.elts for n in bound(part)}
    return bound(target.value) if isinstance(target, ast.Starred) else set()


def inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes in these, but for the insides of functions and comprehensions."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from inside(ast.iter_child_nodes(node))


def assigned(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements bind in their own scope."""
    found: set[str] = set()
    for node in inside(statements):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def base(target: ast.AST) -> str | None:
    """The name of what an assignment to x[0] or x[0][1] changes."""
    while isinstance(target, ast.Subscript):
        target = target.value
        if isinstance(target, ast.Name):
            return target.id
    return None


def changed(statements: Sequence[ast.stmt]) -> set[str]:
    """The names of what statements assign elements of."""
    stores = [n for n in inside(statements) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    return {name for n in stores if (name := base(n)) is not None}


def returns(statement: ast.AST) -> bool:
    """Whether there is a return in it."""
    return any(isinstance(n, ast.Return) for n in inside([statement]))


def leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether a break or continue in them belongs to a loop around them, or there is a return."""
    for s in statements:
        if isinstance(s, (ast.Break, ast.Continue, ast.Return)):
            return True
        if isinstance(s, LOOPS):
            if any(map(returns, s.body)) or leaves(s.orelse):
                return True
        elif isinstance(s, ast.If):
            if leaves(s.body) or leaves(s.orelse):
                return True
        elif isinstance(s, ast.With) and leaves(s.body):
            return True
    return False


def live(statements: Sequence[ast.stmt], after: set[str], loop: frozenset[str] = frozenset()) -> set[str]:
    """The names whose values are read from here on, where `after` are read behind the statements, `loop` at or behind the loop around."""
    found = set(after)
    for s in reversed(statements):
        found = _before(s, found, loop)
    return found


def _before(s: ast.stmt, after: set[str], loop: frozenset[str]) -> set[str]:
    if isinstance(s, ast.Return):
        return read(s)
    if isinstance(s, (ast.Break, ast.Continue)):
        return set(loop)
    if isinstance(s, ast.If):
        return read(s.test) | live(s.body, after, loop) | live(s.orelse, after, loop)
    if isinstance(s, ast.While):
        return head(s, after)
    if isinstance(s, ast.For):
        return read(s.iter) | head(s, after)
    if isinstance(s, ast.With):
        found = live(s.body, after, loop)
        for item in reversed(s.items):
            found = (found - (bound(item.optional_vars) if item.optional_vars else set())) | read(item)
        return found
    targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AnnAssign) and s.value is not None else []
    names = {n for t in targets for n in bound(t)}
    if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
        names = {s.name}
    used = read(s)
    if isinstance(s, ast.AugAssign):
        used |= bound(s.target)
    return (after - names) | used


def head(s: ast.For | ast.While, after: set[str]) -> set[str]:
    """The names that are read from the beginning of a loop's turn on, or behind the loop."""
    found = set(after)
    while True:
        turn = live(s.body, found, frozenset(found | after))
        now = found | (turn - bound(s.target) if isinstance(s, ast.For) else turn | read(s.test))
        if now == found:
            return found
        found = now
