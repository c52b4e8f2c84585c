"""`weight_norm` and `spectral_norm` under their older names, by hooks: the weight is computed before each forward.

`nn.utils.parametrizations` has both as parametrizations, which is better in new code: there the weight is right at any time.
"""

from __future__ import annotations

from typing import Any, TypeVar

from gradlab.autograd.mode import no_grad
from gradlab.nn.module import Module
from gradlab.nn.parameter import Parameter
from gradlab.nn.utils.parametrizations import TRANSPOSED, _SpectralNorm, norm_except, scaled
from gradlab.tensor import Tensor

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


class _Hook:
    """What computes a weight before the forward."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, module: Module) -> Tensor:
        raise NotImplementedError

    def parts(self) -> tuple[str, ...]:
        raise NotImplementedError

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))


class _WeightHook(_Hook):
    def __init__(self, name: str, dim: int) -> None:
        super().__init__(name)
        self.dim = dim

    def compute(self, module: Module) -> Tensor:
        v: Any = getattr(module, self.name + "_v")
        return scaled(getattr(module, self.name + "_g"), v, self.dim)

    def parts(self) -> tuple[str, ...]:
        return self.name + "_g", self.name + "_v"


class _SpectralHook(_Hook):
    def __init__(self, name: str, norm: _SpectralNorm) -> None:
        super().__init__(name)
        self.norm = norm

    def compute(self, module: Module) -> Tensor:
        norm, original = self.norm, getattr(module, self.name + "_orig")
        norm._u, norm._v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")  # where a loaded state is, too
        return norm.train(module.training)(original)

    def parts(self) -> tuple[str, ...]:
        return self.name + "_orig", self.name + "_u", self.name + "_v"


def _taken(module: Module, name: str, call: str) -> Parameter:
    if any(isinstance(hook, _Hook) and hook.name == name for hook in module._forward_pre_hooks.values()):
        raise RuntimeError(f"{call}: {name!r} of {type(module).__name__} has such a hook already")
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"{call}: {type(module).__name__} has no parameter {name!r}")
    return weight


def _removed(module: M, name: str, kind: type[_Hook], call: str) -> M:
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, kind) and hook.name == name:
            with no_grad():
                value = hook.compute(module.eval() if isinstance(hook, _SpectralHook) and not module.training else module).detach()
            del module._forward_pre_hooks[key]
            for part in (name, *hook.parts()):
                delattr(module, part)
            module.register_parameter(name, Parameter(value))
            return module
    raise ValueError(f"{call}: {name!r} of {type(module).__name__} has no such hook")


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Train a weight's norm, `weight_g`, and its direction, `weight_v`, apart. Returns the module; RuntimeError if it is so already.

    The older form of `nn.utils.parametrizations.weight_norm`.

    >>> from gradlab import nn
    >>> sorted(nn.utils.weight_norm(nn.Linear(4, 3)).state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _taken(module, name, "weight_norm")
    hook = _WeightHook(name, -1 if dim is None else dim)
    delattr(module, name)
    module.register_parameter(name + "_g", Parameter(norm_except(weight.detach(), hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make a weight under `weight_norm` a parameter again, with the value that it has. Returns the module.

    >>> from gradlab import nn
    >>> sorted(nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(4, 3))).state_dict())
    ['bias', 'weight']
    """
    return _removed(module, name, _WeightHook, "remove_weight_norm")


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> M:
    """Divide a weight by its largest singular value, estimated by the power method. Returns the module.

    The older form of `nn.utils.parametrizations.spectral_norm`: the parameter is `weight_orig`, `weight_u` and `weight_v` are buffers.

    >>> from gradlab import nn
    >>> sorted(nn.utils.spectral_norm(nn.Linear(4, 3)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    weight = _taken(module, name, "spectral_norm")
    norm = _SpectralNorm(weight, n_power_iterations, (1 if isinstance(module, TRANSPOSED) else 0) if dim is None else dim, eps)
    hook = _SpectralHook(name, norm)
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())  # until the first forward
    module.register_buffer(name + "_u", norm._u)
    module.register_buffer(name + "_v", norm._v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make a weight under `spectral_norm` a parameter again, divided by its norm. Returns the module.

    >>> from gradlab import nn
    >>> sorted(nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(4, 3))).state_dict())
    ['bias', 'weight']
    """
    return _removed(module, name, _SpectralHook, "remove_spectral_norm")
