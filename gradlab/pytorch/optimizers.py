"""`torch.optim.optimizer`: names inside PyTorch's base of optimizers, which optimizers of other libraries use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gradlab.autograd.mode import current, set_grad_enabled
from gradlab.dtype import float32, float64, get_default_dtype
from gradlab.optim.hooks import (
    register_optimizer_step_post_hook as register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook as register_optimizer_step_pre_hook,
)
from gradlab.tensor import Tensor
from gradlab.tensor.complex import view_as_real

F = TypeVar("F", bound=Callable[..., Any])
ParamsT = _params_t = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
StateDict = dict[str, Any]
GlobalOptimizerPreHook = GlobalOptimizerPostHook = Callable[..., Any]

_params_doc = "params: parameters to update, or groups of them as dicts."
_foreach_doc = _fused_doc = "taken for PyTorch's programs: parameters are updated together wherever they can be."
_capturable_doc = "whether the steps are counted on the GPU."
_differentiable_doc = "whether gradients go through the step."
_maximize_doc = "whether to go uphill."


def _use_grad_for_differentiable(step: F) -> F:
    """A step that records operations if its optimizer is to be differentiable, and none otherwise."""

    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return step(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[F], F]:
    """A decorator that gives back what it is put on."""
    return lambda function: function


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Whether to update by one kernel, or by operations on lists: neither, which leaves an optimizer its loop over parameters."""
    return False, False


def _get_value(x: Any) -> Any:
    """A number out of a tensor, but in a trace, which has none."""
    return x.item() if isinstance(x, Tensor) and current().tracer is None else x


def _stack_if_compiling(x: Any) -> Any:
    """What it is given."""
    return x


def _dispatch_sqrt(x: Any) -> Any:
    """The root of a number or a tensor."""
    return x.sqrt() if isinstance(x, Tensor) else x**0.5


def _get_scalar_dtype(is_fused: Any = None) -> Any:
    """The dtype of step counters."""
    return float64 if get_default_dtype() == float64 and not is_fused else float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    return ["cuda"]


def _view_as_real(params: Any, *state_and_grads: Any) -> None:
    """The complex ones of these lists of tensors, replaced in them by their pairs of real numbers."""
    for i, p in enumerate(params):
        if p.is_complex():
            params[i] = view_as_real(p)
            for listed in state_and_grads:
                listed[i] = view_as_real(listed[i])


def _to_scalar(x: Any) -> Any:
    """A tensor of one value as a 0-d one; anything else as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x
