"""Checkpoints of runs: killed at moments by chance and gone on with to the bit, damaged ones, folders of another run, full disks."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.train import Checkpoint, fit, read_checkpoint
from gradlab.utils import atomic
from gradlab.utils.serialization import checksum

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
BATCHES = [(gl.from_numpy(X[i : i + 4]), gl.from_numpy(X[i : i + 4].sum(1, keepdims=True))) for i in range(0, 24, 4)]


def trained(folder=None, epochs=3, resume=None, stop_after=None, loader=BATCHES, device="cpu", amp=None, **options):
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)).to(device)
    optimizer = gl.optim.Adam(model.parameters(), lr=0.01)
    callbacks = [Checkpoint(folder, **options)] if folder is not None else []

    class Stop(gl.train.Callback):
        def batch_end(self, run):
            if run.steps == stop_after:
                run.stop = "enough"

    given = {"epochs": epochs, "validation": BATCHES, "resume": resume, "amp": amp}
    return fit(model, loader, nn.functional.mse_loss, optimizer, callbacks=[Stop(), *callbacks], **given)


def same(run, other):
    return alike(run.model, other.model)


def alike(model, other):
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    return all(np.array_equal(a.cpu().numpy(), b.cpu().numpy()) for a, b in pairs)


def names(folder):
    return sorted(path.name.removesuffix(".safetensors") for path in folder.iterdir())


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)


# ---------------------------------------------------------------- killed


def killed(tmp_path, kills, seed):
    program = [sys.executable, str(Path(__file__).with_name("killed_runs.py")), str(tmp_path), str(kills), str(seed)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@needs_fork
def test_killed_at_any_moment_a_run_goes_on_to_the_bit(tmp_path):
    found = killed(tmp_path, 12, 0)
    assert found["killed"] == 12 and found["finished"] and not found["differ"]


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_fifty_moments(tmp_path, seed):
    found = killed(tmp_path, 50, seed)
    assert found["killed"] == 50 and found["finished"] and not found["differ"]


def test_random_numbers_of_others_go_on(tmp_path):
    def drawn(limit=None, resume=None):
        seen, model = [], nn.Linear(3, 1)

        class Draw(gl.train.Callback):
            def batch_end(self, run):
                seen.append((random.random(), np.random.random()))  # noqa: NPY002
                run.stop = "enough" if len(seen) == limit else ""

        optimizer = gl.optim.SGD(model.parameters(), lr=0.1)
        run = fit(model, BATCHES, nn.functional.mse_loss, optimizer, epochs=2, callbacks=[Draw()], resume=resume)
        return seen, run.state_dict()

    def seeded(number):
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002

    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        seeded(5)
        whole, _ = drawn()
        seeded(5)
        first, state = drawn(limit=5)
        gl.save(state, tmp_path / "state.safetensors")
        seeded(8)
        rest, _ = drawn(resume=gl.load(tmp_path / "state.safetensors"))
        assert first + rest == whole and len(whole) == 12
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def test_loaders_that_cannot_tell_their_place_are_gone_on_with(tmp_path):
    """A list of batches, and whatever else gives them anew for each epoch."""
    for loader in (BATCHES, type("Anew", (), {"__iter__": lambda self: iter(BATCHES)})()):
        whole = trained(loader=loader)
        for after in (1, 4, 6, 9):
            stopped = trained(stop_after=after, loader=loader)
            run = trained(resume=stopped.state_dict(), loader=loader)
            assert same(run, whole) and [line["loss"] for line in run.history] == [line["loss"] for line in whole.history], after
            assert (run.steps, run.epoch, run.batch) == (18, 3, 0)


def test_the_best_weights_of_a_run_that_goes_on_are_those_of_before(tmp_path):
    def run(epochs, resume=None):
        gl.manual_seed(0)
        model = nn.Linear(3, 1)

        def wanders(run):
            run.history[-1]["validation_loss"] = [3.0, 1.0, 2.0, 2.0, 2.0][run.epoch - 1]

        callbacks = [wanders, gl.train.BestWeights()]
        callbacks += [Checkpoint(tmp_path)] if resume is None and epochs == 3 else []
        optimizer = gl.optim.SGD(model.parameters(), lr=0.01)
        return fit(model, BATCHES, nn.functional.mse_loss, optimizer, epochs=epochs, validation=BATCHES, callbacks=callbacks, resume=resume)

    whole, _ = run(5), run(3)
    state = read_checkpoint(tmp_path)
    assert state["callbacks"].keys() == {"BestWeights"}
    assert same(run(5, state), whole) and same(run(2), whole)
    del state["callbacks"]  # of an older gradlab, or of a run without that callback: the best from there on
    assert not same(run(5, state), whole)


def test_a_signal_while_the_validation_is_measured(tmp_path):
    class Validation(list):
        def __iter__(self):
            if armed:
                os.kill(os.getpid(), signal.SIGTERM)
                armed.clear()
            return super().__iter__()

    armed: list = []
    gl.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = gl.optim.SGD(model.parameters(), lr=0.01)

    class Arm(gl.train.Callback):
        def batch_end(self, run):
            armed.extend([1] if run.steps == 6 else [])

    given = {"validation": Validation(BATCHES), "callbacks": [Arm(), Checkpoint(tmp_path)]}
    run = fit(model, BATCHES, nn.functional.mse_loss, optimizer, epochs=3, **given)
    assert (run.epoch, run.batch, run.steps) == (1, 0, 6) and run.stop == f"signal {int(signal.SIGTERM)}"


@pytest.mark.parametrize("amp", [None, gl.float16])
def test_on_a_gpu_it_goes_on_to_the_bit(cuda, tmp_path, amp):
    """Checkpoints are read on the CPU, and the parts put them where they are."""
    whole = trained(epochs=2, device="cuda", amp=amp)
    trained(tmp_path, epochs=2, device="cuda", amp=amp, stop_after=8)
    run = trained(epochs=2, device="cuda", amp=amp, resume=read_checkpoint(tmp_path))
    assert same(run, whole) and next(run.model.parameters()).device.type == "cuda"


def test_weights_go_between_devices(cuda):
    """`copy_` takes what is elsewhere, and so does `load_state_dict`."""
    for source, target in (("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")):
        model, other = (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(device) for device in (source, target))
        other.load_state_dict(model.state_dict())
        assert alike(model, other)
        assert {value.device.type for value in other.state_dict().values()} == {target}
        found = gl.zeros(3, 2, device=target).mT.copy_(gl.arange(6, device=source).reshape(2, 3))
        assert found.tolist() == [[0, 1, 2], [3, 4, 5]] and found.device.type == target


# ---------------------------------------------------------------- damaged


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path):
    whole = trained()
    trained(tmp_path, every=2, stop_after=10)
    assert names(tmp_path) == ["best", "checkpoint-1-0", "checkpoint-1-2", "checkpoint-1-4"]
    damage(tmp_path / "checkpoint-1-4.safetensors")
    with pytest.warns(gl.GradlabWarning, match=r"checkpoint-1-4\S* is damaged: its checksum .*from the one before, checkpoint-1-2"):
        state = read_checkpoint(tmp_path)
    said = []
    assert read_checkpoint(tmp_path, said.append)["counts"] == state["counts"] and "checkpoint-1-4" in said[0]
    assert state["counts"]["batch"] == 2 and same(trained(tmp_path, resume=state, keep=1), whole)
    assert names(tmp_path) == ["best", "checkpoint-3-0"]


@pytest.mark.parametrize("keep", [1, 2])
def test_what_is_after_the_place_that_is_gone_on_from_is_taken_away(tmp_path, keep):
    """Otherwise the damaged one would count among those that are kept, and what is written after it would be deleted at once."""
    trained(tmp_path, every=1, stop_after=10)
    state = gl.load(tmp_path / "checkpoint-1-2.safetensors")["run"]
    damage(tmp_path / "checkpoint-1-4.safetensors")
    trained(tmp_path, every=1, stop_after=9, resume=state, keep=keep)
    assert names(tmp_path) == ["best", *["checkpoint-1-2"] * (keep - 1), "checkpoint-1-3"]
    assert read_checkpoint(tmp_path)["counts"]["batch"] == 3


def as_of_a_gpu(path):
    """The same file as a run on a GPU would have written it."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    outline = re.sub(r'\{"tensor":("[^"]*")', r'{"tensor":\1,"device":"cuda:0"', header["__metadata__"]["gradlab"])
    header["__metadata__"]["gradlab"] = outline
    text = json.dumps(header).encode()
    path.write_bytes(checksum.sealed(len(text).to_bytes(8, "little") + text + content[end:]))


def test_what_was_trained_on_a_gpu_is_gone_on_with_where_there_is_none(tmp_path):
    trained(tmp_path, stop_after=9, every=1)
    for path in tmp_path.iterdir():
        as_of_a_gpu(path)
    if not gl.cuda.is_available():
        with pytest.raises(RuntimeError, match=r"saved from cuda:0.*map_location='cpu'"):
            gl.load(tmp_path / "best.safetensors")
    assert same(trained(tmp_path, resume=read_checkpoint(tmp_path)), trained())


def test_all_are_damaged(tmp_path):
    trained(tmp_path, keep=2)
    for path in tmp_path.glob("checkpoint-*"):
        damage(path)
    with pytest.raises(ValueError, match=r"no checkpoint can be read: .*checkpoint-3-0.* checkpoint-2-0|no checkpoint can be read"):
        read_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="checkpoint-3-0"):
        read_checkpoint(tmp_path / "checkpoint-3-0.safetensors")
    gl.save({"w": gl.ones(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="weights"):
        read_checkpoint(tmp_path / "weights.safetensors")
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "none.safetensors")


def test_best_weights_that_are_lost_are_said_and_replaced(tmp_path):
    first = trained(tmp_path, epochs=2)
    best = (tmp_path / "best.safetensors").read_bytes()
    first.history[-1]["validation_loss"] = 1e3  # not at its best when it goes on
    damage(tmp_path / "best.safetensors")
    with pytest.warns(gl.GradlabWarning, match="the weights of epoch 1, the best so far, cannot be read"):
        trained(tmp_path, epochs=3, resume=first.state_dict())
    assert gl.load(tmp_path / "best.safetensors").keys() == first.model.state_dict().keys()
    assert (tmp_path / "best.safetensors").read_bytes() != best


def test_a_new_run_does_not_mix_with_anothers_checkpoints(tmp_path):
    trained(tmp_path, epochs=2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match=r"holds checkpoints of another run, the newest checkpoint-2-0.*read_checkpoint\(folder\)"):
        trained(tmp_path, epochs=2)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    longer = trained(tmp_path, epochs=3, resume=read_checkpoint(tmp_path))
    assert same(longer, trained(epochs=3))


# ---------------------------------------------------------------- full disks and leftovers

FULL = """
import resource, signal, sys
import gradlab as gl
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_checkpoints import trained
folder = Path(sys.argv[1])
trained(folder, epochs=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
trained(folder, epochs=2, resume=gl.train.read_checkpoint(folder), every=1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a process's files")
def test_a_disk_that_takes_no_more_leaves_what_was_there(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-c", FULL, str(folder), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert names(folder) == ["best", "checkpoint-0-0", "checkpoint-1-0"]
    assert same(trained(folder, epochs=2, resume=read_checkpoint(folder)), trained(epochs=2))


def test_a_full_disk_while_it_trains(tmp_path, monkeypatch):
    class Full(gl.train.Callback):
        def batch_end(self, run):
            def full(*_):
                raise OSError(28, "No space left on device")

            if run.steps == 9:
                monkeypatch.setattr(os, "fsync", full)

    whole = trained()
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = gl.optim.Adam(model.parameters(), lr=0.01)
    callbacks = [Full(), Checkpoint(tmp_path, every=1, keep=2)]
    with pytest.raises(OSError, match="No space left"):
        fit(model, BATCHES, nn.functional.mse_loss, optimizer, epochs=3, validation=BATCHES, callbacks=callbacks)
    monkeypatch.undo()
    assert names(tmp_path) == ["best", "checkpoint-1-1", "checkpoint-1-2"]
    assert same(trained(tmp_path, resume=read_checkpoint(tmp_path)), whole)


@pytest.mark.skipif(os.name != "posix", reason="processes are told apart by their numbers there")
def test_what_killed_processes_left_half_written_is_taken_away(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    path = tmp_path / "model.safetensors"
    dead, ours, alive = (tmp_path / f".{path.name}.{number}-0123abcd.tmp" for number in (process.pid, os.getpid(), os.getppid()))
    others = tmp_path / f".other.safetensors.{process.pid}-0123abcd.tmp"
    for left in (dead, ours, alive, others):
        left.write_bytes(b"half")
    with atomic.replacing(path) as file:
        assert not dead.exists() and not ours.exists() and alive.exists() and others.exists()
        gl.save({"x": 1}, path)  # another of this process's, at the same time, which the first is not taken away by
        file.write(b"whole")
    assert path.read_bytes() == b"whole" and sorted(tmp_path.iterdir()) == sorted([path, alive, others])
