"""A table of a model's layers: output shapes, parameters, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gradlab.autograd.mode import no_grad
from gradlab.named_errors import named_functions
from gradlab.nn.module import Module
from gradlab.nn.parameter import is_lazy
from gradlab.tensor import Tensor
from gradlab.tensor.creation import zeros
from gradlab.viz.html_table import html_table


class Layer(NamedTuple):
    """One line: a module's dotted name, its class, how deep it lies, the shape of what it gives, its own parameters."""

    name: str
    kind: str
    depth: int
    output: str
    parameters: int
    trainable: int
    bytes: int  # of the output

    @property
    def title(self) -> str:
        """Name and class, indented by depth."""
        return "  " * self.depth + f"{self.name or 'model'} ({self.kind})"


class Summary(NamedTuple):
    """What `summary` finds; printing it gives the table."""

    layers: list[Layer]
    parameters: int
    trainable: int
    parameter_bytes: int
    buffer_bytes: int
    output_bytes: int

    def __str__(self) -> str:
        head = ("layer", "output shape", "parameters")
        rows = [(x.title, x.output, f"{x.parameters:,}" if x.parameters else "") for x in self.layers]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in (head, *rows)]
        rule = "-" * (sum(widths) + 4)
        frozen = self.parameters - self.trainable
        sizes = map(_size, (self.parameter_bytes, self.buffer_bytes, self.output_bytes))
        lines[1:1] = [rule]
        lines += [
            rule,
            f"parameters: {self.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else ""),
            "bytes: parameters {}, buffers {}, layers' outputs {}".format(*sizes),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        frozen = self.parameters - self.trainable
        sizes = ", ".join(map(_size, (self.parameter_bytes, self.buffer_bytes, self.output_bytes)))
        note = f"{self.parameters:,} parameters ({frozen:,} frozen); parameters, buffers, outputs: {sizes}"
        rows = [(x.title, x.output, x.parameters or None) for x in self.layers]
        return html_table("", ("layer", "output shape", "parameters"), rows, note)


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for part in value for t in _tensors(part)] if isinstance(value, (tuple, list)) else []


def summary(model: Module, input: Any = None, *, input_size: Any = None, dtype: Any = None) -> Summary:
    """Run the model once, without recording and in evaluation mode, and list its layers.

    input: a tensor or a tuple of arguments; or instead input_size: the shape (or several shapes) of inputs of zeros.
    Returns a Summary, which prints as a table; parameters used in several places count once.
    """
    if (input is None) == (input_size is None):
        raise TypeError("summary: give either input (a tensor or a tuple of arguments) or input_size (a shape)")
    if input is None:
        shapes = [input_size] if isinstance(input_size[0], int) else list(input_size)
        device = next((p.device for p in model.parameters()), None)
        input = tuple(zeros(shape, dtype=dtype, device=device) for shape in shapes)
    arguments = input if isinstance(input, tuple) else (input,)
    outputs: dict[int, Any] = {}
    modes = [(m, m.training) for m in model.modules()]
    handles = [m.register_forward_hook(lambda m, args, out: outputs.__setitem__(id(m), out)) for m in model.modules()]
    try:
        with no_grad():
            model.eval()(*arguments)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    return _collected(model, outputs)


def _collected(model: Module, outputs: dict[int, Any]) -> Summary:
    seen: set[int] = set()
    layers = []
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None and not is_lazy(p) and id(p) not in seen]
        seen.update(map(id, own))
        found = _tensors(outputs.get(id(module)))
        leaf = not any(True for _ in module.children())
        shapes = ", ".join(str(tuple(t.shape)) for t in found)
        numbers = sum(p.numel() for p in own), sum(p.numel() for p in own if p.requires_grad)
        depth = name.count(".") + 1 if name else 0
        layers.append(Layer(name, type(module).__name__, depth, shapes, *numbers, sum(t.nbytes for t in found) if leaf else 0))
    parameters = list(model.parameters())
    return Summary(
        layers,
        sum(x.parameters for x in layers),
        sum(x.trainable for x in layers),
        sum(p.nbytes for p in parameters),
        sum(b.nbytes for b in model.buffers()),
        sum(x.bytes for x in layers),
    )


named_functions(__name__)
