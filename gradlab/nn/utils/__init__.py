"""Helpers for training modules: clipping gradients, parameters as one vector, packed sequences, weights computed from others, pruning."""

from __future__ import annotations

from typing import Any

from gradlab.nn.utils import parametrizations, parametrize, prune, rnn
from gradlab.nn.utils.clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from gradlab.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from gradlab.nn.utils.deprecated_norms import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from gradlab.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from gradlab.nn.utils.memory_format import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format
from gradlab.nn.utils.skipping import skip_init
from gradlab.tensor.missing_names import absent as _absent

__all__ = [
    "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format",
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval", "fuse_conv_bn_weights",
    "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.nn.utils", name)
