"""`custom_op(name, function, mutates_args=…)`: an operation written with tensor functions, as PyTorch's programs make them.

It runs without recording, as an `autograd.Function` does. In a trace its own operations are traced; where that is not possible, as they
read values, and `register_fake` says how large the results are, the trace has one call of it, which runs the function each time. An
operation that writes to its arguments and returns nothing is always such a call. What `register_autograd` gives is its gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from gradlab.autograd.function import Function
from gradlab.autograd.mode import current, no_grad
from gradlab.backends.cuda.launch import BY_ROW
from gradlab.backends.cuda.launch.control_flow import PYTHON
from gradlab.graph.control.opaque_call import opaque_call, row_name
from gradlab.graph.staging.symbol import TraceError
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
        self._fake: Callable[..., Any] | None = None
        BY_ROW[row_name(name)] = PYTHON
        self._changed = () if changed == "unknown" else (changed,) if isinstance(changed, str) else tuple(changed)
        if unknown := [each for each in self._changed if each not in self._signature.parameters]:
            raise ValueError(f"custom_op {name}: mutates_args names {', '.join(unknown)}; the function takes {self._signature}")
        self._backward: tuple[Callable[..., Any] | None, Callable[..., Any] | None] = (None, None)
        self._vmap: Callable[..., Any] | None = None
        self._recorded = self._as_function()

    def _as_function(self) -> type[Function]:
        backward, setup = self._backward
        keywords = [n for n, p in self._signature.parameters.items() if p.kind is p.KEYWORD_ONLY]
        place = len(self._signature.parameters) - len(keywords)

        def split(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return values[:place], dict(zip(keywords, values[place:], strict=True))

        def forward(*values: Any) -> Any:
            return self._result(*split(values))

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if setup is not None:
                args, named = split(inputs)
                setup(ctx, args, **({"keyword_only_inputs": named} if named else {}), output=output)

        def gradient(ctx: Any, *grads: Any) -> Any:
            if backward is None:
                raise RuntimeError(f"{self.name} has no gradient; give it one by gl.library.register_autograd({self.name!r}, backward)")
            found = backward(ctx, *grads)
            return (*(found if isinstance(found, tuple) else (found,)), *(None for _ in keywords))

        rule = {"generate_vmap_rule": True} if self._vmap is None else {"vmap": staticmethod(self._vmap)}
        made = {"forward": staticmethod(forward), "setup_context": staticmethod(setup_context), "backward": staticmethod(gradient), **rule}
        return type("".join(part.capitalize() for part in self.__name__.split("_")), (Function,), made)

    def _result(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        device = next((x.device.type for x in (*args, *named.values()) if isinstance(x, Tensor)), "")
        run = self._kernels.get(device, self._function)
        if device == "meta" and self._fake is not None:
            return self._fake(*args, **named)
        if current().tracer is None:
            return run(*args, **named)
        if self._changed and (self._fake is not None or self._signature.return_annotation in (None, "None")):
            given = self._signature.bind(*args, **named).arguments
            return opaque_call(self.name, run, self._fake, args, named, [given[name] for name in self._changed if name in given])
        try:
            return run(*args, **named)
        except TraceError:
            if self._fake is None or self._changed:
                raise
            return opaque_call(self.name, run, self._fake, args, named, ())

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
                return self._result(bound.args, bound.kwargs)
        return self._recorded.apply(*values)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """Its gradient, as `gl.library.register_autograd` has it."""
        if self._changed:
            raise RuntimeError(f"register_autograd: {self.name} writes to {', '.join(self._changed)}, so it has no gradient")
        self._backward = backward, setup_context
        self._recorded = self._as_function()

    def register_vmap(self, fn: Callable[..., Any] | None = None, /) -> Any:
        """What it does under `gl.vmap`, as `gl.library.register_vmap` has it. Without fn: a decorator."""
        if fn is None:
            return self.register_vmap
        self._vmap = fn
        self._recorded = self._as_function()
        return fn

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """The same for tensors without values: on the meta device, and in a trace that the function itself cannot be part of."""
        self._fake = fn
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
