"""Each condition of a compiled program is needed: one case for each place that adds one, which goes wrong without it.

The places are found in the code (`guards.test`, `same`, `size`, `table`, `equal`), so a new one has to bring its case, or say in `HELD`
which other condition sees the same change. A case runs as it is, and again with its place's conditions left out: then the old program has
to be taken, with another result than eager code. Ways to change what programs use stand in `kinds/stale/`; here it is about conditions.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest
from guard_cases import CASES, Keywords, code, tensors

import gradlab as gl
from gradlab.graph.executables.numpy.executable import NumpyExecutable
from gradlab.graph.guards.guards import Guards

from repository import ROOT

METHODS = ("test", "same", "size", "table", "equal")
FILES = [
    "gradlab/graph/calls/compiled.py",
    *(f"gradlab/graph/guards/{name}.py" for name in ("argument_guards", "attribute_lookup", "module_state", "reads")),
]


class Place(NamedTuple):
    """A call that adds a condition: its file, its lines and its text."""

    file: str
    first: int
    last: int
    text: str


def places() -> Iterator[Place]:
    for file in FILES:
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in METHODS and ast.unparse(called.value) in ("guards", "self.guards"):
                yield Place(file, node.lineno, node.end_lineno, ast.unparse(node).replace('"', "'"))


PLACES = list(places())


SHELVES = code, tensors  # which fill the table
# Such calls run eagerly, and are to be right.
pytestmark = pytest.mark.filterwarnings("ignore:compile. (two tensors|the function looks|tensor 0 of)")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Programs run in NumPy, which needs no compiler; their conditions are tested in machine code as always."""
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)


def left_out(monkeypatch: pytest.MonkeyPatch, places: list[Place]) -> list[int]:
    """Conditions of some places are not added; how often that was so."""
    spans = {(str(ROOT / p.file), line) for p in places for line in range(p.first, p.last + 1)}
    count: list[int] = []

    def without(method: Callable[..., None]) -> Callable[..., None]:
        def add(self: Guards, *arguments: Any) -> None:
            frame = sys._getframe(1)
            if (frame.f_code.co_filename, frame.f_lineno) in spans:
                count.append(1)
            else:
                method(self, *arguments)

        return add

    for name in METHODS:
        monkeypatch.setattr(Guards, name, without(getattr(Guards, name)))
    return count


def numbers(result: Any) -> list[Any]:
    """A result's values and all else that is seen of it."""
    if isinstance(result, (list, tuple)):
        return [numbers(r) for r in result]
    if isinstance(result, gl.Tensor):
        values = [] if result.device.type == "meta" else np.round(result.detach().numpy().astype(float), 4).tolist()
        return [values, str(result.dtype), str(result.device), result.requires_grad]
    return [result]


def outcome(make: Callable[[], tuple[Any, ...]], compiled: bool) -> list[Any]:
    """What comes of the call behind the change; an exception's type where one comes."""
    function, arguments, change = make()
    function = gl.compile(function) if compiled else function
    for _ in range(3):
        function(*(arguments() if callable(arguments) else arguments))
    changed = change()
    try:
        with changed if hasattr(changed, "__enter__") else nullcontext():
            more = changed if type(changed) is Keywords else {}
            if not isinstance(changed, tuple):
                changed = () if callable(arguments) else arguments
            return numbers(function(*changed, **more))
    except Exception as error:
        return [type(error).__name__]


HELD = {
    "'inference mode'": "nothing is recorded in it, which 'grad mode' sees; only from no_grad() to it results tell nothing on the CPU",
    "'saved_tensors_hooks'": "such calls are not compiled at all",
    "'the precision of float32 products'": "only a GPU computes otherwise",
    "guards.test(test, f'{title}: {key}')": "a function's defaults are noted where it is called, too (accesses.py)",
    "is {guards.name(GONE)}": "names that are nowhere raise, and attributes that are not there are 'in place of'",
    "._grad is not None": "without one the next condition, of its dtype, has no attribute to look at",
    "_grad._array.dtype": "a gradient has its leaf's dtype and device, whose memory is then another, too",
    ".device.index ==": "several GPUs",
}


def wanted(place: Place) -> list[Callable[[], tuple[Any, ...]]]:
    return list(dict.fromkeys(make for words, make in CASES if words in place.text))


@pytest.mark.parametrize("make", dict.fromkeys(make for _, make in CASES), ids=lambda make: make.__name__)
def test_programs_follow(make):
    assert outcome(make, compiled=True) == outcome(make, compiled=False)


@pytest.mark.parametrize("place", PLACES, ids=lambda p: f"{p.file.rpartition('/')[2]}-{p.first}")
def test_without_its_condition_a_program_is_stale(place, monkeypatch):
    if any(words in place.text for words in HELD):
        pytest.skip("another condition sees it")
    makes = wanted(place)
    assert makes, f"no case for {place.text}"
    count = left_out(monkeypatch, [place])
    tried = []
    for make in makes:
        count.clear()
        stale = outcome(make, compiled=True) != outcome(make, compiled=False)
        if stale and count:
            return
        tried.append(f"{make.__name__}: {len(count)} left out")
    raise AssertionError(f"the condition is not missed: {place.text}; {tried}")
