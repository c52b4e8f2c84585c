"""What a script was called with: shapes and dtypes, from which `save` makes an example to trace."""

from __future__ import annotations

from typing import Any

from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.jit.module import ScriptModule
from gradlab.jit.trace import trace
from gradlab.nn.module import Module
from gradlab.tensor.creation import zeros


class Calls:
    """The eager calls of a script: its last arguments without their memory, and which sizes have differed."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args and isinstance(args[0], Module):  # a method's
            args = args[1:]
        tensors, self.structure = flatten((args, kwargs))
        self.specs = [(tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors]
        self.differed: set[tuple[int, int]] = set()  # a tensor and a dimension

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Calls:
        """These calls and one more; only the new one where its arguments are not alike."""
        new = Calls(args, kwargs)
        if [len(spec[0]) for spec in new.specs] == [len(spec[0]) for spec in self.specs]:
            pairs = enumerate(zip(self.specs, new.specs, strict=True))
            new.differed = self.differed | {(i, d) for i, (a, b) in pairs for d in range(len(a[0])) if a[0][d] != b[0][d]}
        return new

    def traced(self, script: Any) -> ScriptModule:
        """The script's program for such calls. Sizes that have differed are unknown in it, and the first dimension where that can be."""
        example = [zeros(shape, dtype=dtype, device=device, requires_grad=grad) for shape, dtype, device, grad in self.specs]
        args, kwargs = unflatten(self.structure, example)
        batch = next((shape[0] for shape, *_ in self.specs if shape), None)
        first = {(i, 0) for i, (shape, *_) in enumerate(self.specs) if shape and shape[0] == batch}
        try:
            return self._traced(script, args, kwargs, self.differed | first)
        except (TraceError, ValueError, TypeError, NotImplementedError):
            return self._traced(script, args, kwargs, self.differed)

    def _traced(self, script: Any, args: Any, kwargs: Any, unknown: set[tuple[int, int]]) -> ScriptModule:
        dynamic: dict[int, dict[int, str]] = {}
        for i, dim in sorted(unknown):
            dynamic.setdefault(i, {})[dim] = f"size{self.specs[i][0][dim]}"
        return trace(script, args, example_kwarg_inputs=kwargs, dynamic=dynamic, check_trace=False)
