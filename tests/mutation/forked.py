"""A plugin of pytest: collects tests once, then plants one mutant after another in a child of the process and runs the tests that reach it.

`--mutants` names a file with mutants and their tests (one JSON line each), `--outcomes` the one for what became of them. A mutant that
`patching` cannot plant, and one that no test finds here, is left to a process that imports the changed file: code may have run on import.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from mutation.mutant import Mutant
from mutation.patching import plant
from repository import ROOT


class Judge:
    """Notes the first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def judged(items: list[pytest.Item], mutant: Mutant | None, seconds: float, end: int) -> None:
    """In the child: plants, runs until a test fails or its time is over, writes a word and the test's name, and ends."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(4 * seconds + 20),) * 2)
    word = "survived"
    if mutant is not None:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        if not plant(str(ROOT / mutant.file), text, mutant.applied(text)):
            word = "unplanted"
    judge = Judge()
    manager = items[0].config.pluginmanager
    manager.register(judge)
    began = time.process_time()
    try:
        for item, following in zip(items, [*items[1:], None], strict=True) if word == "survived" else ():
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)  # with what marks say of warnings
            if judge.failed:
                word = "killed"
                break
            if time.process_time() - began > seconds:
                break
    except BaseException as error:  # a mutant may stop pytest itself
        word, judge.failed = "killed", repr(error)
    os.write(end, f"{word} {judge.failed}".encode()[:4000])
    os._exit(0)


def outcome(items: list[pytest.Item], mutant: Mutant | None, seconds: float) -> tuple[str, str]:
    """Runs a child for one mutant (None: no fault)."""
    mine, its = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        judged(items, mutant, seconds, its)
    os.close(its)
    limit, ended = time.monotonic() + 20 * seconds + 60, False
    while not ended and time.monotonic() < limit:
        ended = os.waitpid(child, os.WNOHANG)[0] == child
        if not ended:
            time.sleep(0.02)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not ended:
        os.waitpid(child, 0)
    os.set_blocking(mine, False)
    try:
        said = os.read(mine, 4000).decode(errors="replace")
    except BlockingIOError:
        said = ""
    os.close(mine)
    word, _, by = said.partition(" ")
    return (word, by) if word else ("late", "crashed or did not end")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", type=Path, help="mutants and their tests, one JSON line each")
    parser.addoption("--outcomes", type=Path, help="the file for outcomes, one JSON line each")
    parser.addoption("--mutant-seconds", type=float, default=20, help="processor time for the tests of one mutant")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In place of the tests: the mutants."""
    if (source := session.config.getoption("--mutants")) is None:
        return None
    known = {item.nodeid: item for item in session.items}
    seconds = session.config.getoption("--mutant-seconds")
    for line in source.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        mutant = Mutant(*told["mutant"]) if told["mutant"] else None
        began = time.monotonic()
        items = [known[t] for t in told["tests"] if t in known]
        word, by = outcome(items, mutant, seconds) if items else ("unreached", "")
        with session.config.getoption("--outcomes").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": told["key"], "word": word, "seconds": time.monotonic() - began, "by": by}) + "\n")
    return True
