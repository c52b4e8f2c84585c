"""Tests that count what their process does run in one of their own (`alone.py`), and all of that kind are known."""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path

import alone
import pytest

HERE = Path(__file__).resolve().parent
# What answers for the whole process, or for all its threads:
COUNTS = {
    "getallocatedblocks", "tracemalloc", "get_traced_memory", "getrusage", "active_children", "active_count", "get_objects", "ru_maxrss",
    "gettotalrefcount", "get_stats", "mallinfo", "mallinfo2", "/proc/self/fd", "/proc/self/statm", "/proc/self/status", "/proc/self/task",
}  # fmt: skip


def says(node):
    """The names, attributes and short texts in a piece of a program; a program in a text runs elsewhere."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and len(inner.value) < 60:
            yield from (word for word in COUNTS if word.startswith("/") and word in inner.value)


def counting(tree):
    """The tests of a file that count, themselves or by its functions, and whether they are marked."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    uses = {name: set(says(node)) for name, node in functions.items()}
    settings = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    marked = any("alone" in says(node) for node in settings)
    for name, node in functions.items():
        if not name.startswith("test"):
            continue
        seen, waiting = set(), {name}
        while waiting:
            seen |= waiting
            waiting = {other for one in waiting for other in uses[one] if other in functions} - seen
        if any(uses[one] & COUNTS for one in seen):
            yield name, marked or any("alone" in says(decorator) for decorator in node.decorator_list)


def test_whatever_counts_a_process_is_alone():
    found = {}
    for path in sorted(HERE.rglob("test_*.py")):
        for name, marked in counting(ast.parse(path.read_text(encoding="utf-8"))):
            found[f"{path.name}::{name}"] = marked
    assert len(found) > 10
    assert [name for name, marked in found.items() if not marked] == []


@pytest.mark.alone
def test_nothing_else_runs_here():
    assert alone.WHERE in os.environ and "PYTEST_XDIST_WORKER" not in os.environ
    assert [thread.name for thread in threading.enumerate() if thread.name == "gradlab compiler"] == []


@pytest.mark.alone
def test_skipping_comes_through():
    pytest.skip("as it should")
