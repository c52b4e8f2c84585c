"""What is asked of a distribution with half parameters, or about half values, is one unit: computed in float32 and rounded once.

The formulas see a twin of the distribution whose tensors are float32, casts of its own; gradients come back through them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

from gradlab.dtype import FLOATING, HALF
from gradlab.named_errors import explain, name_classes
from gradlab.tensor import Tensor
from gradlab.tensor.rounding import once

# What is computed: methods and properties of distributions, methods of transforms.
MEASURES = frozenset({
    "cdf", "covariance_matrix", "entropy", "icdf", "log_prob", "mean", "mode", "perplexity", "precision_matrix", "rsample", "sample",
    "scale_tril", "stddev", "variance", "_call", "_inverse", "log_abs_det_jacobian",
})  # fmt: skip
FORGOTTEN: dict[str, Any] = {"_cached_x_y": (None, None), "_inv": None}  # what a transform remembers; its twin does not


class derived:
    """A property that is computed whenever it is asked for, unless an object was given its own by `self.name = value`."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self.compute = compute
        functools.update_wrapper(self, compute)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return property(self.compute)
        given = instance.__dict__.get(self.compute.__name__)  # a subclass's own property may ask by super()
        return self.compute(instance) if given is None else given


class Measured:
    """Base of distributions and transforms: what the library's own ones compute are units."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name_classes(cls, "__init__ expand enumerate_support")
        if cls.__module__.startswith("gradlab."):
            for name in MEASURES & cls.__dict__.keys():
                own: Any = cls.__dict__[name]
                if isinstance(own, derived):
                    setattr(cls, name, derived(unit(own.compute)))
                else:
                    setattr(cls, name, property(unit(own.fget)) if isinstance(own, property) else unit(own))  # type: ignore[arg-type]


def unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of distributions, transforms and tensors as one unit."""

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        try:
            held = list(tensors_of((args, tuple(kwargs.values()))))
            if not any(t._array.dtype in HALF for t in held):
                return function(*args, **kwargs)

            def on(wide: list[Tensor]) -> Any:
                tensors = iter(wide)
                return function(*twin(args, tensors), **dict(zip(kwargs, twin(tuple(kwargs.values()), tensors), strict=True)))

            return once(on, (held,))
        except Exception as error:
            explain(error, f"{type(args[0]).__name__}.{function.__name__}", function, args, kwargs)

    return measured


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The floating point tensors in a value: a tensor, a distribution or a transform with its parts, or several of them."""
    if isinstance(value, Tensor):
        if value._array.dtype in FLOATING:
            yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of(part)
    elif isinstance(value, Measured):
        for name, part in value.__dict__.items():
            if name not in FORGOTTEN:
                yield from tensors_of(part)


def twin(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The value with other tensors, in the order of `tensors_of`."""
    if isinstance(value, Tensor):
        return next(tensors) if value._array.dtype in FLOATING else value
    if isinstance(value, (list, tuple)):
        return type(value)(twin(part, tensors) for part in value)
    if isinstance(value, Measured):
        found = copy.copy(value)
        for name, part in value.__dict__.items():
            found.__dict__[name] = FORGOTTEN[name] if name in FORGOTTEN else twin(part, tensors)
        return found
    return value
