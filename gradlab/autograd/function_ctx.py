"""The `ctx` by which the forward and the backward of an `autograd.Function` speak to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.autograd import errors
from gradlab.autograd.base import Differentiable


class FunctionCtx:
    """The `ctx` of one call: forward leaves on it what backward needs. Any other attribute is the user's."""

    needs_input_grad: tuple[bool, ...] = ()  # for each argument of forward, whether a gradient is asked for
    _materialize = True
    _saved: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _constant: tuple[Any, ...] = ()
    _node: Callable[[], Any] | None = None
    _forward: tuple[Any, ...] | None = None  # what save_for_forward was given; once the call is recorded, as the node keeps it
    _in_jvp = False

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward, where they are `ctx.saved_tensors`. Call it once, from forward or setup_context.

        Unlike an attribute of ctx, a saved tensor is freed after backward, guarded against in-place changes and seen by
        `saved_tensors_hooks`; an output kept this way makes no reference cycle.
        """
        self._saved = _tensors("save_for_backward", tensors)

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for `jvp`, where they are `ctx.saved_tensors`. Without this call, those kept for backward are."""
        self._forward = _tensors("save_for_forward", tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was given to `save_for_backward` (inside `jvp`, to `save_for_forward`).

        RuntimeError once backward freed it, or when one was changed in place.
        """
        node = None if self._node is None else self._node()
        if node is None:
            return self._saved
        saved = node.saved  # read once: another thread may free it
        if self._in_jvp and self._forward is not None:
            saved = self._forward
        if saved is None:
            raise errors.freed(node)
        return tuple(None if kept is None else kept.tensor(node) for kept in saved)

    def mark_dirty(self, *args: Any) -> None:
        """Say which inputs forward changed in place. All of them have to be returned."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs have no gradient. Backward still gets a gradient for them: zeros."""
        self._constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs that nobody used."""
        self._materialize = bool(value)


def _tensors(method: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    for i, x in enumerate(given):
        if x is not None and not isinstance(x, Differentiable):
            raise TypeError(f"{method}: argument {i} is a {type(x).__name__}, not a tensor; keep other things as attributes of ctx")
    return given
