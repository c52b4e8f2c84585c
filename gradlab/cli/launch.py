"""`gradlab launch -n 4 -- COMMAND`: several processes of one command on this machine, by mpiexec; started anew when one dies.

A command is one of gradlab's (`train digits`), a script (`script.py --epochs 3`), a module (`-m package.module`) or any program. After a
death all are started again, up to --max-restarts times: `train` goes on from its last checkpoint, a script is told by GRADLAB_RESTART.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from gradlab.cli.failure import FAILED, Failure, complain

FOLDER = "folder"  # the file in the logs in which `train` says where its run is


def run(options: argparse.Namespace) -> int:
    """Start, wait, start again; the exit code of the last."""
    mpiexec = found_mpiexec()
    logs = options.logs or free_folder(Path("runs", "launch"))
    logs.mkdir(parents=True, exist_ok=True)
    start = mpi_command(mpiexec, options.processes)
    command, code = complete(options.program), FAILED
    for attempt in range(options.max_restarts + 1):
        code = once([*start, sys.executable, "-m", "gradlab.cli.ranked", str(logs), *command], logs, attempt, options.processes)
        if code in (0, 2, 128 + signal.SIGINT):  # done, wrong usage, or ended by the user
            return code
        left = options.max_restarts - attempt
        complain(f"gradlab launch: {cause(code)}; what each said is in {logs}/rank-*.log; {left or 'no'} restarts left")
        command = again(command, logs)
    return code


def found_mpiexec() -> str:
    """The one of this Python's environment, else that of the machine."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise Failure("there is no mpiexec: pip install 'gradlab-engine[mpi]', or install the MPI of this system and mpi4py", FAILED)
    return found


def mpi_command(mpiexec: str, processes: int) -> list[str]:
    """The beginning of the command line, in the words of the MPI that it belongs to."""
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    command = [mpiexec, "-n", str(processes)]
    if "Open MPI" in said or "prterun" in said or "OpenRTE" in said:
        command += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container
            command += ["--allow-run-as-root"]
    return command


def complete(program: list[str]) -> list[str]:
    """The command as this Python's."""
    first = program[0]
    if first.endswith(".py") or first == "-m":
        return [sys.executable, *program]
    if shutil.which(first) is None and not os.path.exists(first):
        return [sys.executable, "-m", "gradlab", *program]
    return program


def free_folder(stem: Path) -> Path:
    """The first of launch-1, launch-2, … that is not there."""
    return next(path for n in range(1, 10**6) if not (path := stem.with_name(f"{stem.name}-{n}")).exists())


def once(command: list[str], logs: Path, attempt: int, processes: int) -> int:
    """One start of all processes; Ctrl-C and SIGTERM are theirs, which they answer by saving."""
    known = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}  # the processes share the cores
    known |= {"GRADLAB_LAUNCH": str(logs), "GRADLAB_RESTART": str(attempt)}
    known |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}  # as torchrun's scripts read them
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", **known}
    if sys.stderr is not None and sys.stderr.isatty():
        known["GRADLAB_TERMINAL"] = os.ttyname(sys.stderr.fileno())
    child = subprocess.Popen(command, env=known)
    before = {number: signal.signal(number, lambda number, _: child.send_signal(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def cause(code: int) -> str:
    """An exit code in words."""
    if code > 128:
        names = {int(s): s.name for s in signal.Signals}
        return f"a process was ended by {names.get(code - 128, f'signal {code - 128}')}"
    return f"a process ended with exit code {code}"


def again(command: list[str], logs: Path) -> list[str]:
    """The command that goes on with what the first had reached."""
    said = logs / FOLDER
    if "train" in command[:4] and said.exists():
        folder = Path(said.read_text(encoding="utf-8"))
        if any((folder / "checkpoints").glob("checkpoint-*.safetensors")):
            return [*command[: command.index("train") + 1], "--resume", str(folder)]
    return command
