"""Which tests use which kernels: a plugin of pytest that notes it test by test; and which kernels a line of a kernel's file is a part of.

    python -m pytest -p mutation.kernel_reach --kernels-to kernels.json tests/test_native_conv.py

A kernel is noted when a program or an eager plan asks for its address, and when the emulated GPU launches it; generated ones carry other
names than those written by hand, and count for nothing here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from repository import ROOT

KERNEL = re.compile(
    r'^(?:GRADLAB_KERNEL|extern "C" \w+) (\w+)\(|__global__[^;{()]*(?:__launch_bounds__\([^)]*\)\s*)?[\w\s*&]*?\b(\w+)\(', re.M
)
Used = dict[str, tuple[float, list[str]]]


def kernels_at(file: str, text: str, start: int) -> set[str]:
    """The kernels that a place in a file belongs to: the one whose body it stands in, else all of the file and of those that include it."""
    found = [(m.start(), m[1] or m[2]) for m in KERNEL.finditer(text)]
    inside = [(at, name) for at, name in found if at <= start]
    if inside and "\n}" not in text[inside[-1][0] : start]:
        return {inside[-1][1]}
    texts = {p.name: p.read_text("utf-8") for p in (ROOT / file).parent.iterdir() if p.is_file()}
    including, grown = {Path(file).name}, True
    while grown:
        more = {name for name, other in texts.items() if any(f'#include "{part}"' in other for part in including)}
        grown, including = bool(more - including), including | more
    return {m[1] or m[2] for name in including for m in KERNEL.finditer(texts[name])}


def tests_with(used: Used, names: set[str]) -> list[str]:
    """The tests that use some of these kernels: of each set of them the quickest first."""
    turns: dict[frozenset[str], int] = {}
    keys = []
    for test in sorted((t for t, (_, own) in used.items() if names & set(own)), key=lambda t: used[t][0]):
        own = frozenset(names & set(used[test][1]))
        turns[own] = turns.get(own, -1) + 1
        keys.append((turns[own], used[test][0], test))
    return [test for *_, test in sorted(keys)]


class Recorder:
    """Notes after each test the kernels that it has asked for."""

    def __init__(self, target: Path) -> None:
        self.target, self.names, self.used = target, set[str](), Used()
        self.passed = False

    def watch(self) -> None:
        """Listen where kernels are asked for. Once gradlab is imported."""
        from gradlab.backends.cuda.emulator import launching
        from gradlab.backends.native import compiler, ready

        libraries, address, launch = compiler.libraries, ready.address, launching.EmulatedFunction.launch

        def asked(names: Any, *rest: Any, **options: Any) -> Any:
            names = list(names)
            self.names.update(names)
            return libraries(names, *rest, **options)

        def of_a_plan(kernel: str) -> int | None:
            self.names.add(kernel)
            return address(kernel)

        def launched(function: Any, *args: Any, **options: Any) -> None:
            self.names.add(function.name.partition("<")[0].rpartition("::")[2])
            launch(function, *args, **options)

        of_a_plan.cache_clear = address.cache_clear  # type: ignore[attr-defined]  # tests do it
        compiler.libraries, ready.address, launching.EmulatedFunction.launch = asked, of_a_plan, launched

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test, setup included."""
        self.names.clear()
        self.passed, began = False, time.process_time()
        result = yield
        if self.passed and self.names:
            self.used[item.nodeid] = time.process_time() - began, sorted(self.names)
        return result

    def pytest_collection_finish(self) -> None:
        self.watch()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.passed = report.passed and not hasattr(report, "wasxfail")

    def pytest_sessionfinish(self) -> None:
        self.target.write_text(json.dumps(self.used), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kernels-to", type=Path, help="the file for the kernels that tests use")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--kernels-to"):
        config.pluginmanager.register(Recorder(target.resolve()))
