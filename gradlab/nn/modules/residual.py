"""What two modules make together in one operation: a residual connection and its norm, the embeddings of tokens and of their places.

In one where `nn.functional.residual` has an operation for it and nobody looks in between: modules with hooks, of classes of their own, and
those of a trace are called as ever.
"""

from __future__ import annotations

from sys import _getframe as getframe

from gradlab.autograd.mode import current, enter, leave
from gradlab.call_site import Scope
from gradlab.nn import functional as F
from gradlab.nn.functional.residual import looks_up_in_one, sum_layer_norm, sum_rms_norm
from gradlab.nn.hooks import everywhere
from gradlab.nn.module import Module
from gradlab.nn.modules.embedding import Embedding
from gradlab.nn.modules.norm import LayerNorm, RMSNorm
from gradlab.tensor import Tensor


def add_norm(norm: Module, input: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """(norm(s), s) for the sum s = input + residual. Recorded as made in the norm."""
    kind = type(norm)
    plain = type(input) is type(residual) is Tensor  # a class of tensors may answer for each of the two
    if plain and (kind is LayerNorm or kind is RMSNorm) and not (norm._hooked or everywhere):
        mode, frame = current(), getframe(1)
        token = enter(mode.within(Scope(kind.__name__, norm._name, mode.scope, frame.f_code, frame.f_lasti)))
        try:
            if isinstance(norm, LayerNorm):
                found = sum_layer_norm(input, residual, norm.normalized_shape, norm.weight, norm.bias, float(norm.eps))
            else:
                found = sum_rms_norm(input, residual, norm.normalized_shape, norm.weight, norm.eps)
        finally:
            leave(token)
        if found is not None:
            return found
    total = input + residual
    return norm(total), total


def add_embeddings(tokens: Module, input: Tensor, places: Module, positions: Tensor) -> Tensor:
    """tokens(input) + places(positions), where the positions are 0, 1, … to the length of the input's last dimension."""
    embeddings = type(tokens) is type(places) is Embedding and type(input) is type(positions) is Tensor
    if embeddings and not (tokens._hooked or places._hooked or everywhere):
        plain = tokens.max_norm is places.max_norm is places.padding_idx is None
        if plain and not (tokens.scale_grad_by_freq or places.scale_grad_by_freq) and looks_up_in_one(input, tokens.weight, places.weight):
            return F.embedding_add(input, tokens.weight, places.weight, tokens.padding_idx)
    found: Tensor = tokens(input) + places(positions)
    return found
