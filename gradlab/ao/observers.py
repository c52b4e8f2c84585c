"""Observers of the ranges of numbers, and rounding by what they saw, under PyTorch's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gradlab as gl
from gradlab import Tensor, nn

TINY = 1e-12


class MinMaxObserver(nn.Module):
    """The smallest and the largest number seen, stretched to hold 0; `calculate_qparams()` makes scale and zero point of them.

    quant_min, quant_max: of the integers. qscheme: "per_tensor_affine", or "per_tensor_symmetric" with a zero point in the middle.
    """

    def __init__(self, quant_min: int = -128, quant_max: int = 127, qscheme: str = "per_tensor_affine") -> None:
        super().__init__()
        if quant_min >= quant_max:
            raise ValueError(f"{type(self).__name__}: quant_min {quant_min} is not below quant_max {quant_max}")
        if qscheme not in ("per_tensor_affine", "per_tensor_symmetric"):
            raise ValueError(f"{type(self).__name__}: qscheme is per_tensor_affine or per_tensor_symmetric, not {qscheme!r}")
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.min_val: Tensor
        self.max_val: Tensor
        self.register_buffer("min_val", gl.tensor(float("inf")))
        self.register_buffer("max_val", gl.tensor(float("-inf")))

    @classmethod
    def with_args(cls, **settings: Any) -> Callable[[], Any]:
        """A function that makes one with these settings."""
        return functools.partial(cls, **settings)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = gl.full_like(self.min_val, float("inf")), gl.full_like(self.max_val, float("-inf"))

    def forward(self, x: Tensor) -> Tensor:
        """x as it is, seen."""
        with gl.no_grad():
            low, high = self._range(x.detach())
            self._see(low, high)
        return x

    def _range(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.float().amin(), x.float().amax()

    def _see(self, low: Tensor, high: Tensor) -> None:
        self.min_val.copy_(gl.minimum(self.min_val, low))
        self.max_val.copy_(gl.maximum(self.max_val, high))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int32). RuntimeError where nothing was seen."""
        if not bool((self.min_val <= self.max_val).all()):
            raise RuntimeError(f"{type(self).__name__}: no numbers were seen yet; call the model with some batches first")
        low, high = self.min_val.clamp(max=0), self.max_val.clamp(min=0)
        if self.qscheme == "per_tensor_symmetric":
            middle = (self.quant_min + self.quant_max + 1) // 2
            scale = (gl.maximum(-low, high) / ((self.quant_max - self.quant_min) / 2)).clamp(min=TINY)
            return scale, gl.full_like(scale, middle, dtype=gl.int32)
        scale = ((high - low) / (self.quant_max - self.quant_min)).clamp(min=TINY)
        return scale, (self.quant_min - gl.round(low / scale)).clamp(self.quant_min, self.quant_max).to(gl.int32)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Averages of what batches had, of which the newest weighs averaging_constant."""

    def __init__(self, averaging_constant: float = 0.01, **ranges: Any) -> None:
        super().__init__(**ranges)
        self.averaging_constant = averaging_constant

    def _see(self, low: Tensor, high: Tensor) -> None:
        first = self.min_val > self.max_val
        for kept, new in ((self.min_val, low), (self.max_val, high)):
            kept.copy_(gl.where(first, new, kept + self.averaging_constant * (new - gl.where(first, new, kept))))


class PerChannelMinMaxObserver(MinMaxObserver):
    """The smallest and largest number of each place of a dimension."""

    def __init__(self, ch_axis: int = 0, quant_min: int = -128, quant_max: int = 127) -> None:
        super().__init__(quant_min, quant_max, "per_tensor_symmetric")
        self.ch_axis = ch_axis

    def _range(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.float().movedim(self.ch_axis, 0).flatten(1)
        return rows.amin(1), rows.amax(1)

    def _see(self, low: Tensor, high: Tensor) -> None:
        self.min_val, self.max_val = gl.minimum(self.min_val, low), gl.maximum(self.max_val, high)


class NoopObserver(nn.Identity):
    """Of inputs that stay as they are: notes nothing."""

    @classmethod
    def with_args(cls, **settings: Any) -> Callable[[], Any]:
        """A function that makes one with these settings."""
        return functools.partial(cls, **settings)


class PlaceholderObserver(NoopObserver):
    """Of inputs that are rounded by the range of each call (`is_dynamic`): notes nothing."""

    def __init__(self, is_dynamic: bool = True) -> None:
        super().__init__()
        self.is_dynamic = is_dynamic


class FakeQuantize(nn.Module):
    """An observer, and rounding by what it has seen, with straight-through gradients. In evaluation mode nothing more is seen.

    is_dynamic: what is made of it rounds by the range of each call; so does this with an averaging_constant of 1.
    """

    def __init__(self, observer: Any = MovingAverageMinMaxObserver, is_dynamic: bool = False, **settings: Any) -> None:
        super().__init__()
        self.activation_post_process = observer(**settings)
        self.is_dynamic = is_dynamic
        self.observes, self.rounds = True, True

    @classmethod
    def with_args(cls, **settings: Any) -> Callable[[], Any]:
        """A function that makes one with these settings."""
        return functools.partial(cls, **settings)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point of what was seen."""
        found: tuple[Tensor, Tensor] = self.activation_post_process.calculate_qparams()
        return found

    def enable_observer(self, enabled: bool = True) -> None:
        """Note ranges in training."""
        self.observes = bool(enabled)

    def disable_observer(self) -> None:
        """Keep the ranges as they are."""
        self.observes = False

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round."""
        self.rounds = bool(enabled)

    def disable_fake_quant(self) -> None:
        """Let numbers through as they are."""
        self.rounds = False

    def forward(self, x: Tensor) -> Tensor:
        seen = self.activation_post_process
        if self.is_dynamic or (self.training and self.observes):
            seen(x)
        if not self.rounds:
            return x
        scale, zero = seen.calculate_qparams()
        if scale.ndim:
            return gl.fake_quantize_per_channel_affine(x, scale, zero, seen.ch_axis, seen.quant_min, seen.quant_max)
        return gl.fake_quantize_per_tensor_affine(x, scale, zero, seen.quant_min, seen.quant_max)
