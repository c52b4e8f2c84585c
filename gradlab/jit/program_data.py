"""A program as data: what `jit.trace` makes, `ScriptModule` runs, and files hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gradlab.graph.ir.graph import Graph, Value

CONSTANTS = "_constants"  # the submodule that holds tensors which no module named


@dataclass
class Held:
    """A tensor that a program reads, and perhaps writes: its value in the graph (None where it only belongs to the module) and names."""

    value: Value | None
    names: list[str]
    tensor: Any
    persistent: bool = True  # whether `state_dict` has it


@dataclass
class Plan:
    """A program as data.

    graph      its state is empty: `held` says which tensors it is
    arguments  how the arguments nest, as JSON; `names` are those of the positional ones
    outputs    for each tensor of the result ("value", number), ("argument", position) or ("state", position in held)
    cuts       the inputs of calls through which no gradient goes, by the call's first output; `ends` the same for results
    moved      positions of inputs that lay elsewhere than the program, which moves them
    layouts    by position of an input whose layout decides what the program writes or shares: its strides; None for row by row
    """

    title: str
    graph: Graph
    arguments: Any
    result: Any
    names: list[str]
    outputs: list[tuple[str, int]]
    held: list[Held]
    cuts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    training: bool = False
    checked: bool = False  # of a stranger's file: the first call of each kind runs row by row
    careful: bool = False  # and all later ones too
    layouts: dict[int, tuple[int, ...] | None] = field(default_factory=dict)
