"""What an operator's implementation sees of an ONNX file: a node with its attributes, and values on the host or in tensors.

Values are tensors, or NumPy arrays where ONNX uses tensors for what PyTorch takes as plain numbers: shapes, axes, pads, and whatever is
computed from those. So a loaded model can be traced, and runs on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradlab.autograd.mode import current, enter, leave
from gradlab.device import Device
from gradlab.tensor import creation as tensors
from gradlab.tensor.tensor import Tensor

Run = Callable[..., Any]


class OnnxLoadError(ValueError):
    """A file that cannot be run, with the operator and the node's name."""


@dataclass
class Operator:
    """run(node, *inputs) gives a value, or a tuple of them. host: inputs that are plain numbers and come as NumPy arrays (or None)."""

    run: Run
    host: frozenset[int] = frozenset()
    first: int = 1  # the oldest opset whose meaning it knows
    always_host: bool = False  # its result is plain numbers whatever its inputs are


OPERATORS: dict[str, Operator] = {}


def imports(*names: str, host: Sequence[int] = (), first: int = 1, always_host: bool = False) -> Callable[[Run], Run]:
    """Register how operators are run."""

    def register(run: Run) -> Run:
        OPERATORS.update((name, Operator(run, frozenset(host), first, always_host)) for name in names)
        return run

    return register


@dataclass
class Node:
    """One node. attributes: Python numbers, strings, lists, NumPy arrays for tensors, `Body` for graphs."""

    kind: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    opset: int
    device: Device | None = None  # of the run
    scope: Any = None  # of the run: what graphs inside may read
    operator: Any = None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default."""
        return self.attributes.get(name, default)

    @property
    def where(self) -> str:
        """Operator and name, for errors."""
        return f"{self.kind} (node {self.name!r})" if self.name else f"{self.kind} (node that makes {self.outputs[0]!r})"

    def tensor(self, value: Any) -> Tensor:
        """A value as a tensor on the device of the run."""
        return value if isinstance(value, Tensor) else tensors.tensor(np.asarray(value), device=self.device)

    def refuse(self, why: str) -> OnnxLoadError:
        """The error for what is not supported."""
        return OnnxLoadError(f"onnx.load: {self.where}: {why}")


def ints(value: Any) -> list[int] | None:
    """Plain integers of an attribute or a host value; None stays None."""
    return None if value is None else [int(v) for v in np.asarray(value).reshape(-1)]


def number(value: Any) -> Any:
    """One plain number."""
    return np.asarray(value).reshape(-1)[0].item()


def given(value: Any) -> bool:
    """Whether an optional input is there (some files leave it out as an empty tensor)."""
    return value is not None and np.size(value) > 0 if isinstance(value, np.ndarray) else value is not None


def read(node: Node, value: Any, what: str) -> Any:
    """A tensor's values as a NumPy array. OnnxLoadError in a trace, where there are none."""
    if not isinstance(value, Tensor):
        return value
    if current().tracer is not None:
        raise node.refuse(f"{what} depends on values that are computed in the program; that cannot be compiled, only run eagerly")
    return value.detach().cpu().numpy()


def on_host(operator: Operator, node: Node, inputs: Sequence[Any]) -> Any:
    """Run an operator on host values: eagerly and on the CPU, also within a trace."""
    device, node.device = node.device, Device("cpu")
    token = enter(current().replace(tracer=None))
    try:
        found = operator.run(node, *[v if i in operator.host else as_tensor(v) for i, v in enumerate(inputs)])
    finally:
        leave(token)
        node.device = device
    return tuple(map(_plain, found)) if isinstance(found, tuple) else _plain(found)


def as_tensor(value: Any) -> Any:
    """A host value as a tensor of the CPU."""
    return tensors.tensor(value) if isinstance(value, np.ndarray) else value


def _plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value
