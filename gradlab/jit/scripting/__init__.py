"""`jit.script`: ordinary Python whose `if`, `while` and `for` on tensors become `gl.cond` and `gl.while_loop` in a trace.

`check.py` refuses what has no meaning there, `names.py` says which variables a block gives to what follows, `rewrite.py` makes the blocks
functions, `runtime.py` is what these call: Python's own control flow for Python's values, the staged functions for tensors of a trace.
"""

from __future__ import annotations

from gradlab.jit.scripting.function import ScriptFunction, script
from gradlab.jit.scripting.runtime import ScriptError

__all__ = ["ScriptError", "ScriptFunction", "script"]
