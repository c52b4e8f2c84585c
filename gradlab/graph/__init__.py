"""Static graphs: a trace of ordinary gradlab code, as a straight-line program of rows that can be run again.

`trace(function, *example)` runs the function once over Symbols and returns a `Program`.
"""

from __future__ import annotations

from gradlab.graph.calls.decorator import compile
from gradlab.graph.ir.dims import unknown
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.staging.program import Program, trace
from gradlab.graph.staging.symbol import Symbol, TraceError

__all__ = ["Call", "Graph", "Program", "Symbol", "TraceError", "Value", "compile", "trace", "unknown"]
