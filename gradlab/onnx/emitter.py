"""Writing ONNX nodes: an `Emitter` collects the nodes of one graph, a `Wire` is a value in it.

Nodes are plain data here; `building.py` makes the file's messages of them. Converters of rows (`rows/`) call the emitter,
`e("Erf", x)`, and do arithmetic on wires, `x * 0.5`; Python numbers become constants of the wire's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, INT64
from gradlab.graph.ir.dims import lost
from gradlab.graph.ir.specialize import WAY_OUT
from gradlab.onnx.sizes import size_of
from gradlab.quiet import quietly

DTypeLike = np.dtype[Any]

TRUTHS = frozenset((
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf",
))  # fmt: skip
PLACES = frozenset(("Shape", "Size", "ArgMax", "ArgMin", "NonZero"))
OLDER: dict[str, tuple[int, Callable[..., Any]]] = {}  # operators -> the first opset that has them as they are written here; before it


def before(opset: int, *kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what stands for operators in files of an older opset: `rule(e, kind, *inputs, **attributes)`, by `e.add` and others."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        OLDER.update(dict.fromkeys(kinds, (opset, rule)))
        return rule

    return register


class Unsupported(Exception):
    """A converter cannot say this call in ONNX; the message says why."""


@dataclass
class Node:
    """One operator applied to values by name; attributes are Python numbers, strings, lists, arrays or `Subgraph`s."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    scope: str = ""


@dataclass
class Subgraph:
    """A graph inside a node: the body of a loop, a branch. It sees the values around it by name."""

    inputs: list[Wire]
    nodes: list[Node]
    outputs: list[Wire]


class Wire:
    """A value: its name, dtype, and its shape where that is known."""

    __slots__ = ("dtype", "emitter", "name", "shape")

    def __init__(self, name: str, dtype: DTypeLike, emitter: Emitter, shape: tuple[int, ...] | None = None) -> None:
        self.name, self.dtype, self.emitter, self.shape = name, dtype, emitter, shape

    @property
    def rank(self) -> int:
        assert self.shape is not None
        return len(self.shape)

    def __add__(self, other: Any) -> Any:
        return self.emitter("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.emitter("Add", self, other)

    def __sub__(self, other: Any) -> Any:
        return self.emitter("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.emitter("Sub", self.emitter.constant(other, self.dtype), self)

    def __mul__(self, other: Any) -> Any:
        return self.emitter("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.emitter("Mul", self, other)

    def __truediv__(self, other: Any) -> Any:
        return self.emitter("Div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.emitter("Div", self.emitter.constant(other, self.dtype), self)

    def __neg__(self) -> Any:
        return self.emitter("Neg", self)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype}{'' if self.shape is None else list(self.shape)}>"


class Names:
    """Distinct names for a whole file."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._count: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """`base`, or with a number behind it where that is taken."""
        name = base
        while name in self.taken:
            self._count[base] = self._count.get(base, 0) + 1
            name = f"{base}_{self._count[base]}"
        self.taken.add(name)
        return name


class Emitter:
    """Collects nodes. `outputs`: the Specs of the call that is being converted; `root`: the emitter of the outermost graph."""

    def __init__(self, names: Names, opset: int, root: Emitter | None = None) -> None:
        self.names, self.opset = names, opset
        self.root: Emitter = root or self
        self.nodes: list[Node] = []
        self.prologue: list[Node] = []  # of the root: nodes that come before all others, on the sizes of inputs
        self.constants: dict[str, Any] = {}  # of the root: name -> array
        self._known: dict[Any, Wire] = {}  # constants by their bytes
        self.sizes: dict[Any, Wire] = {}  # sizes that are known at run time alone, as one int64 number in a vector
        self.leaves: dict[str, tuple[Wire, int]] = {}  # of the root: the names of dynamic sizes -> an input and its dimension
        self.hints: list[int] = []  # of the root: what stands for dynamic sizes in the trace
        self.outputs: tuple[Any, ...] = ()
        self.scope = ""
        self.row = "value"
        self.lower: Callable[[Emitter, Any, Sequence[Wire]], list[Wire]] = unset  # of the root: writes the calls of a body
        self.rounded = False  # whether a number was rounded to float16
        self.wishes: dict[str, str] = {}  # of the root: names that constants get if nothing else has them in the end
        self.turned: set[str] = set()  # of the root: constants whose gates stand in ONNX's order (layers.py)
        self.drawn: set[str] = set()  # of the root: values that depend on random numbers

    def __call__(self, kind: str, *inputs: Any, **attributes: Any) -> Any:
        """An operator's result, a tuple where there are several: one node, or what stands for it in an older opset."""
        newest, rule = OLDER.get(kind, (0, None))
        return self.add(kind, *inputs, **attributes) if rule is None or self.opset >= newest else rule(self, kind, *inputs, **attributes)

    def add(self, kind: str, *inputs: Any, outputs: int = 1, dtype: DTypeLike | None = None, **attributes: Any) -> Any:
        """Add a node; its result, a tuple where there are several. The dtype is the first input's unless the operator's is another."""
        first = next((x.dtype for x in inputs if isinstance(x, Wire)), None)
        wires = [self._input(x, first) for x in inputs]
        while wires and wires[-1] is None:
            wires.pop()
        if dtype is None:
            dtype = BOOL if kind in TRUTHS else INT64 if kind in PLACES else wires[1].dtype if kind == "Where" else first
        assert dtype is not None
        found = [Wire(self.names.fresh(f"{self.row}_{len(self.names.taken)}"), dtype, self) for _ in range(outputs)]
        given = {k: self._attribute(kind, k, v) for k, v in attributes.items() if v is not None}
        self.nodes.append(Node(kind, [w.name if w else "" for w in wires], [w.name for w in found], given, self.scope))
        return found[0] if outputs == 1 else tuple(found)

    def _input(self, value: Any, dtype: DTypeLike | None) -> Any:
        if value is None or isinstance(value, Wire):
            return value
        if isinstance(value, np.ndarray):
            return self.constant(value)
        if dtype is None:
            raise TypeError(f"a number without a value beside it: {value!r}")
        return self.number(value, dtype)

    def _attribute(self, kind: str, name: str, value: Any) -> Any:
        found = value if isinstance(value, (list, tuple)) else (value,)
        if any(is_dynamic(v) or self.lost(v) for v in found):
            raise Unsupported(f"{name} of ONNX's {kind} must be known when the model is exported, but it depends on a dynamic size")
        return value

    # ------------------------------------------------------------ constants

    def constant(self, value: Any, dtype: DTypeLike | None = None, name: str = "constant") -> Wire:
        """A constant array, kept once."""
        array = quietly(np.asarray, value, dtype)
        root = self.root
        if array.dtype == np.float16 and not np.array_equal(array, np.asarray(value, np.float32), equal_nan=True):
            self.rounded = True
        key = (array.dtype, array.shape, array.tobytes())
        if key not in root._known:
            wire = Wire(self.names.fresh(name), array.dtype, self, array.shape)
            root.constants[wire.name] = array
            root._known[key] = wire
        return root._known[key]

    def number(self, value: Any, dtype: DTypeLike) -> Wire:
        """A number as a value without dimensions, also one that depends on dynamic sizes."""
        if not is_dynamic(value):
            return self.constant(cast_number(self.tracked(value), dtype) if dtype.kind in "iu" else self.tracked(value), dtype)
        return self.cast(self("Squeeze", self.size(value), self.constant([0], INT64)), dtype)

    def ints(self, values: Iterable[Any]) -> Wire:
        """Integers as a vector, some of which may depend on dynamic sizes."""
        found = list(values)
        if not any(map(is_dynamic, found)):
            return self.constant([self.tracked(v) for v in found], INT64)
        pieces: list[Wire] = []
        still: list[int] = []
        for value in found:
            if is_dynamic(value):
                if still:
                    pieces.append(self.constant(still, INT64))
                    still = []
                pieces.append(self.size(value))
            else:
                still.append(int(self.tracked(value)))
        if still:
            pieces.append(self.constant(still, INT64))
        return pieces[0] if len(pieces) == 1 else self("Concat", *pieces, axis=0)

    def size(self, value: Any) -> Wire:
        """An integer as a vector of one number."""
        if not is_dynamic(value):
            return self.constant([int(value)], INT64)
        root = self.root
        key = value.expr
        if key not in root.sizes:
            root.sizes[key] = size_of(root.front(), key, root.leaves)
        return root.sizes[key]

    def lost(self, value: Any) -> bool:
        """Whether a number was computed from a dynamic size without its being tracked."""
        return bool(self.root.hints) and isinstance(value, (int, float)) and lost(value, self.root.hints)

    def tracked(self, value: Any) -> Any:
        """The number. Raises Unsupported where `lost`."""
        if self.lost(value):
            raise Unsupported(f"{value!r} was computed from a dynamic size: {WAY_OUT}")
        return value

    # ------------------------------------------------------------ operators that many converters use

    def cast(self, x: Wire, dtype: DTypeLike) -> Wire:
        """The value in another dtype."""
        if x.dtype == dtype:
            return x
        found: Wire = self("Cast", x, dtype=dtype, to=dtype)
        found.shape = x.shape
        return found

    def where(self, condition: Wire, a: Any, b: Any) -> Wire:
        """a where the condition holds, else b."""
        dtype = next(x.dtype for x in (a, b) if isinstance(x, Wire))
        a, b = (x if isinstance(x, Wire) else self.number(x, dtype) for x in (a, b))
        if dtype == BOOL:  # ONNX Runtime has no Where of truth values
            return self("Or", self("And", condition, a), self("And", self("Not", condition), b))
        return self("Where", condition, a, b)

    def reshape(self, x: Wire, shape: Sequence[Any]) -> Wire:
        """Another shape: at most one size that is known at run time alone is inferred."""
        shape = tuple(shape)
        if x.shape is not None and same_shape(x.shape, shape):
            return x
        open_ = [i for i, s in enumerate(shape) if is_dynamic(s)]
        if open_ and len(open_) == 1 and not any(s == 0 for s in shape if not is_dynamic(s)):
            plain: Any = [-1 if is_dynamic(s) else int(s) for s in shape]
        else:
            plain = shape
        found: Wire = self("Reshape", x, self.ints(plain), allowzero=1 if any(not is_dynamic(s) and s == 0 for s in shape) else None)
        found.shape = shape
        return found

    def transpose(self, x: Wire, order: Sequence[int]) -> Wire:
        """Dimension i of the result is dimension order[i]."""
        if list(order) == list(range(len(order))):
            return x
        found: Wire = self("Transpose", x, perm=list(order))
        found.shape = None if x.shape is None else tuple(x.shape[d] for d in order)
        return found

    def unsqueeze(self, x: Wire, *dims: int) -> Wire:
        """New dimensions of size 1 at the places they have in the result."""
        return self("Unsqueeze", x, self.constant(list(dims), INT64))

    def squeeze(self, x: Wire, *dims: int) -> Wire:
        """Without these dimensions of size 1."""
        return self("Squeeze", x, self.constant(list(dims), INT64)) if dims else x

    def expand(self, x: Wire, shape: Sequence[Any]) -> Wire:
        """Repeated to a shape."""
        if x.shape is not None and same_shape(x.shape, shape):
            return x
        wide = self.cast(x, FLOAT32) if x.dtype.name == "bfloat16" else x  # ONNX Runtime has no Expand of bfloat16
        found: Wire = self.cast(self("Expand", wide, self.ints(shape)), x.dtype)
        found.shape = tuple(shape)
        return found

    def reduce(self, kind: str, x: Wire, dims: Sequence[int], keepdims: bool) -> Wire:
        """A Reduce… operator over some dimensions; none of them is no reduction."""
        return self(kind, x, self.constant(list(dims), INT64), keepdims=int(keepdims), noop_with_empty_axes=1)

    def shape_of(self, x: Wire) -> Wire:
        """The sizes as a vector: constants where they are known."""
        return self("Shape", x) if x.shape is None else self.ints(x.shape)

    def cut(self, x: Wire, start: Any, stop: Any, dim: int, step: int = 1) -> Wire:
        """Elements start to stop of one dimension."""
        return self("Slice", x, self.ints([start]), self.ints([stop]), self.constant([dim], INT64), self.constant([step], INT64))

    # ------------------------------------------------------------ graphs inside

    def front(self) -> Emitter:
        """An emitter for nodes before all others."""
        found = Emitter(self.names, self.opset, self.root)
        found.nodes, found.row = self.root.prologue, "size"
        return found

    @contextmanager
    def inside(self) -> Iterator[Emitter]:
        """An emitter for a graph inside a node."""
        inner = Emitter(self.names, self.opset, self.root)
        inner.scope, inner.row = self.scope, self.row
        yield inner

    def entry(self, dtype: DTypeLike, shape: tuple[int, ...] | None = None) -> Wire:
        """An input of the graph inside."""
        return Wire(self.names.fresh("inner"), dtype, self, shape)

    def graph(self, inputs: Sequence[Wire], outputs: Sequence[Wire]) -> Subgraph:
        """The graph inside, complete: its results are made by its own nodes, each once."""
        made = {name for node in self.nodes for name in node.outputs}
        ends: list[Wire] = []
        for wire in outputs:
            own = wire.name in made and all(wire.name != other.name for other in ends)
            end = wire if own else self("Identity", wire)
            end.shape = wire.shape
            ends.append(end)
        return Subgraph(list(inputs), self.nodes, ends)


def is_dynamic(value: Any) -> bool:
    """Whether a number depends on sizes that are known at run time alone."""
    return hasattr(value, "expr")


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal at every size."""
    return len(a) == len(b) and all(getattr(x, "expr", None) == getattr(y, "expr", None) and x == y for x, y in zip(a, b))


def cast_number(value: Any, dtype: DTypeLike) -> Any:
    """A Python number as a 0-d array of an integer type: integers wrap, as in a kernel."""
    return np.array(value).astype(dtype) if isinstance(value, int) else np.array(value, dtype)


def unset(e: Emitter, part: Any, inputs: Sequence[Wire]) -> list[Wire]:
    """No bodies can be written by an emitter of its own."""
    raise Unsupported("control flow outside of a whole program")
