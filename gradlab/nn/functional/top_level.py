"""Functions that PyTorch has at its top beside those of `nn.functional`, with the arguments of the rows that they are there.

Where the two are called alike, the function is that of `nn.functional`. Losses take their reduction as a number: 0, as it is unless
given, is none, 1 the mean, 2 the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.named_errors import named_functions
from gradlab.nn import functional as F
from gradlab.nn.functional import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    avg_pool1d as avg_pool1d,
    bilinear as bilinear,
    celu_ as celu_,
    channel_shuffle as channel_shuffle,
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
    cosine_similarity as cosine_similarity,
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
    pairwise_distance as pairwise_distance,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    rms_norm as rms_norm,
    selu_ as selu_,
    threshold_ as threshold_,
)

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")


def _reduction(name: str, reduction: Any) -> str:
    if reduction in (0, 1, 2):
        return _REDUCTIONS[reduction]
    raise ValueError(f"{name}: reduction is 0 (none), 1 (mean) or 2 (sum), not {reduction!r}; nn.functional.{name} takes it as a word")


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    """`nn.functional.adaptive_max_pool1d`, with the places of the largest elements.

    >>> gl.adaptive_max_pool1d(gl.tensor([[1.0, 3.0, 2.0]]), 1)
    (tensor([[3.]]), tensor([[1]]))
    """
    return tuple(F.adaptive_max_pool1d(input, output_size, True))


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout`.

    >>> gl.dropout(gl.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return F.dropout(input, p, train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout`.

    >>> gl.alpha_dropout(gl.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return F.alpha_dropout(input, p, train)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels: of a (N, C, …) tensor's, one number decides for each n and c.

    >>> gl.feature_dropout(gl.ones(1, 2, 2), 0.5, False).sum()
    tensor(4.)
    """
    shape = input.shape[:2] + (1,) * max(input.dim() - 2, 0)
    return input * F.dropout(input.new_ones(shape), p, train) if train else input


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout`.

    >>> gl.feature_alpha_dropout(gl.ones(1, 2), 0.5, False)
    tensor([[1., 1.]])
    """
    return F.feature_alpha_dropout(input, p, train)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """`nn.functional.rrelu`.

    >>> gl.rrelu(gl.tensor([2.0]))
    tensor([2.])
    """
    return F.rrelu(input, lower, upper, training)


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """`nn.functional.embedding`, the table first; a padding_idx below 0 is none.

    >>> gl.embedding(gl.tensor([[1.0], [2.0]]), gl.tensor([1]))
    tensor([[2.]])
    """
    return F.embedding(indices, weight, padding_idx if padding_idx >= 0 else None, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Tensor:
    """`nn.functional.layer_norm`.

    >>> gl.layer_norm(gl.tensor([[1.0, 3.0]]), (2,))
    tensor([[-1.0000,  1.0000]])
    """
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Tensor:
    """`nn.functional.group_norm`.

    >>> gl.group_norm(gl.tensor([[1.0, 3.0]]), 1)
    tensor([[-1.0000,  1.0000]])
    """
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.batch_norm`.

    >>> gl.batch_norm(gl.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 1e-5, False)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.instance_norm`.

    >>> gl.instance_norm(gl.tensor([[[1.0, 3.0]]]), None, None, None, None, True, 0.1, 1e-5, False)
    tensor([[[-1.0000,  1.0000]]])
    """
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """`nn.functional.pad` with one value.

    >>> gl.constant_pad_nd(gl.ones(1), (1, 1))
    tensor([0., 1., 0.])
    """
    return F.pad(input, pad, "constant", value)


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """`nn.functional.grid_sample`, its modes as numbers: bilinear, nearest, bicubic; zeros, border, reflection.

    >>> gl.grid_sampler(gl.ones(1, 1, 2, 2), gl.zeros(1, 1, 1, 2), 0, 0, False)
    tensor([[[[1.]]]])
    """
    mode, padding = ("bilinear", "nearest", "bicubic")[interpolation_mode], ("zeros", "border", "reflection")[padding_mode]
    return F.grid_sample(input, grid, mode, padding, align_corners)


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`.

    >>> gl.affine_grid_generator(gl.ones(1, 2, 3), (1, 1, 1, 1), False)
    tensor([[[[1., 1.]]]])
    """
    return F.affine_grid(theta, size, align_corners)


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div`.

    >>> gl.kl_div(gl.zeros(1), gl.ones(1))
    tensor([0.])
    """
    return F.kl_div(input, target, reduction=_reduction("kl_div", reduction), log_target=log_target)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """`nn.functional.poisson_nll_loss`.

    >>> gl.poisson_nll_loss(gl.zeros(1), gl.ones(1), True, False, 1e-8, 1)
    tensor(1.)
    """
    kind = _reduction("poisson_nll_loss", reduction)
    return F.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction=kind)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 0
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`.

    >>> gl.binary_cross_entropy_with_logits(gl.zeros(1), gl.ones(1))
    tensor([0.6931])
    """
    kind = _reduction("binary_cross_entropy_with_logits", reduction)
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=kind, pos_weight=pos_weight)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """`nn.functional.hinge_embedding_loss`.

    >>> gl.hinge_embedding_loss(gl.zeros(1), -gl.ones(1))
    tensor([1.])
    """
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction("hinge_embedding_loss", reduction))


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0) -> Tensor:
    """`nn.functional.margin_ranking_loss`.

    >>> gl.margin_ranking_loss(gl.zeros(1), gl.ones(1), gl.ones(1))
    tensor([1.])
    """
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction("margin_ranking_loss", reduction))


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0) -> Tensor:
    """`nn.functional.cosine_embedding_loss`.

    >>> gl.cosine_embedding_loss(gl.ones(1, 2), -gl.ones(1, 2), gl.ones(1))
    tensor([2.])
    """
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction("cosine_embedding_loss", reduction))


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
    reduction: int = 0,
) -> Tensor:  # fmt: skip
    """`nn.functional.triplet_margin_loss`.

    >>> gl.triplet_margin_loss(gl.zeros(1, 2), gl.zeros(1, 2), gl.zeros(1, 2))
    tensor([1.])
    """
    kind = _reduction("triplet_margin_loss", reduction)
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=kind)


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.ctc_loss`.

    >>> gl.ctc_loss(gl.full((1, 1, 2), -1.0), gl.tensor([[1]]), (1,), (1,))
    tensor([1.])
    """
    kind = _reduction("ctc_loss", reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)


named_functions(__name__)
