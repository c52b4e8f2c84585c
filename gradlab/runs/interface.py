"""How a kind's model is called from elsewhere: what `gradlab export` has to know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gradlab import Tensor, nn

Sizes = dict[str, dict[int, str]]  # of inputs by name, which sizes may differ, and what they are called


@dataclass
class Interface:
    """How a kind's model is called from elsewhere.

    example: its arguments by name, of a batch of two. outputs: their names. meaning: of each input and output, in a sentence. dynamic:
    which sizes may differ, the best first. model: what is exported, where that is not the run's model itself.
    """

    example: dict[str, Tensor]
    outputs: Sequence[str]
    meaning: Mapping[str, str]
    dynamic: list[Sizes] = field(default_factory=list)
    model: nn.Module | None = None

    def tries(self) -> list[Sizes]:
        """Sizes that may differ, from most to none; by default the batch's."""
        return [*(self.dynamic or [{name: {0: "batch"} for name in self.example}]), {}]
