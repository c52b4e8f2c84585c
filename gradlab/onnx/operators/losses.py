"""Losses."""

from __future__ import annotations

from typing import Any

import gradlab as gl
from gradlab.dtype import bool_
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, imports


@imports("NegativeLogLikelihoodLoss")
def nll(node: Node, x: Any, target: Any, weight: Any = None) -> Any:
    """Of log probabilities; classes along dimension 1."""
    ignored = node.get("ignore_index")
    target = target.to(gl.int64)
    counted = gl.ones_like(target, dtype=bool_) if ignored is None else target != ignored
    safe = gl.where(counted, target, 0)
    picked = -x.gather(1, safe.unsqueeze(1)).squeeze(1)
    weights = counted.to(x.dtype) if weight is None else gl.where(counted, weight[safe], 0)
    loss = gl.where(counted, picked * weights, 0)
    how = node.get("reduction", "mean")
    if how == "none":
        return loss
    return loss.sum() if how == "sum" else loss.sum() / weights.sum()


@imports("SoftmaxCrossEntropyLoss")
def cross_entropy(node: Node, x: Any, target: Any, weight: Any = None) -> Any:
    """The loss, and the logarithms of the probabilities."""
    logarithms = F.log_softmax(x, 1)
    return nll(node, logarithms, target, weight), logarithms
