"""Worker processes: order, errors, random streams, shared memory, and that none of them survives."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from repository import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the tests look at processes as POSIX has them")


class Squares(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return i * i


class Uneven(Squares):
    """Early samples take longest."""

    def __getitem__(self, i):
        time.sleep(0.02 if i < 4 else 0)
        return i * i


class Big(Squares):
    def __getitem__(self, i):
        return {
            "image": gl.full((100, 200), float(i)),
            "half": gl.full((64, 64), i, dtype=gl.bfloat16),
            "raw": np.full(20_000, i),
            "name": f"n{i}",
        }


class Broken(Squares):
    def __getitem__(self, i):
        if i == 7:
            raise KeyError("no such file")
        return i


class Touching(Squares):
    """Whose samples touch a GPU, each by another way."""

    ways = (
        lambda x: x[0], lambda x: x + 1, lambda x: x.cpu(), lambda x: x.sum().item(), lambda x: x.clone(), lambda x: gl.ones(2).cuda(),
        lambda x: gl.zeros(2, device="cuda"), lambda x: gl.rand(2, device="cuda"), lambda x: gl.cuda.synchronize(), lambda x: repr(x),
        lambda x: gl.cuda.Stream(), lambda x: x.add_(1), lambda x: gl.cuda.memory_allocated(),
    )  # fmt: skip

    def __init__(self):
        self.x = gl.ones(3, device="cuda")

    def __getitem__(self, i):
        try:
            found = self.ways[i](self.x)
        except RuntimeError as error:
            return str(error)
        return f"way {i} gave {type(found).__name__}"


class Noise(Squares):
    def __getitem__(self, i):
        return np.array([gl.rand(1).item(), np.random.rand(), random.random()])  # noqa: NPY002


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 10, info.num_workers) if info else range(10))


class Who(Squares):
    def __getitem__(self, i):
        info = get_worker_info()
        return np.array([info.id, info.num_workers, os.getpid()])


class Dies(Squares):
    def __getitem__(self, i):
        if i == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


class Hangs(Squares):
    def __getitem__(self, i):
        time.sleep(60 if i == 6 else 0)
        return i


class Odd(Squares):
    def __getitem__(self, i):
        return (lambda: i) if i == 2 else i


def test_workers_that_touch_a_gpu(cuda):
    """A forked process has lost the GPU: whatever it does, it is told so, and what to do; the parent goes on."""
    data = Touching()
    view, *others = DataLoader(data, sampler=range(len(Touching.ways)), batch_size=None, num_workers=1)
    assert "forked" in view or view == "way 0 gave Tensor"  # nothing is computed
    assert all("CUDA cannot be used in a process that was forked" in s and 'multiprocessing_context="spawn"' in s for s in others), others
    assert data[1] == "way 1 gave Tensor" and (data.x + 1).tolist() == [2.0, 2.0, 2.0]


def first(batch):
    return batch[0]


def fails(number):
    raise RuntimeError("no licence")


def pids(loader):
    return [w.process.pid for w in loader._pool.workers]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def gone(numbers, seconds=30):
    end = time.monotonic() + seconds
    while any(map(alive, numbers)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, numbers))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_order(workers, prefetch):
    batches = [b.tolist() for b in DataLoader(Uneven(), 3, num_workers=workers, prefetch_factor=prefetch)]
    assert [v for b in batches for v in b] == [i * i for i in range(20)] and [len(b) for b in batches] == [3] * 6 + [2]


def test_shuffled_order_does_not_depend_on_the_number_of_workers():
    seen = []
    for workers in (0, 1, 2):
        gl.manual_seed(3)
        loader = DataLoader(Squares(), 3, shuffle=True, num_workers=workers)
        seen.append([[b.tolist() for b in loader] for _ in range(2)])
    assert seen[0] == seen[1] == seen[2]


def test_spawned_workers():
    loader = DataLoader(Squares(), 8, num_workers=1, multiprocessing_context="spawn")
    assert [b.tolist() for b in loader] == [[i * i for i in range(s, min(s + 8, 20))] for s in (0, 8, 16)]


def test_more_workers_than_batches_and_an_empty_dataset():
    assert len(list(DataLoader(Squares(), 20, num_workers=3))) == 1
    assert list(DataLoader(TensorDataset(gl.zeros(0, 2)), 2, num_workers=2)) == []


def test_large_arrays_come_whole_and_can_be_written():
    for i, batch in enumerate(DataLoader(Big(), 2, num_workers=2)):
        assert batch["image"].shape == (2, 100, 200) and batch["image"].numpy()[:, 50, 50].tolist() == [2 * i, 2 * i + 1]
        assert batch["half"].dtype == gl.bfloat16 and batch["half"][1, 3, 3].item() == 2 * i + 1
        assert batch["raw"].dtype == gl.int64 and batch["name"] == [f"n{2 * i}", f"n{2 * i + 1}"]
        batch["image"].fill_(0.0)
        batch["image"].add_(1.0)


def test_large_batches_outlive_the_loader():
    kept = list(DataLoader(Big(), 2, num_workers=2))
    gc.collect()
    assert [b["image"][0, 0, 0].item() for b in kept] == [float(i) for i in range(0, 20, 2)]


@pytest.mark.alone
def test_no_descriptor_stays_open():
    before = len(os.listdir("/proc/self/fd"))
    for batch in DataLoader(Big(), 2, num_workers=2):
        del batch
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_an_error_names_sample_and_line():
    batches = iter(DataLoader(Broken(), 2, num_workers=2))
    for _ in range(3):
        next(batches)
    with pytest.raises(KeyError) as caught:
        next(batches)
    text = str(caught.value)
    assert "worker 1" in text and "sample 7" in text and "no such file" in text
    assert "Traceback" in text and "in __getitem__" in text and "\n" in text
    assert next(batches).tolist() == [8, 9]  # the loader goes on


def test_what_cannot_be_sent_is_an_error():
    batches = iter(DataLoader(Odd(), 1, num_workers=1, collate_fn=first))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(Exception, match="worker 0"):
        next(batches)


def test_an_error_while_a_worker_starts():
    with pytest.raises(RuntimeError, match="no licence"):
        list(DataLoader(Squares(), 2, num_workers=1, worker_init_fn=fails))


def test_a_killed_worker():
    with pytest.raises(RuntimeError, match=r"worker 1 \(pid \d+\) was killed by signal SIGKILL.*\[6, 7\]"):
        list(DataLoader(Dies(), 2, num_workers=2))


def test_timeout():
    with pytest.raises(RuntimeError, match=r"timed out after 0.5 seconds.*\[6, 7\]"):
        list(DataLoader(Hangs(), 2, num_workers=2, timeout=0.5))


def test_worker_info():
    assert get_worker_info() is None
    seen = np.concatenate([b.numpy() for b in DataLoader(Who(), 5, num_workers=2)])
    assert seen[:, 0].tolist() == [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5 and set(seen[:, 1]) == {2}
    assert len(set(seen[:, 2])) == 2 and os.getpid() not in seen[:, 2]


def noise(workers, epochs=1, **options):
    gl.manual_seed(5)
    loader = DataLoader(Noise(), 2, num_workers=workers, **options)
    return [np.concatenate([b.numpy() for b in loader]) for _ in range(epochs)]


def test_random_streams():
    (one,), (two,) = noise(2), noise(2)
    np.testing.assert_array_equal(one, two)
    for column in one.T:
        assert len(set(column)) == 20  # no two samples share a number, in one worker or in two
    first_epoch, second_epoch = noise(2, epochs=2)
    assert not np.intersect1d(first_epoch, second_epoch).size
    for kept, new in zip(noise(2, epochs=2, persistent_workers=True), noise(2, epochs=2), strict=True):
        np.testing.assert_array_equal(kept, new)
    here = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    noise(1)
    assert (np.random.get_state()[1] == here[0]).all() and random.getstate() == here[1]  # noqa: NPY002


def test_resume_with_random_transforms():
    gl.manual_seed(5)
    loader = DataLoader(Noise(), 2, shuffle=True, num_workers=2)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    saved = loader.state_dict()
    wanted = [b.numpy() for b in batches]
    twin = DataLoader(Noise(), 2, shuffle=True, num_workers=2)
    twin.load_state_dict(saved)
    np.testing.assert_array_equal(np.stack([b.numpy() for b in twin]), np.stack(wanted))


def test_streams():
    def seen(loader):
        return sorted(v for b in loader for v in b.tolist())

    for workers in (1, 2, 3):
        loader = DataLoader(Stream(), 2, num_workers=workers, persistent_workers=True)
        assert seen(loader) == seen(loader) == list(range(10))
    loader = DataLoader(Stream(), 2, num_workers=2)
    batches = iter(loader)
    next(batches)
    twin = DataLoader(Stream(), 2, num_workers=2)
    twin.load_state_dict(loader.state_dict())
    assert [b.tolist() for b in twin] == [b.tolist() for b in batches]


def test_persistent_workers_are_the_same_processes():
    loader = DataLoader(Who(), 5, num_workers=2, persistent_workers=True)
    one = {b.numpy()[0, 2] for b in loader}
    for _ in loader:  # broken off: what was under way does not reach the next epoch
        break
    assert {b.numpy()[0, 2] for b in loader} == one
    numbers = pids(loader)
    del loader
    gc.collect()
    assert gone(numbers)


def running():
    """The processes that this one has started and that still run."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as file:
        return {int(n) for n in file.read().split() if alive(int(n))}


@pytest.mark.alone
def test_none_survives_the_end_a_break_an_error_or_the_collector():
    before = running()
    list(DataLoader(Squares(), 2, num_workers=2))
    assert gone(running() - before)
    for _ in DataLoader(Squares(), 2, num_workers=2):
        break
    assert gone(running() - before)
    batches = iter(DataLoader(Hangs(), 2, num_workers=2))
    next(batches)
    assert len(running() - before) == 2
    start = time.monotonic()
    del batches
    gc.collect()
    assert gone(running() - before) and time.monotonic() - start < 40  # one of them was asleep for a minute
    with pytest.raises(ZeroDivisionError):
        for _ in DataLoader(Squares(), 2, num_workers=2):
            raise ZeroDivisionError
    gc.collect()
    assert gone(running() - before)


PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests were started in the background
from gradlab.utils.data import DataLoader
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep({pause})
        return i
if __name__ == "__main__":
    loader = DataLoader(Slow(), 2, num_workers=2)
    batches = iter(loader)
    print(*[w.process.pid for w in batches.pool.workers], flush=True)
    for batch in batches:
        {body}
"""


def started(body="pass", pause=0.01):
    program = PROGRAM.format(body=body, pause=pause)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    assert process.stdout is not None
    return process, [int(n) for n in process.stdout.readline().split()]


@pytest.mark.parametrize("pause", [0.01, 30])
def test_none_survives_ctrl_c(pause):
    process, workers = started(pause=pause)
    assert len(workers) == 2
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to all of them
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT or process.returncode == 130
    assert errors.count("KeyboardInterrupt") == 1 and "Process " not in errors  # the workers are silent
    assert gone(workers)


@pytest.mark.parametrize("pause", [0.01, 30])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_none_survives_the_death_of_the_parent(end, pause):
    process, workers = started(pause=pause)
    time.sleep(0.3)
    process.send_signal(end)
    process.communicate(timeout=20)
    assert gone(workers)


@pytest.mark.parametrize("body", ["sys.exit(3)", "os._exit(3)", "raise SystemExit(3)"])
def test_none_survives_an_exit(body):
    process, workers = started(body)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 3 and not errors and gone(workers)
