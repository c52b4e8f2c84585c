"""Where results and gradients on edges (`edges.py`) are not PyTorch's: the functions, and why. All others agree."""

from __future__ import annotations

from kinds.catalogue.giving import words

REASONS: dict[str, str] = {
    "abs __abs__ absolute sgn sign angle dist norm l1_loss": "the sign of NaN is NaN, as in NumPy and the array API; PyTorch has 0",
    "amax amin aminmax index_reduce scatter_reduce": "an extreme NaN gets the gradient; PyTorch divides 0 by 0 for all elements",
    "celu elu selu hardsigmoid hardswish i1 i1e softsign": "a NaN has a NaN, or what its pieces have, for a gradient",
    "clamp clamp_max clamp_min": "between tensors NaN passes its gradient on",
    "prod cumprod": "no division by the element: the gradient of the NaN itself is the product of the others",
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d grid_sample grid_sampler grid_sampler_2d grid_sampler_3d "
    "scaled_dot_product_attention": "0 · NaN is NaN: of padding, stuffing, a corner without weight, a masked key",
    "batch_norm group_norm instance_norm layer_norm native_batch_norm native_group_norm native_layer_norm std_mean var_mean":
        "the variance of an infinite element is infinite; that of equal elements is exactly 0",
    "kl_div xlogy xlog1py entr": "0 · log 0 is 0, and so is its gradient",
    "digamma psi polygamma zeta mvlgamma multigammaln log_ndtr": "the limit at a pole or at infinity, where PyTorch rounds π or has NaN",
    "gelu silu mish logaddexp logaddexp2 logcumsumexp soft_margin_loss softsign i0 i1 copysign hypot":
        "the limit at infinity, and 0 for a norm of zeros, where PyTorch divides ∞ by ∞ or 0 by 0",
    "logit": "outside of where there is a value the gradient is the formula's",
    "multi_margin_loss multilabel_margin_loss": "the loss of a NaN is NaN; PyTorch's comparison leaves it out",
    "binary_cross_entropy_with_logits ctc_loss": "∞ - ∞ is met in another order",
    "as_strided_scatter": "the gradient of the copy is 0 where it was replaced; PyTorch forgets the offset",
    "renorm": "NaN is the result for all",
    "norm_except_dim": "a vector has a norm",
    "multi_head_attention_forward": "equal scores have a gradient of exactly 0 or of a rounding",
}  # fmt: skip
EXCEPTIONS = {name: reason for names, reason in REASONS.items() for name in words(names)}
