"""Convolutions and transposed convolutions over one, two or three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab.nn import functional as F, init
from gradlab.nn.module import Module
from gradlab.nn.modules.lazy import LazyModuleMixin
from gradlab.nn.parameter import Parameter, UninitializedParameter
from gradlab.spec import whole
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty

_MODES = ("zeros", "reflect", "replicate", "circular")


def spread(value: Any, dims: int) -> tuple[int, ...]:
    """One number for every dimension, or a sequence of them as a tuple."""
    return (whole(value),) * dims if hasattr(value, "__index__") else tuple(value)


class _ConvNd(Module):
    """What all convolutions share.

    weight: (out_channels, in_channels / groups, *kernel), for a transposed one (in_channels, out_channels / groups, *kernel);
    bias: (out_channels,). Both start uniform in ±1 / sqrt(fan in).
    """

    dims: int
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
        transposed: bool, output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.transposed = transposed
        if not hasattr(self, "dims"):  # of a subclass by its user
            self.dims = len(kernel_size)
        if groups <= 0:
            raise ValueError(f"{name}: groups must be positive, got {groups}")
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name}: {what}={channels} is not divisible by groups={groups}")
        if padding_mode not in _MODES:
            raise ValueError(f"{name}: padding_mode is one of {', '.join(_MODES)}, not {padding_mode!r}")
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        self.kernel_size, self.stride, self.dilation = (spread(v, self.dims) for v in (kernel_size, stride, dilation))
        self.output_padding = spread(output_padding, self.dims)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f'{name}: padding is a number, a tuple, "same" or "valid", not {padding!r}')
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError(f'{name}: padding="same" needs stride 1, not {self.stride}')
            self.padding: Any = padding
        else:
            self.padding = spread(padding, self.dims)
        self._reversed_padding_repeated_twice = self._both_ends()
        self.weight = self._make_parameter(self._weight_shape(), device, dtype)
        self.register_parameter("bias", self._make_parameter((out_channels,), device, dtype) if bias else None)
        self.reset_parameters()

    def _make_parameter(self, shape: tuple[int, ...], device: Any, dtype: Any) -> Parameter:
        return Parameter(empty(shape, device=device, dtype=dtype))

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        return (first, second // self.groups, *self.kernel_size)

    def _both_ends(self) -> tuple[int, ...]:
        """The padding at both ends of each dimension, the last dimension first, as `pad` takes it."""
        if self.padding == "valid":
            return (0,) * (2 * self.dims)
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            return tuple(x for total in reversed(totals) for x in (total // 2, total - total // 2))
        return tuple(p for p in reversed(self.padding) for _ in range(2))

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.reset_linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.dims:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.dims:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.dims:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Forward(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode, device, dtype
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What `forward` is with this weight and bias; subclasses of PyTorch's kind call it, or put another in its place."""
        raise NotImplementedError

    def _run(self, convolve: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
            return convolve(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class Conv1d(_Forward):
    """(N, C_in, L) or (C_in, L) to (N, C_out, L') with L' = (L + 2 padding - dilation (kernel - 1) - 1) // stride + 1."""

    dims = 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._run(F.conv1d, input, weight, bias)


class Conv2d(_Forward):
    """(N, C_in, H, W) or (C_in, H, W) to (N, C_out, H', W'); sizes as for Conv1d."""

    dims = 2

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._run(F.conv2d, input, weight, bias)


class Conv3d(_Forward):
    """(N, C_in, D, H, W) or (C_in, D, H, W) to (N, C_out, D', H', W'); sizes as for Conv1d."""

    dims = 3

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._run(F.conv3d, input, weight, bias)


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
        transposed: bool, output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'{type(self).__name__}: only padding_mode="zeros", not {padding_mode!r}')
        if isinstance(padding, str):
            raise ValueError(f"{type(self).__name__}: padding is a number or a tuple, not {padding!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def _output_padding(
        self, input: Tensor, output_size: Any, stride: Any, padding: Any, kernel_size: Any, num_spatial_dims: int, dilation: Any = None
    ) -> tuple[int, ...]:
        """The output padding that gives that size; the module's own without one. ValueError if none does."""
        if output_size is None:
            return self.output_padding
        sizes, dims, dilation = tuple(output_size), num_spatial_dims, dilation or (1,) * num_spatial_dims
        if len(sizes) == input.ndim:
            sizes = sizes[-dims:]
        if len(sizes) != dims:
            raise ValueError(f"{type(self).__name__}: output_size has {dims} or {input.ndim} sizes, not {len(tuple(output_size))}")
        found = []
        for i, size in enumerate(sizes):
            least = (input.shape[i - dims] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel_size[i] - 1) + 1
            if not least <= size < least + stride[i]:
                raise ValueError(
                    f"{type(self).__name__}: output_size {sizes} is not possible for input {input.shape}: "
                    f"size {i} lies in {least} to {least + stride[i] - 1}"
                )
            found.append(size - least)
        return tuple(found)


class _Transposed(_ConvTransposeNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def _run(self, convolve: Callable[..., Tensor], input: Tensor, output_size: Any) -> Tensor:
        extra = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, self.dims, self.dilation)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_Transposed):
    """(N, C_in, L) to (N, C_out, L') with L' = (L - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1."""

    dims = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._run(F.conv_transpose1d, input, output_size)


class ConvTranspose2d(_Transposed):
    """(N, C_in, H, W) to (N, C_out, H', W'); sizes as for ConvTranspose1d."""

    dims = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._run(F.conv_transpose2d, input, output_size)


class ConvTranspose3d(_Transposed):
    """(N, C_in, D, H, W) to (N, C_out, D', H', W'); sizes as for ConvTranspose1d."""

    dims = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._run(F.conv_transpose3d, input, output_size)


class _LazyConvXdMixin(LazyModuleMixin, _ConvNd):
    """A convolution that learns in_channels from its first input. The arguments are those of the class it becomes, without the first."""

    def __init__(self, out_channels: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, out_channels, *args, **kwargs)

    def _make_parameter(self, shape: tuple[int, ...], device: Any, dtype: Any) -> Parameter:
        return UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(f"{type(self).__name__}: expected {self.dims + 1} or {self.dims + 2} dimensions, not shape {input.shape}")
        self.in_channels = input.shape[-self.dims - 1]
        if self.in_channels % self.groups:
            raise ValueError(f"{type(self).__name__}: in_channels={self.in_channels} is not divisible by groups={self.groups}")
        self.weight.materialize(self._weight_shape())  # type: ignore[attr-defined]
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))  # type: ignore[attr-defined]
        self.reset_parameters()


class LazyConv1d(_LazyConvXdMixin, Conv1d):
    """A Conv1d that learns in_channels from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvXdMixin, Conv2d):
    """A Conv2d that learns in_channels from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvXdMixin, Conv3d):
    """A Conv3d that learns in_channels from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvXdMixin, ConvTranspose1d):
    """A ConvTranspose1d that learns in_channels from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvXdMixin, ConvTranspose2d):
    """A ConvTranspose2d that learns in_channels from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvXdMixin, ConvTranspose3d):
    """A ConvTranspose3d that learns in_channels from its first input."""

    cls_to_become = ConvTranspose3d
