"""Runs mutants: a copy of the tree, one fault at a time, the tests of its file, a limit of time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mutation.mutant import Mutant
from mutation.rooms import tests_of
from repository import ROOT, project_files

PYTEST = ["-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "mutation.only_rows", "--full", "--tb=line", "--no-header"]
NO_TESTS = 5


class Outcome(NamedTuple):
    """What became of a mutant: "killed", "survived", "stillborn" (no compiler takes it), "late" (the tests did not end: killed too), or
    "unjudged" (its tests fail without it)."""

    word: str
    seconds: float
    by: str = ""


class Tree:
    """A copy of the project's files in a folder of its own, which is removed at the end."""

    def __init__(self, python: str = sys.executable) -> None:
        self.python, self.at = python, Path(tempfile.mkdtemp(prefix="gradlab-mutants-"))
        for name in project_files():
            target = self.at / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self.baselines: dict[tuple[str, ...], float | None] = {}

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.at, ignore_errors=True)

    def pytest(self, arguments: list[str], limit: float) -> tuple[int | None, str, float]:
        """Runs pytest in the copy: its exit code (None beyond the limit), its output, and the seconds it took."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(self.at), str(self.at / "tests"))), "PYTHONDONTWRITEBYTECODE": "1"}
        began = time.monotonic()
        child = subprocess.Popen(
            [self.python, *PYTEST, *arguments], cwd=self.at, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = child.communicate(timeout=limit)
            code: int | None = child.returncode
        except subprocess.TimeoutExpired:
            code, said = None, ""
        finally:
            try:  # workers and compilers that it left behind
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        return code, said, time.monotonic() - began

    def baseline(self, arguments: list[str]) -> float | None:
        """The seconds that tests take without a fault; None where they fail without one, too: such tests show nothing."""
        key = tuple(arguments)
        if key not in self.baselines:
            code, said, seconds = self.pytest(arguments, 900)
            if code not in (0, NO_TESTS):
                print("   fails without a fault:", " ".join(arguments)[:100], last_failure(said), flush=True)
            self.baselines[key] = seconds if code in (0, NO_TESTS) else None
        return self.baselines[key]

    def outcome(self, mutant: Mutant, room: str, limit: float) -> Outcome:
        """Plants a mutant, runs its tests until one fails, and takes it out again."""
        path = self.at / mutant.file
        text = path.read_text(encoding="utf-8")
        spent, judged = 0.0, False
        try:
            for arguments in tests_of(room, mutant.file):
                usual = self.baseline(arguments)
                if usual is None:
                    continue
                judged = True
                path.write_text(mutant.applied(text), encoding="utf-8")
                code, said, seconds = self.pytest(arguments, min(limit, 30 + 4 * usual))
                path.write_text(text, encoding="utf-8")
                spent += seconds
                if code is None:
                    return Outcome("late", spent, "no end")
                if code not in (0, NO_TESTS):
                    unbuilt = mutant.file.startswith("kernels/") and "error: " in said and "AssertionError" not in said
                    return Outcome("stillborn" if unbuilt else "killed", spent, last_failure(said))
        finally:
            path.write_text(text, encoding="utf-8")
        return Outcome("survived" if judged else "unjudged", spent)


def last_failure(said: str) -> str:
    """The name of the test that failed, in pytest's output."""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (lines or said.splitlines()[-1:] or [""])[0][:160]
