"""`build`: the files of a stand-alone program."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradlab.deploy.freezing import freeze
from gradlab.deploy.program import Refused, generate, module
from gradlab.deploy.targets import BARE, compile_for, compile_object, found, sections
from gradlab.graph.ir.dims import is_unknown
from gradlab.graph.ir.graph import Graph
from gradlab.graph.ir.specialize import specialize, unknowns
from gradlab.jit import load
from gradlab.utils.atomic import replacing

KEYWORDS = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if",
    "inline", "int", "long", "main", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while",
])  # fmt: skip
LIBRARY = frozenset([  # names that the headers of C's library have taken, of those that a file may well have
    "abort", "abs", "acos", "acosh", "asin", "asinh", "assert", "atan", "atan2", "atanh", "atof", "atoi", "atol", "bool", "calloc",
    "cbrt", "ceil", "clock", "copysign", "cos", "cosh", "div", "erf", "erfc", "errno", "exit", "exp", "exp2", "expm1", "fabs",
    "false", "fclose", "fdim", "fflush", "floor", "fma", "fmax", "fmin", "fmod", "fopen", "fprintf", "fread", "free", "frexp",
    "fscanf", "fseek", "ftell", "fwrite", "gamma", "getenv", "hypot", "index", "j0", "j1", "jn", "labs", "ldexp", "ldiv", "lgamma",
    "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "lrint", "lround", "malloc", "memchr", "memcmp", "memcpy",
    "memmove", "memset", "modf", "nan", "nearbyint", "nextafter", "perror", "pow", "printf", "putchar", "puts", "qsort", "raise",
    "rand", "random", "read", "realloc", "remainder", "remove", "rename", "rewind", "rint", "round", "scalbn", "scanf", "signal",
    "signbit", "sin", "sinh", "snprintf", "sprintf", "sqrt", "srand", "stderr", "stdin", "stdout", "strcat", "strchr", "strcmp",
    "strcpy", "strlen", "strncmp", "system", "tan", "tanh", "tgamma", "time", "tmpfile", "trunc", "true", "write", "y0", "y1", "yn",
])  # fmt: skip
COMPILE = "cc -std=c11 -O3 -march=native -fno-math-errno -D{macro}_MAIN {name}.c -lm -o {name}"


@dataclass(frozen=True)
class Built:
    """What `build` wrote.

    source, header, weights   the files
    inputs, outputs           of `NAME_run`, as "x0: float32[1, 4]"
    arena, unshared           bytes of the intermediate values, and what they would take if they shared no memory
    scratch                   bytes of work space besides
    functions, calls          C functions of the program's own, and lines of one run
    program                   compiled for `target`, or None
    flash, ram                bytes of a static build: of weights, values and work space; of a target the object's, without the stack
    module                    of "wasm32": the JavaScript that loads it, without what makes a program for Node of it
    """

    name: str
    source: Path
    header: Path
    weights: Path | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arena: int
    unshared: int
    scratch: int
    functions: int
    calls: int
    program: Path | None = None
    module: str = field(default="", repr=False)
    flash: int = 0
    ram: int = 0

    @property
    def command(self) -> str:
        """A command that makes a program of the files, for the folder where they are."""
        return COMPILE.format(name=self.name, macro=self.name.upper())

    def __str__(self) -> str:
        written = [path for path in (self.source, self.header, self.weights, self.program) if path is not None]
        files = "\n".join(f"  {path}  {path.stat().st_size:,} bytes" for path in written)
        if self.weights is None:
            what = "" if self.program else " for weights, code comes on top"
            shown = f"{', '.join(self.inputs) or 'no inputs'} -> {', '.join(self.outputs)}"
            return f"{files}\n  {shown}\n  flash {self.flash:,} bytes{what}, RAM {self.ram:,} besides the stack"
        return (
            f"{files}\n  {', '.join(self.inputs) or 'no inputs'} -> {', '.join(self.outputs)}\n"
            f"  {self.calls} calls of {self.functions} functions; arena {self.arena:,} bytes (unshared {self.unshared:,}), "
            f"work space {self.scratch:,}" + ("" if self.program else f"\n  {self.command}")
        )


def build(
    program: Any, folder: str | os.PathLike[str] | None = None, *, name: str | None = None, sizes: Mapping[str, int] | None = None,
    target: str | None = None, cpu: str | None = None, static: bool = False,
) -> Built:  # fmt: skip
    """Write a traced program as C: `name.c`, `name.h` and `name.weights` in `folder`, which run its forward with no Python.

    program: what `gl.jit.trace` returned, its `.glp` file, or anything with a `.graph`. Its parameters and buffers as they are now become
    constants. folder: by default that of the file, or the current one; it is made if it is not there. name: by default the file's, or
    "program". sizes: numbers for the program's unknown sizes.
    target: a machine of `gl.deploy.TARGETS` to compile a program for, too: `name-target` beside the files ("wasm32": the module
    `name.wasm`, and `name.mjs`, which loads it in a browser or Node). cpu: that machine's oldest processor, in LLVM's names with _ for -.
    static: for machines without an operating system: the weights are constants in `name.c`, which allocates nothing and needs of a C
    library its mathematics alone; there is no `name.weights`. With target="cortex-m3" it is compiled to an object file, too, whose
    sizes are told.
    Raises TargetError where that cannot be compiled; Refused (a NotImplementedError), naming every operation that has no C with its
    source line, for a program that changes tensors (batch norm in training mode), draws random numbers, or takes gradients; and
    ValueError for sizes that are missing.

    >>> import tempfile
    >>> import gradlab as gl
    >>> program = gl.jit.trace(lambda x: gl.relu(x) * 2, gl.ones(2, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     built = gl.deploy.build(program, folder, name="twice")
    ...     print(built.source.name, built.header.name, built.weights.name, built.inputs, built.outputs)
    twice.c twice.h twice.weights ('x0: float32[2, 3]',) ('y0: float32[2, 3]',)
    """
    if (target in BARE) != static and (target is not None or not static):
        bare = ", ".join(BARE)
        raise ValueError(f"build: static=True is for machines without an operating system ({bare}), and they for it; not {target}")
    if target is not None:
        found(target)
    elif cpu is not None:
        raise ValueError("build: cpu= is of a target; without one, the command that Built.command gives is for this machine's own")
    source = None
    if isinstance(program, (str, os.PathLike)):
        source = Path(program)
        program = load(source)
    graph = getattr(program, "graph", program)
    if not isinstance(graph, Graph):
        raise TypeError(
            f"build: expected a traced program or its file, not {type(program).__name__}; make one with gl.jit.trace(model, example)"
        )
    if name is None:
        name = re.sub(r"\W", "_", source.stem) if source is not None else "program"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in KEYWORDS | LIBRARY or name.lower().startswith("gl_"):
        taken = ", whose library has it" if name in LIBRARY else ""
        raise ValueError(f'build: {name!r} is no name for functions of C{taken}; give one with letters, digits and _: name="model"')
    graph = _sized(graph, sizes or {})
    _check(graph)
    try:
        text = generate(freeze(graph), name, static)
    except Refused as error:
        raise Refused(f"build: this program cannot become C: {error}") from None
    where = Path(folder) if folder is not None else source.parent if source is not None else Path()
    where.mkdir(parents=True, exist_ok=True)
    contents = {".c": text.source.encode(), ".h": text.header.encode(), **({} if static else {".weights": text.weights.bytes()})}
    files = [where / f"{name}{ending}" for ending in contents]
    for path, content in zip(files, contents.values()):
        with replacing(path) as file:
            file.write(content)
    shown = [
        tuple(f"{letter}{i}: {v.spec.dtype.name}[{', '.join(map(str, v.spec.shape))}]" for i, v in enumerate(values))
        for letter, values in (("x", graph.inputs), ("y", graph.outputs))
    ]
    source_file, header, *rest = files
    inputs, outputs = shown
    made, script, flash, ram = None, "", 0, 0
    if static:
        held = text.weights.offsets()
        flash, ram = text.weights.size - held[0] if held else 0, text.space
        if target is not None:
            made = compile_object(target, source_file, name, cpu)
            flash, ram = sections(made.read_bytes())
    elif target is not None:
        made = compile_for(target, source_file, name, cpu)
        if target == "wasm32":
            with replacing(made.with_suffix(".mjs")) as file:
                file.write(module(name, text).encode())
            script = module(name, text, program=False)
    return Built(
        name, source_file, header, rest[0] if rest else None, inputs, outputs,
        text.arena, text.unshared, text.scratch, text.functions, text.calls, made, script, flash, ram,
    )  # fmt: skip


def _sized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    if surplus := sorted(set(sizes) - set(names := dict.fromkeys(unknowns(graph)))):
        raise ValueError(f"build: the program has no unknown size {', '.join(surplus)}; it has {', '.join(names) or 'none'}")
    try:
        found = specialize(graph, sizes)
    except ValueError as error:
        raise ValueError(f'build: {error}; give them: sizes={{"batch": 1}}') from None
    if any(is_unknown(v.spec.shape) for v in found.inputs):
        raise ValueError('build: the program\'s inputs have unknown sizes; give them: sizes={"batch": 1}')
    return found


def _check(graph: Graph) -> None:
    """Refuse what a forward alone does not do."""
    problems = []
    makers = {v.id: call for call in graph.calls for v in call.outputs}
    if graph.updates:
        lines = dict.fromkeys(makers[new.id].source() or makers[new.id].op.name for _, new in graph.updates if new.id in makers)
        where = f" ({'; '.join(lines)})" if lines else ""
        problems.append(
            f"it changes {len(graph.updates)} tensor{'s' * (len(graph.updates) != 1)} that outlive a run{where}: "
            f"call model.eval() before tracing, or keep such state outside"
        )
    needed = graph.without_dead_calls().calls
    drawing = {v.id for _, v, _ in graph.random}
    drawers = [c for c in needed if any(getattr(x, "id", None) in drawing for x in c.inputs)]
    if drawers:
        names = "; ".join(dict.fromkeys(f"{c.op.name}{f' ({c.source()})' if c.source() else ''}" for c in drawers))
        problems.append(f"it draws random numbers ({names}): pass them in as an input")
    if graph.gradients:
        problems.append("it calls backward(): trace the forward alone")
    if problems:
        raise Refused(f"build: this program cannot become C: {'; '.join(problems)}")
