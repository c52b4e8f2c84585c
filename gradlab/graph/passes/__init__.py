"""Passes: a graph in, a graph with the same results out. Each is a small file; `PASSES` names them in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from gradlab.backends.native import compiler
from gradlab.graph.ir.graph import Call, Graph
from gradlab.graph.passes.assemble import assemble
from gradlab.graph.passes.channels_last import channels_last
from gradlab.graph.passes.common_subexpressions import common_subexpressions
from gradlab.graph.passes.copy_shared_memory import keep_apart
from gradlab.graph.passes.delay_lookups import look_up_late
from gradlab.graph.passes.drop_clones import drop_clones
from gradlab.graph.passes.fold_constants import fold_constants
from gradlab.graph.passes.fuse_batch_norm import fuse_batch_norm
from gradlab.graph.passes.fuse_convolution import fuse_convolution
from gradlab.graph.passes.fuse_embedding import fuse_embedding
from gradlab.graph.passes.fuse_pooling import fuse_pooling
from gradlab.graph.passes.fuse_residual_norm import fuse_residual_norm
from gradlab.graph.passes.fuse_statistics import fuse_statistics
from gradlab.graph.passes.gather_products import gather_products
from gradlab.graph.passes.join_messages import join_messages
from gradlab.graph.passes.join_steps import join_steps
from gradlab.graph.passes.mask_pooled import mask_pooled
from gradlab.graph.passes.overlap_cats import overlap_cats
from gradlab.graph.passes.project_tables import project_tables
from gradlab.graph.passes.recompute import recompute
from gradlab.graph.passes.recompute_norms import recompute_norms
from gradlab.graph.passes.simplify import rewrite
from gradlab.graph.passes.widen_lowered import widen_lowered

Pass = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {
    "widen_lowered": widen_lowered,
    "drop_clones": drop_clones,
    "fold_constants": fold_constants,
    "rewrite": rewrite,
    "project_tables": project_tables,
    "assemble": assemble,
    "gather_products": gather_products,
    "common_subexpressions": common_subexpressions,
    "overlap_cats": overlap_cats,
    "join_messages": join_messages,
    "look_up_late": look_up_late,
    "mask_pooled": mask_pooled,
    "fuse_convolution": fuse_convolution,
    "fuse_pooling": fuse_pooling,
    "fuse_batch_norm": fuse_batch_norm,
    "fuse_statistics": fuse_statistics,
    "fuse_residual_norm": fuse_residual_norm,
    "fuse_embedding": fuse_embedding,
    "recompute_norms": recompute_norms,
    "recompute": recompute,
    "channels_last": channels_last,
    "join_steps": join_steps,
}

# What pays where loops are machine code, and costs whole passes through memory in NumPy.
MACHINE_CODE = ("fuse_pooling", "fuse_batch_norm", "fuse_statistics", "recompute_norms", "recompute", "channels_last")

__all__ = ["PASSES", "Pass", "Ran", "bodies", "operations", "optimize"]


class Ran(NamedTuple):
    """What a pass did: the calls before and after it, and its seconds."""

    name: str
    before: int
    after: int
    seconds: float


def optimize(graph: Graph, switches: Mapping[str, bool] | None = None, log: list[Ran] | None = None) -> Graph:
    """Run the passes in order, then over the bodies of control flow. `switches` turns some off: {"assemble": False}.

    log: gets an entry for each pass that ran over each graph.
    Raises ValueError for a name that no pass has.
    """
    switches = switches or {}
    if unknown := [name for name in switches if name not in PASSES]:
        raise ValueError(f"no pass is called {', '.join(unknown)}; there are {', '.join(PASSES)}")
    interpreted = graph.device.type == "cpu" and not compiler.available()
    for name, run in PASSES.items():
        if switches.get(name, not (interpreted and name in MACHINE_CODE)):
            before, start = len(graph.calls), perf_counter()
            graph = run(graph)
            if log is not None:
                log.append(Ran(name, before, len(graph.calls), perf_counter() - start))
    for body in bodies(graph.calls):
        body.optimize(switches, log)
    return keep_apart(graph)


def bodies(calls: Sequence[Call]) -> list[Any]:
    """The sub-graphs (`Part`) of control-flow calls, not those inside of them."""
    return [part for call in calls if "flow" in call.params for part in call.params["flow"].bodies]


def operations(calls: Sequence[Call], source: bool = False) -> list[Call]:
    """The calls and those of the bodies inside of them, after the passes or (source) as they were traced."""
    found = list(calls)
    for body in bodies(calls):
        found += operations((body.source if source else body.graph).calls, source)
    return found
