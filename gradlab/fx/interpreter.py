"""Running a graph node by node: `Interpreter` on values, `Transformer` on proxies, which makes another graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradlab.fx._symbolic_trace import Tracer
from gradlab.fx.graph import Graph
from gradlab.fx.graph_module import GraphModule, _fetched
from gradlab.fx.node import Argument, Node, map_arg
from gradlab.fx.proxy import Proxy
from gradlab.nn import Module


class Interpreter:
    """Runs a GraphModule's graph. A subclass overrides `run_node`, or the method of a kind of nodes.

    garbage_collect_values: let a value go after its last use. graph: another graph than the module's own.
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module: Any = module
        self.graph: Graph = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        last: dict[Node, Node] = {used: node for node in self.graph.nodes for used in node.all_input_nodes}
        for used, node in last.items():
            self.user_to_last_uses.setdefault(node, []).append(used)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The graph's result for these arguments. initial_env: values of nodes that are known already."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if self.garbage_collect_values:
                for used in self.user_to_last_uses.get(node, ()):
                    del self.env[used]
            if node.op == "output":
                return self.env[node]
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run(*args_list)`, which empties the list, so that arguments are let go as well."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument of `run`, all others for `*args`, or the default. RuntimeError where there is none."""
        if target.startswith("*"):
            return list(self.args_iter)
        for found in self.args_iter:
            return found
        if not args:
            raise RuntimeError(f"Interpreter: no argument for the parameter {target}, which has no default")
        return args[0]

    def get_attr(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What a function returns."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What a method of the first argument returns."""
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What a submodule returns."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute of a dotted name."""
        return _fetched(self.module, target)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments, with values in place of nodes."""
        args, kwargs = self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)
        return args, dict(kwargs)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Nested arguments with values in place of nodes."""

        def value(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(f"Interpreter: {n} uses {used}, which has no value yet; graph.lint() says what is wrong")
            return self.env[used]

        return map_arg(args, value)


class _Appending(Tracer):
    """Makes a new graph from what is done with proxies, whose modules are the old one's."""

    def __init__(self, root: Module, graph: Graph) -> None:
        super().__init__()
        self.root, self.graph = root, graph
        self._paths = {module: path for path, module in root.named_modules()}
        tensors = (*root.named_parameters(), *root.named_buffers())
        self._attributes = {id(tensor): path for path, tensor in tensors}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Makes another GraphModule: the graph runs on proxies, and `transform` gives what came of it. A subclass overrides how nodes run."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.tracer = _Appending(module, self.new_graph)

    def placeholder(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """A parameter of the new graph."""
        return Proxy(self.new_graph.create_node("placeholder", target, args), self.tracer)

    def get_attr(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """An attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule in the new graph."""
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method in the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        placed = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        if not any(node.op == "output" for node in self.module.graph.nodes):
            raise RuntimeError(f"Transformer: the graph of {len(placed)} parameters returns nothing")
        result = super().run(enable_io_processing=False)
        self.new_graph.output(map_arg_proxies(result))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)


def map_arg_proxies(value: Any) -> Argument:
    """Nested results with nodes in place of proxies."""
    from_proxies: Any = Tracer.create_arg
    return from_proxies(_Appending(Module(), Graph()), value)
