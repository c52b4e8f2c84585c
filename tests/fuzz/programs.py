"""Random programs: what a seed stands for, as text that either engine runs, and as a script that a person can run."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import gradlab as gl

from . import statements

SIZES = ((3, 4), (4, 4), (2, 5), (1, 3), (3, 1), (2, 3, 4), (4,), (1,), ())
VALUES_DECIDE = ("unique()", "nonzero()", "bincount", "> 0]", "> 0.4]")  # the sizes of what these make
BINDS_INPUT = re.compile(r"(with torch\.\w+\(\): )?[xn]\d? [+*]?= ")  # in a function that would make a local variable of it
LARGEST = 400  # elements of a variable


@dataclass(frozen=True)
class Input:
    """A tensor that a program starts with: normally distributed numbers (integers from 0 to 6), `transposed` in memory or not."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    wants: bool = False  # requires grad
    transposed: bool = False

    def array(self, seed: int) -> Any:
        """Its numbers as they lie in memory, as float64 or int64: the same for every engine and dtype."""
        r = np.random.default_rng([seed, *self.name.encode()])
        shape = self.shape[::-1] if self.transposed else self.shape
        return np.asarray(r.integers(0, 7, shape) if self.dtype in statements.INTEGERS else r.normal(size=shape))


@dataclass(frozen=True)
class Program:
    """inputs, lines of Python, and which variables `results` names; `dtype` is the narrowest type, which decides what is close."""

    seed: int
    dtype: str
    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    form: str = "forward"
    passes: Any = field(default=None, compare=False)

    def without(self, line: int) -> Program:
        return replace(self, lines=self.lines[:line] + self.lines[line + 1 :])

    def sizes_by_values(self) -> bool:
        """Whether values decide about sizes, in a dtype in which rounding may make two values one."""
        return self.dtype != "float64" and any(form in line for line in self.lines for form in VALUES_DECIDE)

    def names(self) -> set[str]:
        """Variables that the lines bind, and the inputs."""
        return {i.name for i in self.inputs} | {found[1] for line in self.lines if (found := re.search(r"(\w+) = ", line))}

    def widened(self) -> Program:
        """The same program in float64."""
        lines = []
        for line in self.lines:
            for name in statements.FLOATS:
                line = line.replace(f".to(torch.{name})", ".to(torch.float64, copy=True)")  # a copy it was: see statements.draw
            lines.append(line)
        inputs = [i if i.dtype in statements.INTEGERS else replace(i, dtype="float64") for i in self.inputs]
        return replace(self, dtype="float64", inputs=tuple(inputs), lines=tuple(lines))

    def script(self) -> str:
        """A script that runs it in gradlab; with `import torch` in place of the first line in PyTorch."""
        lines = ["import gradlab as torch", "F, device = torch.nn.functional, 'cpu'"]
        for i in self.inputs:
            text = f"torch.tensor({i.array(self.seed).tolist()}, dtype=torch.{i.dtype})"
            turned = f".permute({', '.join(map(str, reversed(range(len(i.shape)))))}).detach()" if i.transposed else ""
            lines.append(f"{i.name} = {text}{turned}{'.requires_grad_()' if i.wants else ''}")
        printed = ", ".join(n for n in self.results if n in self.names())
        return "\n".join([*lines, *self.lines, f"print([{printed}])  # {self.form}, seed {self.seed}"])


def draw(seed: int, *, control: bool = False, length: int = 16) -> Program:
    """The program of a seed. It is drawn while it runs in gradlab, to know shapes and dtypes; a line that is refused is mostly left out.

    control: with what only gradlab has, and without what a trace refuses because sizes depend on values.
    """
    from .running import execute, namespace  # the two know each other: a program is drawn while it runs

    r = random.Random(seed)
    dtype = r.choice(["float32", "float32", "float64", "float64", "bfloat16", "float16"])
    dtypes = ("float32", "float64") if dtype in ("float32", "float64") else (dtype, "float32")
    shapes = [r.choice(SIZES)]
    shapes += [shapes[0], shapes[0][-1:], r.choice(SIZES) if r.random() < 0.3 else (*shapes[0][-1:], *shapes[0][-1:])]
    inputs = [Input(f"x{i}", s, dtype, r.random() < 0.6, len(s) > 1 and r.random() < 0.25) for i, s in enumerate(shapes)]
    if r.random() < 0.3:
        inputs.append(Input("n", shapes[0], r.choice(statements.INTEGERS)))
    program = Program(seed, dtype, tuple(inputs), (), ())
    space = namespace(gl, program)
    known = {i.name: space[i.name] for i in inputs}
    lines: list[str] = []
    for _ in range(r.randrange(3, length)):
        line = statements.draw(r, known, sharp=dtype == "float64", control=control, dtypes=dtypes)
        if control and (any(form in line for form in VALUES_DECIDE) or BINDS_INPUT.match(line)):
            continue
        refused = execute(line, space)
        if refused and (control or r.random() < 0.7):
            continue
        found = {k: v for k, v in space.items() if isinstance(v, gl.Tensor)}
        if any(v.numel() > LARGEST for v in found.values()):
            break
        lines.append(line)
        known = found
        if dtype == "float64" and (".float()" in line or any(v.dtype is gl.float32 for v in known.values())):
            dtype = "float32"
    results = r.choices([*known][len(inputs) :] or [*known], k=r.randrange(1, 5))
    form = r.choice(["forward", "forward", "forward", "step", "grad", "twice"])
    passes = r.choice([None, None, None, {"common_subexpressions": False, "rewrite": False, "drop_clones": False}])
    return Program(seed, dtype, tuple(inputs), tuple(lines), tuple(dict.fromkeys(results)), form, passes)
