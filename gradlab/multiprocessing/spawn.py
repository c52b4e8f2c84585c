"""Several processes that run one function: `spawn`, and the errors by which one of them ends them all."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from gradlab.distributed.rendezvous import counted

PATIENCE = 30.0  # seconds that processes which were asked to end are given


class ProcessException(Exception):
    """One of the processes did not end well. error_index: its number; pid: the system's."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised; the text holds that process's traceback."""


class ProcessExitedException(ProcessException):
    """A process ended by a signal, or with an exit code other than 0."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], report: str) -> None:
    """What a process does: call, and leave a traceback where the call raised."""
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the first process ends them
    except Exception:
        with open(report, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that `spawn(..., join=False)` has started."""

    def __init__(self, processes: list[Any], reports: list[str]) -> None:
        self.processes, self._reports = processes, reports
        self._running = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The system's numbers of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends, or for `timeout` seconds. Whether all have ended by then.

        Where one did not end well the others are ended, after `grace_period` seconds, and what it was is raised: ProcessRaisedException
        or ProcessExitedException.
        """
        ended: Any = connection.wait(list(self._running), timeout) if self._running else ()
        for sentinel in ended:
            index = self._running.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode:
                self._end(grace_period)
                self._raise(index)
            _remove(self._reports[index])
        return not self._running

    def _end(self, grace_period: float | None) -> None:
        last = time.monotonic() + (grace_period or 0.0)
        for process in self.processes:
            process.join(max(0.0, last - time.monotonic()))
        for ask in ("terminate", "kill"):
            for process in self.processes:
                if process.is_alive():
                    getattr(process, ask)()
            last = time.monotonic() + PATIENCE
            for process in self.processes:
                process.join(max(0.0, last - time.monotonic()))

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        with open(self._reports[index], "rb") as file:
            content = file.read()
        for report in self._reports:
            _remove(report)
        if content:
            text = f"\n\n-- Process {index} terminated with the following error:\n{pickle.loads(content)}"
            raise ProcessRaisedException(text, index, process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def start_processes(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """`nprocs` processes that call `fn(index, *args)`, index from 0, started by "spawn", "fork" or "forkserver".

    join: wait for all of them, and raise what ends one of them (ProcessRaisedException with its traceback, ProcessExitedException), the
    others being ended then; otherwise return a ProcessContext to join. `fn` stands at the top of a module where it is spawned.
    """
    where = multiprocessing.get_context(start_method)
    processes, reports = [], []
    for index in range(nprocs):
        descriptor, report = tempfile.mkstemp(prefix="gradlab-process-", suffix=".error")
        os.close(descriptor)
        process = where.Process(target=_run, args=(fn, index, args, report), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        processes.append(process)
        reports.append(report)
    made = ProcessContext(processes, reports)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """`start_processes` with fresh interpreters.

    Where `gradlab launch`, mpiexec or srun has started that many processes of this program, this is one of them: it calls `fn` with its
    own rank, and starts nothing, so that a script that starts its processes itself runs as it is under them.
    """
    size, rank, _ = counted(None, -1, -1)
    if size == nprocs > 1:
        fn(rank, *args)
        return None
    return start_processes(fn, args, nprocs, join, daemon, start_method)


SpawnContext = ProcessContext
