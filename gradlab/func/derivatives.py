"""Derivatives of functions: gradients, vector-Jacobian and Jacobian-vector products, linear approximations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.function import by_jvp
from gradlab.autograd.mode import current
from gradlab.dtype import INEXACT
from gradlab.func.recording import Recording, fresh, gradients, in_graph, inputs_of, zeros
from gradlab.func.tree import flatten, unflatten
from gradlab.named_errors import named_functions

Argnums = int | tuple[int, ...]


def chosen(name: str, argnums: Any, count: int) -> tuple[int, ...]:
    """`argnums` as distinct numbers from 0. Raises RuntimeError, TypeError."""
    numbers = (argnums,) if isinstance(argnums, int) and not isinstance(argnums, bool) else argnums
    if not isinstance(numbers, tuple) or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(f"{name}: argnums is a number or a tuple of numbers, not {argnums!r}")
    if not numbers:
        raise RuntimeError(f"{name}: argnums is empty: there is nothing to differentiate by")
    for n in numbers:
        if not -count <= n < count:
            raise RuntimeError(f"{name}: argnums {n} is out of range for a function called with {count} positional arguments")
    found = tuple(n % count for n in numbers)
    if len(set(found)) != len(found):
        raise RuntimeError(f"{name}: argnums {argnums} names an argument twice")
    return found


def with_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """The differentiated part of a result and the rest."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{name}: with has_aux=True the function returns a pair (output, aux), not {type(result).__name__}")
    return result


def tensors_of(name: str, value: Any) -> tuple[list[Any], Any]:
    """The tensors of a differentiated result. Raises TypeError for what is none."""
    leaves, structure = flatten(value)
    for y in leaves:
        if not isinstance(y, Differentiable):
            raise TypeError(f"{name}: the function returns tensors (nested in tuples, lists, dicts), but there is a {type(y).__name__}")
    return leaves, structure


class Differentiation:
    """A function run on fresh inputs in place of its arguments `numbers`."""

    def __init__(
        self, name: str, func: Callable[..., Any], numbers: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any], has_aux: bool
    ) -> None:
        self.recording = Recording()
        with self.recording:
            self.inputs: list[Any] = []
            self.structures = []
            arguments = list(args)
            for n in numbers:
                tensors, structure = inputs_of(name, args[n])
                made = [fresh(x) for x in tensors]
                arguments[n] = unflatten(structure, made)
                self.inputs += made
                self.structures.append((structure, len(made)))
            value, aux = with_aux(name, func(*arguments, **kwargs), has_aux)
        self.outputs, self.structure = tensors_of(name, value)
        self.aux_tensors = [x for x in flatten(aux)[0] if isinstance(x, Differentiable)]
        self.aux = aux
        self.foreign = self.recording.foreign([*self.outputs, *self.aux_tensors], self.inputs)
        self.keep = self.foreign and self.recording.outer.recording

    def result(self) -> Any:
        """The function's value for the caller."""
        return self.recording.outside(unflatten(self.structure, self.outputs), self.keep)

    def rest(self) -> Any:
        """The function's `aux` for the caller."""
        return self.recording.outside(self.aux, self.keep)

    def gradients(self, given: Sequence[Any], retain: bool, create: bool) -> list[Any]:
        """A gradient for each input; zeros where there is none."""
        found = gradients(self.outputs, self.inputs, given, retain, create, self.recording.depth)
        return [zeros(x) if g is None else g for x, g in zip(self.inputs, found, strict=True)]

    def by_argument(self, values: Sequence[Any]) -> list[Any]:
        """Values of the inputs, nested like the arguments."""
        found, start = [], 0
        for structure, count in self.structures:
            found.append(unflatten(structure, values[start : start + count]))
            start += count
        return found


def value_and_grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives `func`'s value and its gradient: `(value, gradient)`, or `((value, aux), gradient)` with `has_aux`.

    The arguments are those of `grad`. (PyTorch's `grad_and_value`, which gives them the other way round, is there as well.)
    """
    return _gradient_function("value_and_grad", func, argnums, has_aux, lambda v, g, aux: ((v, aux) if has_aux else v, g))


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """As `value_and_grad`, the gradient first: `(gradient, value)`, or `(gradient, (value, aux))` with `has_aux`."""
    return _gradient_function("grad_and_value", func, argnums, has_aux, lambda v, g, aux: (g, (v, aux) if has_aux else v))


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of `func`, whose value is one number (a 0-d tensor).

    argnums: the positional arguments to differentiate by: a number, or a tuple, which gives a tuple of gradients. An argument may nest
    tensors in tuples, lists and dicts; so does its gradient.
    has_aux: `func` returns a pair (value, aux), and the result is (gradient, aux).
    Raises RuntimeError where the value is not one number, TypeError where an argument is no tensor.

    >>> import gradlab as gl
    >>> gl.func.grad(lambda x: x**3)(gl.tensor(2.0))
    tensor(12.)
    """
    return _gradient_function("grad", func, argnums, has_aux, lambda v, g, aux: (g, aux) if has_aux else g)


def _gradient_function(name: str, func: Callable[..., Any], argnums: Any, has_aux: bool, arrange: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = chosen(name, argnums, len(args))
        run = Differentiation(name, func, numbers, args, kwargs, has_aux)
        if run.structure != "leaf":
            raise RuntimeError(f"{name}: the function returns one 0-d tensor, not several values; use vjp or jacrev for those")
        (value,) = run.outputs
        if value._array.shape != ():
            raise RuntimeError(
                f"{name}: the function returns a 0-d tensor, not one of shape {value._array.shape}; reduce it (.sum(), .mean()), or use "
                f"vjp with a vector, or jacrev for all derivatives"
            )
        one = value.detach().new_ones((), dtype=value._array.dtype)
        found = run.by_argument(run.gradients([one], run.keep, run.keep))
        return arrange(run.result(), found[0] if isinstance(argnums, int) else tuple(found), run.rest())

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`func`'s value at `primals`, and the function that multiplies a vector from the left with its Jacobian there.

    Returns (output, vjp_fn), or (output, vjp_fn, aux) if `func` returns a pair and has_aux is set. `vjp_fn(cotangents)` takes a value for
    each output (nested like the output; or one for each part of a tuple) and gives a tuple with one for each primal. It may be called
    several times, also under vmap. Raises RuntimeError for cotangents of another structure or shape.

    >>> import gradlab as gl
    >>> y, vjp_fn = gl.func.vjp(lambda x: x.sin(), gl.zeros(2))
    >>> vjp_fn(gl.tensor([1.0, 2.0]))
    (tensor([1., 2.]),)
    """
    run = Differentiation("vjp", func, range(len(primals)), primals, {}, has_aux)
    if not primals:
        raise RuntimeError("vjp: no primals: there is nothing to differentiate by")

    def vjp_fn(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = _cotangents(run, cotangents)
        create = current().recording and (run.foreign or in_graph(given)) if create_graph is None else create_graph
        return tuple(run.by_argument(run.gradients(given, retain_graph, create)))

    return (run.result(), vjp_fn, run.rest()) if has_aux else (run.result(), vjp_fn)


def _cotangents(run: Differentiation, cotangents: tuple[Any, ...]) -> list[Any]:
    """The cotangents as a list, checked against the outputs."""
    value = cotangents[0] if len(cotangents) == 1 else cotangents
    leaves, structure = flatten(value)
    if structure != run.structure and not (structure == "leaf" and len(run.outputs) == 1):
        raise RuntimeError("vjp: the cotangents nest like the function's output, one for each tensor, but their structure is another")
    for y, g in zip(run.outputs, leaves, strict=True):
        if not isinstance(g, Differentiable) or g._array.shape != y._array.shape:
            raise RuntimeError(f"vjp: a cotangent is a tensor of its output's shape {y._array.shape}, not {getattr(g, 'shape', type(g))}")
    return leaves


class Linear:
    """The derivative of a function at a point as a linear map of tangents. The function is run once, here.

    With g(u) the gradient of Σ outputs·u by the inputs, which is linear in u, the map is g's own vector-Jacobian product: the walk over
    the walk. Making it costs a forward and a recorded backward, each tangent about one backward more (J. Townsend, "A new trick for
    calculating Jacobian vector products", 2017). An `autograd.Function` that has a `jvp` is asked for that instead.
    """

    def __init__(self, run: Differentiation) -> None:
        self.run = run
        self.depth = run.recording.depth
        self.within = [y for y in run.outputs if y._edge is not None and y._array.dtype in INEXACT]
        with run.recording:
            self.vectors = [fresh(zeros(y)) for y in self.within]
            with by_jvp():
                self.back = gradients(self.within, run.inputs, self.vectors, True, True, self.depth)

    def __call__(self, tangents: Sequence[Any], retain: bool, create: bool) -> list[Any]:
        """The outputs' tangents; zeros where an output does not depend on the inputs."""
        pairs = [(g, t) for g, t in zip(self.back, tangents, strict=True) if g is not None]
        found = gradients([g for g, _ in pairs], self.vectors, [t for _, t in pairs], retain, create, self.depth)
        by_output = {id(y): t for y, t in zip(self.within, found, strict=True)}
        return [zeros(y) if (t := by_output.get(id(y))) is None else t for y in self.run.outputs]

    def checked(self, name: str, tangents: tuple[Any, ...]) -> list[Any]:
        """Tangents as a list: nested, shaped and typed as the primals."""
        if len(tangents) != len(self.run.structures):
            raise RuntimeError(f"{name}: one tangent for each of the {len(self.run.structures)} primals, not {len(tangents)}")
        found: list[Any] = []
        for (structure, _), value in zip(self.run.structures, tangents, strict=True):
            leaves, own = flatten(value)
            if own != structure:
                raise RuntimeError(f"{name}: a tangent nests like its primal, but its structure is another")
            found += leaves
        for i, (x, t) in enumerate(zip(self.run.inputs, found, strict=True)):
            if isinstance(t, float):
                found[i] = t = x.detach().new_full((), t)
            if not isinstance(t, Differentiable) or t._array.shape != x._array.shape:
                found_shape = getattr(t, "shape", type(t).__name__)
                raise RuntimeError(f"{name}: a tangent is a tensor of its primal's shape {x._array.shape}, not {found_shape}")
            if t._array.dtype != x._array.dtype:
                raise RuntimeError(f"{name}: a tangent has its primal's dtype {x._array.dtype}, not {t._array.dtype}")
        return found

    def creates(self, tangents: Sequence[Any]) -> bool:
        """Whether what comes out can be asked to be differentiated again."""
        return current().recording and (self.run.foreign or in_graph(tangents))


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False, has_aux: bool = False
) -> Any:
    """`func`'s value at `primals`, and its Jacobian there times `tangents`: how the value changes when the primals move that way.

    primals, tangents: tuples of the same structure, shapes and dtypes. Returns (output, tangent of the output), with `aux` behind them if
    `func` returns a pair and has_aux is set. strict: raise RuntimeError if an output does not depend on the primals, in place of zeros.

    It is computed by two backward passes, the second over the first: about three times the cost of the function. Where the same point is
    asked again, `linearize` does the larger part of it once.

    >>> import gradlab as gl
    >>> gl.func.jvp(lambda x: x**2, (gl.tensor(3.0),), (gl.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or not primals:
        raise RuntimeError(f"jvp: primals and tangents are tuples of at least one, not {type(primals).__name__}, {type(tangents).__name__}")
    run = Differentiation("jvp", func, range(len(primals)), primals, {}, has_aux)
    linear = Linear(run)
    given = linear.checked("jvp", tangents)
    if strict and any(y._edge is None for y in run.outputs):
        raise RuntimeError("jvp: with strict=True every output depends on the primals, but one does not")
    create = linear.creates(given)
    moved = run.recording.outside(unflatten(run.structure, linear(given, create or run.keep, create)), create)
    return (run.result(), moved, run.rest()) if has_aux else (run.result(), moved)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func`'s value at `primals`, and the linear function of tangents that approximates it there; `func` is not run again for these.

    `jvp_fn(*tangents)` takes a tangent for each primal and gives that of the output. It may be called several times, also under vmap.

    >>> import gradlab as gl
    >>> y, jvp_fn = gl.func.linearize(lambda x: x**2, gl.tensor(3.0))
    >>> jvp_fn(gl.tensor(1.0)), jvp_fn(gl.tensor(10.0))
    (tensor(6.), tensor(60.))
    """
    if not primals:
        raise RuntimeError("linearize: no primals: there is nothing to differentiate by")
    run = Differentiation("linearize", func, range(len(primals)), primals, {}, False)
    linear = Linear(run)

    def jvp_fn(*tangents: Any) -> Any:
        given = linear.checked("linearize", tangents)
        create = linear.creates(given)
        return run.recording.outside(unflatten(run.structure, linear(given, True, create)), create)

    return run.result(), jvp_fn


def hvp(func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """The Hessian of `func` (one number) at `primals` times `tangents`, without making the Hessian: the gradient of a gradient.

    Returns what nests like the primals: a tuple, or, of one primal, that alone. It costs about two backward passes.

    >>> import gradlab as gl
    >>> gl.func.hvp(lambda x: (x**3).sum(), (gl.tensor([1.0, 2.0]),), (gl.tensor([1.0, 1.0]),))
    tensor([ 6., 12.])
    """
    numbers = tuple(range(len(primals)))
    _, vjp_fn = vjp(grad(func, argnums=numbers), *primals)
    found = vjp_fn(tuple(tangents))  # the Hessian is symmetric
    return found[0] if len(primals) == 1 else found


named_functions(__name__)
