"""`autograd.grad(is_grads_batched=True)`: one walk backward for several vectors at once, by `vmap`. Called by `autograd/engine.py`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from gradlab.autograd import engine
from gradlab.func.mapping import vmap
from gradlab.func.recording import still


def batched(targets: list[Any], sources: list[Any], given: list[Any], retain: bool | None, create: bool) -> list[Any]:
    """For each source the gradients for all vectors, with one more dimension in front; None where there is none."""
    found: list[Any] = [None] * len(sources)
    mapped = [i for i, g in enumerate(given) if g is not None]
    there: list[int] = []

    def walk(*vectors: Any) -> list[Any]:
        gradients = list(given)
        for i, vector in zip(mapped, vectors, strict=True):
            gradients[i] = vector
        each = engine.grad(targets, sources, gradients, retain, create)
        there[:] = [i for i, g in enumerate(each) if g is not None]
        return [each[i] for i in there]

    with nullcontext() if create else still():
        results = vmap(walk, randomness="same")(*[given[i] for i in mapped])
    for i, g in zip(there, results, strict=True):
        found[i] = g
    return found
