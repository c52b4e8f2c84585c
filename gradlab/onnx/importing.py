"""What an operator's implementation sees of an ONNX file: a node with its attributes, and values on the host or in tensors.

Values are tensors, or NumPy arrays where ONNX uses tensors for what PyTorch takes as plain numbers: shapes, axes, pads, and whatever is
computed from those (`hosts.py`). So a loaded model can be traced, and runs on any device. Sizes that a trace does not know are numbers with
an expression (`gradlab.graph.dims`), in arrays of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradlab.autograd.mode import current, enter, leave
from gradlab.device import Device
from gradlab.tensor import creation as tensors
from gradlab.tensor.shape import stack
from gradlab.tensor.tensor import Tensor

Run = Callable[..., Any]
# TensorProto.DataType of onnx.proto. A table, since protobuf's own class fills itself when asked, which a trace would take for a change.
DATA_TYPES = dict(enumerate((
    "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "float64", "uint32", "uint64",
    "complex64", "complex128", "bfloat16",
), start=1))  # fmt: skip
LONGEST = 4000  # characters of a message
EXTRA = "com.microsoft"  # the domain of ONNX Runtime's own operators


class OnnxLoadError(ValueError):
    """A file that cannot be run, with the operator and the node's name; what a file repeats endlessly is cut short."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


@dataclass
class Operator:
    """run(node, *inputs) gives a value, or a tuple of them. host: inputs that are plain numbers and come as NumPy arrays (or None)."""

    run: Run
    host: frozenset[int] = frozenset()
    first: int = 1  # the oldest opset whose meaning it knows
    always_host: bool = False  # its result is plain numbers whatever its inputs are
    fixed: frozenset[int] = frozenset()  # inputs that are data, but nothing that is trained: scales, running statistics
    numbers: bool = False  # takes a Python number for an operand of one element
    arrays: Callable[[Any], dict[str, Any]] | None = None  # of a node: tensors among its attributes, which become inputs behind its own
    parts: Callable[[Any], list[Any]] | None = None  # of a node: nodes that stand for it, so that what is constant is computed once


OPERATORS: dict[str, Operator] = {}


def imports(
    *names: str, host: Sequence[int] = (), first: int = 1, always_host: bool = False, fixed: Sequence[int] = (), numbers: bool = False,
    arrays: Callable[[Any], dict[str, Any]] | None = None, parts: Callable[[Any], list[Any]] | None = None,
) -> Callable[[Run], Run]:  # fmt: skip
    """Register how operators are run; those of another domain are called "domain:name"."""

    def register(run: Run) -> Run:
        operator = Operator(run, frozenset(host), first, always_host, frozenset(fixed), numbers, arrays, parts)
        OPERATORS.update((name, operator) for name in names)
        return run

    return register


class Node:
    """One node. attributes: Python numbers, strings, lists, NumPy arrays for tensors, `Body` for graphs."""

    device: Device | None = None  # of the run
    scope: Any = None  # of the run: what graphs inside may read
    operator: Any = None

    def __init__(self, kind: str, name: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any], opset: int) -> None:
        self.kind, self.name, self.inputs, self.outputs, self.attributes, self.opset = kind, name, inputs, outputs, attributes, opset
        self.last: tuple[str, ...] = ()  # values that nobody reads behind this node

    def at(self, device: Device | None, scope: Any) -> Node:
        """The node in a run. Runs may be under way at once, so it is another object."""
        live = object.__new__(Node)
        live.__dict__.update(self.__dict__)
        live.device, live.scope = device, scope
        return live

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default."""
        return self.attributes.get(name, default)

    @property
    def where(self) -> str:
        """Operator and name, for errors."""
        if self.name or not self.outputs:
            return f"{self.kind} (node {self.name!r})"
        return f"{self.kind} (node that makes {self.outputs[0]!r})"

    def tensor(self, value: Any) -> Tensor:
        """A value as a tensor on the device of the run."""
        if isinstance(value, Tensor):
            return value
        array = np.asarray(value)
        if array.dtype != object:
            return tensors.tensor(array, device=self.device)
        dtype = np.dtype(np.float32 if any(isinstance(v, float) for v in array.reshape(-1)) else np.int64)
        parts = [tensors.full((), v, dtype=dtype, device=self.device) for v in array.reshape(-1).tolist()]
        return stack(parts).reshape(array.shape)

    def refuse(self, why: str) -> OnnxLoadError:
        """The error for what is not supported."""
        return OnnxLoadError(f"onnx.load: {self.where}: {why}")


class Values(dict[str, Any]):
    """The values of a run by name, which inputs a message may speak of, and whether results are maps where the file says so."""

    open_inputs: Sequence[str] = ()
    maps: bool = True


def inside(node: Node) -> Values:
    """What a graph inside a node sees: values of its own beside those around it."""
    found = Values(node.scope)
    found.open_inputs = getattr(node.scope, "open_inputs", ())
    return found


def is_dynamic(value: Any) -> bool:
    """Whether a number depends on sizes that a trace leaves open."""
    return hasattr(value, "expr")


FAR = 1 << 60  # above every size


def excess(value: Any) -> Any:
    """A number where it is positive, else 0. What depends on open sizes stays an expression of them: its sign is a floor division."""
    return value * (1 + value // FAR) if is_dynamic(value) else max(value, 0)


def ints(value: Any) -> list[int] | None:
    """Plain integers of an attribute or a host value, sizes that are not known yet among them; None stays None."""
    return None if value is None else [v if is_dynamic(v) else int(v) for v in np.asarray(value).reshape(-1)]


def number(value: Any) -> Any:
    """One plain number."""
    found = np.asarray(value).reshape(-1)
    if not found.size:
        raise ValueError("a number is missing: the array that holds it is empty")
    return found[0].item() if isinstance(found[0], np.generic) else found[0]


def given(value: Any) -> bool:
    """Whether an optional input is there (some files leave it out as an empty tensor)."""
    return value is not None and np.size(value) > 0 if isinstance(value, np.ndarray) else value is not None


def read(node: Node, value: Any, what: str) -> Any:
    """A tensor's values as a NumPy array. OnnxLoadError in a trace, where there are none."""
    if not isinstance(value, Tensor):
        return value
    if current().tracer is not None:
        why = "depends on values that are computed in the program; that cannot be compiled, only run eagerly"
        raise node.refuse(f"{what} {why}{way_out(node)}")
    return value.detach().cpu().numpy()


def way_out(node: Node) -> str:
    """How an input is fixed."""
    names = getattr(node.scope, "open_inputs", ())
    return f"; to fix an input: gl.onnx.load(path, constants={{name: value}}) with one of {', '.join(map(repr, names))}" if names else ""


def on_host(operator: Operator, node: Node, inputs: Sequence[Any]) -> Any:
    """Run an operator on host values: eagerly and on the CPU, also within a trace."""
    node = node.at(Device("cpu"), node.scope)
    token = enter(current().replace(tracer=None, recording=False))
    try:
        found = operator.run(node, *[v if i in operator.host else as_tensor(v) for i, v in enumerate(inputs)])
        return tuple(map(_plain, found)) if isinstance(found, tuple) else _plain(found)
    finally:
        leave(token)


def as_tensor(value: Any) -> Any:
    """A host value as a tensor of the CPU; strings stay."""
    return tensors.tensor(value) if isinstance(value, np.ndarray) and value.dtype.kind != "U" else value


def texts(values: Any) -> Any:
    """Strings as an array of them: arrays of objects hold open sizes here. Bytes are UTF-8."""
    array = np.asarray(values)
    if array.dtype.kind == "U":
        return array
    plain = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()]
    return np.array(plain, str).reshape(array.shape)


def is_text(value: Any) -> bool:
    """Whether a value is a string, or nested lists of them."""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, (str, bytes))


def _plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value
