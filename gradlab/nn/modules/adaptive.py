"""A softmax over very many classes that computes the frequent ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.autograd.mode import current
from gradlab.nn import functional as F
from gradlab.nn.module import Module
from gradlab.nn.modules.container import ModuleList, Sequential
from gradlab.nn.modules.linear import Linear
from gradlab.spec import ShapeError
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat
from gradlab.tensor.where import where


class _ASMoutput(NamedTuple):
    """The log-probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A loss for classes of which few are frequent: the head tells these and groups of rare ones apart, a tail for each group its classes.

    in_features: of the input; n_classes, ordered by how frequent they are; cutoffs: where a new group begins, rising, between 1 and
    n_classes - 1. Group i is computed from in_features / div_value^i numbers. head_bias: whether the head has a bias.
    Input (N, in_features) and targets (N,), or (in_features,) and (), give (output, loss): each target's log-probability, and their mean's
    negative. Formulas: Grave et al., Efficient softmax approximation for GPUs (2017).
    ValueError for other cutoffs, RuntimeError for targets beyond the classes, ShapeError for other shapes.

    >>> loss = gl.nn.AdaptiveLogSoftmaxWithLoss(16, 1000, [10, 100])
    >>> loss.log_prob(gl.randn(2, 16)).exp().sum(1)
    tensor([1., 1.])
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        ends = list(cutoffs)
        if not ends or any(int(c) != c for c in ends) or ends != sorted(set(ends)) or not 0 < ends[0] <= ends[-1] < n_classes:
            raise ValueError(f"AdaptiveLogSoftmaxWithLoss: cutoffs are rising integers from 1 to {n_classes - 1}, not {ends}")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*ends, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden, classes = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            parts = Linear(in_features, hidden, False, device, dtype), Linear(hidden, classes, False, device, dtype)
            self.tail.append(Sequential(*parts))

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        for layer in (self.head, *(part for pair in self.tail for part in pair)):
            layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """As the class says."""
        if target_.ndim > 1 or input_.ndim != target_.ndim + 1 or input_.shape[:-1] != target_.shape:
            text = f"an input (N, {self.in_features}) and targets (N,), or ({self.in_features},) and ()"
            raise ShapeError(f"AdaptiveLogSoftmaxWithLoss: expected {text}, got {input_.shape} and {target_.shape}")
        x, target = (input_, target_) if target_.ndim else (input_[None], target_[None])
        read = current().tracer is None and current().vmap is None
        if read and target.numel() and not 0 <= int(target.min()) <= int(target.max()) < self.n_classes:
            ends = f"{int(target.min())} to {int(target.max())}"
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: targets are from 0 to {self.n_classes - 1}, not from {ends}")
        group: Any = sum((target >= start).to(target.dtype) for start in self.cutoffs[:-1])  # 0 is the head's own
        at = where(group == 0, target, self.shortlist_size - 1 + group)
        output = F.log_softmax(self.head(x), 1).gather(1, at[:, None])[:, 0]
        for i, tail in enumerate(self.tail):
            inside = group == i + 1
            if read:
                rows = inside.nonzero()[:, 0]
                if rows.numel():
                    found = F.log_softmax(tail(x[rows]), 1).gather(1, (target[rows] - self.cutoffs[i])[:, None])[:, 0]
                    output = output.index_add(0, rows, found)
            else:  # a program has its sizes: all rows
                own = where(inside, target - self.cutoffs[i], 0)
                output = output + where(inside, F.log_softmax(tail(x), 1).gather(1, own[:, None])[:, 0], 0.0)
        return _ASMoutput(output if target_.ndim else output[0], -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes."""
        head = F.log_softmax(self.head(input), 1)
        tails = [F.log_softmax(t(input), 1) + head[:, self.shortlist_size + i, None] for i, t in enumerate(self.tail)]
        return cat([head[:, : self.shortlist_size], *tails], 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class (N,) of each."""
        return self.log_prob(input).argmax(1)
