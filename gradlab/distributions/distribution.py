"""`Distribution`, the base of all: shapes, samples, and checks of arguments and values."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from gradlab.advice import warn
from gradlab.autograd.mode import current, no_grad
from gradlab.distributions.constraints import is_dependent
from gradlab.distributions.rounding import Measured
from gradlab.dtype import FLOATING, get_default_dtype
from gradlab.spec import ShapeError, broadcast_shapes
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor
from gradlab.tensor.repetition import broadcast_tensors
from gradlab.tensor.size import Size

D = TypeVar("D", bound="Distribution")
Shape = tuple[int, ...]


def broadcast(*values: Any) -> list[Tensor]:
    """Numbers and tensors as tensors of one shape; a number takes the dtype of the tensors. TypeError for what is neither."""
    found = [v for v in values if isinstance(v, Tensor)]
    for v in values:
        if not isinstance(v, (Tensor, int, float, np.number)):
            raise TypeError(f"a distribution's parameters are tensors or numbers, not {type(v).__name__}")
    floating = next((t for t in found if t._array.dtype in FLOATING), None)
    dtype, device = (get_default_dtype(), found[0].device if found else None) if floating is None else (floating.dtype, floating.device)
    tensors = [v if isinstance(v, Tensor) else tensor(v, dtype=dtype, device=device) for v in values]
    if any(type(t) is not Tensor for t in found):  # of a class that may answer, also for those beside it
        return list(broadcast_tensors(*tensors))
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return [t.expand(shape) for t in tensors]


def readable() -> bool:
    """Whether values can be looked at: not in a trace, not under vmap."""
    mode = current()
    return mode.tracer is None and mode.vmap is None


def of_its_shape(log_prob: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """The density, after a look at the value's shape: one that only broadcasts with the event's would give a number."""

    @functools.wraps(log_prob)
    def checked(self: Any, value: Any) -> Tensor:
        if isinstance(value, (int, float)):
            value = tensor(value)
        if self._validate_args:
            self._check_shape(value)
        return log_prob(self, value)

    return checked


class Distribution(Measured):
    """A distribution, or a batch of them that are independent.

    batch_shape: of the parameters, one distribution each. event_shape: of one value. A sample of shape `sample_shape` has the shape
    sample_shape + batch_shape + event_shape. validate_args: whether parameters and values outside of their range raise ValueError (by
    default yes; in a trace and under vmap never, since values cannot be read there).
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 - of each class, as PyTorch has it
    support: Any = None  # a constraint; None where none is known
    batched: Sequence[str] = ()  # the attributes that have the batch's dimensions first
    _validate_args = True

    def __init__(self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args and not type(self).__module__.startswith("gradlab."):
            self._check_parameters()
        super().__init__()  # of a class that is a module, too

    def __init_subclass__(cls, **options: Any) -> None:
        own: Any = cls.__dict__.get("log_prob")
        if cls.__module__.startswith("gradlab.") and own is not None:
            cls.log_prob = of_its_shape(own)  # type: ignore[method-assign, assignment]
        super().__init_subclass__(**options)

    def _check_parameters(self) -> None:
        """ValueError for a parameter outside of the set that a class of one's own names in `arg_constraints`."""
        for name, constraint in self.arg_constraints.items():
            if name in self.__dict__ and not is_dependent(constraint):
                self.require(constraint.check(self.__dict__[name]), f"{name} is within {constraint!r}")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check, unless they are told."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: True or False, not {value!r}")
        Distribution._validate_args = value

    def require(self, fits: Any, what: str) -> None:
        """Raise ValueError unless a mask is true everywhere."""
        if self._validate_args and readable() and not bool(fits.all()):
            raise ValueError(f"{type(self).__name__}: {what}")

    @property
    def batch_shape(self) -> Shape:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of one value."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def _extended(self, sample_shape: Any) -> Shape:
        return (*tuple(sample_shape), *self._batch_shape, *self._event_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Random values, outside of the graph."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """Deprecated: `sample((n,))`."""
        warn(UserWarning, f"sample_n(n) is deprecated; use sample((n,)), here sample(({n},))")
        return self.sample((n,))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the parameters, through which gradients go."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: its values do not depend smoothly on the parameters; use sample")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or of the probability) at a value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most that value."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value below which that probability lies."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Tensor:
        """The expected -log_prob."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy())."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values that are possible, along a new first dimension."""
        raise NotImplementedError(f"{type(self).__name__} has no finite number of values")

    def expand(self: D, batch_shape: Any, _instance: Any = None) -> D:
        """The same distribution with its parameters expanded to that batch shape. _instance: an empty object that becomes it.

        NotImplementedError for a class of one's own that has an `__init__`, but neither an `expand` nor names in `batched`.
        """
        if _instance is None:
            for own in type(self).__mro__:
                if own.__module__.startswith("gradlab.") or "batched" in vars(own):
                    break
                if "__init__" in vars(own):
                    raise NotImplementedError(f"{type(self).__name__} has an __init__ of its own, and needs an expand of its own, too")
        shape, rank = Size(batch_shape), len(self._batch_shape)
        twin = copy.copy(self) if _instance is None else _instance
        if _instance is not None:
            twin.__dict__.update(self.__dict__ | _instance.__dict__)
        twin._batch_shape = shape
        for name in self.batched:
            value = self.__dict__.get(name)
            if isinstance(value, Distribution):
                twin.__dict__[name] = value.expand((*shape, *value.batch_shape[rank:]))
            elif value is not None:
                twin.__dict__[name] = value.expand(*shape, *value.shape[rank:])
        return twin

    def _extended_shape(self, sample_shape: Any = ()) -> Shape:
        """The shape of samples, for distributions of one's own."""
        return Size(self._extended(sample_shape))

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A new object of the class for an `expand` of one's own. NotImplementedError for a subclass that has only its `__init__`."""
        if _instance is None and vars(type(self)).get("__init__") not in (None, vars(cls).get("__init__")):
            raise NotImplementedError(f"{type(self).__name__} has an __init__ of its own, and needs an expand of its own, too")
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _validate_sample(self, value: Tensor) -> None:
        """ValueError for a value of another shape, or outside of the support."""
        self._check_shape(value)
        self.require(self.support.check(value), f"a value is within the support, {self.support!r}")

    def _check_shape(self, value: Any) -> None:
        """ValueError for what is no tensor, whose last sizes are not the event's, or that does not broadcast with the batch."""
        if not isinstance(value, Tensor):
            raise ValueError(f"a value is a tensor, not {type(value).__name__}; use gradlab.tensor(...)")
        shape, given = (*self._batch_shape, *self._event_shape), tuple(value.shape)
        if given[len(given) - len(self._event_shape) :] != tuple(self._event_shape) or len(given) < len(self._event_shape):
            raise ShapeError(f"a value's last sizes are the event's, {tuple(self._event_shape)}, but it has shape {given}")
        broadcast_shapes(given[max(len(given) - len(shape), 0) :], shape)

    def __repr__(self) -> str:
        parts: list[str] = []
        for name in self.batched or self.arg_constraints:
            value = self.__dict__.get(name)
            if name == "base_dist" and parts:
                continue  # of one with parameters of its own
            if isinstance(value, Tensor):
                one = value.numel() == 1 and readable()
                parts.append(f"{name.lstrip('_')}: {value.item() if one else f'{value.shape}'}")
            elif value is not None:
                parts.append(f"{name.lstrip('_')}: {value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"
