"""Small things inside PyTorch that libraries import by their private names, and some of its older ones: `table.RENAMED` says where."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import gradlab
from gradlab.distributed.futures import Future
from gradlab.distributions.gamma import between
from gradlab.nn import functional as F
from gradlab.tensor import Tensor
from gradlab.utils.data import Sampler

DEFAULT_PROTOCOL = 2
TransformGetItemToIndex = nullcontext  # within vmap a tensor is an index here without it
legacy_contiguous_format = gradlab.contiguous_format
_collate_fn_t = _worker_init_fn_t = Callable[..., Any]


# ---------------------------------------------------------------- checks


def _check_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise the error unless the condition holds; message: a text, or a function that makes it."""
    if not cond:
        raise error_type(str(message() if callable(message) else message or "Expected cond to be True, but got False"))


def _check(cond: Any, message: Any = None) -> None:
    """RuntimeError unless the condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """ValueError unless the condition holds."""
    _check_with(ValueError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """IndexError unless the condition holds."""
    _check_with(IndexError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """TypeError unless the condition holds."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """NotImplementedError unless the condition holds."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Any = None, *, max: int | None = None) -> None:
    """RuntimeError unless a number may be a size."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    """RuntimeError unless a mask is True everywhere."""
    _check(bool(cond.all()), message)


def _assert_async(input: Tensor, assert_msg: str = "") -> None:
    """RuntimeError for a tensor of one element that is 0."""
    _check(bool(input), assert_msg or "Expected Tensor with single nonzero value, but got zero")


def sym_sum(args: Sequence[Any]) -> Any:
    """The sum of sizes."""
    return sum(args)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f."""
    return t if b else f


# ---------------------------------------------------------------- numbers


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, kept away from 0 and 1."""
    return between(x.sigmoid())


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """The lower triangular L with L Lᵀ = P⁻¹: the factor of P read from its other end, inverted."""
    factor = gradlab.linalg.cholesky(P.flip((-2, -1))).flip((-2, -1)).mT
    found: Tensor = gradlab.linalg.solve_triangular(factor, gradlab.eye(P.shape[-1], dtype=P.dtype, device=P.device), upper=False)
    return found


def _standard_gamma(concentration: Tensor, generator: Any = None) -> Tensor:
    """A gamma variable of rate 1 for each concentration, as a function of it. NotImplementedError for a generator of its own."""
    _check_not_implemented(generator is None, "_standard_gamma: draws from the default generator only")
    return gradlab.distributions.Gamma(concentration, 1.0, validate_args=False).rsample()


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """The number of successes among `count` trials, for each. NotImplementedError for a generator of its own."""
    _check_not_implemented(generator is None, "binomial: draws from the default generator only")
    return gradlab.distributions.Binomial(count, prob, validate_args=False).sample().to(count.dtype)


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """Each element n times, the last first."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    """The function that a transformer's layer calls by "relu" or "gelu"."""
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f'activation is "relu" or "gelu", not {activation!r}')
    found: Callable[[Tensor], Tensor] = getattr(F, activation)
    return found


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = ""
) -> None:
    """`testing.assert_close` as it was before."""
    actual, expected = (gradlab.as_tensor(x) for x in (actual, expected))
    gradlab.testing.assert_close(
        actual, expected.to(actual), rtol=rtol, atol=atol, equal_nan=equal_nan, check_stride=False, msg=msg or None
    )


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """GPUs among the tensors' devices, and the states of their random numbers: one generator serves all, which `get_rng_state` gives."""
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Any], *, device_type: str | None = None) -> None:
    """What `get_device_states` gave is put back: nothing."""


# ---------------------------------------------------------------- classes


class TracerWarning(Warning):
    """Of PyTorch's tracer; scripts switch it off."""


class Error(RuntimeError):
    """Of a script's."""


class Attribute(NamedTuple):
    """A value of a module and its type."""

    value: Any
    type: Any


class TrainingMode(Enum):
    """In which mode a model is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(Enum):
    """Which operators a file may hold: ONNX's."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class UnpackedDualTensor(NamedTuple):
    """A tensor and its derivative, of which there is none: there are no dual tensors."""

    primal: Any
    tangent: None


def unpack_dual(tensor: Any, *, level: Any = None) -> UnpackedDualTensor:
    """A tensor without a derivative, as each is outside of forward-mode differentiation."""
    return UnpackedDualTensor(tensor, None)


class _DatasetKind(IntEnum):
    """Whether a dataset has indices."""

    Map = 0
    Iterable = 1


class _InfiniteConstantSampler(Sampler[None]):
    """None without an end."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A call whose result is asked for later: it is made at once."""
    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """The result of `fork`."""
    return future.wait()


def interface(obj: Any) -> Any:
    """What a mark is put on: itself."""
    return obj


def is_instance(obj: Any, target_type: Any) -> bool:
    """`isinstance` that takes `List[int]`, of which the parts are looked at, too, and several types."""
    if isinstance(target_type, (tuple, list)):
        return any(is_instance(obj, kind) for kind in target_type)
    origin, parts = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is typing.Union:
        return any(is_instance(obj, part) for part in parts)
    if origin is None:
        return obj is None if target_type is None else isinstance(obj, target_type)
    if not isinstance(obj, origin):
        return False
    if origin is dict:
        return all(is_instance(k, parts[0]) and is_instance(v, parts[1]) for k, v in obj.items())
    if origin is tuple and parts[-1:] != (...,):
        return len(obj) == len(parts) and all(map(is_instance, obj, parts))
    return all(is_instance(x, parts[0]) for x in obj)
