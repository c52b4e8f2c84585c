"""Programs as graphs that Python can read and change, with PyTorch's names: `symbolic_trace` makes a GraphModule of a module.

    traced = gl.fx.symbolic_trace(model)
    for node in traced.graph.nodes:
        if node.target is gl.relu:
            node.target = gl.nn.functional.gelu
    traced.recompile()

Modules of gradlab's stay calls; tensors have no values in a trace, so that a condition on one is a TraceError. To make programs run faster
use `gl.compile`, which takes GraphModules as well.
"""

from __future__ import annotations

from typing import Any

from gradlab.fx import passes as passes
from gradlab.fx._symbolic_trace import (
    PH as PH,
    Tracer as Tracer,
    is_fx_tracing as is_fx_tracing,
    symbolic_trace as symbolic_trace,
    wrap as wrap,
)
from gradlab.fx.graph import Graph as Graph
from gradlab.fx.graph_module import GraphModule as GraphModule
from gradlab.fx.interpreter import Interpreter as Interpreter, Transformer as Transformer
from gradlab.fx.node import Node as Node, has_side_effect as has_side_effect, map_arg as map_arg
from gradlab.fx.proxy import Proxy as Proxy, TraceError as TraceError
from gradlab.fx.subgraph_rewriter import replace_pattern as replace_pattern
from gradlab.tensor.missing_names import absent as _absent


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.fx", name)
