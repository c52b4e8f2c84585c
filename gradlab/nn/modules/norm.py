"""Normalisation over the batch, over channels, groups of channels, or the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gradlab.autograd.mode import current
from gradlab.distributed.groups import is_initialized, member
from gradlab.nn import functional as F, init
from gradlab.nn.functional.norm import count_batch
from gradlab.nn.functional.sync_norm import same_batch, sync_batch_norm
from gradlab.nn.module import Module
from gradlab.nn.modules.lazy import LazyModuleMixin
from gradlab.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from gradlab.spec import whole
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty, ones, zeros


class _NormBase(Module):
    """What batch and instance norm share: weight, bias, running_mean, running_var: (num_features,); num_batches_tracked: a count."""

    ranks: ClassVar[tuple[int, ...]]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(empty(num_features, **kind)) if affine else None)
        self.register_parameter("bias", Parameter(empty(num_features, **kind)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **kind) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **kind) if tracked else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype="int64", device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget what was seen."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, nothing seen."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if not isinstance(input, Tensor):
            raise TypeError(f"{type(self).__name__}: input is a tensor, not {type(input).__name__}")
        if input.ndim not in self.ranks:
            expected = " or ".join(map(str, self.ranks))
            raise ValueError(f"{type(self).__name__}: expected {expected} dimensions, got shape {tuple(input.shape)}")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        mean, var = self.running_mean, self.running_var
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            count_batch(self.num_batches_tracked)
            if self.momentum is None and mean is not None:  # the plain average of all batches
                count = self.num_batches_tracked
                momentum = 1.0 / float(count) if current().tracer is None else 1.0 / count.to(mean.dtype)
        if self.training and not self.track_running_stats:
            mean = var = None
        return self._normed(input, mean, var, momentum)

    def _normed(self, input: Tensor, mean: Tensor | None, var: Tensor | None, momentum: Any) -> Tensor:
        return F.batch_norm(input, mean, var, self.weight, self.bias, self.training or mean is None, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Each channel of (N, C) or (N, C, L), over the batch: (x - mean) / sqrt(var + eps) * weight + bias (Ioffe and Szegedy, 2015)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of (N, C, H, W), over the batch."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Each channel of (N, C, D, H, W), over the batch."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm of (N, C, …) whose mean and variance in training are those of all processes' batches in a group (default: all
    processes). With one process, or without `gradlab.distributed`, they are this one's.
    """

    ranks = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        process_group: Any = None, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _normed(self, input: Tensor, mean: Tensor | None, var: Tensor | None, momentum: Any) -> Tensor:
        if self.training and is_initialized() and not same_batch.get():
            group = member(self.process_group, "SyncBatchNorm")
            if group is not None and group.size() > 1:
                return sync_batch_norm(input, mean, var, self.weight, self.bias, momentum, self.eps, group)
        return super()._normed(input, mean, var, momentum)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every batch norm in it, itself too, exchanged for a SyncBatchNorm of the same parameters and buffers.

        >>> gl.nn.SyncBatchNorm.convert_sync_batchnorm(gl.nn.BatchNorm1d(3)).num_features
        3
        """
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, False, False, process_group)
            made.affine, made.track_running_stats = module.affine, module.track_running_stats
            made._parameters, made._buffers = dict(module._parameters), dict(module._buffers)
            return made.train(module.training)
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = changed = cls.convert_sync_batchnorm(child, process_group)
                changed.__dict__["_name"] = name
        return module


class _InstanceNorm(_NormBase):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.ndim == self._get_no_batch_dim()
        dim = input.ndim - self._get_no_batch_dim()
        if input.shape[dim] != self.num_features and self.affine:
            raise ValueError(f"{type(self).__name__}: {self.num_features} channels expected in dimension {dim} of {tuple(input.shape)}")
        batch = input.unsqueeze(0) if single else input
        use_own = self.training or not self.track_running_stats
        out = F.instance_norm(batch, self.running_mean, self.running_var, self.weight, self.bias, use_own, self.momentum or 0.0, self.eps)
        return out.squeeze(0) if single else out

    def _get_no_batch_dim(self) -> int:
        return self.ranks[0]


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample of (N, C, L) or (C, L) (Ulyanov et al., 2016)."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample of (N, C, H, W) or (C, H, W)."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample of (N, C, D, H, W) or (C, D, H, W)."""

    ranks = (4, 5)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm that learns num_features from its first input. The arguments are those of the class it becomes, without the first."""

    def __init__(self, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(0, *args, device=device, dtype=dtype, **kwargs)  # type: ignore[misc]
        for name in ("weight", "bias"):
            if self._parameters[name] is not None:
                setattr(self, name, UninitializedParameter(device=device, dtype=dtype))
        for name in ("running_mean", "running_var"):
            if self.track_running_stats:
                setattr(self, name, UninitializedBuffer(device=device, dtype=dtype))

    def initialize_parameters(self, input: Tensor) -> None:
        self._check_input_dim(input)
        single = isinstance(self, _InstanceNorm) and input.ndim == self.ranks[0]
        self.num_features = input.shape[0 if single else 1]
        for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
            if tensor is not None:
                tensor.materialize((self.num_features,))  # type: ignore[attr-defined]
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A BatchNorm1d that learns num_features from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A BatchNorm2d that learns num_features from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A BatchNorm3d that learns num_features from its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """An InstanceNorm1d that learns num_features from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """An InstanceNorm2d that learns num_features from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """An InstanceNorm3d that learns num_features from its first input."""

    cls_to_become = InstanceNorm3d


class LayerNorm(Module):
    """Over the last dimensions, which are `normalized_shape`; weight and bias have that shape (Ba et al., 2016)."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (whole(normalized_shape),) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(empty(self.normalized_shape, **kind)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(empty(self.normalized_shape, **kind)) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions (Zhang and Sennrich, 2019). eps: the dtype's by default."""

    weight: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (whole(normalized_shape),) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        made = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Over groups of channels of each sample of (N, C, *); weight and bias: (C,) (Wu and He, 2018)."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None,
        *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels are not divisible into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", Parameter(empty(num_channels, device=device, dtype=dtype)) if affine else None)
        self.register_parameter("bias", Parameter(empty(num_channels, device=device, dtype=dtype)) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class _OverChannels(Module):
    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_OverChannels):
    """x / (k + alpha / size * sum of squares over `size` neighbouring channels)^beta (Krizhevsky et al., 2012)."""


class CrossMapLRN2d(_OverChannels):
    """PyTorch's older name for LocalResponseNorm."""
