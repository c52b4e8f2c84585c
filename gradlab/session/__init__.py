"""Define-then-run, TensorFlow 1's way: a `Graph` is written down in a block, and a `Session` runs parts of it.

It stands on the same graphs, passes and executables as `gl.compile`. `graph.py` is the graph as users see it, `defining.py` and
`training.py` its tracer, `variables.py` what it is fed and keeps, `pruning.py` which part a run needs, `execution.py` one program,
`session.py` the session. docs/define-then-run.md says how it is used.
"""

from __future__ import annotations

from gradlab.session.graph import Graph, get_default_graph
from gradlab.session.nodes import FeedError, FetchError, Node, Operation, UninitializedError
from gradlab.session.session import Session
from gradlab.session.variables import (
    Variable,
    assign,
    assign_add,
    assign_sub,
    global_variables_initializer,
    identity,
    placeholder,
    variables_initializer,
)

__all__ = [
    "FeedError", "FetchError", "Graph", "Node", "Operation", "Session", "UninitializedError", "Variable", "assign", "assign_add",
    "assign_sub", "get_default_graph", "global_variables_initializer", "identity", "placeholder", "variables_initializer",
]  # fmt: skip
