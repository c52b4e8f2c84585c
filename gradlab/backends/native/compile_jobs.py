"""Compilers at work side by side while Python goes on, the dearest texts first."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.native.seals import intact
from gradlab.backends.native.toolchain import CompileError, Workshop, compiler
from gradlab.progress import waiting

PATIENCE = 2.0  # seconds that the end of the process waits for stopped compilers to be cleaned up
REFUSED = "the C++ compiler refuses a program of gl.compile; GRADLAB_COMPILER=none runs without one. It says:\n"


class Job(NamedTuple):
    """A library to build. source: a file, or "" for the given text, which is called `name`. cost: what costs more begins earlier."""

    target: Path
    arguments: tuple[str, ...]
    source: str
    text: str = ""
    cost: float = 0.0
    name: str = "program.cpp"


class _Begun:
    """A job that waits for its turn, or runs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.stopped = False
        self.process: subprocess.Popen[str] | None = None


class Works:
    """All jobs of this process. A library appears in its place whole, whoever else builds the same; what is stopped leaves nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Begun] = []
        self._begun: dict[Path, _Begun] = {}
        self._crew: set[threading.Thread] = set()

    def begin(self, jobs: Iterable[Job]) -> None:
        """Let those be built that are neither there nor begun."""
        with self._lock:
            for job in jobs:
                if job.target not in self._begun and not intact(job.target):
                    begun = self._begun[job.target] = _Begun(job)
                    self._waiting.append(begun)
            self._waiting.sort(key=lambda begun: begun.job.cost)
            for _ in range(min(len(self._waiting), _processors() - len(self._crew))):
                thread = threading.Thread(target=self._work, name="gradlab compiler", daemon=True)
                self._crew.add(thread)
                thread.start()

    def finish(self, jobs: Sequence[Job]) -> None:
        """Wait until all are built. Raises CompileError with the compiler's words; then, or if the wait is interrupted, all work stops."""
        try:
            self.begin(jobs)
            missing = [job for job in jobs if not intact(job.target)]
            if missing:
                with waiting("compiling for this machine", len(missing)) as shown:
                    for job in missing:
                        self._built(job)
                        shown.done()
        except BaseException:
            self.stop()
            raise

    def _built(self, job: Job) -> None:
        """Wait until a library is there."""
        while not intact(job.target):
            with self._lock:
                begun = self._begun.get(job.target)
            if begun is None:  # another thread has stopped it
                self.begin([job])
                continue
            begun.done.wait()
            if begun.error is not None:
                raise begun.error

    def stop(self) -> None:
        """End all compilers, and forget what waits."""
        with self._lock:
            for begun in self._begun.values():
                begun.stopped = True
                if begun.process is not None and begun.process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(begun.process.pid, signal.SIGKILL)  # with those that it started
            for begun in self._waiting:
                del self._begun[begun.job.target]
                begun.done.set()
            self._waiting.clear()

    def close(self) -> None:
        """Stop, and wait a little until nothing is left behind."""
        self.stop()
        for thread in [*self._crew]:
            thread.join(PATIENCE)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._crew.remove(threading.current_thread())
                    return
                begun = self._waiting.pop()
            try:
                self._build(begun)
            except BaseException as error:
                begun.error = error
            with self._lock:
                del self._begun[begun.job.target]
            begun.done.set()

    def _build(self, begun: _Begun) -> None:
        job = begun.job
        with Workshop(job.target) as shop:
            source, library = job.source, shop.directory / "program.so"
            if not source:
                source = job.name
                (shop.directory / source).write_text(job.text)
            command = [*compiler().command, *job.arguments, source, "-o", str(library)]
            with self._lock:
                if begun.stopped:
                    return
                process = begun.process = subprocess.Popen(
                    command, cwd=shop.directory, env=_environment(), text=True, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                )  # fmt: skip
            said = process.communicate()[1]
            if begun.stopped:
                return
            if process.returncode != 0:
                raise CompileError(REFUSED + said)
            shop.deliver(library)


def _environment() -> dict[str, str]:
    """A preloaded sanitizer is for the programs, not for the compiler."""
    return {name: value for name, value in os.environ.items() if name not in {"LD_PRELOAD", "DYLD_INSERT_LIBRARIES"}}


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


works = Works()


def _forget() -> None:
    """The parent's compilers are not the child's."""
    works.__init__()  # type: ignore[misc]


atexit.register(works.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

__all__ = ["Job", "Works", "works"]
