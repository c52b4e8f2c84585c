"""A CUDA file of one's own on the emulated GPU: which kernels it has, how to launch them, and what they do in every order of threads.

How a kernel is launched stands in the file, in comments (docs/custom-kernels.md):

    // gradlab: let n = 1000
    // gradlab: run scale<float><<<cdiv(n, 256), 256>>>(x: float32[n], y: float32[n], 2.0, n)
    // gradlab: expect y == 2.0 * x

A kernel without such a line is launched as its parameters suggest: arrays of 1000 elements, the number 1000 for each integer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.emulator import ORDERS, EmulatedFunction, KernelFault, Parameter
from gradlab.backends.cuda.emulator.guarded_memory import POISON
from gradlab.dtype import FLOATING, as_numpy
from gradlab.library.source import with_headers
from gradlab.testing.arithmetic import AnnotationError, comparison, evaluate
from gradlab.testing.launches import Finding, Launch, Source, raced, run_once, sanitized
from gradlab.testing.parity import units

GUESS = 1000
SEEDS = (0, 1, 2)
FILLS = ("normal", "uniform", "arange", "zeros", "ones", "unset")

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_NOTE = re.compile(r"//\s*gradlab:\s*(.*)")
_RUN = re.compile(r"run\s+(?P<kernel>.+?)\s*<<<(?P<launch>.*?)>>>\s*\((?P<arguments>.*)\)\s*$")
_ARRAY = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)\s*:\s*)?(?P<dtype>[a-z]+\d*)\s*\[(?P<shape>[^\]]*)\]\s*(?:=\s*(?P<fill>.+))?$")
_SCOPE = re.compile(
    r"namespace\s+(?P<space>[\w:]*)\s*\{|(?P<open>\{)|(?P<close>\})|"
    r"(?P<template>template\s*<[^;{}]*?>\s*)?(?:extern\s*\"\"\s*)?__global__\s+void\s+(?:__\w+__\s*\([^)]*\)\s*)*(?P<kernel>\w+)\s*\("
)


class Kernel(NamedTuple):
    """A `__global__` function of a file: its name with namespaces, and whether it is a template."""

    name: str
    template: bool


def kernels_in(text: str) -> list[Kernel]:
    """The kernels that a text defines."""
    plain = _COMMENT.sub(lambda m: '""' if m[0].startswith('"') else "\n" * m[0].count("\n"), text)
    found, spaces = [], list[str]()
    for match in _SCOPE.finditer(plain):
        if match["kernel"]:
            found.append(Kernel("::".join([*filter(None, spaces), match["kernel"]]), match["template"] is not None))
        elif match["close"]:
            if spaces:
                spaces.pop()
        else:
            spaces.append(match["space"] or "")
    return list(dict.fromkeys(found))


def _split(text: str) -> Iterator[str]:
    """Parts between commas outside brackets."""
    depth = start = 0
    for i, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


@dataclass
class Run:
    """What happened to one launch. `problems` are failures, `notes` are not."""

    kernel: str
    line: int | None  # of the annotation; None for a guess
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class File:
    """A CUDA file: its text with its headers, its kernels, and the annotations."""

    def __init__(self, path: Path, names: Sequence[str] = ()) -> None:
        text = path.read_text(encoding="utf-8")
        self.path = path
        self.kernels = kernels_in(text)
        self.notes = [(number, m[1].strip()) for number, line in enumerate(text.splitlines(), 1) if (m := _NOTE.search(line))]
        self._full = {k.name.rpartition("::")[2]: k.name for k in self.kernels}
        wanted = [self.qualified(m["kernel"]) for _, note in self.notes if (m := _RUN.match(note))]
        wanted += [self.qualified(name) for name in names]
        wanted += [k.name for k in self.kernels if not k.template]
        self.names = list(dict.fromkeys(wanted))
        self.left_out = [k.name for k in self.kernels if k.template and not any(n.startswith(k.name) for n in self.names)]
        self.source = Source(with_headers(text, path.name, [path.parent]), tuple(self.names), path.name)

    def qualified(self, name: str) -> str:
        """A kernel's name as it was written, with its namespace."""
        base, bracket, rest = name.strip().partition("<")
        return self._full.get(base.strip(), base.strip()) + bracket + rest


class Bench:
    """Runs a file's launches one after the other. Arrays keep their names, and what the launches before wrote into them."""

    def __init__(self, file: File, functions: dict[str, EmulatedFunction]) -> None:
        self.file, self.functions = file, functions
        self.numbers: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.before: dict[str, np.ndarray[Any, Any]] = {}
        self.launches: list[Launch] = []
        self._count = 0

    def run(self) -> Iterator[Run]:
        """Annotated launches, then guessed ones for kernels that no annotation launches."""
        done: set[str] = set()
        for line, note in self.file.notes:
            match = _RUN.match(note)
            found = Run(note, line)
            try:
                if match:
                    name = self.file.qualified(match["kernel"])
                    done.add(name)
                    found = Run(name, line)
                    self._launch(found, match)
                elif note.startswith("let "):
                    name, _, value = note[4:].partition("=")
                    self.numbers[name.strip()] = evaluate(value, self.numbers)
                    continue
                elif note.startswith("expect "):
                    self._expect(found, note[7:])
                else:
                    raise AnnotationError("an annotation is `let NAME = …`, `run KERNEL<<<GRID, BLOCK>>>(…)` or `expect A == B`")
            except AnnotationError as error:
                found.problems.append(str(error))
            yield found
        for name in self.file.names:
            if name not in done:
                yield self._guessed(name)

    # ------------------------------------------------------------ annotated launches

    def _launch(self, found: Run, match: re.Match[str]) -> None:
        function = self.functions[found.kernel]
        extents = list(_split(match["launch"]))
        if not 2 <= len(extents) <= 3:
            raise AnnotationError(f"<<<{match['launch']}>>>: write <<<grid, block>>> or <<<grid, block, bytes of shared memory>>>")
        grid, block, *shared = (evaluate(e, self.numbers) for e in extents)
        given = list(_split(match["arguments"]))
        if len(given) != len(function.signature):
            raise AnnotationError(f"{len(given)} arguments, but the kernel takes {len(function.signature)}: {function!r}")
        values = [self._argument(position, text, parameter) for position, (text, parameter) in enumerate(zip(given, function.signature))]
        self._work(found, function, _three("grid", grid), _three("block", block), int(shared[0]) if shared else 0, values)

    def _argument(self, position: int, text: str, parameter: Parameter) -> str | bytes:
        """An array's name, or the bytes of a number."""
        match = _ARRAY.match(text)
        if match is None and parameter.pointer and text in self.arrays:
            return text
        if match is not None:
            if not parameter.pointer:
                raise AnnotationError(f"argument {position}: an array for {parameter}")
            shape = evaluate(f"({match['shape']},)", self.numbers)
            name = match["name"] or f"a{self._count}"
            self._count += 1
            fill = (match["fill"] or ("normal" if parameter.constant else "unset")).strip()
            self.arrays[name] = self._filled(shape, match["dtype"], fill)
            return name
        if parameter.pointer:
            if text in ("null", "nullptr", "0"):
                return bytes(8)
            raise AnnotationError(f"argument {position}: {text!r} for {parameter}; write NAME: DTYPE[SHAPE], or an array's name")
        return _number(position, evaluate(text, self.numbers), parameter)

    def _filled(self, shape: tuple[int, ...], dtype: str, fill: str) -> np.ndarray[Any, Any]:
        try:
            kind = np.dtype(dtype) if dtype in ("uint16", "uint32", "uint64") else as_numpy(dtype)
        except (TypeError, ValueError):
            raise AnnotationError(f"there is no dtype {dtype!r}") from None
        random = np.random.default_rng([self._count, *shape])
        size = int(np.prod(shape, dtype=np.int64))
        if fill == "unset":
            return np.full(size * kind.itemsize, POISON, np.uint8).view(kind).reshape(shape)
        if fill == "normal" and kind not in FLOATING:
            return random.integers(0, 100, shape).astype(kind)
        known: dict[str, Any] = {
            "normal": lambda: random.normal(size=shape), "uniform": lambda: random.uniform(size=shape),
            "arange": lambda: np.arange(size).reshape(shape), "zeros": lambda: np.zeros(shape), "ones": lambda: np.ones(shape),
        }  # fmt: skip
        made = known[fill]() if fill in known else np.broadcast_to(np.asarray(evaluate(fill, self.numbers | self.arrays)), shape)
        return np.ascontiguousarray(made.astype(kind))

    def _work(
        self, found: Run, function: EmulatedFunction, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        values: Sequence[str | bytes],
    ) -> None:  # fmt: skip
        """Launch in every order of threads, and compare."""
        names = list(dict.fromkeys(v for v in values if isinstance(v, str)))
        launch = Launch(
            self.file.source, found.kernel, grid, block, shared, [self.arrays[n].tobytes() for n in names],
            [(names.index(v), 0) if isinstance(v, str) else v for v in values],
        )  # fmt: skip
        self.launches.append(launch)
        results: list[tuple[str, list[bytes]]] = []
        for order in ORDERS:
            for seed in SEEDS if order == "random" else (0,):
                try:
                    results.append((order, run_once(launch, function, order, seed)))
                except KernelFault as fault:
                    found.problems.append(f"in the order {order!r} of threads: {fault}")
                    break
        if not results:
            return
        found.problems += [finding.words for finding in raced([launch])]
        first = {n: self._like(n, content) for n, content in zip(names, results[0][1])}
        for order, contents in results[1:]:
            for n, content in zip(names, contents):
                if content != first[n].tobytes():
                    self._differs(found, n, order, first[n], self._like(n, content))
        for n in names:
            if first[n].tobytes() == self.arrays[n].tobytes():
                continue
            self.before[n] = self.arrays[n]
            unset = _unset(first[n])
            if unset and _unset(self.arrays[n]) == self.arrays[n].size:
                found.notes.append(f"{n}: {unset} of {first[n].size} elements were not written")
            self.arrays[n] = first[n]

    def _like(self, name: str, content: bytes) -> np.ndarray[Any, Any]:
        return np.frombuffer(content, self.arrays[name].dtype).reshape(self.arrays[name].shape)

    def _differs(self, found: Run, name: str, order: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
        error = units(b, a)
        if error <= 1:
            words = f"{name}: the last bits depend on the order of threads"
            if words not in found.notes:
                found.notes.append(words)
            return
        words = f"{name}: the order {order!r} of threads gives another result than {ORDERS[0]!r}: a barrier or an atomic is missing"
        if words not in found.problems:
            found.problems.append(words)

    def _expect(self, found: Run, text: str) -> None:
        wide = {n: a.astype(np.float64) if a.dtype in FLOATING else a for n, a in self.arrays.items()}
        before = {f"{n}_before": a.astype(np.float64) if a.dtype in FLOATING else a for n, a in self.before.items()}
        left, right = comparison(text, {**self.numbers, **wide, **before})
        got = np.asarray(left)
        name = text.partition("==")[0].strip()
        kind = self.arrays[name].dtype if name in self.arrays else np.dtype(np.float32) if got.dtype.kind == "f" else got.dtype
        want = np.broadcast_to(np.asarray(right), got.shape) if np.ndim(right) == 0 else np.asarray(right)
        error = units(got.astype(kind), want.astype(kind))
        if error > 1:
            words = "shapes or kinds differ" if got.shape != want.shape else f"{error:.3g} × the tolerance of {kind}"
            found.problems.append(f"not as expected: {words}")

    # ------------------------------------------------------------ guessed launches

    def _guessed(self, name: str) -> Run:
        found = Run(name, None)
        function = self.functions[name]
        values: list[str | bytes] = []
        for position, parameter in enumerate(function.signature):
            if parameter.dtype in ("struct", "void"):
                found.notes.append(f"not run: parameter {position} is {parameter}; say how to launch it: // gradlab: run …")
                return found
            if parameter.pointer:
                made = f"{name}.{position}"
                self._count += 1
                self.arrays[made] = self._filled((GUESS,), parameter.dtype, "normal" if parameter.constant else "zeros")
                values.append(made)
            else:
                whole = parameter.dtype.startswith(("int", "uint", "bool"))
                values.append(_number(position, GUESS if whole and parameter.size >= 2 else 1 if whole else 1.5, parameter))
        grid = -(-GUESS // 256)
        found.notes.append(f"launched by guess: <<<{grid}, 256>>>, arrays of {GUESS} elements")
        self._work(found, function, (grid, 1, 1), (256, 1, 1), 0, values)
        if found.problems:
            found.problems.append("if the launch was guessed wrong, say how to do it: // gradlab: run …")
        return found

    def under(self, sanitize: str) -> list[Finding]:
        """What sanitizers find in all launches that were run."""
        return sanitized(self.launches, sanitize)


def _unset(array: np.ndarray[Any, Any]) -> int:
    """How many elements are the pattern of fresh memory."""
    content = np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) if array.size else np.empty((0, 1), np.uint8)
    return int((content == POISON).all(1).sum())


def _three(what: str, extent: Any) -> tuple[int, int, int]:
    values = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int) for v in values):
        raise AnnotationError(f"{what}: one to three integers, not {extent!r}")
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _number(position: int, value: Any, parameter: Parameter) -> bytes:
    if parameter.dtype in ("struct", "void") or isinstance(value, tuple):
        raise AnnotationError(f"argument {position}: {value!r} for {parameter}, which annotations cannot say")
    if isinstance(value, float) and parameter.dtype.startswith(("int", "uint", "bool")):
        raise AnnotationError(f"argument {position}: {value} for {parameter}")
    kind = as_numpy(parameter.dtype) if parameter.dtype in ("float16", "bfloat16") else np.dtype(parameter.dtype)
    return np.asarray(value).astype(kind).tobytes()
