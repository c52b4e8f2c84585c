"""Passes: a graph in, a graph with the same results out. Each is a small file; `PASSES` names them in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradlab.graph.ir import Graph
from gradlab.graph.passes.assemble import assemble
from gradlab.graph.passes.gather_products import gather_products

Pass = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {
    "assemble": assemble,
    "gather_products": gather_products,
}

__all__ = ["PASSES", "Pass", "optimize"]


def optimize(graph: Graph, switches: Mapping[str, bool] | None = None) -> Graph:
    """Run the passes in order. `switches` turns some off: {"assemble": False}. Raises ValueError for a name that no pass has."""
    switches = switches or {}
    if unknown := [name for name in switches if name not in PASSES]:
        raise ValueError(f"no pass is called {', '.join(unknown)}; there are {', '.join(PASSES)}")
    for name, run in PASSES.items():
        if switches.get(name, True):
            graph = run(graph)
    return graph
