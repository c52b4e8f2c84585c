"""einops' layers as modules of gradlab's: `from einops.layers.gradlab import Rearrange`, as of other libraries."""

from __future__ import annotations

from importlib.util import spec_from_file_location
from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from gradlab.nn.module import Module
from gradlab.nn.parameter import Parameter
from gradlab.tensor.creation import empty
from gradlab.tensor.einsum import einsum

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, Module):  # type: ignore[misc]
    """`einops.rearrange` as a module."""

    def forward(self, x: Any) -> Any:
        return self._apply_recipe(x)


_rearrange: Any = Rearrange


class Reduce(ReduceMixin, Module):  # type: ignore[misc]
    """`einops.reduce` as a module."""

    def forward(self, x: Any) -> Any:
        return self._apply_recipe(x)


class EinMix(_EinmixMixin, Module):  # type: ignore[misc]
    """A product with a weight, along axes that have names, and a bias: einops' EinMix."""

    def _create_parameters(self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float) -> None:
        self.weight = Parameter(empty(weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None if bias_shape is None else Parameter(empty(bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(
        self, pre_reshape_pattern: Any, pre_reshape_lengths: Any, post_reshape_pattern: Any, post_reshape_lengths: Any
    ) -> None:
        self.before: Any = None if pre_reshape_pattern is None else _rearrange(pre_reshape_pattern, **pre_reshape_lengths)
        self.after: Any = None if post_reshape_pattern is None else _rearrange(post_reshape_pattern, **post_reshape_lengths)

    def forward(self, x: Any) -> Any:
        x = x if self.before is None else self.before(x)
        x = einsum(self.einsum_pattern, x, self.weight)
        x = x if self.bias is None else x + self.bias
        return x if self.after is None else self.after(x)


def spec(name: str) -> Any:
    """This module under another name."""
    return spec_from_file_location(name, __file__)
