"""Control flow that a trace keeps: `cond`, `switch`, `while_loop`, `scan`.

In a trace each is one call of the graph with sub-graphs (`Part`) for its bodies: `body_tracer.py` traces a body, `forward_backward.py`
splits what is traced with its gradients, `scanning.py`, `branching.py` and `looping.py` write the calls and run them, `functions.py` is
what users call.
"""

from __future__ import annotations

from gradlab.graph.control.functions import cond, scan, switch, while_loop

__all__ = ["cond", "scan", "switch", "while_loop"]
