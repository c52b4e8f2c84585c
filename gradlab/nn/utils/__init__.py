"""Helpers for training modules: clipping gradients, parameters as one vector, packed sequences."""

from __future__ import annotations

from typing import Any

from gradlab.nn.utils import rnn
from gradlab.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from gradlab.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from gradlab.tensor.missing import absent as _absent

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector", "rnn",
    "vector_to_parameters",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.nn.utils", name)
