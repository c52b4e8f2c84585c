"""Pooling: the maximum, the mean or a norm over windows."""

from __future__ import annotations

from typing import Any

from gradlab.nn import functional as F
from gradlab.nn.module import Module
from gradlab.nn.modules.conv import spread
from gradlab.tensor import Tensor


class _MaxPoolNd(Module):
    """stride: kernel_size unless given. return_indices: also the flat positions of the maxima, for MaxUnpool."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def _run(self, pool: Any, input: Tensor) -> Any:
        return pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum over windows of (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Any:
        return self._run(F.max_pool1d, input)


class MaxPool2d(_MaxPoolNd):
    """The maximum over windows of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return self._run(F.max_pool2d, input)


class MaxPool3d(_MaxPoolNd):
    """The maximum over windows of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return self._run(F.max_pool3d, input)


class _MaxUnpoolNd(Module):
    dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, self.dims)
        self.stride = self.kernel_size if stride is None else spread(stride, self.dims)
        self.padding = spread(padding, self.dims)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts maxima back where MaxPool1d found them; zeros elsewhere."""

    dims = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts maxima back where MaxPool2d found them; zeros elsewhere."""

    dims = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts maxima back where MaxPool3d found them; zeros elsewhere."""

    dims = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPoolNd(Module):
    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean over windows of (N, C, L) or (C, L). count_include_pad: the padding's zeros count."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
    ) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, 1)
        self.stride = self.kernel_size if stride is None else spread(stride, 1)
        self.padding = spread(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(_AvgPoolNd):
    """count_include_pad: the padding's zeros count. divisor_override: divide by this instead of the window's size."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def _run(self, pool: Any, input: Tensor) -> Tensor:
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override
        )


class AvgPool2d(_AvgPool):
    """The mean over windows of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return self._run(F.avg_pool2d, input)


class AvgPool3d(_AvgPool):
    """The mean over windows of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return self._run(F.avg_pool3d, input)


class _LPPoolNd(Module):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPoolNd):
    """The p-norm over windows of (N, C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The p-norm over windows of (N, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The p-norm over windows of (N, C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveAvgPoolNd(Module):
    """output_size: the size of each result dimension; None keeps the input's."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The mean over windows that divide (N, C, L) into output_size parts."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The mean over windows that divide (N, C, H, W) into output_size parts."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The mean over windows that divide (N, C, D, H, W) into output_size parts."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(Module):
    """output_size: the size of each result dimension; None keeps the input's. return_indices: also the maxima's flat positions."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    extra_repr = _AdaptiveAvgPoolNd.extra_repr


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The maximum over windows that divide (N, C, L) into output_size parts."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The maximum over windows that divide (N, C, H, W) into output_size parts."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The maximum over windows that divide (N, C, D, H, W) into output_size parts."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _FractionalMaxPool(Module):
    """kernel_size: the windows' size. output_size, or output_ratio (between 0 and 1) times the image's: the result's size. return_indices:
    also the maxima's flat positions."""

    _rank = 2

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__}: give one of output_size and output_ratio")
        each = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,)
        if output_ratio is not None and not all(0 < ratio < 1 for ratio in each):
            raise ValueError(f"{type(self).__name__}: output_ratio must be between 0 and 1, got {output_ratio}")
        kernel_size, output_size, output_ratio = (tuple(v) if isinstance(v, list) else v for v in (kernel_size, output_size, output_ratio))
        self.kernel_size = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * self._rank
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = output_size if output_size is None or isinstance(output_size, tuple) else (output_size,) * self._rank
        self.output_ratio = output_ratio if output_ratio is None or isinstance(output_ratio, tuple) else (output_ratio,) * self._rank


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maximum over windows of (N, C, H, W) at places drawn at random."""

    def forward(self, input: Tensor) -> Any:
        samples = self._random_samples
        return F.fractional_max_pool2d(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, samples)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maximum over windows of (N, C, D, H, W) at places drawn at random."""

    _rank = 3

    def forward(self, input: Tensor) -> Any:
        samples = self._random_samples
        return F.fractional_max_pool3d(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, samples)
