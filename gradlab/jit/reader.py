"""`jit.load`: a program file read as data, every part checked before any of it is used.

The file's size and its tensors against its header (by safetensors), the program's text piece by piece: names of rows, their versions, their
parameters and inputs (`schema`), that values are defined once and before they are used, that each result is what the row's own rule says,
sub-graphs against the calls that hold them, and how much memory all of it asks for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradlab.device import Device
from gradlab.dtype import FLOATING
from gradlab.graph.ir.dims import hint, unknown
from gradlab.graph.ir.graph import Graph, Value
from gradlab.jit.graph_reader import GraphReader
from gradlab.jit.limits import MAX_BYTES, check_size
from gradlab.jit.module import ScriptModule
from gradlab.jit.portable import FORMAT, KEY, LoadError, decoded, row_version, short, structure_of
from gradlab.jit.program_data import Held, Plan
from gradlab.nn.parameter import Parameter
from gradlab.tensor.convert import moved
from gradlab.tensor.creation import from_numpy
from gradlab.tensor.generator import Generator, default_generator
from gradlab.utils.serialization import FileFormatError, stored_arrays

_TEXT = 1 << 28  # bytes of the header


def load(
    path: str | os.PathLike[str] | BinaryIO, device: Any = None, *, map_location: Any = None, ops: Iterable[Any] = (),
    trusted: bool = False, max_bytes: int = MAX_BYTES,
) -> ScriptModule:  # fmt: skip
    """Read a program that `save` wrote. No code of the model is needed, and none is run: the file is data.

    path: a path, or a file open for reading. device (or map_location, as PyTorch calls it): where its tensors go; None is where the
    program was traced.
    ops: operations of one's own (`gl.library.custom_op`) that the program may use.
    trusted: False takes the file for a stranger's: the first call with arguments of a kind runs row by row in NumPy, which checks again;
    programs with rows that only NumPy checks fully (gradients written into the program, solvers) stay in NumPy and cannot go to a GPU.
    max_bytes: a program whose results take more than that, all together, is refused.
    Raises LoadError (a ValueError), which says what is wrong, for a file that is damaged or made up; OSError where it cannot be read.
    A program may compute for as long as it likes: load bounds what is read and allocated, not how often a loop runs.
    """
    device = map_location if device is None else device
    target = None if device is None else Device(device)
    if not isinstance(path, (str, os.PathLike)):
        if not hasattr(path, "read"):
            raise TypeError(f"load: expected a path or a file, not {type(path).__name__}")
        return from_bytes(path.read(), getattr(path, "name", "the file"), target, ops, trusted, max_bytes)
    content = Path(path).read_bytes()
    return from_bytes(content, str(path), target, ops, trusted, max_bytes)


def from_bytes(
    content: bytes, name: str = "the file", device: Device | None = None, ops: Iterable[Any] = (), trusted: bool = False,
    max_bytes: int = MAX_BYTES,
) -> ScriptModule:  # fmt: skip
    """What `load` gives for a file of that content."""
    rows = {op.name: op for op in (getattr(o, "row", o) for o in ops)}
    try:
        outline, arrays = _opened(content)
        plan, careful = _Reader(outline, arrays, rows, max_bytes).plan(trusted)
    except LoadError as error:
        raise LoadError(f"load: {name}: {error}") from None
    except FileFormatError as error:
        raise LoadError(str(error).replace("load: the file", f"load: {name}")) from None
    except (TypeError, KeyError, IndexError, AttributeError, ValueError) as error:  # what no check above thought of
        raise LoadError(f"load: {name} is damaged ({type(error).__name__}: {error})") from None
    except (RecursionError, MemoryError, OverflowError) as error:
        raise LoadError(f"load: {name} asks for more than can be read ({type(error).__name__})") from None
    where = Device(plan.graph.device) if device is None else device
    if where.type != "cpu":
        if careful:
            raise LoadError(
                f"load: {name} uses {careful}, whose inputs only NumPy checks fully, so a stranger's program with it does not run on a "
                f"GPU; load it with trusted=True where you know who made it"
            )
        for held in plan.held:
            held.tensor = _there(held.tensor, where)
    return ScriptModule(plan)


def _there(tensor: Any, device: Device) -> Any:
    leaf = tensor.requires_grad
    data = moved(tensor.detach(), device)
    return Parameter(data, leaf) if isinstance(tensor, Parameter) else data.requires_grad_(leaf) if leaf else data


def _opened(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The program's text as JSON, and the tensors. LoadError where the file is no program."""
    if len(content) >= 8 and int.from_bytes(content[:8], "little") > _TEXT:
        raise LoadError("it is no program file: its header would be larger than 256 MiB")
    header, arrays = stored_arrays(content)
    metadata = header.get("__metadata__") or {}
    if KEY not in metadata:
        raise LoadError("it holds no program (only tensors: gradlab.load reads those)")
    try:
        outline = json.loads(metadata[KEY], parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"its program is no JSON ({error})") from None
    if type(outline) is not dict:
        raise LoadError("its program is no JSON object")
    if outline.get("format") != FORMAT:
        raise LoadError(
            f"it has version {short(outline.get('format'))} of the format, of gradlab {short(outline.get('gradlab'))}; this gradlab "
            f"reads version {FORMAT}"
        )
    return outline, arrays


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


class _Reader:
    """Turns the JSON into a plan."""

    def __init__(self, outline: dict[str, Any], arrays: dict[str, Any], rows: Mapping[str, Any], max_bytes: int) -> None:
        self.outline, self.arrays, self.max_bytes = outline, arrays, max_bytes
        self._versions()
        self.hints = self._sizes()
        self.reader = GraphReader(self.hints, rows, set(self.outline["rows"]), max_bytes)

    def _field(self, name: str, kind: type) -> Any:
        value = self.outline.get(name)
        if type(value) is not kind:
            raise LoadError(f"its {name} is {short(value)}")
        return value

    def _versions(self) -> None:
        for name, version in self._field("rows", dict).items():
            if type(version) is not int or version < 1:
                raise LoadError(f"the row {short(name)} has version {short(version)}")
            if version != row_version(name):
                word = "newer" if version > row_version(name) else "older"
                raise LoadError(
                    f"it was written for version {version} of the row {short(name)}, {word} than this gradlab's {row_version(name)} (the "
                    f"file is of gradlab {short(self.outline.get('gradlab'))}); trace the model again"
                )

    def _sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, chosen in self._field("sizes", dict).items():
            if not name or len(name) > 200 or not (chosen is None or (type(chosen) is int and 1 <= chosen < 1 << 40)):
                raise LoadError(f"the unknown size {short(name)} has the hint {short(chosen)}")
            found[name] = hint(unknown(name, chosen))
        if len(found) > 64:
            raise LoadError(f"it has {len(found)} unknown sizes")
        return found

    # ------------------------------------------------------------ the parts of a plan

    def plan(self, trusted: bool) -> tuple[Plan, str]:
        """The program, and the name of a row that keeps it in NumPy ("" for none)."""
        reader, field = self.reader, self._field
        if field("device", str) not in ("cpu", "cuda"):
            raise LoadError(f"its device is {short(self.outline['device'])}")
        arguments, count = structure_of(self.outline.get("arguments"))
        result, results = structure_of(self.outline.get("result"))
        graph = Graph(device=Device(self.outline["device"]))
        graph.inputs = [reader.value(v) for v in field("inputs", list)]
        if len(graph.inputs) != count:
            raise LoadError(f"it has {len(graph.inputs)} inputs, and its arguments hold {count} tensors")
        held = self._state()
        self._random(graph)
        graph.calls = reader.calls(field("calls", list))
        graph.outputs = reader.known(field("values", list))
        outputs = self._outputs(results, len(held), count)
        writable = {v.id for v in graph.inputs} | {h.value.id for h in held if h.value is not None}
        for old, new in map(_pair, field("updates", list)):
            if type(old) is not int or old not in writable:
                raise LoadError(f"it writes to %{short(old)}, which is no input and no state")
            target, source = reader.known([old, new])
            if target.spec != source.spec:
                raise LoadError(f"it writes {source.spec} to {target!r}, which is {target.spec}")
            graph.updates.append((target, source))
            writable.discard(old)
        check_size(graph, self.max_bytes)
        careful = "" if trusted else reader.careful
        title, training = field("title", str), field("training", bool)
        names = field("names", list)
        if any(type(n) is not str for n in names) or len(names) > 256:
            raise LoadError("the names of its arguments are no strings")
        plan = Plan(
            title[:200], graph, arguments, result, names, outputs, held, self._cuts(graph), self._places("ends", len(outputs)),
            self._places("moved", count), training, not trusted, bool(careful), self._layouts(graph.inputs),
        )  # fmt: skip
        return plan, careful

    def _state(self) -> list[Held]:
        held: list[Held] = []
        taken: set[str] = set()
        for entry in self._field("state", list):
            if type(entry) is not list or len(entry) != 5:
                raise LoadError(f"the entry {short(entry)} of its state has no meaning")
            number, names, kind, leaf, persistent = entry
            if type(names) is not list or not names or any(type(n) is not str or not n or len(n) > 1000 for n in names):
                raise LoadError(f"a tensor of its state has the names {short(names)}")
            if kind not in ("parameter", "buffer") or type(leaf) is not bool or type(persistent) is not bool:
                raise LoadError(f"the entry {short(entry)} of its state has no meaning")
            for n in names:
                parts = n.split(".")
                whole = all(p and p.isprintable() for p in parts) and len(parts) <= 64
                if n in taken or not whole or any(".".join(parts[:i]) in taken for i in range(1, len(parts))):
                    raise LoadError(f"the name {short(n)} of a tensor is taken, or none that a module has")
                taken.add(n)
            array = self.arrays.get(names[0])
            if array is None:
                raise LoadError(f"the tensor {short(names[0])} of its state is not in the file")
            if leaf and array.dtype not in FLOATING:
                raise LoadError(f"the tensor {short(names[0])} requires grad and is {array.dtype}")
            tensor = from_numpy(array)
            made: Any = Parameter(tensor, leaf) if kind == "parameter" else tensor.requires_grad_(leaf) if leaf else tensor
            value = None if number is None else self.reader.new(number, array.shape, array.dtype)
            held.append(Held(value, list(names), made, persistent))
        prefixes = {".".join(n.split(".")[:i]) for n in taken for i in range(1, n.count(".") + 1)}
        if both := sorted(prefixes & taken):
            raise LoadError(f"the name {short(both[0])} is a tensor's and a module's")
        if left := sorted(set(self.arrays) - {h.names[0] for h in held}):
            raise LoadError(f"it holds a tensor {short(left[0])} that its program does not mention")
        return held

    def _random(self, graph: Graph) -> None:
        generators: list[Any] = []
        for state in self._field("generators", list):
            if state is None:
                generators.append(default_generator)
                continue
            made = Generator()
            good = type(state) is list and len(state) == 2 and all(type(n) is int and 0 <= n < 1 << 64 for n in state) and state[1] % 4 == 0
            if not good:
                raise LoadError(f"the state {short(state)} of a generator has no meaning")
            made._seed, made._offset = state
            generators.append(made)
        for entry in self._field("random", list):
            if type(entry) is not list or len(entry) != 3 or type(entry[1]) is not int or not 0 <= entry[1] < len(generators):
                raise LoadError(f"the random state {short(entry)} has no meaning")
            words = decoded(entry[2], self.hints) if type(entry[2]) is dict else entry[2]
            whole = isinstance(words, int) and not isinstance(words, bool)
            if not whole or not 0 <= hint(words) < 1 << 62 or (type(words) is int and words % 4):
                raise LoadError(f"the program draws {short(entry[2])} random words")
            value = self.reader.new(entry[0], (2,), np.dtype(np.int64))
            graph.random.append((generators[entry[1]], value, words))

    def _layouts(self, inputs: Sequence[Value]) -> dict[int, tuple[int, ...] | None]:
        found: dict[int, tuple[int, ...] | None] = {}
        for i, strides in map(_pair, self._field("layouts", list) if "layouts" in self.outline else []):  # older files have none
            known = type(i) is int and 0 <= i < len(inputs)
            if strides is not None and (not known or type(strides) is not list or any(type(s) is not int for s in strides)):
                known = False
            if not known:
                raise LoadError(f"the layout {short(strides)} of its input {short(i)} has no meaning")
            found[i] = None if strides is None else tuple(strides)
        return found

    def _outputs(self, results: int, held: int, arguments: int) -> list[tuple[str, int]]:
        outputs: list[tuple[str, int]] = []
        for entry in self._field("outputs", list):
            kind, number = _pair(entry)
            limit = {"argument": arguments, "state": held}.get(kind, 0) if type(kind) is str else 0
            if kind == "value":
                self.reader.known([number])
            elif type(number) is not int or not 0 <= number < limit:
                raise LoadError(f"the result {short(entry)} has no meaning")
            outputs.append((kind, number))
        if len(outputs) != results or len(self.outline["values"]) != results:
            raise LoadError(f"it has {len(outputs)} results, and their structure has {results}")
        return outputs

    def _cuts(self, graph: Graph) -> dict[int, tuple[int, ...]]:
        calls = {c.outputs[0].id: c for c in graph.calls}
        found: dict[int, tuple[int, ...]] = {}
        for number, cut in map(_pair, self._field("cuts", list)):
            call = calls.get(number) if type(number) is int else None
            good = call is not None and type(cut) is list and all(type(i) is int and 0 <= i < len(call.inputs) for i in cut)
            if not good or call is None or not all(hasattr(call.inputs[i], "spec") for i in cut):
                raise LoadError(f"the cut {short([number, cut])} has no meaning")
            found[number] = tuple(cut)
        return found

    def _places(self, name: str, limit: int) -> list[int]:
        places: list[int] = self._field(name, list)
        if any(type(i) is not int or not 0 <= i < limit for i in places):
            raise LoadError(f"its {name} are {short(places)}")
        return places


def _pair(entry: Any) -> tuple[Any, Any]:
    if type(entry) is not list or len(entry) != 2:
        raise LoadError(f"an entry {short(entry)} has no meaning")
    return entry[0], entry[1]
