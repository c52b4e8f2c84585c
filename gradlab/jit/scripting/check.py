"""What scripts may not say. Each refusal names the line, quotes it, and says what to write."""

from __future__ import annotations

import ast
from typing import NoReturn

from gradlab.jit.scripting.names import LOOPS, assigned, inside, read
from gradlab.jit.scripting.runtime import ScriptError, place

REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try", "test for the case with an if, or catch outside of the script"),
    ast.TryStar: ("try", "test for the case with an if, or catch outside of the script"),
    ast.Yield: ("yield", "return the values in a tuple, or stack them"),
    ast.YieldFrom: ("yield from", "return the values in a tuple, or stack them"),
    ast.Await: ("await", "scripts compute at once: await outside of the script"),
    ast.AsyncFor: ("async for", "scripts compute at once: await outside of the script"),
    ast.AsyncWith: ("async with", "scripts compute at once: await outside of the script"),
    ast.AsyncFunctionDef: ("async def", "define the function outside of the script"),
    ast.Global: ("global", "return the value, and assign it outside of the script"),
    ast.Nonlocal: ("nonlocal", "return the value, and assign it outside of the script"),
    ast.Delete: ("del", "leave the variable alone: what is not read any more is not kept"),
    ast.Match: ("match", "write if and elif"),
    ast.ClassDef: ("class", "define the class outside of the script"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
}


def refuse(file: str, node: ast.AST, what: str, instead: str) -> NoReturn:
    """Raise ScriptError for a node."""
    raise ScriptError(f"jit.script: {what} cannot be part of a script; {instead}{place(file, getattr(node, 'lineno', 0))}")


def check(file: str, function: ast.FunctionDef) -> None:
    """Raise ScriptError for the first thing in the function that scripts do not have."""
    blocks = [n for n in inside(function.body) if isinstance(n, (ast.If, *LOOPS))]
    changed: set[str] = set()
    for block in blocks:
        changed |= assigned([block])
    for node in inside(function.body):
        if type(node) in REFUSED:
            what, instead = REFUSED[type(node)]
            refuse(file, node, what, instead)
        if isinstance(node, LOOPS) and node.orelse:
            refuse(file, node.orelse[0], "the else of a loop", "write what it does behind the loop, under an if")
        if isinstance(node, ast.NamedExpr):
            refuse(file, node, "an assignment inside an expression (:=)", "assign on a line of its own")
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            own = {a.arg for a in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs)}
            body: list[ast.AST] = list(node.body) if isinstance(node, ast.FunctionDef) else [node.body]
            inner = assigned(node.body) if isinstance(node, ast.FunctionDef) else set()
            if names := sorted((read(*body) - own - inner) & changed):
                refuse(
                    file, node, f"a function inside the script that reads {', '.join(names)}, which an if or a loop assigns,",
                    "pass the value as an argument",
                )  # fmt: skip
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            middle = node.comparators[:-1]
            if not all(isinstance(m, (ast.Name, ast.Constant, ast.Attribute, ast.Subscript)) for m in middle):
                refuse(
                    file, node, "a chain of comparisons around a computed value", "assign the value first, or join two comparisons by and"
                )
    for block in blocks:
        for node in inside([block]):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args else ""
            if isinstance(node, ast.Call) and name in ("super", "locals", "vars"):
                refuse(file, node, f"{name}() inside an if or a loop", "call it before, and use its result")
