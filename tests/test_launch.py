"""`gradlab launch`: processes on one machine, their logs, and a start anew after a death."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_mpi import HERE, MPIEXEC

from gradlab.cli import entry
from gradlab.cli.launch import again, complete, free_folder

needs_mpi = pytest.mark.skipif(MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="no MPI: pip install .[mpi]")


def begun(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [sys.executable, "-m", "gradlab", "launch", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--", "train", "digits"], "--processes"), (["-n", "2"], "say what to run"), (["-n", "0", "--", "x.py"], "must be"),
        (["-n", "2", "--max-restarts", "-1", "--", "x.py"], "must be 0 or more"),
    ],
)  # fmt: skip
def test_wrong_usage(capsys, arguments, text):
    assert entry.main(["launch", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_what_is_run(tmp_path):
    assert complete(["train", "digits"]) == [sys.executable, "-m", "gradlab", "train", "digits"]
    assert complete(["script.py", "-x"]) == [sys.executable, "script.py", "-x"]
    assert complete(["-m", "room"]) == [sys.executable, "-m", "room"]
    assert complete([sys.executable, "-V"]) == [sys.executable, "-V"]
    (tmp_path / "launch-1").mkdir()
    assert free_folder(tmp_path / "launch").name == "launch-2"


def test_what_is_run_after_a_death(tmp_path):
    train = complete(["train", "digits", "--epochs", "3"])
    assert again(train, tmp_path) == train
    (tmp_path / "folder").write_text(str(tmp_path / "run"), encoding="utf-8")
    assert again(train, tmp_path) == train  # it died before its first checkpoint
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "checkpoint-0-0.safetensors").touch()
    assert again(train, tmp_path) == [*train[:4], "--resume", str(tmp_path / "run")]
    assert again(["script.py"], tmp_path) == ["script.py"]


def on_a_terminal(command, folder, **environment):
    """What a person sees of a program, on 80 columns, and its exit code."""
    import termios

    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    run_as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    known = {**os.environ, "PYTHONPATH": str(HERE.parent), **run_as_root, **environment}
    if "GRADLAB_TERMINAL" in known:
        known["GRADLAB_TERMINAL"] = os.ttyname(theirs)
    child = subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=known, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    with open(ours, "rb", buffering=0) as screen:
        try:
            while some := screen.read(1 << 16):
                seen += some
        except OSError:  # nobody writes any more
            pass
    return seen.decode(), child.wait()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals")
def test_the_first_process_has_a_terminal_like_the_one_that_is_looked_at(tmp_path):
    text = "import os, sys; print(sys.stderr.isatty(), os.get_terminal_size(2)); sys.stderr.write('one\\rtwo\\n')"
    command = ["gradlab.cli.ranked", str(tmp_path), sys.executable, "-c", text]
    seen, code = on_a_terminal(command, tmp_path, GRADLAB_TERMINAL="this one", OMPI_COMM_WORLD_RANK="0")
    assert (seen, code) == ("True os.terminal_size(columns=80, lines=24)\r\none\rtwo\r\n", 0)
    assert (tmp_path / "rank-0.log").read_bytes().endswith(b"one\rtwo\n")


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals")
def test_one_bar_is_drawn(tmp_path):
    train = ["train", "digits", "--epochs", "2", "--out", "run"]
    seen, code = on_a_terminal(["gradlab", "launch", "-n", "2", "--logs", "said", "--", *train], tmp_path)
    assert code == 0, seen
    bars = [line for line in seen.split("\r") if "batch/s" in line]
    assert all(line.startswith("epoch ") and len(line) <= 80 for line in bars) and bars[0].startswith("epoch 1/2:   0%")
    full = [line for line in bars if "100%" in line]
    assert [line[:9] for line in full] == ["epoch 1/2", "epoch 2/2"]  # one bar for each epoch, not one for each process
    assert seen.count("training loss") == 2 and "\r\r\n" not in seen
    rank_1 = (tmp_path / "said" / "rank-1.log").read_text(encoding="utf-8")
    assert rank_1.count("training loss") == 2 and "batch/s" not in rank_1


@needs_mpi
@pytest.mark.slow
def test_a_script_in_three_processes(tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys, gradlab as gl\n"
        "world = gl.distributed.init()\n"
        "x = gl.ones(2)\n"
        "gl.distributed.all_reduce(x)\n"
        "print(f'rank {world.rank()} {sys.argv[1]} has {x.tolist()}')\n"
    )
    child = begun(tmp_path, "-n", "3", "--logs", "said", "--", "script.py", "here")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert out.split("\n")[0] == "rank 0 here has [3.0, 3.0]" and "rank 1" not in out
    for rank in range(3):
        assert f"rank {rank} here has [3.0, 3.0]" in (tmp_path / "said" / f"rank-{rank}.log").read_text(encoding="utf-8")


def processes_of(launcher, rank):
    """The process that computes as that rank, found by its environment."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            known = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = {f"OMPI_COMM_WORLD_RANK={rank}".encode(), f"GRADLAB_LAUNCH={launcher}".encode()} <= set(known)
        if ours and b"gradlab.cli.ranked" not in command:
            yield int(path.name)


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
def test_training_goes_on_after_a_rank_was_killed(tmp_path):
    train = ["train", "digits", "--epochs", "12", "--out", "run"]
    child = begun(tmp_path, "-n", "2", "--max-restarts", "1", "--logs", str(tmp_path / "said"), "--", *train)
    third = tmp_path / "run" / "checkpoints" / "checkpoint-3-0.safetensors"
    until = time.monotonic() + 120
    while not third.exists() and child.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    (victim,) = processes_of(tmp_path / "said", 1)
    os.kill(victim, signal.SIGKILL)
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err[-2000:]
    assert "1 restarts left" in err, err[-2000:]
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["result"]["epochs"] == 12
    assert "epoch 12/12" in out
    epochs = [line.split("/")[0].split()[-1] for line in out.splitlines() if line.startswith("epoch")]
    assert sorted(set(map(int, epochs))) == list(range(1, 13)) and len(epochs) <= 13  # none was computed again but the one under way
