"""Which tests reach which statements, and which ways at a branch: a plugin of pytest that notes it in a file, test by test.

    python -m pytest -p mutation.reach --reach-files 'gradlab/autograd/*.py,gradlab/op.py' --reach-to reach.npz tests/test_autograd.py

Each statement, lambda and way of the chosen files gets a store into a byte of its own, when the file is imported. A tracer or a profile
hook (what coverage.py is built on) would not do here: `gl.compile` sets its own while it traces.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import numpy as np
import pytest

from repository import ROOT

NAME = "__reached__"
MOST = 1 << 17


def moves(before: str, after: str) -> dict[int, int]:
    """Where each line of a text has come to, for those that are still there."""
    pairs = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_matching_blocks()
    return {a + i + 1: b + i + 1 for a, b, size in pairs for i in range(size)}


class Point(NamedTuple):
    """A place that can be reached: a statement, a lambda's body, or a way that has no statement of its own (an `if` not taken)."""

    file: str
    line: int
    kind: str


class Marking(ast.NodeTransformer):
    """Puts a mark before each statement and into each lambda and way of a file."""

    def __init__(self, file: str, points: list[Point]) -> None:
        self.file, self.points = file, points

    def mark(self, node: ast.AST, kind: str) -> ast.Assign:
        """`__reached__[number] = 1`."""
        place = ast.Subscript(ast.Name(NAME, ast.Load()), ast.Constant(self.number(node, kind)), ast.Store())
        return ast.Assign([place], ast.Constant(1))

    def number(self, node: ast.AST, kind: str) -> int:
        self.points.append(Point(self.file, node.lineno, kind))
        return len(self.points) - 1

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements with a mark before each that does something."""
        made: list[ast.stmt] = []
        for statement in body:
            said = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not said and not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass)):
                made.append(self.mark(statement, "statement"))
            made.append(self.visit(statement))
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """As always, but for lists of statements."""
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                if not typing_only:
                    setattr(node, field, self.block(value))
            elif isinstance(value, list):
                setattr(node, field, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        if isinstance(node, (ast.If, ast.For, ast.While)) and not node.orelse and not typing_only and not endless:
            node.orelse = [self.mark(node, "way")]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """`lambda x: __reached__.__setitem__(number, 1) or body`."""
        number = self.number(node.body, "lambda")
        self.generic_visit(node)
        store = ast.Call(ast.Attribute(ast.Name(NAME, ast.Load()), "__setitem__", ast.Load()), [ast.Constant(number), ast.Constant(1)], [])
        node.body = ast.BoolOp(ast.Or(), [store, node.body])
        return node


def marked(file: str, text: str, points: list[Point]) -> ast.Module:
    """A file's tree with marks; `points` grows by them."""
    return ast.fix_missing_locations(Marking(file, points).visit(ast.parse(text)))


class Recorder:
    """Marks files when they are imported, and notes after each test which marks it has set."""

    def __init__(self, patterns: list[str], target: Path) -> None:
        self.patterns, self.target, self.points = patterns, target, list[Point]()
        self.reached = np.zeros(MOST, np.uint8)
        self.tests: dict[str, tuple[float, np.ndarray]] = {}
        self.passed = self.early = False
        setattr(builtins, NAME, memoryview(self.reached.data))
        plain = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            path = Path(loader.path)
            file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            if not any(fnmatch(file, pattern) for pattern in patterns):
                return plain(loader, name)
            return compile(marked(file, path.read_text(encoding="utf-8"), self.points), loader.path, "exec", dont_inherit=True)

        SourceFileLoader.get_code = get_code

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test: what it alone has reached, setup included."""
        if not self.tests:
            self.imported = np.packbits(self.reached)
        self.reached[:] = 0
        self.passed, began = False, time.process_time()
        result = yield
        if self.passed:
            self.tests[item.nodeid] = time.process_time() - began, np.packbits(self.reached)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.passed = report.passed and not hasattr(report, "wasxfail")

    def pytest_sessionfinish(self) -> None:
        """Writes the file."""
        used = -(-len(self.points) // 8)
        rows = [self.imported[:used], *(bits[:used] for _, bits in self.tests.values())]
        bits = np.unpackbits(np.array(rows), axis=1, count=len(self.points))
        files = {p.file for p in self.points} | {test.partition("::")[0] for test in self.tests}
        texts = {f: (ROOT / f).read_text(encoding="utf-8") for f in sorted(files)}
        write(self.target, self.points, list(self.tests), np.array([s for s, _ in self.tests.values()]), bits, texts)


def write(path: Path, points: list[Point], tests: list[str], seconds: np.ndarray, bits: np.ndarray, texts: dict[str, str]) -> None:
    """A map's file; the first row of bits is what importing reaches."""
    np.savez_compressed(
        path, points=np.array([f"{p.file}\t{p.line}\t{p.kind}" for p in points]), tests=np.array(tests), seconds=seconds,
        bits=np.packbits(bits.astype(bool), axis=1), files=np.array(list(texts)),
        texts=np.frombuffer("\0".join(texts.values()).encode(), np.uint8),
    )  # fmt: skip


class Reach:
    """What a Recorder has written: the points of code, the tests with their seconds, and who reached what (`bits`: test x point)."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as found:
            self.points = [Point(file, int(line), kind) for file, line, kind in (str(p).split("\t") for p in found["points"])]
            self.tests, self.seconds = [str(t) for t in found["tests"]], found["seconds"]
            self.texts = dict(zip(map(str, found["files"]), found["texts"].tobytes().decode().split("\0"), strict=True))
            bits = np.unpackbits(found["bits"], axis=1, count=len(self.points)).astype(bool)
        self.imported, self.bits = bits[0], bits[1:]

    def holds_for(self, file: str) -> bool:
        """Whether a file is what it was when the tests ran."""
        path = ROOT / file
        return not path.exists() or self.texts.get(file) == path.read_text(encoding="utf-8")

    def joined(self, later: Reach, path: Path) -> None:
        """Writes a map of what `later` has run, and of the other tests as they were: what they reached has moved with the lines."""
        moved = {file: moves(text, later.texts[file]) for file, text in self.texts.items() if file in later.texts}
        places: dict[Point, list[int]] = {}
        for i, p in enumerate(later.points):
            places.setdefault(p, []).append(i)
        turn: dict[Point, int] = {}
        from_, to = [], []
        for i, p in enumerate(self.points):
            now = p._replace(line=moved.get(p.file, {}).get(p.line, 0))
            nth = turn[now] = turn.get(now, -1) + 1
            if nth < len(places.get(now, ())):
                from_.append(i)
                to.append(places[now][nth])
        again = {t.partition("::")[0] for t in later.tests}
        kept = [i for i, t in enumerate(self.tests) if (file := t.partition("::")[0]) not in again and (ROOT / file).exists()]
        bits = np.zeros((len(kept), len(later.points)), bool)
        bits[:, to] = self.bits[np.ix_(kept, from_)]
        tests, seconds = [*later.tests, *(self.tests[i] for i in kept)], np.concatenate([later.seconds, self.seconds[kept]])
        texts = {f: text for f, text in self.texts.items() if f.startswith("tests/") and (ROOT / f).exists()} | later.texts
        write(path, later.points, tests, seconds, np.concatenate([later.imported[None], later.bits, bits]), texts)

    def tests_at(self, file: str, first: int, last: int) -> list[str]:
        """The tests that reach a statement that begins in these lines: the quick first, those of one file one after another."""
        here = [i for i, p in enumerate(self.points) if p.file == file and first <= p.line <= last]
        found = np.flatnonzero(self.bits[:, here].any(1))
        turn: dict[str, int] = {}
        keys = []
        for i in sorted(found, key=lambda i: self.seconds[i]):
            name = self.tests[i].partition("::")[0]
            turn[name] = turn.get(name, -1) + 1
            keys.append((turn[name], self.seconds[i], i))
        return [self.tests[i] for _, _, i in sorted(keys)]

    def tests_within(self, file: str, first: int, last: int, most: int = 8) -> list[str]:
        """A few tests of each statement and way inside of a statement, those of the rarest first: of a condition that a thousand tests ask
        for, it is they that see what it decides."""
        here = [(i, p) for i, p in enumerate(self.points) if p.file == file and first <= p.line <= last]
        inside = [i for i, p in here if p.line > first or p.kind == "way"]
        reached = sorted((np.flatnonzero(self.bits[:, i]) for i in inside), key=len)
        quick = (sorted(tests, key=lambda i: self.seconds[i])[:most] for tests in reached)
        return list(dict.fromkeys(self.tests[i] for tests in quick for i in tests))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach-files", default="", help="patterns of files whose statements are marked, with commas between")
    parser.addoption("--reach-to", type=Path, help="the file for what tests reach")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftest.py, and so before gradlab."""
    if target := early_config.known_args_namespace.reach_to:
        assert "gradlab" not in sys.modules
        patterns = early_config.known_args_namespace.reach_files.split(",")
        early_config.pluginmanager.register(Recorder(patterns, target.resolve()))
