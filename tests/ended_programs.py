"""Programs that a signal ends at moments by chance: `python tests/ended_programs.py SIGKILL|SIGINT STAGE COUNT SEED`.

STAGE is one of "import", "save", "compile", "download", "load" (a loader with workers) and "step" (an eager and a compiled training step).
Each child goes through its stage again and again until the signal comes; then what it leaves is looked at: it ends, of
SIGINT by a KeyboardInterrupt; no process of its own stays; a file that it was writing is whole, the old one or the new; and a process
after it does the same in the same folders with the right result. The children are forked, so that they begin at once, but for "import".
The last line is a JSON object: how many were ended, how many had finished before, and what was wrong.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.utils.data import DataLoader, TensorDataset

CONTENT = bytes(range(256)) * 2000
LIMIT = 60.0  # seconds to end in, on a busy machine
INTERRUPTED = 42  # how a child says that a KeyboardInterrupt came through


class Slowly(BaseHTTPRequestHandler):
    """Serves the content in pieces, so that a download takes a while."""

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        try:
            for at in range(start, len(CONTENT), 32_768):
                self.wfile.write(CONTENT[at : min(at + 32_768, len(CONTENT))])
                time.sleep(0.002)
        except OSError:
            pass  # whom it was for is no more

    def log_message(self, *_: object) -> None:
        pass


class Samples(TensorDataset):
    """What workers of a loader read."""

    def __getitem__(self, index: int) -> object:
        time.sleep(0.001)
        return super().__getitem__(index)


def state(number: int) -> dict[str, gl.Tensor]:
    return {"number": gl.tensor(number), "values": gl.full((20_000,), float(number))}


def save(folder: Path, address: str, number: int) -> None:
    gl.save(state(number), folder / "state.safetensors")


def saved(folder: Path) -> None:
    """Whole, one of those that were written; and nothing beside it but what a killed process left."""
    path = folder / "state.safetensors"
    if path.exists():
        found = gl.load(path)
        assert (found["values"] == float(found["number"])).all(), "a mixture of two files"
    save(folder, "", 7)
    assert [p.name for p in folder.iterdir()] == ["state.safetensors"], f"left: {sorted(folder.iterdir())}"


def compiled(folder: Path, address: str, number: int) -> None:
    """Ever another program, the same ones for all children, so that they meet in the cache."""
    step = gl.compile(lambda x: (x * (number % 5 + 0.5)).tanh().sum())
    x = gl.arange(float(40 + number % 3))
    found = [float(step(x)) for _ in range(3)]
    np.testing.assert_allclose(found, np.tanh(x.numpy() * np.float32(number % 5 + 0.5)).sum(), rtol=1e-5)


def download(folder: Path, address: str, number: int) -> None:
    name = f"x{number % 2}.bin"
    assert gl.data.download(f"{address}/{name}", folder).read_bytes() == CONTENT
    (folder / name).unlink()


def load(folder: Path, address: str, number: int) -> None:
    data = Samples(gl.arange(64.0))
    found = [float(x.sum()) for (x,) in DataLoader(data, 8, num_workers=2)]
    assert sum(found) == 64 * 63 / 2


def step(folder: Path, address: str, number: int) -> None:
    """Interrupted inside a step or between two: the model is as after some whole number of updates of each parameter."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = gl.optim.AdamW(model.parameters(), lr=0.01)
    x, y = gl.ones(16, 4), gl.ones(16, 1)

    def update() -> gl.Tensor:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    both = update, gl.compile(update)
    try:
        for _ in range(40):
            for one in both:
                assert np.isfinite(float(one()))
    except KeyboardInterrupt:
        before = gl.is_grad_enabled(), gl.get_default_dtype()
        for one in both:  # the same objects go on
            assert np.isfinite(float(one()))
        assert before == (True, gl.float32) == (gl.is_grad_enabled(), gl.get_default_dtype()), "modes were left switched"
        raise


STAGES: dict[str, tuple[Callable[[Path, str, int], None], Callable[[Path], None] | None]] = {
    "save": (save, saved), "compile": (compiled, None), "download": (download, None), "load": (load, None), "step": (step, None),
}  # fmt: skip


def forked(stage: str, folder: Path, address: str, pipe: int, first: int) -> int:
    """A child in a session of its own that goes through its stage, and writes a byte once it does."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR1)
        try:
            os.write(pipe, b".")
            for number in range(first, first + 10_000):
                STAGES[stage][0](folder, address, number)
            code = 0
        except KeyboardInterrupt:
            code = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def importing(pipe: int) -> int:
    """A child that imports gradlab and most of its rooms."""
    rooms = "gradlab, gradlab.nn, gradlab.optim, gradlab.utils.data, gradlab.onnx"
    text = f"import os\ntry:\n  os.write({pipe}, b'.'); import {rooms}\nexcept KeyboardInterrupt: os._exit({INTERRUPTED})"
    return subprocess.Popen([sys.executable, "-c", text], start_new_session=True, pass_fds=[pipe]).pid


def left_of(session: int) -> bool:
    """Whether a process of a session still runs, some seconds later."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.02)
    return True


def main(number: signal.Signals, stage: str, count: int, seed: int) -> dict[str, object]:
    choose, wrong, ended, finished = random.Random(seed), [], 0, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slowly)
    server.daemon_threads = True
    address = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as place:
        os.environ["GRADLAB_CACHE"] = str(Path(place) / "cache")
        folder = Path(place) / "files"
        folder.mkdir()
        if stage == "download":  # in a process of its own: a fork of a process with threads may hang
            serving = os.fork()
            if not serving:
                server.serve_forever()
        for i in range(count):
            reading, writing = os.pipe()
            process = importing(writing) if stage == "import" else forked(stage, folder, address, writing, 10 * i)
            os.read(reading, 1)
            os.close(reading), os.close(writing)
            time.sleep(choose.uniform(0, 1.5 if stage == "import" else 0.4))
            os.kill(process, number)
            begun = time.monotonic()
            code: int | None = None
            while time.monotonic() - begun < LIMIT:
                done, status = os.waitpid(process, os.WNOHANG)
                if done:
                    code = os.waitstatus_to_exitcode(status)
                    break
                time.sleep(0.005)
            if code is None:
                wrong.append(f"{i}: still runs after {LIMIT} s")
                os.kill(process, signal.SIGUSR1)  # it says where
                time.sleep(1)
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
            ended += code in (-number, INTERRUPTED)
            finished += code == 0
            if code not in (0, -number, INTERRUPTED, None):
                wrong.append(f"{i}: ended with {code}")
            if left_of(process):
                wrong.append(f"{i}: a process stays")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)
            if stage != "import":
                try:
                    if (look := STAGES[stage][1]) is not None:
                        look(folder)
                    elif i % 5 == 4 or i == count - 1:  # forked, so that this process stays as it is
                        process = os.fork()
                        if not process:
                            code = 1
                            try:
                                STAGES[stage][0](folder, address, 10 * i)
                                code = 0
                            finally:
                                os._exit(code)
                        assert os.waitpid(process, 0)[1] == 0, "what comes after it fails"
                except Exception as error:
                    wrong.append(f"{i}: afterwards {type(error).__name__}: {error}")
        if stage == "download":
            os.kill(serving, signal.SIGKILL)
            os.waitpid(serving, 0)
    return {"signal": number.name, "stage": stage, "ended": ended, "finished": finished, "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(main(signal.Signals[sys.argv[1]], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
