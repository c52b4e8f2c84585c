"""Programs that leave Python: `trace` and `script` make them of functions and modules, `save` and `load` keep them in files.

docs/jit.md says what they hold and what scripts may say.
"""

from __future__ import annotations

from gradlab.jit.annotations import (
    Final,
    _overload as _overload,
    _overload_method as _overload_method,
    _script_if_tracing as _script_if_tracing,
    annotate,
    export,
    freeze,
    ignore,
    is_scripting,
    is_tracing,
    optimize_for_inference,
    script_if_tracing,
    trace_module,
    unused,
)
from gradlab.jit.module import ScriptModule
from gradlab.jit.portable import LoadError
from gradlab.jit.reader import load
from gradlab.jit.scripting import ScriptError, ScriptFunction, script
from gradlab.jit.trace import trace
from gradlab.jit.writer import save

__all__ = [
    "Final", "LoadError", "ScriptError", "ScriptFunction", "ScriptModule", "annotate", "export", "freeze", "ignore", "is_scripting",
    "is_tracing", "load", "optimize_for_inference", "save", "script", "script_if_tracing", "trace", "trace_module", "unused",
]  # fmt: skip
