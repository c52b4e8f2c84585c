"""Graphs: nodes in the order in which they run, and the ways to add, change and remove them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from gradlab.fx.code import PythonCode, python_code
from gradlab.fx.naming import Names, snake_case
from gradlab.fx.node import Argument, Node, Target, map_arg
from gradlab.utils.words import in_columns


class _Nodes:
    """The nodes of a graph, as they are now: a node that is erased, or added, while they are gone through is passed over, or met."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self.graph, self.backwards = graph, backwards

    def __len__(self) -> int:
        return self.graph._count

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev if self.backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.backwards else node._next

    def __reversed__(self) -> Iterator[Node]:
        return iter(_Nodes(self.graph, not self.backwards))


class _Place:
    """Where new nodes go; within a `with` block, or from now on."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.graph._insert = self.before


class Graph:
    """A list of nodes, which a GraphModule runs as its `forward`.

    owning_module: the GraphModule that has it.

    >>> from gradlab.fx import Graph, GraphModule
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(gl.relu, (x,))
    >>> _ = graph.output(y)
    >>> GraphModule(gl.nn.Module(), graph)(gl.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: dict[str, Any] | None = None) -> None:
        self._root = Node(self, "", "output", "root", (), {})
        self._count = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._names = Names()
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras

    @property
    def nodes(self) -> _Nodes:
        """The nodes in their order; `reversed(graph.nodes)`, `len(graph.nodes)`."""
        return _Nodes(self)

    def output_node(self) -> Node:
        """The node that returns."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind and, if one is given, of a target."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    # ------------------------------------------------------------ adding

    def create_node(
        self, op: str, target: Target, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node of any kind, at the place where nodes are inserted: the end at first. ValueError for an unknown kind."""
        wish = name if name is not None else snake_case(_spoken(target))
        node = Node(self, self._names.new(wish), op, target, args or (), kwargs or {}, type_expr)
        self._insert(node)
        self._count += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty) -> Node:
        """A parameter of `forward`; `*args` and `**kwargs` by such names."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """An attribute of the module, by its dotted name."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None, type_expr: Any = None
    ) -> Node:
        """A call of a submodule, by its dotted name."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None, type_expr: Any = None
    ) -> Node:
        """A call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """The end: what `forward` returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node) -> Node:
        """A copy of a node of another graph, whose arguments `arg_transform` finds in this one."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy all nodes of another graph here, but its output: the value that it returns, in this graph (and the output node itself).

        val_map: from nodes there to nodes here, those that shall not be copied too; it gets the copies.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def inserting_before(self, n: Node | None = None) -> _Place:
        """Insert nodes before that one (at the beginning, for None); a context manager, or from now on."""
        if n is None:
            return self.inserting_after(self._root)
        self._own(n, "inserting_before")
        return _Place(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _Place:
        """Insert nodes after that one, each after the last (at the end, for None); a context manager, or from now on."""
        if n is None:
            return _Place(self, self._root.prepend)
        self._own(n, "inserting_after")
        last = [n]

        def insert(node: Node) -> None:
            last[0].append(node)
            last[0] = node

        return _Place(self, insert)

    def _own(self, node: Node, name: str) -> None:
        if node.graph is not self:
            raise ValueError(f"{name}: {node} is of another graph")

    # ------------------------------------------------------------ removing

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node. RuntimeError where others use it still."""
        self._own(to_erase, "erase_node")
        if to_erase.users:
            raise RuntimeError(f"erase_node: {to_erase} is used by {', '.join(map(str, to_erase.users))}; let them use another node first")
        if to_erase._erased:
            return
        to_erase._remove()
        to_erase._erased = True
        self._count -= 1
        to_erase.args, to_erase.kwargs = (), {}

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove nodes whose result nobody uses and that change nothing; whether there were any. Random ones are removed, too."""
        impure = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """RuntimeError where nodes come after those that use them, are of another graph, share a name, or name what the module has not."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"lint: {node} belongs to another graph")
            for used in node.all_input_nodes:
                if used not in seen:
                    why = "is of another graph" if used.graph is not self else "was erased" if used._erased else "comes later"
                    raise RuntimeError(f"lint: {node} uses {used}, which {why}")
            if node.name in names:
                raise RuntimeError(f"lint: two nodes are called {node.name}")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._look_up(node)

    def _look_up(self, node: Node) -> None:
        found = self.owning_module
        for part in str(node.target).split("."):
            if not hasattr(found, part):
                raise RuntimeError(f"lint: {node} is {node.op} of {node.target!r}, and {type(found).__name__} has no {part!r}")
            found = getattr(found, part)

    # ------------------------------------------------------------ as text

    def python_code(self, root_module: str = "self") -> PythonCode:
        """The text of `forward`, and what its names mean."""
        return python_code(self, root_module)

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        print(in_columns([rows[0], ["-" * width for width in widths], *rows[1:]]))

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        parameters = ", ".join(f"%{node.name}" for node in self.nodes if node.op == "placeholder")
        return "\n    ".join([f"graph({parameters}):", *lines])

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        """A copy of the nodes. What else they hold, functions and constants, is shared."""
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        found: dict[Node, Node] = {}
        returned = made.graph_copy(self, found, return_output_node=True)
        if returned is not None:
            value, node = returned
            made.output(value, node.type).meta = copy.copy(node.meta)
        return made


def _spoken(target: Target) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    return name[2:-2] if name.startswith("__") and name.endswith("__") and len(name) > 4 else name
