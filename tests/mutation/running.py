"""Runs mutants: a copy of the tree, one fault at a time, the tests that reach it first, a limit of processor time.

What stands in functions is planted in forks of a process that has collected the tests (`forked`). What it cannot plant or does not find
there, and what is no Python, gets a process of its own that imports or compiles the changed file.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mutation.kernel_reach import Used, kernels_at, tests_with
from mutation.mutant import Mutant
from mutation.patching import is_default, statement_lines
from mutation.reach import Reach
from mutation.rooms import ROOMS, expanded, files_of, rows_of, tests_of
from repository import ROOT, project_files

PYTEST = ["-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=line", "--no-header"]
NO_TESTS = 5
DEFAULTS = "::test_defaults_are_these"


class Outcome(NamedTuple):
    """What became of a mutant: "killed", "survived", "stillborn" (no compiler takes it), "late" (the tests did not end, or took the process
    along: killed too), or "unjudged" (its tests fail without it)."""

    word: str
    seconds: float
    by: str = ""


class Tree:
    """A copy of the project's files in a folder of its own, which is removed at the end."""

    def __init__(self, maps: Path, python: str = sys.executable) -> None:
        self.python, self.maps = python, maps.resolve()
        self.at = Path(tempfile.mkdtemp(prefix="gradlab-mutants-"))
        for name in project_files():
            target = self.at / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self.baselines: dict[tuple[str, ...], float | None] = {}
        self.reaches: dict[str, Reach] = {}
        self.maps.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.at, ignore_errors=True)

    def pytest(self, room: str, arguments: list[str], seconds: float) -> tuple[int | None, str, float]:
        """Runs pytest in the copy: its exit code (None beyond the limit), its output, and the processor time it took."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(self.at), str(self.at / "tests"))), "PYTHONDONTWRITEBYTECODE": "1"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole = ["--full"] if ROOMS[room].whole else []
        child = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -t {int(seconds) + 1}; exec "$@"', "sh", self.python, *PYTEST, *whole, *arguments], cwd=self.at,
            env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = child.communicate(timeout=20 * seconds)
            code = child.returncode if child.returncode >= 0 else None
        except subprocess.TimeoutExpired:
            code, said = None, ""
        finally:
            try:  # workers and compilers that it left behind
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return code, said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # ------------------------------------------------------------------- Python: by what tests reach

    def reach(self, room: str) -> Reach:
        """Which tests of a room reach what. Tests are run where a map does not know their file as it is; where other files have changed
        since, it is moved along with their lines."""
        if room in self.reaches:
            return self.reaches[room]
        path, new = self.maps / f"reach-{room}.npz", self.maps / f"reach-{room}-new.npz"
        old = Reach(path) if path.exists() else None
        tests = expanded((*ROOMS[room].by_row, *ROOMS[room].tests))
        stale = [t for t in tests if old is None or not old.holds_for(t)]
        if old is None or stale or not all(map(old.holds_for, files_of(room))):
            print(f"   runs {len(stale)} of {len(tests)} files of tests of {room} once, to see what they reach", flush=True)
            options = ["-p", "mutation.reach", "--maxfail=1000", "--reach-files", ",".join(ROOMS[room].files), "--reach-to", str(new)]
            self.pytest(room, [*options, *(stale or tests[:1])], 7200)
            if old is not None:
                old.joined(Reach(new), new)
            new.replace(path)
        self.reaches[room] = Reach(path)
        return self.reaches[room]

    def nearest(self, room: str, mutant: Mutant, text: str) -> list[str]:
        """The tests that reach a mutant's statement, those of the rare ways out of it first; of what runs on import, those of the row that
        is defined there, too."""
        reach = self.reach(room)
        first, last = statement_lines(text, mutant.start)
        found = reach.tests_at(mutant.file, first, first) or reach.tests_at(mutant.file, first, last)
        line = text.splitlines()[first - 1]
        if line[:1].isidentifier() and not line.startswith(("def ", "class ", "if ", "for ")):
            name = line.partition(" = ")[0].partition(":")[0].strip("_")
            rows = (name, *(rows_of(mutant.file) if room == "rows" and not found else ()))  # all of them for a table of numbers, say
            marks = [mark for row in rows for mark in (f"[{row}-", f"[{row}]", f"-{row}-", f".{row}]")]
            turns = itertools.zip_longest(found, [t for t in reach.tests if t not in set(found) and any(mark in t for mark in marks)])
            found = [t for pair in turns for t in pair if t]
        found = list(dict.fromkeys((*reach.tests_within(mutant.file, first, last), *found)))
        if is_default(text, mutant.start):  # which no call reaches that gives the argument
            found = [*(t for t in reach.tests if t.endswith(DEFAULTS)), *found]
        return found or reach.tests_at(mutant.file, 1, len(text))

    def forked(self, room: str, mutants: list[Mutant], seconds: float) -> list[Outcome]:
        """What becomes of mutants in forks of one process."""
        lines, files = [], dict[str, None]()
        for mutant in mutants:
            tests = self.nearest(room, mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
            lines.append(json.dumps({"mutant": mutant, "tests": tests, "key": ""}) + "\n")
            files |= dict.fromkeys(t.partition("::")[0] for t in tests)
        source, target = self.at / "mutants.json", self.at / "outcomes.json"
        source.write_text("".join(lines), encoding="utf-8")
        target.write_text("")
        options = ["-p", "mutation.forked", "--mutants", str(source), "--outcomes", str(target), "--mutant-seconds", str(seconds)]
        self.pytest(room, [*options, *files], 60 + 10 * seconds * len(mutants))
        found = [Outcome(t["word"], t["seconds"], t["by"]) for t in map(json.loads, target.read_text(encoding="utf-8").splitlines())]
        return found + [Outcome("unplanted", 0)] * (len(mutants) - len(found))

    def imported(self, room: str, mutant: Mutant, seconds: float) -> Outcome:
        """What becomes of a mutant in a process that imports its file."""
        tests = self.nearest(room, mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
        if not tests:
            return Outcome("survived", 0, "no test of the room reaches it")
        reach, chosen, spent = self.reach(room), list[str](), 0.0
        took = dict(zip(reach.tests, reach.seconds, strict=True))
        for test in tests:
            chosen.append(test)
            spent += took[test]
            if spent > seconds:
                break
        names = self.at / "chosen.txt"
        names.write_text("\n".join(chosen), encoding="utf-8")
        files = dict.fromkeys(t.partition("::")[0] for t in chosen)
        code, said, took_now = self.planted(room, mutant, ["-p", "mutation.chosen", "--chosen", str(names), *files], 4 * spent + 40)
        if code is None:
            return Outcome("late", took_now, "crashed or did not end")
        return Outcome("survived" if code in (0, NO_TESTS) else "killed", took_now, last_failure(said))

    # ------------------------------------------------------------------- kernels: by files

    def baseline(self, room: str, arguments: list[str]) -> float | None:
        """The seconds that tests take without a fault; None where they fail without one, too: such tests show nothing."""
        key = tuple(arguments)
        if key not in self.baselines:
            code, said, seconds = self.pytest(room, arguments, 900)
            if code not in (0, NO_TESTS):
                print("   fails without a fault:", " ".join(arguments)[:100], last_failure(said), flush=True)
            self.baselines[key] = seconds if code in (0, NO_TESTS) else None
        return self.baselines[key]

    def planted(self, room: str, mutant: Mutant, arguments: list[str], seconds: float) -> tuple[int | None, str, float]:
        """Runs pytest with a fault in its file."""
        path = self.at / mutant.file
        text = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.applied(text), encoding="utf-8")
            return self.pytest(room, arguments, seconds)
        finally:
            path.write_text(text, encoding="utf-8")

    def used(self, room: str) -> Used:
        """Which kernels each test of a room uses. The tests are run once, and once more where the map is gone."""
        path = self.maps / f"kernels-{room}.json"
        if not path.exists():
            tests = expanded((*ROOMS[room].by_row, *ROOMS[room].tests))
            print(f"   runs {len(tests)} files of tests of {room} once, to see which kernels they use", flush=True)
            self.pytest(room, ["-p", "mutation.kernel_reach", "--maxfail=1000", "--kernels-to", str(path), *tests], 7200)
        found: Used = json.loads(path.read_text(encoding="utf-8"))
        return found

    def of_kernel(self, room: str, mutant: Mutant, seconds: float) -> Outcome:
        """What becomes of a mutant of a kernel: the tests that use it, as many as fit into the seconds of processor time."""
        used = self.used(room)
        names, chosen, spent = kernels_at(mutant.file, (ROOT / mutant.file).read_text(encoding="utf-8"), mutant.start), list[str](), 0.0
        for test in tests_with(used, names):
            chosen.append(test)
            spent += used[test][0]
            if spent > seconds:
                break
        if not chosen:
            return Outcome("survived", 0, "no test of the room uses its kernel")
        listed = self.at / "chosen.txt"
        listed.write_text("\n".join(chosen), encoding="utf-8")
        files = dict.fromkeys(t.partition("::")[0] for t in chosen)
        code, said, took = self.planted(room, mutant, ["-p", "mutation.chosen", "--chosen", str(listed), *files], 300 + 10 * spent)
        if code is None:
            return Outcome("late", took, "crashed or did not end")
        unbuilt = "error: " in said and "AssertionError" not in said
        return Outcome("survived" if code in (0, NO_TESTS) else "stillborn" if unbuilt else "killed", took, last_failure(said))

    def compiled(self, room: str, mutant: Mutant, limit: float) -> Outcome:
        """What becomes of a mutant of what makes kernels: the tests of its file, run after run."""
        spent, judged = 0.0, False
        for arguments in tests_of(room, mutant.file):
            usual = self.baseline(room, ["-p", "mutation.only_rows", *arguments])
            if usual is None:
                continue
            judged = True
            code, said, seconds = self.planted(room, mutant, ["-p", "mutation.only_rows", *arguments], min(limit, 30 + 4 * usual))
            spent += seconds
            if code is None:
                return Outcome("late", spent, "crashed or did not end")
            if code not in (0, NO_TESTS):
                unbuilt = "error: " in said and "AssertionError" not in said
                return Outcome("stillborn" if unbuilt else "killed", spent, last_failure(said))
        return Outcome("survived" if judged else "unjudged", spent)

    def outcomes(self, room: str, mutants: list[Mutant], seconds: float, limit: float) -> Iterator[tuple[Mutant, Outcome]]:
        """What becomes of some mutants of a room."""
        python = [m for m in mutants if m.file.endswith(".py") and room not in ("native", "cuda")]
        quick = dict(zip(python, self.forked(room, python, seconds), strict=True)) if python else {}
        for mutant in mutants:
            outcome = quick.get(mutant)
            if mutant.file.startswith("kernels/"):
                outcome = self.of_kernel(room, mutant, seconds)
            elif outcome is None:
                outcome = self.compiled(room, mutant, limit)
            elif outcome.word not in ("killed", "late"):
                outcome = self.imported(room, mutant, seconds)
            yield mutant, outcome


def last_failure(said: str) -> str:
    """The name of the test that failed, in pytest's output."""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (lines or said.splitlines()[-1:] or [""])[0][:160]
