"""Passes: a graph in, a graph with the same results out. Each is a small file; `PASSES` names them in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import NamedTuple

from gradlab.graph.ir import Graph
from gradlab.graph.passes.assemble import assemble
from gradlab.graph.passes.common_subexpressions import common_subexpressions
from gradlab.graph.passes.drop_clones import drop_clones
from gradlab.graph.passes.fold_constants import fold_constants
from gradlab.graph.passes.fuse_batch_norm import fuse_batch_norm
from gradlab.graph.passes.fuse_convolution import fuse_convolution
from gradlab.graph.passes.gather_products import gather_products
from gradlab.graph.passes.mask_pooled import mask_pooled
from gradlab.graph.passes.project_tables import project_tables
from gradlab.graph.passes.recompute import recompute
from gradlab.graph.passes.recompute_norms import recompute_norms
from gradlab.graph.passes.rewrite import rewrite

Pass = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {
    "drop_clones": drop_clones,
    "fold_constants": fold_constants,
    "rewrite": rewrite,
    "project_tables": project_tables,
    "assemble": assemble,
    "gather_products": gather_products,
    "common_subexpressions": common_subexpressions,
    "mask_pooled": mask_pooled,
    "fuse_convolution": fuse_convolution,
    "fuse_batch_norm": fuse_batch_norm,
    "recompute_norms": recompute_norms,
    "recompute": recompute,
}

__all__ = ["PASSES", "Pass", "Ran", "optimize"]


class Ran(NamedTuple):
    """What a pass did: the calls before and after it, and its seconds."""

    name: str
    before: int
    after: int
    seconds: float


def optimize(graph: Graph, switches: Mapping[str, bool] | None = None, log: list[Ran] | None = None) -> Graph:
    """Run the passes in order. `switches` turns some off: {"assemble": False}. Raises ValueError for a name that no pass has.

    log: gets an entry for each pass that ran.
    """
    switches = switches or {}
    if unknown := [name for name in switches if name not in PASSES]:
        raise ValueError(f"no pass is called {', '.join(unknown)}; there are {', '.join(PASSES)}")
    for name, run in PASSES.items():
        if switches.get(name, True):
            before, start = len(graph.calls), perf_counter()
            graph = run(graph)
            if log is not None:
                log.append(Ran(name, before, len(graph.calls), perf_counter() - start))
    return graph
