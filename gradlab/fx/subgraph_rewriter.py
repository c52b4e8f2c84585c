"""Replacing parts of a graph that look like a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gradlab.fx._symbolic_trace import symbolic_trace
from gradlab.fx.graph import Graph
from gradlab.fx.graph_module import GraphModule
from gradlab.fx.node import Node, map_arg
from gradlab.nn import Module


class Match(NamedTuple):
    """A part that was replaced. anchor: its node for the pattern's last; nodes_map: from the pattern's nodes to its own."""

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace each part of the graph that does what `pattern` does by what `replacement` does: functions, modules or GraphModules with the
    same parameters. Parts do not overlap, and nothing else uses what is inside of one. `gm` is compiled anew. Returns what was found.
    """
    wanted, given = _graph_of(pattern), _graph_of(replacement)
    last = wanted.output_node()
    outputs = [last.args[0]] if isinstance(last.args[0], Node) else list(last.args[0])
    if not all(isinstance(node, Node) and node.op != "placeholder" for node in outputs):
        raise ValueError("replace_pattern: the pattern returns results of what it calls")
    matches: list[Match] = []
    taken: set[Node] = set()
    for node in list(gm.graph.nodes):
        found = _match(outputs, node, wanted)
        if found is not None and not taken & set(_inside(found)):
            taken.update(_inside(found))
            matches.append(Match(node, found))
    replaced: dict[Node, Node] = {}
    for match in matches:
        _replace(gm, match, outputs, given, replaced)
    gm.recompile()
    return matches


def _graph_of(given: Any) -> Graph:
    if isinstance(given, GraphModule):
        return given.graph
    return given if isinstance(given, Graph) else symbolic_trace(given).graph


def _inside(found: dict[Node, Any]) -> list[Node]:
    return [node for pattern, node in found.items() if pattern.op != "placeholder"]


def _match(outputs: list[Node], anchor: Node, wanted: Graph) -> dict[Node, Any] | None:
    """The nodes for the pattern's, its first output being `anchor`."""
    found: dict[Node, Any] = {}
    if not _same(outputs[0], anchor, found):
        return None
    for output in outputs[1:]:
        if output not in found and not _found_elsewhere(output, anchor, found):
            return None
    own = set(_inside(found))
    for pattern, node in found.items():
        if pattern.op != "placeholder" and pattern not in outputs and not own >= set(node.users):
            return None
    return found


def _found_elsewhere(output: Node, anchor: Node, found: dict[Node, Any]) -> bool:
    """Look for another output of the pattern, which its first one does not lead to."""
    for node in anchor.graph.nodes:
        trial = dict(found)
        if node not in found.values() and _same(output, node, trial):
            found.update(trial)
            return True
    return False


def _same(pattern: Any, node: Any, found: dict[Node, Any]) -> bool:
    if not isinstance(pattern, Node):
        if isinstance(pattern, (list, tuple)):
            return isinstance(node, (list, tuple)) and len(pattern) == len(node) and all(map(_same, pattern, node, [found] * len(node)))
        if isinstance(pattern, dict):
            return isinstance(node, dict) and pattern.keys() == node.keys() and all(_same(pattern[k], node[k], found) for k in pattern)
        return bool(type(pattern) is type(node) and pattern == node)
    if pattern in found:
        return found[pattern] is node
    if pattern.op == "placeholder":
        found[pattern] = node
        return True
    if not isinstance(node, Node) or (pattern.op, len(pattern.args), set(pattern.kwargs)) != (node.op, len(node.args), set(node.kwargs)):
        return False
    if pattern.op == "call_module" and pattern.graph.owning_module is not None and node.graph.owning_module is not None:
        kinds = [type(n.graph.owning_module.get_submodule(str(n.target))) for n in (pattern, node)]
        if kinds[0] is not kinds[1]:
            return False
    elif pattern.target != node.target or pattern.op == "output":
        return False
    found[pattern] = node
    return _same(list(pattern.args), list(node.args), found) and _same(dict(pattern.kwargs), dict(node.kwargs), found)


def _replace(gm: GraphModule, match: Match, outputs: list[Node], given: Graph, replaced: dict[Node, Node]) -> None:
    current: Callable[[Any], Any] = lambda n: map_arg(n, lambda x: replaced.get(x, x))
    parameters = [node for node in next(iter(match.nodes_map)).graph.nodes if node.op == "placeholder"]
    own = _inside(match.nodes_map)
    order = {node: place for place, node in enumerate(gm.graph.nodes)}
    values: dict[Node, Any] = {}
    for theirs, ours in zip((n for n in given.nodes if n.op == "placeholder"), parameters, strict=True):
        values[theirs] = current(match.nodes_map.get(ours))
    with gm.graph.inserting_before(max((n for n in own if n in order), key=order.__getitem__)):
        result: Any = None
        for node in given.nodes:
            if node.op == "output":
                result = map_arg(node.args[0], values.__getitem__)
            elif node.op != "placeholder":
                values[node] = gm.graph.node_copy(node, values.__getitem__)
                if node.op in ("call_module", "get_attr"):
                    _bring(gm, given.owning_module, str(node.target))
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    if len(results) != len(outputs):
        raise ValueError(f"replace_pattern: the pattern returns {len(outputs)} results, the replacement {len(results)}")
    for output, new in zip(outputs, results, strict=True):
        old = match.nodes_map[output]
        old.replace_all_uses_with(new)
        replaced[old] = new
    for node in sorted(own, key=order.__getitem__, reverse=True):
        if not node.users:
            gm.graph.erase_node(node)


def _bring(gm: GraphModule, owner: Module | None, path: str) -> None:
    """Give the module what the replacement refers to, where it has nothing of that name."""
    try:
        gm.get_submodule(path)
    except AttributeError:
        found: Any = owner
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, Module):
            gm.add_submodule(path, found)
        elif not hasattr(gm, path):
            setattr(gm, path, found)
