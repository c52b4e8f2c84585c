"""Initial values of parameters. Every function changes its tensor in place, without recording, and returns it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.advice import warn
from gradlab.autograd.mode import no_grad
from gradlab.named_errors import named_functions
from gradlab.tensor import Tensor
from gradlab.tensor.common_arguments import only_real
from gradlab.tensor.factorization import qr
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.special import erfinv

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
_CONVOLUTIONS = {f"conv{kind}{n}d" for n in (1, 2, 3) for kind in ("", "_transpose")}


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """By how much a layer's weights grow to make up for its nonlinearity. param: the negative slope of "leaky_relu" (0.01).

    ValueError for a nonlinearity that is not known.
    """
    if nonlinearity in _CONVOLUTIONS:
        return 1.0
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"calculate_gain: the negative slope is a number, not {slope!r}")
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}; known: {', '.join([*_GAINS, 'leaky_relu', 'conv1d …'])}")
    return _GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output has, and the other way round. ValueError for fewer than two dimensions."""
    if tensor.ndim < 2:
        raise ValueError(f"fan in and fan out: a weight has at least two dimensions, not shape {tensor.shape}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f'mode is "fan_in" or "fan_out", not {mode!r}')
    return _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal, of which only values in [a, b] are taken: the inverse of its distribution function, at uniform numbers."""

    def below(x: float) -> float:
        """The normal distribution function."""
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("trunc_normal_: mean is more than 2 std from [a, b]; the distribution of values may be incorrect", stacklevel=2)
    only_real("trunc_normal_", tensor)
    with no_grad():
        tensor.uniform_(2 * below(a) - 1, 2 * below(b) - 1, generator=generator)
        return tensor.copy_((erfinv(tensor) * (std * math.sqrt(2.0)) + mean).clamp(a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def _written(tensor: Tensor, values: Any) -> Tensor:
    with no_grad():
        return tensor.copy_(tensor.new_tensor(values))


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix, cut or filled with zeros. ValueError unless the tensor is a matrix."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: a matrix, not shape {tensor.shape}")
    return _written(tensor, np.eye(tensor.shape[0], tensor.shape[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that passes its input channels through. ValueError unless 3, 4 or 5 dimensions and groups fit."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: a convolution's weight has 3, 4 or 5 dimensions, not shape {tensor.shape}")
    if tensor.shape[0] % groups:
        raise ValueError(f"dirac_: {tensor.shape[0]} output channels are not divisible into {groups} groups")
    values = np.zeros(tensor.shape)
    per_group = tensor.shape[0] // groups
    middle = tuple(s // 2 for s in tensor.shape[2:])
    for g in range(groups):
        for d in range(min(per_group, tensor.shape[1])):
            values[(g * per_group + d, d, *middle)] = 1
    return _written(tensor, values)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform, of standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal, of standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor)))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))


def _nothing_to_do(tensor: Tensor, name: str) -> bool:
    if 0 in tensor.shape:
        warnings.warn(f"{name}: a tensor without elements, shape {tensor.shape}, stays as it is", stacklevel=3)
        return True
    return False


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform, of standard deviation gain / sqrt(fan) (He et al., 2015). a: the negative slope of "leaky_relu"."""
    if _nothing_to_do(tensor, "kaiming_uniform_"):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal, of standard deviation gain / sqrt(fan) (He et al., 2015). a: the negative slope of "leaky_relu"."""
    if _nothing_to_do(tensor, "kaiming_normal_"):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Rows (or columns, if there are fewer) orthonormal, times gain; dimensions after the first count as one (Saxe et al., 2013)."""
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: at least two dimensions, not shape {tensor.shape}")
    if tensor.numel() == 0:
        return tensor
    with no_grad():
        drawn = normal_(tensor.detach().clone(), generator=generator)  # the tensor is written when all is well
        matrix = drawn.cpu().double().reshape(tensor.shape[0], -1)
        tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.t()
        q, r = qr(tall)
        q = q * r.diagonal().sign()  # makes the decomposition unique, and so the distribution uniform
        return tensor.copy_(gain * (q if tall is matrix else q.t()).reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with that fraction of each column zero (Martens, 2010). ValueError unless the tensor is a matrix."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: a matrix, not shape {tensor.shape}")
    rows, _ = tensor.shape
    zeros = math.ceil(sparsity * rows)
    order = uniform_(tensor.detach().double().clone(), generator=generator).argsort(0)
    normal_(tensor, 0.0, std, generator)
    with no_grad():
        return tensor.copy_(tensor.detach().scatter(0, order[:zeros], 0.0))


def reset_linear(weight: Tensor, bias: Tensor | None) -> None:
    """What linear layers and convolutions start with: both uniform in ±1 / sqrt(fan_in)."""
    if weight.numel() == 0:
        return
    kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = _calculate_fan_in_and_fan_out(weight)
        if fan_in > 0:
            bound = 1 / math.sqrt(fan_in)
            uniform_(bias, -bound, bound)


def _older(function: Any) -> Callable[..., Tensor]:
    """A function under the name without its underscore, which PyTorch's first versions had."""
    name = function.__name__.removesuffix("_")

    def older(*args: Any, **kwargs: Any) -> Tensor:
        warn(FutureWarning, f"nn.init.{name} is deprecated; {name}_ says that it works in place")
        found: Tensor = function(*args, **kwargs)
        return found

    older.__name__ = older.__qualname__ = name
    older.__doc__ = f"`{name}_`, under its older name: a FutureWarning says so."
    return older


uniform, normal, constant, eye, dirac = map(_older, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal, sparse = map(
    _older, (xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_, orthogonal_, sparse_)
)


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.nn.init", name)


named_functions(__name__)
