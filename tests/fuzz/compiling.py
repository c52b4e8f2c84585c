"""A random program as one function, compiled and eager: results, what is written, what shares memory with what, gradients of either order.

The function takes the first two inputs as arguments and finds the others outside of it; it is called several times with other numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gradlab as gl
from gradlab.graph import TraceError

from .comparing import ROUNDING, spread
from .programs import Program
from .running import plain

CALLS = 4
Seen = list[tuple[str, Any]]


def function_of(program: Program, space: dict[str, Any]) -> Any:
    """The program as a function of its first two inputs; the others it finds in `space`."""
    names = ", ".join(i.name for i in program.inputs[:2])
    body = [f"def program({names}):", *(f"    {line}" for line in program.lines), f"    return [{', '.join(program.results)}]"]
    exec("\n".join(body), space)
    return space["program"]


def total_of(tensors: list[Any]) -> Any:
    parts = [t.double().mean() * (1 + i) for i, t in enumerate(tensors) if t.requires_grad and t.numel()]
    return sum(parts[1:], parts[0]) if parts else None


def inputs_of(program: Program, call: int) -> list[Any]:
    gl.manual_seed(1000 * program.seed + call)
    made = []
    for i in program.inputs:
        shape = i.shape[::-1] if i.transposed else i.shape
        t = gl.randint(0, 7, shape) if "int" in i.dtype else gl.randn(shape)
        t = t.to(getattr(gl, i.dtype))
        made.append((t.permute(*reversed(range(t.dim()))).detach() if i.transposed else t).requires_grad_(i.wants))
    return made


def observed(program: Program, wrap: Any) -> Seen:
    """Everything that can be seen of several calls."""
    state = inputs_of(program, -1)[2:]
    space: dict[str, Any] = {"torch": gl, "F": gl.nn.functional, "device": "cpu", **{i.name: t for i, t in zip(program.inputs[2:], state)}}
    inner = function_of(program, space)

    def function(*arguments: Any) -> Any:
        found = inner(*arguments)
        if program.form == "step":
            total = total_of(found)
            for w in state:
                if w.requires_grad and w.is_leaf:
                    w.grad = None
            if total is not None:
                total.backward()
                with gl.no_grad():
                    for w in state:
                        if w.requires_grad and w.is_leaf and w.grad is not None:
                            w.sub_(w.grad * 0.1)
            return [t.detach() for t in found]
        if program.form == "grad":
            total = total_of(found)
            targets = [t for t in (*arguments, *state) if t.requires_grad]
            if total is not None and targets:
                found += [g for g in gl.autograd.grad(total, targets, create_graph=True, allow_unused=True) if g is not None]
        return found

    call, seen, held = wrap(function), [], []
    for number in range(CALLS):
        given = inputs_of(program, number)[:2]
        gl.manual_seed(50 * program.seed + number)
        results = call(*given)
        seen += [(f"call {number} result {j}", plain(t)) for j, t in enumerate(results)]
        seen += [(f"call {number} result {j} properties", f"{t.dtype} {t.requires_grad}") for j, t in enumerate(results)]
        _differentiate(program, number, results, [t for t in (*given, *state) if t.requires_grad and t.is_leaf], seen)
        for j, t in enumerate(results):  # what shares memory with what
            try:
                t.detach().add_(1)
            except RuntimeError:
                continue
            everything = [*results, *given, *state]
            seen += [(f"call {number} after writing result {j}: tensor {k}", plain(u)) for k, u in enumerate(everything)]
            t.detach().sub_(1)
        held.append([t.detach() for t in results if all(t is not u for u in (*given, *state))])
    seen += [(f"held of call {i}: {j}", plain(t)) for i, ts in enumerate(held) for j, t in enumerate(ts)]
    return seen


def _differentiate(program: Program, number: int, results: list[Any], targets: list[Any], seen: Seen) -> None:
    total = None if program.form == "step" else total_of(results)
    if total is None or not targets:
        return
    grads = gl.autograd.grad(total, targets, create_graph=program.form == "twice", allow_unused=True)
    seen += [(f"call {number} gradient {j}", plain(g)) for j, g in enumerate(grads) if g is not None]
    if program.form == "twice":
        again = total_of([g.square() for g in grads if g is not None])
        if again is not None:
            more = gl.autograd.grad(again, targets, allow_unused=True)
            seen += [(f"call {number} second gradient {j}", plain(g)) for j, g in enumerate(more) if g is not None]


def difference(program: Program) -> str | None:
    """What differs between eager and compiled; "" if nothing does, None if eager mode, or with a clear error the compiler, refuses it."""
    try:
        eager = observed(program, lambda f: f)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    try:
        compiled = dict(observed(program, lambda f: gl.compile(f, passes=program.passes)))
    except NotImplementedError as error:
        if "writes it in place" in str(error):  # gradients of gradients through a program that does: refused, and documented
            return None
        raise
    except TraceError:
        return None
    except RuntimeError as error:  # a trace refuses another shape for what is outside of it; `.data` there is one tensor with its own
        refused = ["outside a trace", "which has changed since its forward", "backward was already run through this graph"]
        # Gradients of gradients run on what is written since, or count what is turned as written; an eager std of 0 is taken anew.
        if program.form in ("twice", "grad") or any("std" in line for line in program.lines):
            refused.append("modified by an in-place operation")
        if any(words in str(error) for words in refused) or any(".data" in line for line in program.lines):
            return None
        raise
    choice = any(form in line for line in program.lines for form in ("torch.cond(", "torch.switch(", "torch.scan("))
    tolerance = 0.0
    for name, a in eager:
        b = compiled.get(name)
        if b is None:
            return f"{name} is missing"
        if isinstance(a, str):
            if a != b and not choice:  # eagerly it depends on the branch that is taken, and a gradient may be constant
                return f"{name}: {a} eagerly, {b} compiled"
        elif a.shape != b.shape:
            return f"{name}: shape {a.shape} eagerly, {b.shape} compiled"
        elif not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            tolerance = tolerance or _tolerance(program)
            with np.errstate(all="ignore"):
                room = tolerance * max(1.0, np.abs(a[np.isfinite(a)]).max(initial=0))
                if not np.allclose(a, b, rtol=tolerance, atol=room, equal_nan=True):
                    return f"{name}: {a.ravel()[:4]} eagerly, {b.ravel()[:4]} compiled; rounding explains {tolerance:.2g}"
    for name in set(compiled).difference(n for n, _ in eager):
        # Eager mode refuses to write what is expanded, where the program may return a copy; the gradient of a branch not taken is zero.
        if "writing" not in name and np.any(compiled[name]):
            return f"{name} is there, and not eagerly"
    return ""


def _tolerance(program: Program) -> float:
    """How far rounding carries the results of a program, relative to their size: as measured in float64."""
    runs, _ = spread(program)
    found = 64 * ROUNDING[program.dtype]
    for label, first in runs[0].seen.items():
        others = [r.seen.get(label) for r in runs]
        if isinstance(first, np.ndarray) and all(isinstance(o, np.ndarray) and o.shape == first.shape for o in others):
            with np.errstate(all="ignore"):
                apart = np.nan_to_num(np.ptp(np.stack(others).astype("float64"), 0)).max(initial=0)
                size = np.abs(np.nan_to_num(first)).max(initial=1)
            found = max(found, 32 * float(apart / size))
    return min(found, 0.2)
