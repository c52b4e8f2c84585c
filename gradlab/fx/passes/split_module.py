"""A graph in parts: `split_module` makes a submodule of each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from gradlab.fx.graph import Graph
from gradlab.fx.graph_module import GraphModule
from gradlab.fx.node import Node, map_arg
from gradlab.nn import Module


class Partition:
    """The nodes of one part, what they take from others, and what others take from them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.needs: dict[str, None] = {}  # parts that run before


def split_module(
    m: GraphModule, root_m: Module | None, split_callback: Callable[[Node], int | str], qualname_map: dict[str, str] | None = None,
    keep_original_order: bool = False, keep_original_node_name: bool = False, keep_original_input_name: bool = True,
    *, partition_affix: str | None = None, tuple_return: bool = False,
) -> GraphModule:  # fmt: skip
    """A module that calls a submodule `submod_<part>` for each part, in an order in which all has been computed that a part takes.

    split_callback: the part of a node. root_m: accepted, m has what its graph refers to. qualname_map: gets the new dotted name of each
    submodule that is called, with its old one. keep_original_order: parts run as they first appear. keep_original_node_name: copies have
    their nodes' names. partition_affix: the names are `submod_<affix>_<part>`. tuple_return: parts that give one value give a tuple, too.
    RuntimeError where two parts need each other.

    >>> from gradlab import fx
    >>> whole = fx.symbolic_trace(gl.nn.Sequential(gl.nn.Linear(2, 3), gl.nn.ReLU(), gl.nn.Linear(3, 1)))
    >>> parts = fx.passes.split_module.split_module(whole, None, lambda node: int(node.target == "2"))
    >>> [name for name, _ in parts.named_children()]
    ['submod_0', 'submod_1']
    """
    parts: dict[str, Partition] = {}
    of: dict[Node, str] = {}
    moved = [node for node in m.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    for node in moved:
        name = of[node] = str(split_callback(node))
        parts.setdefault(name, Partition(name)).nodes.append(node)
    for node in moved:
        for used in node.all_input_nodes:
            if of.get(used) != of[node]:
                parts[of[node]].inputs[used] = None
                if used in of:
                    parts[of[used]].outputs[used] = None
                    parts[of[node]].needs[of[used]] = None
    returned = m.graph.output_node()
    for used in returned.all_input_nodes:
        if used in of:
            parts[of[used]].outputs[used] = None
    affix = "" if partition_affix is None else f"{partition_affix}_"
    root: dict[str, Any] = {}
    graph = Graph()
    here: dict[Node, Node] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            here[node] = graph.node_copy(node)
            if node.op == "get_attr":
                root[str(node.target)] = _found(m, str(node.target))
    for name in _ordered(parts, keep_original_order):
        part, title = parts[name], f"submod_{affix}{name}"
        root[title] = _submodule(m, part, title, keep_original_node_name, tuple_return, qualname_map)
        call = graph.call_module(title, tuple(here[used] for used in part.inputs))
        if len(part.outputs) == 1 and not tuple_return:
            here[next(iter(part.outputs))] = call
        else:
            here |= {node: graph.call_function(operator.getitem, (call, i)) for i, node in enumerate(part.outputs)}
    graph.output(map_arg(returned.args[0], lambda n: here[n]))
    made = GraphModule(root, graph, type(m).__name__)
    made.training = m.training
    return made


def _found(m: Any, path: str) -> Any:
    for part in path.split("."):
        m = getattr(m, part)
    return m


def _ordered(parts: dict[str, Partition], as_they_appear: bool) -> list[str]:
    """The parts, each behind those that it needs; of several that could be next the first that appears."""
    if as_they_appear:
        return list(parts)
    done: dict[str, None] = {}
    while len(done) < len(parts):
        ready = [name for name, part in parts.items() if name not in done and all(need in done for need in part.needs)]
        if not ready:
            raise RuntimeError(f"split_module: parts {', '.join(n for n in parts if n not in done)} need each other's results")
        done[ready[0]] = None
    return list(done)


def _submodule(m: GraphModule, part: Partition, title: str, same_names: bool, always_tuple: bool, names: Any) -> GraphModule:
    """The module of one part."""
    graph = Graph()
    here = {used: graph.placeholder(used.name) for used in part.inputs}
    root: dict[str, Any] = {}
    for node in part.nodes:
        copy = here[node] = graph.node_copy(node, lambda n: here[n])
        if same_names:
            copy.name = node.name
        if node.op == "call_module":
            root[str(node.target)] = _found(m, str(node.target))
            if names is not None:
                names[f"{title}.{node.target}"] = str(node.target)
    results = tuple(here[node] for node in part.outputs)
    graph.output(results[0] if len(results) == 1 and not always_tuple else results)
    made = GraphModule(root, graph)
    made.training = m.training
    return made
