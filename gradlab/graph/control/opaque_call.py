"""A function of tensors that a trace does not look into: one call, which runs the Python code as it is each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd.base import version_of
from gradlab.autograd.mode import Mode, enter, leave
from gradlab.autograd.record import refresh, wrap
from gradlab.graph.control.body_call import Part, copy, staged
from gradlab.graph.control.nesting import specs_of, tensors_of, text
from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.spec import Spec
from gradlab.tensor.creation import empty

_plain = Mode(recording=False)


def row_name(name: str) -> str:
    """What the row of an operation "namespace::operation" is called."""
    return name.replace("::", "__")


class Opaque:
    """Runs a function of tensors. Inputs: the tensors in its arguments, each once; outputs: those of its result, then the inputs that it
    writes to.

    arguments: the structure of its arguments. places: the number of the input that stands at each place for a tensor in them. written: the
    numbers of the inputs that it writes to.
    """

    bodies: Sequence[Part] = ()

    def __init__(
        self, name: str, function: Callable[..., Any], arguments: Any, places: Sequence[int], written: Sequence[int],
        specs: Sequence[Spec], structure: Any,
    ) -> None:  # fmt: skip
        self.name, self.kind = name, row_name(name)
        self.function, self.arguments, self.places, self.written = function, arguments, places, written
        self.specs, self.structure = specs, structure

    @property
    def grad(self) -> dict[str, Callable[..., Any]]:
        """Of the row: what a program that is differentiated by its rows, as those of `jit.trace` are, meets."""

        def refuse(xs_spec: Any) -> Any:
            raise RuntimeError(
                f"{self.name}: it runs Python code, through which a program of jit.trace has no gradient; use gl.compile, which asks "
                f"register_autograd's function, or leave the call out of the trace"
            )

        return {"xs": refuse}

    def run(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run it outside of every graph and trace. TypeError or ValueError where the result is not what its fake form said."""
        token = enter(_plain)
        try:
            given = [wrap(a) for a in inputs]
            for i in self.written:
                given[i] = given[i].clone()
            found, structure = flatten(_called(self.function, self.arguments, [given[i] for i in self.places]))
            if self.specs and structure != self.structure:
                raise TypeError(f"{self.name}: what it returns nests otherwise than what register_fake's function returned")
            for got, want in zip(specs_of(found), self.specs, strict=False):
                if got != want:
                    raise ValueError(f"{self.name}: it returned {text(got)}, but register_fake's function {text(want)}")
            results = [*found[: len(self.specs)], *(given[i] for i in self.written)]
            for target, tensor in zip(outs, results, strict=True):
                refresh(tensor)
                copy(target, tensor._array)
        finally:
            leave(token)

    def __repr__(self) -> str:
        return f"<{self.name}>"


def _called(function: Callable[..., Any], arguments: Any, tensors: list[Any]) -> Any:
    values, named = unflatten(arguments, tensors)
    return function(*values, **named)


def opaque_call(
    name: str, function: Callable[..., Any], fake: Callable[..., Any] | None, values: tuple[Any, ...], named: dict[str, Any],
    changed: Sequence[Any],
) -> Any:  # fmt: skip
    """Write a call of the function into the trace that is going on.

    fake: the same for tensors without values; it says how large the results are. None: there are none.
    changed: those of the arguments that the function writes to. TraceError where another argument shares the memory of such a tensor: in a
    trace, which has no memory, the function would not see its own write there.
    """
    leaves, arguments = flatten((list(values), named))
    tensors, targets = list(dict.fromkeys(leaves)), {id(t) for t in flatten(list(changed))[0]}
    numbers = {id(t): i for i, t in enumerate(tensors)}
    for t in tensors:
        refresh(t)
        if id(t) in targets and any(x is not t and version_of(x) is version_of(t) for x in tensors):
            raise TraceError(
                f"{name}: it writes to a tensor of shape {tuple(t._array.shape)} that shares memory with another of its arguments, which "
                f"cannot be traced; pass a clone() of that"
            )
    specs: list[Spec] = []
    structure: Any = None
    if fake is not None:
        token = enter(_plain)
        try:
            shapes = [empty(s.shape, dtype=s.dtype, device="meta") for s in specs_of(tensors)]
            shaped = _called(fake, arguments, [shapes[numbers[id(t)]] for t in leaves])
            found, structure = tensors_of(shaped, f"{name}: what register_fake's function returns")
            specs = specs_of(found)
        finally:
            leave(token)
    written = [i for i, t in enumerate(tensors) if id(t) in targets]
    flow = Opaque(name, function, arguments, [numbers[id(t)] for t in leaves], written, specs, structure)
    results = staged(flow, tensors, [*specs, *(specs_of(tensors)[i] for i in written)])
    for i, new in zip(written, results[len(specs) :], strict=True):
        tensors[i].copy_(new)
    return None if fake is None else unflatten(structure, results[: len(specs)])

