"""What a node keeps, under PyTorch's names: `y.grad_fn._saved_self`, `_saved_result`, `_saved_dim`. For tools that draw graphs."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.formulas import unpack
from gradlab.autograd.saved import unpack_all

_FIRST = dict.fromkeys(("linear", "convolution", "conv_transpose", "layer_norm", "batch_norm"), "input")  # of others it is `self`
_SECOND = {
    **dict.fromkeys(("linear", "convolution", "conv_transpose", "layer_norm", "batch_norm"), "weight"),
    **dict.fromkeys(("matmul", "wide_matmul"), "mat2"), **dict.fromkeys(("pow", "pow_tensor"), "exponent"), "mse": "target",
}  # fmt: skip
_PARAMS = {"lo": "min", "hi": "max"}


def names(op: Any) -> dict[str, str]:
    """PyTorch's name for each input and output that the row may keep and for each parameter, with the row's own."""
    results = ("result",) if len(op.outputs) == 1 else getattr(op.result, "_fields", op.outputs)
    found = {_PARAMS.get(p, p): p for p in op.params}
    found |= {_name(op.name, i): name for i, name in enumerate(op.inputs) if name in op.kept_inputs}
    found |= {theirs: name for theirs, name in zip(results, op.outputs, strict=True) if name in op.kept_outputs}
    return {f"_saved_{theirs}": own for theirs, own in found.items()}


def _name(row: str, position: int) -> str:
    return (_FIRST.get(row, "self"), _SECOND.get(row, "other"))[position] if position < 2 else f"input{position}"


def saved(node: Any, name: str) -> Any:
    """The tensor or number that a node keeps under that name; None for what its gradient does not ask for.

    AttributeError for a name that it has not, RuntimeError after backward has freed it.
    """
    op: Any = getattr(type(node), "op", None)
    own = names(op).get(name) if op is not None else None
    if own is None:
        raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}")
    if own in op.params:
        return node.params[own]
    values = (unpack_all if type(node) is op.node.packing else unpack)(node)
    return values[(*op.kept_inputs, *op.kept_outputs).index(own)] if values else None
