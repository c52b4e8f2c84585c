"""The place that scripts import as `torch.nn.parallel`. One process uses one device, so there is nothing in it."""

from __future__ import annotations

from typing import Any

from gradlab.tensor.missing import absent as _absent


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.nn", name)
