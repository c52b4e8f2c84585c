"""A graph as Python: the text of `forward`, and the objects that its names mean."""

from __future__ import annotations

import linecache
import math
import operator
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import gradlab
from gradlab.device import Device
from gradlab.dtype import DType
from gradlab.fx.node import Node
from gradlab.overrides import resolve_name

if TYPE_CHECKING:
    from gradlab.fx.graph import Graph

BINARY = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "lshift": "<<", "rshift": ">>",
    "and_": "&", "or_": "|", "xor": "^", "matmul": "@", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
}  # fmt: skip
UNARY = {"neg": "-", "invert": "~", "pos": "+"}
IN_PLACE = {f"i{name.rstrip('_')}": sign for name, sign in BINARY.items() if sign not in ("==", "!=", "<", ">", "<=", ">=")}
_numbers = count()


class PythonCode(NamedTuple):
    """src: the text; globals: what its names mean."""

    src: str
    globals: dict[str, Any]


class _Text:
    """The text of one graph."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.globals: dict[str, Any] = {"gradlab": gradlab, "device": Device, "inf": math.inf, "nan": math.nan}
        self.names: dict[int, str] = {}

    def named(self, value: Any, wish: str) -> str:
        """A global name for an object."""
        found = self.names.get(id(value))
        if found is None:
            found = "".join(c if c.isalnum() or c == "_" else "_" for c in wish)
            while found in self.globals:
                found += "_"
            self.globals[found] = value
            self.names[id(value)] = found
        return found

    def function(self, function: Any) -> str:
        public = resolve_name(function)
        if public is not None:
            return f"gradlab{public.removeprefix('torch')}"
        name = getattr(function, "__qualname__", None) or type(function).__name__
        module = getattr(function, "__module__", None)
        if module == "builtins" and "." not in name:
            self.globals[name] = function
            return name
        return self.named(function, f"{module}_{name}" if module else name)

    def value(self, value: Any) -> str:
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple):
            inside = ", ".join(map(self.value, value)) + ("," if len(value) == 1 else "")
            if hasattr(value, "_fields"):
                return f"{self.named(type(value), type(value).__name__)}({inside})"
            return f"({inside})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.value(key)}: {self.value(part)}' for key, part in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
        if value is ...:
            return "..."
        if isinstance(value, DType):
            return f"gradlab.{value.name}"
        if isinstance(value, Device):
            return f"device({str(value)!r})"
        if value is None or type(value) in (bool, int, float, str, bytes, complex, range):
            return repr(value)
        if isinstance(value, (type, FunctionType)) or (callable(value) and hasattr(value, "__name__")):
            return self.function(value)
        return self.named(value, f"_constant_{type(value).__name__}_{len(self.names)}")

    def call(self, node: Node, skipped: int = 0) -> str:
        parts = [*map(self.value, node.args[skipped:]), *(f"{key} = {self.value(part)}" for key, part in node.kwargs.items())]
        return f"({', '.join(parts)})"

    def line(self, node: Node) -> str:
        name, target = node.name, node.target
        if node.op == "get_attr":
            return f"{name} = {_member(self.root, str(target))}"
        if node.op == "call_module":
            return f"{name} = {_member(self.root, str(target))}{self.call(node)}"
        if node.op == "call_method":
            return f"{name} = {self.value(node.args[0])}.{target}{self.call(node, 1)}"
        if node.op == "output":
            return f"return {self.value(node.args[0])}"
        plain = not node.kwargs
        known = getattr(target, "__name__", "") if getattr(operator, getattr(target, "__name__", "?"), None) is target else ""
        args = [self.value(arg) for arg in node.args]
        if plain and known in BINARY and len(args) == 2:
            return f"{name} = {args[0]} {BINARY[known]} {args[1]}"
        if plain and known in UNARY and len(args) == 1:
            return f"{name} = {UNARY[known]}{args[0]}"
        if plain and known in IN_PLACE and len(args) == 2 and isinstance(node.args[0], Node):
            return f"{args[0]} {IN_PLACE[known]}= {args[1]};  {name} = {args[0]}"
        if plain and known == "getitem" and len(args) == 2:
            return f"{name} = {args[0]}[{args[1]}]"
        if plain and target is getattr and len(args) == 2 and str(node.args[1]).isidentifier():
            return f"{name} = {args[0]}.{node.args[1]}"
        return f"{name} = {self.function(target)}{self.call(node)}"


def _member(root: str, path: str) -> str:
    for part in path.split("."):
        root = f"{root}.{part}" if part.isidentifier() else f'getattr({root}, "{part}")'
    return root


def python_code(graph: Graph, root_module: str = "self") -> PythonCode:
    """The text of a function `forward` that computes what the graph says. A value is let go in the line that uses it last."""
    text = _Text(root_module)
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            last[used] = node
    parameters, body = [root_module], []
    for node in graph.nodes:
        if node.op == "placeholder":
            target = str(node.target)
            plain = target.lstrip("*")
            default = f" = {text.value(node.args[0])}" if node.args else ""
            parameters.append(f"{target}{default}" if plain == target else target)
            if plain != node.name:
                body.append(f"{node.name} = {plain}")
        else:
            line = text.line(node)
            if node.op != "output":
                unused = [] if node.users or "; " in line else [node.name]
                names = [*(used.name for used in node.all_input_nodes if last[used] is node), *unused]
                line += f";  {' = '.join(names)} = None" if names else ""
            body.append(line)
    lines = "\n".join(f"    {line}" for line in body) or "    pass"
    return PythonCode(f"def forward({', '.join(parameters)}):\n{lines}\n", text.globals)


def compiled(code: PythonCode) -> Any:
    """The function of a text, whose lines a traceback can show."""
    place = f"<gradlab.fx graph {next(_numbers)}>"
    linecache.cache[place] = (len(code.src), None, code.src.splitlines(keepends=True), place)
    space = dict(code.globals)
    exec(compile(code.src, place, "exec"), space)
    return space["forward"]
