"""States of models and optimizers, however they are wrapped; what it does is in a room above: `gradlab/nn/parallel/state_dicts.py`."""

from __future__ import annotations

from typing import Any

from gradlab.above import above
from gradlab.tensor.missing_names import absent

_NAMES = (
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(above("states in several processes"), name)
    raise absent("gradlab.distributed.checkpoint.state_dict", name)
