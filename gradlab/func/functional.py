"""The functions of `gl.autograd.functional`, made of those of `gl.func`.

They take inputs as a tensor or a tuple of tensors and return outputs first. `create_graph=True` keeps the results in the graph of inputs
that require grad, under `no_grad()`, too; otherwise they are outside every graph. `strict=True` raises RuntimeError where an output does
not depend on an input, and with `create_graph=True` where a derivative does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, enable_grad, no_grad
from gradlab.func import jacobian as whole
from gradlab.func.derivatives import Differentiation, Linear, grad
from gradlab.func.recording import gradients, zeros
from gradlab.named_errors import named_functions

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(name: str, what: str, value: Any) -> tuple[Any, ...]:
    """A tensor or several as a tuple. Raises TypeError."""
    found = value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)
    for i, x in enumerate(found):
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: {what} are tensors, but number {i} is a {type(x).__name__}")
    return found


def _graph(create_graph: bool) -> Any:
    return enable_grad() if create_graph else no_grad()


def _vector(name: str, v: Any, like: tuple[Any, ...], single: bool) -> tuple[Any, ...]:
    """`v` as a tuple, of the shapes of `like`; 1 for a single number if it is None. Raises RuntimeError."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}: the vector v can only be None for a single number, not for shape {[x.shape for x in like]}")
        return (like[0].detach().new_ones(like[0].shape),)
    given = _tuple(name, "v", v)
    if len(given) != len(like):
        raise RuntimeError(f"{name}: v has {len(given)} tensors in place of {len(like)}")
    for x, g in zip(like, given, strict=True):
        if g.shape != x.shape:
            raise RuntimeError(f"{name}: v has the shape {g.shape} in place of {x.shape}")
    return given


def _strictly(name: str, found: list[Any], what: str, create_graph: bool = False) -> None:
    """Raise RuntimeError for a derivative that is missing, and for one that cannot be differentiated again though it is asked to."""
    for i, g in enumerate(found):
        if g is None:
            raise RuntimeError(f"{name}: with strict=True {what}, but not by input {i}; with strict=False it counts as zero")
        if create_graph and g._edge is None:
            raise RuntimeError(
                f"{name}: with strict=True and create_graph=True derivatives depend on the inputs, but derivative {i} is constant; with "
                f"strict=False its own derivatives count as zero"
            )


def _one_number(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` with its single number as a 0-d tensor, whatever shape it has (`grad` says what else is wrong)."""

    def number(*args: Any) -> Any:
        y = func(*args)
        return y.reshape(()) if isinstance(y, Differentiable) and y._array.shape and y.numel() == 1 else y  # type: ignore[attr-defined]

    return number


class _Run(Differentiation):
    """A function run for a product with its Jacobian."""

    def __init__(self, name: str, func: Callable[..., Any], inputs: Any) -> None:
        self.given = _tuple(name, "inputs", inputs)
        self.single = not isinstance(inputs, (tuple, list))
        super().__init__(name, func, range(len(self.given)), self.given, {}, False)
        self.values = tuple(self.outputs)

    def arranged(self, found: list[Any]) -> Any:
        """One for each input, as the inputs were given."""
        return found[0] if self.single else tuple(found)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(outputs, vᵀ·Jacobian): `v` nests like the outputs, and may be None for one number."""
    with _graph(create_graph):
        run = _Run("vjp", func, inputs)
        given = _vector("vjp", v, run.values, True)
        found = gradients(run.outputs, run.inputs, given, create_graph, create_graph and current().recording, run.recording.depth)
        if strict:
            _strictly("vjp", found, "every output depends on every input", create_graph)
        return run.result(), run.arranged([zeros(x) if g is None else g for x, g in zip(run.inputs, found, strict=True)])


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(outputs, Jacobian·v): `v` nests like the inputs, and may be None for one number."""
    with _graph(create_graph):
        run = _Run("jvp", func, inputs)
        given = _vector("jvp", v, run.given, run.single)
        linear = Linear(run)
        if strict:
            _strictly("jvp", linear.back or [None], "every output depends on every input")
        found = linear(given, create_graph, create_graph and (strict or linear.creates(given)))
        if strict and create_graph:
            _strictly("jvp", found, "every output depends on every input", True)
        return run.result(), found[0] if run.structure == "leaf" else tuple(found)


def _second(name: str, func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool) -> tuple[Any, Any]:
    """(output, Hessian·v), by the gradient of the gradient."""
    with _graph(create_graph):
        given = _tuple(name, "inputs", inputs)
        vector = _vector(name, v, given, True)
        numbers = tuple(range(len(given)))
        values: list[Any] = []

        def kept(*xs: Any) -> Any:
            values.append(func(*xs))
            return values[-1]

        run = _Run(name, grad(_one_number(kept), argnums=numbers), inputs)
        value = run.recording.outside(values[0], create_graph and run.keep)
        found = gradients(run.outputs, run.inputs, vector, create_graph, create_graph and current().recording, run.recording.depth)
        if strict:
            _strictly(name, found, "the gradient depends on every input", create_graph)
        return value, run.arranged([zeros(x) if g is None else g for x, g in zip(run.inputs, found, strict=True)])


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(output, vᵀ·Hessian) of a function whose output is one number; `v` nests like the inputs."""
    return _second("vhp", func, inputs, v, create_graph, strict)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(output, Hessian·v) of a function whose output is one number; as the Hessian is symmetric, `vhp` is the same."""
    return _second("hvp", func, inputs, v, create_graph, strict)


def _strict_check(name: str, func: Callable[..., Any], inputs: tuple[Any, ...], create_graph: bool) -> None:
    """Raise RuntimeError unless each output depends on each input, and with create_graph each derivative does."""
    with _graph(create_graph):
        run = _Run(name, func, inputs)
        for y in run.outputs:
            found = gradients([y], run.inputs, [zeros(y)], True, create_graph, run.recording.depth)
            _strictly(name, found, "every output depends on every input", create_graph)


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """All derivatives: of shape (*output, *input); a tuple by inputs if they are several, within a tuple by outputs if they are.

    vectorize: all rows at once with vmap, else one after the other. strategy: "reverse-mode" (by rows) or "forward-mode" (by columns).
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian: strategy is 'reverse-mode' or 'forward-mode', not {strategy!r}")
    given = _tuple("jacobian", "inputs", inputs)
    numbers: Any = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    if strict:
        _strict_check("jacobian", func, given, create_graph)
    make = whole.jacrev if strategy == "reverse-mode" else whole.jacfwd
    with _graph(create_graph):
        return make(func, argnums=numbers, chunk_size=None if vectorize else 1)(*given)


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """All second derivatives of a function that gives one number: of shape (*input, *input); tuples of tuples for several inputs."""
    given = _tuple("hessian", "inputs", inputs)
    numbers: Any = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    found = jacobian(grad(_one_number(func), argnums=numbers), inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found


named_functions(__name__)
