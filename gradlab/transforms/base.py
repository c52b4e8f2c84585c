"""What every transform is: a module that changes the images in its input, by numbers drawn of the default generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from gradlab import nn
from gradlab.tensor import Tensor
from gradlab.tensor.random import rand, randint
from gradlab.transforms.functional.kinds import is_image
from gradlab.utils.pillow import is_pillow


class Transform(nn.Module):
    """Base class. A subclass gives `transform(image, params)`, and `make_params(images)` for the numbers that it draws.

    A call takes an image, or any tuples, lists and dicts of things, of which the images are changed, all by the same numbers, and the rest
    is passed on. Images are all that are Pillow's; where there are none, the first tensor or array of at least two dimensions. A batch (n,
    channels, height, width) is changed as one image is: `Each` draws for each of its images.
    """

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """What is drawn once for all images of a call."""
        return {}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One image, changed."""
        raise NotImplementedError(f"{type(self).__name__} has no transform(image, params)")

    def forward(self, *inputs: Any) -> Any:
        whole = inputs if len(inputs) != 1 else inputs[0]
        images = images_in(whole)
        if not images:
            kinds = ", ".join(map(_described, leaves(whole))) or "nothing"
            raise TypeError(f"{type(self).__name__}: takes images (tensors, NumPy arrays, images of Pillow's), not {kinds}")
        params = self.make_params(images)
        changed = {id(image): self.transform(image, params) for image in images}
        return rebuilt(whole, lambda leaf: changed.get(id(leaf), leaf))

    def extra_repr(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "training"}
        plain = (bool, int, float, str, tuple, list, Enum)
        return ", ".join(f"{name}={value}" for name, value in shown.items() if isinstance(value, plain))


def _described(x: Any) -> str:
    return type(x).__name__ + (f" of {x.dtype} and shape {tuple(x.shape)}" if hasattr(x, "dtype") and hasattr(x, "shape") else "")


class RandomTransform(Transform):
    """Base class of what is done with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: p is from 0 to 1, not {p}")
        super().__init__()
        self.p = p

    def forward(self, *inputs: Any) -> Any:
        if uniform() >= self.p:
            return inputs if len(inputs) != 1 else inputs[0]
        return super().forward(*inputs)


# ---------------------------------------------------------------- structures


def leaves(x: Any) -> Iterator[Any]:
    """What is in tuples, lists and dicts, however deep, in order."""
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from leaves(part)
    elif isinstance(x, Mapping):
        yield from leaves(list(x.values()))
    else:
        yield x


def rebuilt(x: Any, function: Any) -> Any:
    """The structure with `function` of each leaf."""
    if isinstance(x, (tuple, list)):
        parts = [rebuilt(part, function) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, Mapping):
        return {key: rebuilt(value, function) for key, value in x.items()}
    return function(x)


def images_in(x: Any) -> list[Any]:
    """The images in a structure: all of Pillow's, else the first tensor or array that can be one."""
    found = list(leaves(x))
    return [leaf for leaf in found if is_pillow(leaf)] or [leaf for leaf in found if is_image(leaf)][:1]


# ---------------------------------------------------------------- numbers


def uniform(low: float = 0.0, high: float = 1.0) -> float:
    """A number from `low` to `high` (not included)."""
    return low + (high - low) * float(rand(1, dtype="float64").item())


def integer(count: int) -> int:
    """A whole number from 0 to `count` (not included)."""
    return int(randint(0, count, (1,)).item())


def interval(name: str, value: Any, what: str, around: float | None = None, low: float | None = None) -> tuple[float, float]:
    """A pair (from, to): as given, or of one number `v`: (-v, v), or (around - v, around + v), not below `low`."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"{name}: {what} as one number is not negative, got {value}")
        centre = 0.0 if around is None else around
        first, last = centre - value, centre + value
        return (first if low is None else max(first, low)), last
    if not (isinstance(value, (Sequence, Tensor)) and len(value) == 2):
        raise ValueError(f"{name}: {what} is a number or a pair (from, to), not {value!r}")
    first, last = (float(v) for v in value)
    if first > last or (low is not None and first < low):
        raise ValueError(f"{name}: {what} is a pair (from, to){f' from {low:g} up' if low is not None else ''}, not {value!r}")
    return first, last
