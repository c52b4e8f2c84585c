"""Transforms of transforms: one after another, by chance, one of several, for each image of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import nn
from gradlab.tensor import Tensor
from gradlab.tensor.random import randperm
from gradlab.tensor.shape import stack
from gradlab.transforms.base import Transform, rebuilt, uniform

Step = Callable[..., Any]


def _listed(name: str, transforms: Any) -> list[Step]:
    if not isinstance(transforms, (list, tuple, nn.ModuleList)) or not len(transforms) or not all(callable(t) for t in transforms):
        raise TypeError(f"{name}: takes a list of transforms (of at least one), not {transforms!r}")
    return list(transforms)


class Compose(Transform):
    """Transforms, or any functions, one after another.

    >>> steps = gl.transforms.Compose([gl.transforms.CenterCrop(2), gl.transforms.ToDtype(gl.float32, scale=True)])
    >>> steps(gl.ones(3, 4, 4, dtype=gl.uint8)).shape
    (3, 2, 2)
    """

    def __init__(self, transforms: Sequence[Step]) -> None:
        super().__init__()
        self.transforms = _listed("Compose", transforms)

    def forward(self, *inputs: Any) -> Any:
        return _through(self.transforms, inputs)

    def extra_repr(self) -> str:
        return ",\n".join(map(repr, self.transforms))


def _through(steps: Sequence[Step], inputs: tuple[Any, ...]) -> Any:
    several = len(inputs) != 1
    found: Any = inputs if several else inputs[0]
    for step in steps:
        found = step(*found) if several else step(found)
    return found


class RandomApply(Transform):
    """All of the transforms, one after another, with probability `p`; else none."""

    def __init__(self, transforms: Sequence[Step], p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"RandomApply: p is from 0 to 1, not {p}")
        self.transforms, self.p = _listed("RandomApply", transforms), p

    def forward(self, *inputs: Any) -> Any:
        return _through(self.transforms if uniform() < self.p else [], inputs)


class RandomChoice(Transform):
    """One of the transforms, drawn by the probabilities `p` (of any sum; default: all alike)."""

    def __init__(self, transforms: Sequence[Step], p: Sequence[float] | None = None) -> None:
        super().__init__()
        self.transforms = _listed("RandomChoice", transforms)
        shares = [1.0] * len(transforms) if p is None else [float(share) for share in p]
        if len(shares) != len(self.transforms) or min(shares) < 0 or not sum(shares):
            raise ValueError(f"RandomChoice: p has a probability for each of {len(self.transforms)} transforms, not {p}")
        self.p = [share / sum(shares) for share in shares]

    def forward(self, *inputs: Any) -> Any:
        place = int(np.searchsorted(np.cumsum(self.p), uniform(), side="right"))
        return _through([self.transforms[min(place, len(self.p) - 1)]], inputs)


class RandomOrder(Transform):
    """All of the transforms, in an order drawn anew."""

    def __init__(self, transforms: Sequence[Step]) -> None:
        super().__init__()
        self.transforms = _listed("RandomOrder", transforms)

    def forward(self, *inputs: Any) -> Any:
        return _through([self.transforms[i] for i in randperm(len(self.transforms)).tolist()], inputs)


class Identity(Transform):
    """Changes nothing."""

    def forward(self, *inputs: Any) -> Any:
        return inputs if len(inputs) != 1 else inputs[0]


class Lambda(Transform):
    """A function of one's own, called with what is of `types` (default: everything) in the input."""

    def __init__(self, lambd: Callable[[Any], Any], *types: type) -> None:
        super().__init__()
        if not callable(lambd):
            raise TypeError(f"Lambda: takes a function, not {lambd!r}")
        self.lambd, self.types = lambd, types or (object,)

    def forward(self, *inputs: Any) -> Any:
        whole = inputs if len(inputs) != 1 else inputs[0]
        return rebuilt(whole, lambda leaf: self.lambd(leaf) if isinstance(leaf, self.types) else leaf)


class Each(Transform):
    """A transform, or several one after another, by numbers drawn for each image of a batch (n, channels, height, width), or array
    (n, height, width, channels).

    >>> crops = gl.transforms.Each(gl.transforms.RandomCrop(28, padding=2), gl.transforms.RandomHorizontalFlip())
    >>> crops(gl.zeros(16, 1, 28, 28)).shape
    (16, 1, 28, 28)
    """

    def __init__(self, *transforms: Step) -> None:
        super().__init__()
        self.transforms = _listed("Each", transforms)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if not isinstance(inpt, (Tensor, np.ndarray)) or inpt.ndim < 4:
            raise ValueError(f"Each: takes a batch of images, not {type(inpt).__name__} of shape {getattr(inpt, 'shape', None)}")
        found = [_through(self.transforms, (image,)) for image in inpt]
        return stack(found) if isinstance(inpt, Tensor) else np.stack(found)


