"""What can be computed when a file is loaded: constants, what follows from them, and branches that they choose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab.onnx.graphs import Body
from gradlab.onnx.importing import OPERATORS, Node, OnnxLoadError, Values
from gradlab.tensor.tensor import Tensor

RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout")
LISTS = ("SequenceEmpty", "SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceErase", "SequenceMap", "Optional")
OVER_WEIGHTS = ("Cast", "CastLike", "DequantizeLinear")  # of tensors that may be trained: they store them otherwise
# What windows and filters are computed with, and weights are not.
SIGNALS = ("Sin", "Cos", "Floor", "Ceil", "Round", "Clip", "Equal", "Less", "Greater", "Where", "Mod", "Range", "Sign")
BROADCAST = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Where", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or",
             "Xor", "Max", "Min", "Sum", "Mean", "PRelu", "Clip", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")  # fmt: skip
TURNS = 1 << 12  # steps of a loop that are made when a file is loaded
LARGEST = 1 << 24  # elements of what is computed when a file is loaded: of one result, and of all beside what the file's own size allows
GROWING = ("ConstantOfShape", "Expand", "Tile", "Range", "EyeLike", "OneHot", "Pad", "Resize", "Upsample", "ConvTranspose", "Loop", "Scan",
           "CenterCropPad", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "Col2Im", "MaxUnpool")  # fmt: skip


def bodies(node: Node) -> Iterator[Body]:
    """The graphs inside a node."""
    return (v for v in node.attributes.values() if isinstance(v, Body))


def reads(node: Node) -> Iterator[str]:
    """What a node and the graphs inside it read."""
    yield from filter(None, node.inputs)
    for body in bodies(node):
        for inner in body.nodes:
            yield from reads(inner)
        yield from body.outputs


def outside(node: Node) -> set[str]:
    """What a node reads of the graph around it, itself or in its own graphs."""
    found = {n for n in node.inputs if n}
    for body in bodies(node):
        own = {*body.inputs, *body.constants, *(n for inner in body.nodes for n in inner.outputs)}
        found |= {n for inner in body.nodes for n in outside(inner)} - own | set(body.outputs) - own
    return found


class Folder:
    """Folds one file. heavy: names of tensors that may be trained, from which no more than `OVER_WEIGHTS` is computed beforehand."""

    def __init__(self, keep_weights: bool) -> None:
        self.keep_weights = keep_weights
        self.fresh = 0
        self.room = -1  # elements that may yet be computed

    def fold(self, body: Body, known: dict[str, Any], heavy: set[str], new: dict[str, str]) -> None:
        """Rewrites a graph. known: constants that it sees; new: other names of values."""
        if self.room < 0:
            self.room = LARGEST + 4 * sum(int(np.size(v)) for v in body.constants.values())
        known, new = {**known, **body.constants}, dict(new)
        heavy = {*heavy, *(n for n, v in body.constants.items() if is_heavy(v))} if self.keep_weights else set()
        light = signals(body, known)
        heavy -= light
        for name in body.inputs:  # a name inside hides the one around
            if name not in body.constants:
                known.pop(name, None)
                new.pop(name, None)
        kept: list[Node] = []
        queue = list(reversed(body.nodes))
        while queue:
            node = queue.pop()
            node.inputs = [new.get(n, n) for n in node.inputs]
            if node.kind == "If" and node.inputs[0] in known:
                queue += reversed(self.inlined(node, known, new, body))
                continue
            if node.kind == "Identity" and node.outputs[0] not in body.outputs and node.inputs[0]:
                new[node.outputs[0]] = node.inputs[0]
                continue
            found = self.computed(node, known, heavy)
            if found is None:
                for inner in bodies(node):
                    self.fold(inner, known, heavy, new)
                kept.append(node)
                continue
            stored = self.keep_weights and node.kind in ("Constant", *OVER_WEIGHTS)
            for name, value in zip(node.outputs, found, strict=False):
                if name:
                    known[name] = body.constants[name] = value
                    if stored and is_heavy(value) and name not in light:
                        heavy.add(name)
        body.nodes = kept
        body.outputs = [new.get(n, n) for n in body.outputs]

    def inlined(self, node: Node, known: dict[str, Any], new: dict[str, str], body: Body) -> list[Node]:
        """The nodes of the branch that a constant chooses, under names of their own."""
        condition = np.asarray(known[node.inputs[0]]).reshape(-1)
        if condition.size != 1:
            raise node.refuse(f"its condition has {condition.size} elements")
        branch: Body = node.get("then_branch" if condition[0] else "else_branch")
        self.fresh += 1
        own = {*branch.constants, *(n for inner in branch.nodes for n in inner.outputs if n)}
        taken = {*known, *body.constants, *(n for other in body.nodes for n in other.outputs)}
        names = {n: f"{n}__{self.fresh}" for n in own if n in taken}
        for name, value in branch.constants.items():
            known[names.get(name, name)] = body.constants[names.get(name, name)] = value
        for inner in branch.nodes:
            rename(inner, names)
        results = [names.get(n, n) for n in branch.outputs]
        ends = [Node("Identity", "", [a], [b], {}, node.opset) for a, b in zip(results, node.outputs, strict=False) if b]
        for end in ends:
            end.operator = OPERATORS["Identity"]
        return [*branch.nodes, *ends]

    def computed(self, node: Node, known: dict[str, Any], heavy: set[str]) -> tuple[Any, ...] | None:
        """A node's results, or None for one that has to run."""
        if node.kind in RANDOM or node.kind in LISTS or node.operator is None:
            return None
        if node.kind != "Constant" and (not any(node.inputs) or not all(n in known for n in node.inputs if n)):
            return None
        if any(True for _ in bodies(node)) and not self.turns(node, known, heavy):
            return None
        trained = [n for i, n in enumerate(node.inputs) if n in heavy and i not in node.operator.fixed and i not in node.operator.host]
        if trained and node.kind not in OVER_WEIGHTS:
            return None
        arguments = [known[n] if n else None for n in node.inputs]
        if not affordable(node, arguments) or (self.room == 0 and node.kind != "Constant"):
            return None
        try:
            found = Body([], [], {}, []).step(node, arguments, None, Values(known))
        except (OnnxLoadError, ValueError, RuntimeError, TypeError, IndexError, NotImplementedError):
            if node.kind == "Constant":
                raise
            return None  # it says so when it runs
        results = tuple(v.detach().numpy() if isinstance(v, Tensor) else v for v in (found if isinstance(found, tuple) else (found,)))
        self.room = max(self.room - sum(int(np.size(r)) for r in results if r is not None), 0)
        return results if all(isinstance(r, np.ndarray) or r is None for r in map(plain, results)) and not any(
            isinstance(r, list) for r in results) else None  # fmt: skip


    def turns(self, node: Node, known: dict[str, Any], heavy: set[str]) -> bool:
        """Whether a loop reads constants alone, none of them trained, and turns few times over nodes that are not loops themselves."""
        if node.kind not in ("Loop", "Scan"):
            return False
        (body,) = bodies(node)
        if not all(n in known and n not in heavy for n in outside(node)):
            return False
        if self.keep_weights and any(map(is_heavy, body.constants.values())):
            return False
        if any(n.kind in (*RANDOM, *LISTS, *GROWING) or n.operator is None or any(True for _ in bodies(n)) for n in body.nodes):
            return False
        values = [known[n] for n in node.inputs if n]
        if any(np.size(v) > LARGEST // TURNS for v in values):
            return False
        if node.kind == "Loop":
            return bool(node.inputs[0]) and np.size(values[0]) == 1 and 0 < int(np.asarray(values[0]).reshape(-1)[0]) <= TURNS
        return all(max(np.shape(v), default=1) <= TURNS for v in values)


def signals(body: Body, known: dict[str, Any]) -> set[str]:
    """Stored tensors that are no weights, though their type would do: nothing reads them but what computes a window or a filter of them."""
    leaves: dict[str, set[str]] = {name: {name} for name in known}
    light: set[str] = set()
    open_: set[str] = set(body.outputs)
    for node in body.nodes:
        inputs = list(outside(node))
        fixed = all(n in leaves for n in inputs) and node.kind not in RANDOM
        if not fixed:
            open_.update(n for n in inputs if n in known or (n in leaves and leaves[n] == {n}))
            continue
        from_ = {leaf for n in inputs for leaf in leaves[n]}
        for name in node.outputs:
            leaves[name] = from_ if node.kind != "Constant" else {name}
        if node.kind in SIGNALS:
            light |= from_
    return light - open_


def plain(value: Any) -> Any:
    """NumPy's single numbers as arrays."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def is_heavy(value: Any) -> bool:
    """Whether an array may be a weight."""
    return bool(value.dtype.kind in "fV" and value.ndim > 0 and value.size > 1)


def rename(node: Node, names: dict[str, str]) -> None:
    """Other names for values, also in the graphs inside (as far as they do not make their own of that name)."""
    node.inputs = [names.get(n, n) for n in node.inputs]
    node.outputs = [names.get(n, n) for n in node.outputs]
    for body in bodies(node):
        own = {*body.inputs, *body.constants, *(n for inner in body.nodes for n in inner.outputs)}
        left = {a: b for a, b in names.items() if a not in own}
        for inner in body.nodes:
            rename(inner, left)
        body.outputs = [left.get(n, n) for n in body.outputs]


def affordable(node: Node, arguments: list[Any]) -> bool:
    """Whether a result is of a size that is worth keeping, and that a damaged file cannot blow up."""
    sizes = sorted((int(np.size(a)) for a in arguments if a is not None), reverse=True)
    if node.kind in BROADCAST:
        try:
            return math.prod(np.broadcast_shapes(*(np.shape(a) for a in arguments if a is not None))) <= LARGEST
        except ValueError:
            return False
    if sum(sizes) > LARGEST or (math.prod(sizes[:2]) > LARGEST * 64 and node.kind not in OVER_WEIGHTS):
        return False
    if node.kind == "Expand":
        try:
            shape = tuple(np.asarray(arguments[1]).reshape(-1)[:64].tolist())
            return math.prod(np.broadcast_shapes(np.shape(arguments[0]), shape)) <= LARGEST
        except (ValueError, TypeError, IndexError):
            return False
    if node.kind in ("ConstantOfShape", "Tile", "Pad"):
        numbers = [abs(int(v)) for v in np.asarray(arguments[min(1, len(arguments) - 1)]).reshape(-1)[:64]]
        if node.kind == "Pad":
            return sum(numbers) < 4096 and sizes[0] < 1 << 16
        return math.prod(max(n, 1) for n in numbers) * (sizes[0] if node.kind == "Tile" else 1) <= LARGEST
    if node.kind == "Range":
        first, last, step = (float(np.asarray(a).reshape(-1)[0]) if np.size(a) else 0.0 for a in arguments)
        return step != 0 and math.isfinite(last - first) and abs((last - first) / step) <= LARGEST
    few = [np.asarray(a).reshape(-1)[:4096] for a in arguments if a is not None and np.asarray(a).dtype.kind in "iuf"]
    return node.kind not in GROWING or (sizes[0] <= 4096 and all((np.abs(a) <= 4096).all() for a in few))


def without_dead(body: Body) -> None:
    """Drops nodes that nobody reads, and constants; notes behind which node a value is no longer needed."""
    wanted = set(body.outputs)
    kept: list[Node] = []
    for node in reversed(body.nodes):
        if not any(name in wanted for name in node.outputs if name):
            continue
        for inner in bodies(node):
            without_dead(inner)
        mine = set(reads(node))
        made = {name for name in node.outputs if name}
        node.last = tuple((mine | made) - wanted - set(body.inputs) - set(body.constants))
        wanted |= mine
        kept.append(node)
    body.nodes = kept[::-1]
    own = {name for node in body.nodes for name in node.outputs}
    for node in body.nodes:  # what comes from around stays for others
        node.last = tuple(name for name in node.last if name in own)
    body.constants = {name: value for name, value in body.constants.items() if name in wanted}
