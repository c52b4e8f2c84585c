"""`custom_op(name, function, mutates_args=…)`: an operation written with tensor functions, as PyTorch's programs make them.

It runs without recording, as an `autograd.Function` does, and in a trace its own operations are traced. What `register_autograd` gives is
its gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from gradlab.autograd.function import Function
from gradlab.autograd.mode import no_grad
from gradlab.tensor import Tensor


class TensorOp:
    """An operation made of a function of tensors. Calling it runs it, on what the device's kernel says if there is one.

    function: takes and returns tensors and other values. changed: the arguments that it writes to; such an operation has no gradient.
    """

    def __init__(self, name: str, function: Callable[..., Any], changed: str | Iterable[str]) -> None:
        self.name = self._qualname = name
        self.__name__ = name.partition("::")[2]
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function)
        self._function = function
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._changed = () if changed == "unknown" else (changed,) if isinstance(changed, str) else tuple(changed)
        if unknown := [each for each in self._changed if each not in self._signature.parameters]:
            raise ValueError(f"custom_op {name}: mutates_args names {', '.join(unknown)}; the function takes {self._signature}")
        self._recorded = self._as_function(None, None)

    def _as_function(self, backward: Callable[..., Any] | None, setup: Callable[..., Any] | None) -> type[Function]:
        keywords = [n for n, p in self._signature.parameters.items() if p.kind is p.KEYWORD_ONLY]
        place = len(self._signature.parameters) - len(keywords)

        def split(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return values[:place], dict(zip(keywords, values[place:], strict=True))

        def forward(ctx: Any, *values: Any) -> Any:
            args, named = split(values)
            output = self._run(values)(*args, **named)
            if setup is not None:
                setup(ctx, args, **({"keyword_only_inputs": named} if named else {}), output=output)
            return output

        def gradient(ctx: Any, *grads: Any) -> Any:
            if backward is None:
                raise RuntimeError(f"{self.name} has no gradient; give it one by gl.library.register_autograd({self.name!r}, backward)")
            found = backward(ctx, *grads)
            return (*(found if isinstance(found, tuple) else (found,)), *(None for _ in keywords))

        made = {"forward": staticmethod(forward), "backward": staticmethod(gradient)}
        return type("".join(part.capitalize() for part in self.__name__.split("_")), (Function,), made)

    def _run(self, values: tuple[Any, ...]) -> Callable[..., Any]:
        device = next((x.device.type for x in values if isinstance(x, Tensor)), "")
        return self._kernels.get(device, self._function)

    @property
    def default(self) -> TensorOp:
        """Its only overload: itself."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = tuple(bound.arguments.values())
        if self._changed:
            with no_grad():
                return self._run(values)(*bound.args, **bound.kwargs)
        return self._recorded.apply(*values)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """Its gradient, as `gl.library.register_autograd` has it."""
        if self._changed:
            raise RuntimeError(f"register_autograd: {self.name} writes to {', '.join(self._changed)}, so it has no gradient")
        self._recorded = self._as_function(backward, setup_context)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Taken and not needed: shapes in a trace are those of the operations that the function calls."""
        return fn

    def register_kernel(self, device_types: str | Iterable[str], fn: Callable[..., Any] | None = None, /) -> Any:
        """What runs where the first tensor is on one of the devices. Without fn: a decorator."""
        if fn is None:
            return lambda function: self.register_kernel(device_types, function)
        for device in (device_types,) if isinstance(device_types, str) else device_types:
            self._kernels[device] = fn
        return fn

    def __repr__(self) -> str:
        return f"<custom op {self.name}{self._signature}>"

    def __deepcopy__(self, memo: Any) -> TensorOp:
        return self
