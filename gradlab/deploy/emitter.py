"""What becomes of the calls: functions of C, each once, and a straight line of calls of them.

Each family of rows registers functions with `@emits("row")`. They get the call with the places of its operands, and an `Emitter` to
write to. Operands that have to be dense, or float, are made so by the helpers here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place, place_of
from gradlab.deploy.types import Unsupported, ctype, loaded, stored
from gradlab.graph.ir.graph import Call
from gradlab.spec import Spec

RUNTIME = Path(__file__).resolve().parent / "runtime"
SCRATCH = -2  # the base of work space
CONSTANT = -3  # the base of constants that the generator itself adds
WORTH = 60000  # simple operations that are worth more than one thread


@dataclass
class Step:
    """A call, with where its operands lie.

    inputs      a Place, a Python number or None for each; known: the arrays of those that are constants
    activation  what a product ends with; add: what is added before that
    """

    call: Call
    inputs: list[Any]
    outputs: list[Place]
    known: list[Any]
    activation: str = ""
    add: Place | None = None

    def output(self, i: int) -> Place | None:
        """A result's place; None where nobody reads it."""
        return self.outputs[i] if i < len(self.outputs) else None

    @property
    def name(self) -> str:
        return self.call.op.name

    @property
    def params(self) -> dict[str, Any]:
        return self.call.params


Emit = Callable[[Step, "Emitter"], None]
EMIT: dict[str, Emit] = {}


def emits(*names: str) -> Callable[[Emit], Emit]:
    """Register a function for rows of these names."""

    def register(function: Emit) -> Emit:
        for name in names:
            if name in EMIT:
                raise ValueError(f"row {name} is emitted twice")
            EMIT[name] = function
        return function

    return register


class Emitter:
    """The text as it grows.

    constants  arrays that the generator adds to the weights (packed matrices, tables)
    scratch    bytes of work space for one call; own: for each thread
    """

    def __init__(self, names: dict[int, str], small: bool = False) -> None:
        self.names = names  # C's name of a base
        self.small = small  # work space counts for more than speed
        self.functions: dict[str, str] = {}  # text -> name
        self.lines: list[str] = []
        self.parts: dict[tuple[str, str], None] = {}  # (runtime file, dtype), in order
        self.scalars: dict[str, None] = {}  # dtypes whose scalar functions are needed
        self.activations: dict[str, int] = {}
        self.constants: list[tuple[str, Any]] = []
        self._packed: dict[Any, Place] = {}
        self.scratch_size = self.own_size = self._taken = 0
        self.may_fail = False
        self.bodies: list[tuple[str, list[str]]] = []  # of control flow: each function's head and its lines
        self.fixed: list[Any] = []  # arrays of the program, in the order of their numbers

    def inside(self) -> Emitter:
        """An emitter of a function's lines, with work space and places of its own; all else is shared."""
        inner = Emitter({}, self.small)
        for name in ("functions", "parts", "scalars", "activations", "constants", "bodies", "fixed"):
            setattr(inner, name, getattr(self, name))
        return inner

    # ---- memory

    def begin(self) -> None:
        """A new call: its work space may be used again."""
        self._taken = 0

    def scratch(self, shape: Sequence[int], dtype: Any) -> Place:
        """Work space for an array of this call."""
        place = place_of(SCRATCH, Spec(tuple(shape), np.dtype(dtype)), self._taken)
        self._taken += -(-max(place.size, 1) * place.dtype.itemsize // 64) * 64
        self.scratch_size = max(self.scratch_size, self._taken)
        return place

    def own(self, size: int) -> None:
        """Work space of so many bytes for each thread."""
        self.own_size = max(self.own_size, -(-size // 64) * 64)

    def constant(self, array: Any, key: Any = None, name: str = "table") -> Place:
        """An array that goes into the weights file. key: the same for the same array."""
        if key is not None and key in self._packed:
            return self._packed[key]
        array = np.ascontiguousarray(array)
        place = place_of(CONSTANT - len(self.constants), Spec(array.shape, array.dtype))
        self.constants.append((name, array))
        if key is not None:
            self._packed[key] = place
        return place

    def pointer(self, place: Place | None) -> str:
        """A place as a C expression of type (const) char * or void *."""
        if place is None:
            return "NULL"
        name = "S" if place.base == SCRATCH else f"@C{CONSTANT - place.base}@" if place.base <= CONSTANT else self.names[place.base]
        return f"{name} + {place.offset}" if place.offset else name

    # ---- text

    def part(self, file: str, dtype: Any = "") -> None:
        """A file of the runtime, for a dtype."""
        if file in ("gemm.c", "rowwise.c"):
            self.parts.setdefault(("vectors.h", ""))
        self.parts.setdefault((file, np.dtype(dtype).name if dtype else ""))

    def scalar(self, dtype: Any) -> None:
        """The scalar functions of a compute type."""
        self.scalars.setdefault("float32" if ctype(dtype).suffix == "f32" else np.dtype(dtype).name)

    def function(self, text: str, prefix: str = "k") -> str:
        """The name of the function with that text, in which @F stands for the name."""
        return self.functions.setdefault(text, f"{prefix}{len(self.functions)}")

    def call(self, text: str, *places: Place | None, fails: bool = False) -> None:
        """Call a function of that text on these operands."""
        self.line(f"{self.function(text)}({', '.join(map(self.pointer, places))})", fails)

    def line(self, text: str, fails: bool = False) -> None:
        """A line of the run."""
        self.may_fail = self.may_fail or fails
        self.lines.append(f"if ((error = {text}) != 0) return error;" if fails else f"{text};")

    def block(self, lines: Sequence[str]) -> None:
        """Lines of several statements, as they are."""
        self.may_fail = True
        self.lines.extend(lines)

    # ---- operands as a kernel needs them

    def copy(self, source: Place, target: Place) -> None:
        """Copy, element by element, also between dtypes."""
        same = source.dtype == target.dtype and source.dtype.name != "bool"
        if same and ((source.contiguous and target.contiguous) or (source.channels_last and target.channels_last)):
            self.line(f"memcpy({self.pointer(target)}, {self.pointer(source)}, {target.size * target.dtype.itemsize})")
            return
        if "float16" in source.dtype.name + target.dtype.name:
            self.part("half.h")
        if target.size:
            self.call(copy_text(source, target), source, target)

    def dense(self, place: Any, dtype: Any = None) -> Place:
        """The same without gaps (and of that dtype)."""
        if not isinstance(place, Place):
            raise Unsupported("a number in place of a tensor")
        wanted = place.dtype if dtype is None else np.dtype(dtype)
        if place.contiguous and place.dtype == wanted:
            return place
        target = self.scratch(place.shape, wanted)
        self.copy(place, target)
        return target


def strides_text(index: str, stride: int) -> str:
    """An index times a stride."""
    return index if stride == 1 else f"{index} * {stride}"


def copy_text(source: Place, target: Place) -> str:
    """The text of a function that copies one place to another."""
    x, y = ctype(source.dtype), ctype(target.dtype)
    value = (
        "a[{a}]" if source.dtype == target.dtype and source.dtype.name != "bool" else stored(loaded("a[{a}]", source.dtype), target.dtype)
    )
    order = sorted(range(len(target.shape)), key=lambda d: -target.strides[d])
    shape, from_steps, to_steps = ([values[d] for d in order] for values in (target.shape, source.strides, target.strides))
    return "\n".join([
        "static void @F(const void *p0, void *p1) {",
        f"  const {x.storage} *a0 = p0;", f"  {y.storage} *b0 = p1;",
        *nest(shape, [("a", f"const {x.storage} *", from_steps), ("b", f"{y.storage} *", to_steps)],
              lambda at: [f"b[{at['b']}] = {value.format(a=at['a'])};"]),
        "}",
    ])  # fmt: skip


def nest(
    shape: Sequence[int], operands: Sequence[tuple[str, str, Sequence[int]]], body: Callable[[dict[str, str]], list[str]],
    merge: bool = True, parallel: bool = False, ivdep: bool = True,
) -> list[str]:  # fmt: skip
    """Loops over a shape. operands: (name, pointer type, strides); each level moves the pointers `<name>0`; the body sees `<name>` and
    the index that belongs to it in the innermost loop."""
    sizes, steps = merged([*shape], [list(s) for _, _, s in operands]) if merge else (list(shape), [list(s) for _, _, s in operands])
    if not sizes:
        sizes, steps = [1], [[0] for _ in operands]
    lines: list[str] = []
    pad = "  "
    for level, n in enumerate(sizes[:-1]):
        if parallel and level == 0:
            lines.append(f"{pad}GL_PARALLEL")
        lines.append(f"{pad}for (int64_t i{level} = 0; i{level} < {n}; ++i{level}) {{")
        pad += "  "
        for (name, kind, _), step in zip(operands, steps):
            moved = f" + {strides_text(f'i{level}', step[level])}" if step[level] else ""
            lines.append(f"{pad}{kind}const {name}{level + 1} = {name}{level}{moved};")
    last = len(sizes) - 1
    for name, kind, _ in operands:
        lines.append(f"{pad}{kind}const {name} = {name}{last};")
    if ivdep and sizes[-1] > 3:
        lines.append(pad + ("GL_PARALLEL_LANES" if parallel and last == 0 else "GL_IVDEP"))
    lines.append(f"{pad}for (int64_t i = 0; i < {sizes[-1]}; ++i) {{")
    at = {name: strides_text("i", step[-1]) if step[-1] else "0" for (name, _, _), step in zip(operands, steps)}
    lines += [f"{pad}  {line}" for line in body(at)]
    lines.append(f"{pad}}}")
    for _ in range(last):
        pad = pad[:-2]
        lines.append(f"{pad}}}")
    return lines


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides, outermost first, without sizes of 1, neighbours that are one walk for all operands made one."""
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        here = [s[d] for s in strides]
        if sizes and all(mine[-1] == step * n for mine, step in zip(found, here)):
            sizes[-1] *= n
            for mine, step in zip(found, here):
                mine[-1] = step
        else:
            sizes.append(n)
            for mine, step in zip(found, here):
                mine.append(step)
    return sizes, found


def broadcast(place: Place, shape: Sequence[int]) -> tuple[int, ...]:
    """A place's strides in a broadcast shape."""
    lead = len(shape) - len(place.shape)
    return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(place.shape, place.strides))
