"""The calls of a program file, checked one by one as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradlab.backends.cpu import number_spec
from gradlab.device import CPU
from gradlab.dtype import BOOL
from gradlab.graph.control.body_call import KINDS, Part, flow_row
from gradlab.graph.control.branching import Switch
from gradlab.graph.control.looping import While
from gradlab.graph.control.scanning import Scan
from gradlab.graph.ir.dims import hint
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.staging.symbol import TraceError
from gradlab.jit.limits import MAX_CALLS, MAX_STEPS, check_size
from gradlab.jit.portable import LoadError, decoded, short, spec_of_text
from gradlab.jit.schema import check_call, loose
from gradlab.op import Op
from gradlab.ops import ROWS
from gradlab.spec import Spec, count

_DEPTH = 16  # of sub-graphs in sub-graphs


class GraphReader:
    """Reads one graph; sub-graphs have readers of their own. `careful` is the name of a row that only NumPy checks fully."""

    def __init__(
        self, hints: Mapping[str, int], rows: Mapping[str, Any], declared: set[str], max_bytes: int, outer: GraphReader | None = None
    ) -> None:
        self.hints, self.rows, self.declared, self.max_bytes = hints, rows, declared, max_bytes
        self.values: dict[int, Value] = {}
        self.root: GraphReader = self if outer is None else outer.root
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.careful = ""
        self.total = 0
        if self.depth > _DEPTH:
            raise LoadError("sub-graphs nest too deeply")

    # ------------------------------------------------------------ values

    def value(self, entry: Any) -> Value:
        """A new value: [number, dtype, shape]."""
        if type(entry) is not list or len(entry) != 3:
            raise LoadError(f"the value {short(entry)} has no meaning")
        spec = spec_of_text(entry[1], entry[2], self.hints)
        return self.new(entry[0], spec.shape, spec.dtype)

    def new(self, number: Any, shape: Sequence[Any], dtype: Any) -> Value:
        """A value of that number, which is not taken."""
        if type(number) is not int or not 0 <= number < 1 << 31:
            raise LoadError(f"a value has the number {short(number)}")
        if number in self.values:
            raise LoadError(f"the value %{number} is defined twice")
        spec = Spec(tuple(shape), dtype)
        if count([*map(hint, spec.shape)]) * spec.dtype.itemsize > self.max_bytes and not any(hasattr(s, "expr") for s in spec.shape):
            raise LoadError(
                f"the value %{number}, {dtype.name}{list(shape)}, is larger than the limit of {self.max_bytes:,} bytes (max_bytes=)"
            )
        self.values[number] = made = Value(number, spec)
        return made

    def known(self, numbers: Iterable[Any]) -> list[Value]:
        """The values of these numbers, which are defined."""
        found = []
        for number in numbers:
            if type(number) is not int or number not in self.values:
                raise LoadError(f"the value %{short(number)} is used, and not defined before")
            found.append(self.values[number])
        return found

    # ------------------------------------------------------------ calls

    def calls(self, entries: list[Any]) -> list[Call]:
        """The calls in order."""
        self.root.total += len(entries)
        if self.root.total > MAX_CALLS:
            raise LoadError(f"it has more than {MAX_CALLS} calls")
        found = []
        for at, entry in enumerate(entries):
            if type(entry) is not list or len(entry) != 4 or type(entry[0]) is not str:
                raise LoadError(f"call {at}, {short(entry)}, has no meaning")
            try:
                found.append(self._call(*entry))
            except LoadError as error:
                raise LoadError(f"call {at}, {short(entry[0])}: {error}") from None
        return found

    def _call(self, name: str, inputs: Any, params: Any, outputs: Any) -> Call:
        if name not in self.declared:
            raise LoadError("the row is not in the file's list of rows")
        if type(inputs) is not list or type(params) is not dict or type(outputs) is not list or not 1 <= len(outputs) <= 4096:
            raise LoadError("it is not well formed")
        if len(inputs) > 1 << 16:
            raise LoadError(f"it has {len(inputs)} inputs")
        arguments = tuple(map(self._input, inputs))
        if name in KINDS:
            op, values = self._flow(name, arguments, params)
        else:
            op = self._row(name)
            values = {k: decoded(v, self.hints) for k, v in params.items()}
        specs = self._inferred(op, arguments, values)
        if len(specs) != len(outputs):
            raise LoadError(f"it has {len(outputs)} results, and the row has {len(specs)}")
        made = []
        for entry, spec in zip(outputs, specs, strict=True):
            value = self.value(entry)
            if value.spec.dtype != spec.dtype or tuple(value.spec.shape) != tuple(spec.shape):
                raise LoadError(f"the file says {text(value.spec)} of its result %{value.id}, and the row's rule {text(spec)}")
            made.append(value)
        return Call(op, arguments, values, tuple(made))

    def _input(self, entry: Any) -> Any:
        if type(entry) is str and entry.startswith("%") and entry[1:].isascii() and entry[1:].isdecimal() and len(entry) < 12:
            return self.known([int(entry[1:])])[0]
        value = decoded(entry, self.hints)
        if value is not None and not isinstance(value, (bool, int, float, complex)):
            raise LoadError(f"its input {short(entry)} has no meaning")
        return value

    def _row(self, name: str) -> Op:
        op = self.rows.get(name) or ROWS.get(name)
        if op is None:
            own = name.replace("__", "::")
            advice = f"; where {own} is an operation of one's own, pass it as ops=[gl.library.get({own!r})]" if own != name else ""
            raise LoadError(f"there is no such row{advice}")
        if op.dynamic:
            raise LoadError("the size of its result depends on values; no program has it")
        if loose(op) or name in self.rows:
            self.root.careful = self.root.careful or ("" if name in self.rows else name)
        return op

    def _inferred(self, op: Op, arguments: tuple[Any, ...], params: dict[str, Any]) -> list[Spec]:
        """What the row's own rule says of its results."""
        specs: list[Any] = [x.spec if isinstance(x, Value) else x for x in arguments]
        if op.name in KINDS and "flow" in params:
            return list(op.specs(*specs, **params))
        like = [s for s in specs if isinstance(s, Spec)]
        visible = params if like else {k: v for k, v in params.items() if k != "device"}
        try:
            check_call(op, specs, params)
            ready = [number_spec(s, like) if isinstance(s, (int, float, complex)) else s for s in specs]
            found = list(op.specs(*ready, **visible))
        except (MemoryError, RecursionError, TraceError):
            raise
        except Exception as error:  # a rule may trip over anything that no function of gradlab gives it
            kind = "" if isinstance(error, (ValueError, IndexError, TypeError)) else f"{type(error).__name__}: "
            raise LoadError(f"{kind}{error}") from None
        for spec in found:
            if not isinstance(spec, Spec) or any(not isinstance(s, int) or hint(s) < 0 for s in spec.shape):
                raise LoadError("its parameters make no shape")
        return found

    # ------------------------------------------------------------ control flow

    def _flow(self, name: str, arguments: tuple[Any, ...], params: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        if not all(isinstance(x, Value) for x in arguments):
            raise LoadError("its inputs are not all tensors")
        specs = [x.spec for x in arguments]
        flow, results = getattr(self, f"_{name}")(specs, params)
        if not results:
            raise LoadError("it has no results")
        return flow_row(flow, tuple(results)), {"flow": flow}

    def _scan(self, specs: list[Spec], params: dict[str, Any]) -> tuple[Any, list[Spec]]:
        _keys(params, "body", "carries", "stacked", "length", "reverse")
        carries, stacked = _number(params["carries"]), _number(params["stacked"])
        length = params["length"] if type(params["length"]) is int else decoded(params["length"], self.hints)
        if not isinstance(length, int) or not 1 <= hint(length) <= MAX_STEPS or type(params["reverse"]) is not bool:
            raise LoadError(f"it runs {short(params['length'])} times")
        if stacked < 1 or carries + stacked > len(specs):
            raise LoadError("it has fewer inputs than its body")
        body = self._part(params["body"])
        steps = specs[carries : carries + stacked]
        if any(not s.shape or s.shape[0] != length for s in steps):
            raise LoadError(f"what it scans over has not {length} steps")
        _fits(body.source, [*specs[:carries], *(Spec(s.shape[1:], s.dtype) for s in steps), *specs[carries + stacked :]])
        found = [v.spec for v in body.source.outputs]
        if len(found) < carries or any(not _same(a, b) for a, b in zip(found, specs[:carries])):
            raise LoadError("its body changes the shape or dtype of the carry")
        results = [*found[:carries], *(Spec((length, *s.shape), s.dtype) for s in found[carries:])]
        return Scan(body, carries, stacked, length, params["reverse"]), results

    def _switch(self, specs: list[Spec], params: dict[str, Any]) -> tuple[Any, list[Spec]]:
        _keys(params, "parts", "reads", "writes")
        parts, reads, writes = (_list(params[k]) for k in ("parts", "reads", "writes"))
        if not specs or specs[0].dtype.kind not in "biu" or count(specs[0].shape) != 1:
            raise LoadError("its index is no single whole number")
        if not parts or not len(parts) == len(reads) == len(writes) <= 4096:
            raise LoadError("its branches are not well formed")
        made: dict[int, Spec] = {}
        found = []
        for part, read, write in zip(parts, reads, writes, strict=True):
            branch = self._part(part)
            if any(type(i) is not int or not 0 <= i < len(specs) for i in _list(read)):
                raise LoadError(f"a branch reads the inputs {short(read)}")
            _fits(branch.source, [specs[i] for i in read])
            results = branch.source.outputs
            whole = all(type(i) is int and 0 <= i < 4096 for i in _list(write))
            if not whole or len(write) != len(results) or len(set(write)) != len(write):
                raise LoadError(f"a branch writes the results {short(write)}")
            for i, value in zip(write, results, strict=True):
                if not _same(made.setdefault(i, value.spec), value.spec):
                    raise LoadError(f"result {i} is {text(made[i])} in one branch and {text(value.spec)} in another")
            found.append(branch)
        if sorted(made) != list(range(len(made))):
            raise LoadError("some of its results are made by no branch")
        return Switch(found, [list(r) for r in reads], [list(w) for w in writes]), [made[i] for i in range(len(made))]

    def _while_loop(self, specs: list[Spec], params: dict[str, Any]) -> tuple[Any, list[Spec]]:
        _keys(params, "condition", "body", "carries", "constants")
        carries, constants = _number(params["carries"]), _number(params["constants"])
        if carries < 1 or carries + constants > len(specs):
            raise LoadError("it has fewer inputs than its body")
        condition, body = self._part(params["condition"]), self._part(params["body"])
        carry = specs[:carries]
        _fits(condition.source, specs[: carries + constants])
        _fits(body.source, [*carry, *specs[carries + constants :]])
        flags = [v.spec for v in condition.source.outputs]
        if len(flags) != 1 or flags[0].dtype != BOOL or count(flags[0].shape) != 1:
            raise LoadError("its condition is no single truth value")
        found = [v.spec for v in body.source.outputs]
        if len(found) != carries or any(not _same(a, b) for a, b in zip(found, carry)):
            raise LoadError("its body changes the shape or dtype of the carry")
        return While(condition, body, carries, constants), carry

    def _part(self, entry: Any) -> Part:
        if type(entry) is not dict:
            raise LoadError("a sub-graph is not well formed")
        _keys(entry, "inputs", "calls", "outputs")
        reader = GraphReader(self.hints, self.rows, self.declared, self.max_bytes, self)
        graph = Graph()
        graph.inputs = [reader.value(v) for v in _list(entry["inputs"])]
        graph.calls = reader.calls(_list(entry["calls"]))
        graph.outputs = reader.known(_list(entry["outputs"]))
        check_size(graph, self.max_bytes)
        return Part(graph.inputs, graph.calls, graph.outputs, CPU)


def _fits(graph: Graph, specs: Sequence[Spec]) -> None:
    if len(graph.inputs) != len(specs) or any(not _same(v.spec, s) for v, s in zip(graph.inputs, specs)):
        want, got = ", ".join(text(v.spec) for v in graph.inputs), ", ".join(map(text, specs))
        raise LoadError(f"a sub-graph takes {want[:200]}, and gets {got[:200]}")


def _same(a: Spec, b: Spec) -> bool:
    return tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype


def _keys(params: dict[str, Any], *names: str) -> None:
    if set(params) != set(names):
        raise LoadError(f"it has the parts {short(sorted(params))}, and needs {', '.join(names)}")


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise LoadError(f"{short(value)} is no list")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 16:
        raise LoadError(f"{short(value)} is no number of inputs")
    return value


def text(spec: Spec) -> str:
    """float32[3, 4]"""
    return f"{spec.dtype.name}{list(spec.shape)}"
