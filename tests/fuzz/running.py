"""Running a program line by line in an engine, and what can be seen afterwards: refusals, values, dtypes, gradients, what was written."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

import gradlab as gl

from .programs import Program

REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AttributeError, NameError)
_codes: dict[str, CodeType] = {}


def namespace(engine: Any, program: Program, device: str = "cpu") -> dict[str, Any]:
    """The names of a program in one engine: its inputs, `torch`, `F`, `device`."""
    space: dict[str, Any] = {"torch": engine, "F": engine.nn.functional, "device": device}
    for i in program.inputs:
        made = engine.from_numpy(i.array(program.seed)).to(getattr(engine, i.dtype))
        made = made if device == "cpu" else made.to(device)
        if i.transposed:
            made = made.permute(*reversed(range(made.dim()))).detach()
        space[i.name] = made.requires_grad_(i.wants)
    return space


def execute(line: str, space: dict[str, Any]) -> str:
    """Run a line. Returns the error that refused it, name and text, or ""."""
    code = _codes.get(line)
    if code is None:
        if len(_codes) > 5000:
            _codes.clear()
        code = _codes[line] = compile(line, "<line>", "exec")
    try:
        exec(code, space)
    except REFUSALS as error:
        return describe(error)
    return ""


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


@dataclass
class Outcome:
    """What can be seen of a run. seen: label -> NumPy array or text. refused: line number -> the error."""

    seen: dict[str, Any] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    largest: float = 0.0  # of all variables, after every line


def plain(t: Any) -> Any:
    """A tensor's values as float64 or integers, without its graph."""
    t = t.detach().clone()
    array = (t.double() if t.is_floating_point() else t).cpu().numpy()
    return np.array(array)


def run(engine: Any, program: Program, device: str = "cpu", noise: float = 0.0, draw: int = 0) -> Outcome:
    """Run a program, then differentiate what its results sum up to.

    noise: relative errors that each line's result gets, as if it had been computed with rounding of that size (gradlab alone).
    """
    made, space = Outcome(), namespace(engine, program, device)
    leaves = {i.name: space[i.name] for i in program.inputs}
    r = np.random.default_rng([program.seed, draw])
    ours = engine is gl
    if noise:
        for t in leaves.values():
            _disturb(t, r, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if ours and not noise else "ignore")
        for number, line in enumerate(program.lines):
            before = set(map(id, space.values()))
            if refused := execute(line, space):
                made.refused[number] = refused
                continue
            made_here = [(k, v) for k, v in space.items() if isinstance(v, engine.Tensor) and id(v) not in before]
            for name, value in made_here:
                if not ours:
                    space[name] = _as_ours(value, line)
            if noise:  # of what the line made, or of everything, if it only writes
                for value in [v for _, v in made_here] or [v for v in space.values() if isinstance(v, gl.Tensor)]:
                    _disturb(value, r, noise)
            made.largest = max([made.largest, *_sizes(space)]) if noise else 0.0
        _observe(made, program, space, leaves)
    return made


def _as_ours(t: Any, line: str) -> Any:
    """A result of PyTorch's with what `docs/differences.md` says of ours."""
    without = t._base is not None and line.startswith(("with torch.no_grad()", "with torch.inference_mode()"))
    return t.detach() if without else t  # PyTorch 2.13: such a view of a leaf requires grad


def _disturb(t: Any, r: Any, noise: float) -> None:
    """Multiply values by 1 + noise, behind autograd's back."""
    array = t._array
    if array.dtype.kind == "f" and array.flags.writeable and 0 not in array.strides:
        array *= 1 + noise * r.uniform(-1, 1, array.shape)


def _sizes(space: dict[str, Any]) -> list[float]:
    return [float(np.abs(v._array).max(initial=0)) for v in space.values() if isinstance(v, gl.Tensor) and v._array.dtype.kind == "f"]


def _observe(made: Outcome, program: Program, space: dict[str, Any], leaves: dict[str, Any]) -> None:
    engine = space["torch"]
    variables = {k: v for k, v in space.items() if isinstance(v, engine.Tensor)}
    for name, t in variables.items():
        try:
            made.seen[name] = plain(t)
            kind = str(t.dtype).rsplit(".", maxsplit=1)[-1]
            marks = [mark for mark, holds in (("requires grad", t.requires_grad), ("leaf", t.is_leaf)) if holds]
            made.seen[f"{name}: properties"] = " ".join([str(tuple(t.shape)), kind, *marks])
        except REFUSALS as error:  # a view that may not be used any more
            made.seen[name] = f"refused {describe(error)}"
    total = None
    for number, name in enumerate(program.results):
        t = variables.get(name)
        if t is not None and not isinstance(made.seen[name], str) and t.requires_grad and t.numel():
            part = t.double().mean() * (1 + number)
            total = part if total is None else total + part
    if total is None:
        return
    targets = {k: v for k, v in leaves.items() if v.requires_grad and v.is_leaf}
    try:
        if program.form == "twice" and targets:
            grads = _differentiate(engine, total, list(targets.values()), True)
            again = [g.double().square().mean() for g in grads if g is not None and g.requires_grad]
            for name, g in zip(targets, grads, strict=True):
                made.seen[f"{name}: gradient"] = None if g is None else plain(g)
            if again:
                more = _differentiate(engine, sum(again[1:], again[0]), list(targets.values()), False)
                for name, g in zip(targets, more, strict=True):
                    made.seen[f"{name}: second gradient"] = None if g is None else plain(g)
            return
        total.backward()
        for name, t in {**variables, **targets}.items():
            if not isinstance(made.seen.get(name), str) and t.is_leaf:
                made.seen[f"{name}: grad"] = None if t.grad is None else plain(t.grad)
                if t.grad is not None:
                    made.seen[f"{name}: grad's dtype"] = str(t.grad.dtype).rsplit(".", maxsplit=1)[-1]
    except REFUSALS as error:
        made.seen["backward"] = f"refused {describe(error)}"


def _differentiate(engine: Any, total: Any, targets: list[Any], graph: bool) -> Any:
    return engine.autograd.grad(total, targets, create_graph=graph, allow_unused=True)
