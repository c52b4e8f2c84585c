"""gradlab's models in PyTorch: the same source, in which `gradlab` is `torch`.

The names in it are PyTorch's, so that parameters have the same names and a state of one model fits the other.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType, SimpleNamespace

from repository import ROOT

MODELS = ROOT / "gradlab" / "models"
RESIDUAL = "gradlab.nn.modules.residual"  # what gradlab does in one operation, and PyTorch in two


def add_norm(norm, x, residual):
    total = x + residual
    return norm(total), total


def add_embeddings(tokens, x, places, positions):
    return tokens(x) + places(positions)


@cache
def family(name: str) -> ModuleType:
    """The module `gradlab.models.NAME` of PyTorch's modules."""
    here = ModuleType("residual_in_pytorch")
    here.__dict__.update(add_norm=add_norm, add_embeddings=add_embeddings)
    sys.modules[here.__name__] = here
    source = (MODELS / f"{name}.py").read_text(encoding="utf-8").replace(RESIDUAL, here.__name__).replace("gradlab", "torch")
    module = ModuleType(f"{name}_in_pytorch")
    sys.modules[module.__name__] = module  # where a dataclass looks for its own module
    exec(compile(source, f"{name}.py in PyTorch", "exec"), module.__dict__)
    return module


def models() -> SimpleNamespace:
    """All public names of the files of models."""
    found: dict[str, object] = {}
    for path in sorted(MODELS.glob("[!_]*.py")):
        found |= {name: value for name, value in vars(family(path.stem)).items() if not name.startswith("_")}
    return SimpleNamespace(**found)


def load(twin, model) -> None:
    """Give the twin the weights and the buffers of gradlab's model."""
    import torch

    twin.load_state_dict({name: torch.from_numpy(value.numpy().copy()) for name, value in model.state_dict().items()})
