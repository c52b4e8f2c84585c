"""What eager operations and whole training steps on a GPU cost the host, in µs, beside PyTorch in the same run where it is installed.

    python bench/launch_cost.py [--smoke] [--stub]

An operation's time is that until the call returns, of 200 calls behind one another; a step's is that of a whole step, of 20. What the GPU
itself takes for the larger operations of a step is not in it as long as the GPU keeps up.

--stub measures gradlab's Python alone, on a device that does nothing (`host_stub.py`): it needs no GPU. Beside it stand two columns of
PyTorch, where that is installed:

    torch cpu   the same calls on the CPU, with tensors so small that their arithmetic takes next to no time: dispatch, allocation, autograd
                and a trivial kernel. Near to what PyTorch's host does for a GPU; there a launch comes in place of the kernel.
    torch meta  the same calls on PyTorch's own device without data. A real counterpart of the stub only for operations whose shapes are
                worked out in C++ (sum, matmul, softmax, argmax, rand); for the others they are worked out in Python, which on a GPU is not
                what happens: those numbers say nothing about one.

A launch on a real GPU costs about 2 µs more in cuLaunchKernel and an allocation about 1 µs more than the stub's, for gradlab; nothing here
stands for that. So the stub's column shows where Python's time goes and how it changes, and not what a GPU machine would show.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gradlab as gl

SIZE, CALLS, STEPS = 1024, 200, 20
Run = Callable[[], Any]


class Engine(NamedTuple):
    """Whose operations are measured: its module, the device's name, whether tensors are to be small, and what waits for the device."""

    name: str
    module: Any
    device: str
    small: bool
    synchronize: Callable[[], None]


def operations(m: Any, device: str = "cuda", small: bool = False) -> dict[str, Run]:
    """The same small operations for gradlab and for PyTorch."""
    f = m.nn.functional
    size, width, channels = (8, 4, 2) if small else (SIZE, 32, 16)
    x, y = m.ones(size, device=device), m.ones(size, device=device)
    a, b, bias, scale = (m.ones(*s, device=device) for s in ((width, width), (width, width), (width,), (width,)))
    w = m.ones(size, device=device, requires_grad=True)
    target = m.zeros(width, dtype=m.int64, device=device)
    image = m.ones(2 if small else 8, channels, 2 if small else 8, 8, device=device)
    return {
        "add": lambda: x + y,
        "mul by a number": lambda: x * 0.5,
        "tanh": lambda: x.tanh(),
        "sum": lambda: x.sum(),
        "matmul": lambda: a @ b,
        "linear": lambda: f.linear(a, b, bias),
        "softmax": lambda: f.softmax(a, -1),
        "layer norm": lambda: f.layer_norm(a, (width,), scale, bias),
        "cross entropy": lambda: f.cross_entropy(a, target),
        "batch norm": lambda: f.batch_norm(image, None, None, training=True),
        "argmax": lambda: a.argmax(-1),
        "rand": lambda: m.rand(size, device=device),
        "dropout": lambda: f.dropout(x, 0.5),
        "mul, recorded": lambda: x * w,
        "mul, recorded, and backward": lambda: (x * w).backward(y),
        "dropout, recorded, and backward": lambda: f.dropout(w, 0.5).backward(y),
    }


def steps(m: Any, device: str = "cuda", small: bool = False) -> dict[str, Run]:
    """Whole training steps: 784-256-256-10 with batches of 128 (`small`: 8-8-8-10, batches of 2), a convolutional network with batch norm
    and dropout on 32 images, a block of a GPT. Small or not, the same operations."""
    nn, f = m.nn, m.nn.functional
    batch, features, hidden = (2, 8, 8) if small else (128, 784, 256)
    images, side, maps = (2, 8, 2) if small else (32, 28, 16)
    sentences, words, width, heads = (2, 4, 8, 2) if small else (8, 64, 128, 4)

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        """Attention and a layer with GELU, each behind a layer norm, beside a residual; the embedding before and the head behind."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm, self.mixed, self.out = (
                nn.Embedding(65, width), nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
            )  # fmt: skip
            self.second, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.last, self.head, self.dropout = nn.LayerNorm(width), nn.Linear(width, 65), nn.Dropout(0.1)

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            parts = self.mixed(self.norm(x)).split(width, -1)
            q, k, v = (part.view(sentences, words, heads, width // heads).transpose(1, 2) for part in parts)
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(sentences, words, width)
            x = x + self.dropout(self.out(y))
            x = x + self.dropout(self.down(f.gelu(self.up(self.second(x)))))
            return self.head(self.last(x)).view(sentences * words, 65)

    def mlp() -> Any:
        return nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )  # fmt: skip

    def convolutional() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, maps, 3, padding=1), nn.BatchNorm2d(maps), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(maps, maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1),
            nn.Linear(maps * (side // 4) ** 2, 10),
        )  # fmt: skip

    def step(model: Any, optimizer: Any, x: Any, classes: int) -> Run:
        model, target = model.to(device), m.zeros(classes, dtype=m.int64, device=device)
        update = optimizer(model.parameters())

        def run() -> None:
            loss = f.cross_entropy(model(x), target)
            update.zero_grad()
            loss.backward()
            update.step()

        return run

    sgd = functools.partial(m.optim.SGD, lr=0.1)
    vectors, pictures = m.ones(batch, features, device=device), m.ones(images, 1, side, side, device=device)
    tokens = m.zeros(sentences, words, dtype=m.int64, device=device)
    return {
        "step: mlp": step(mlp(), sgd, vectors, batch),
        "step: mlp-adam": step(mlp(), m.optim.Adam, vectors, batch),
        "step: conv net": step(convolutional(), sgd, pictures, images),
        "step: gpt block, adamw": step(Block(), m.optim.AdamW, tokens, sentences * words),
    }


def cost(run: Run, synchronize: Callable[[], None], repeats: int, calls: int) -> float:
    """Median host time of one call in µs; the device is idle at the start of each batch."""
    run()
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        times.append((time.perf_counter() - start) / calls * 1e6)
        synchronize()
    return statistics.median(times)


def deeper(levels: int, run: Callable[[], float]) -> float:
    """`run()` with so many calls around it: Python 3.11 keeps frames in pieces of memory, and a loop that crosses from one to the next in
    each round pays for getting and giving back a piece, which says nothing about what it calls."""
    return deeper(levels - 1, run) if levels else run()


def engines(stub: bool) -> list[Engine]:
    """gradlab, and PyTorch where it is installed."""
    found = [Engine("gradlab", gl, "cuda", False, gl.cuda.synchronize)]
    if importlib.util.find_spec("torch") is None:
        return found
    torch = importlib.import_module("torch")
    if stub:
        torch.set_num_threads(1)
        return [*found, *(Engine(f"torch {device}", torch, device, True, lambda: None) for device in ("cpu", "meta"))]
    return [*found, Engine("torch", torch, "cuda", False, torch.cuda.synchronize)] if torch.cuda.is_available() else found


def main() -> int:
    """Prints a line for each operation and each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--stub", action="store_true", help="a device that does nothing, for the cost of our Python alone")
    options = parser.parse_args()
    repeats = 1 if options.smoke else 15
    if options.stub:
        importlib.import_module("host_stub").install()
    if not gl.cuda.is_available():
        print("no GPU: nothing measured (GRADLAB_CUDA=emulated with --smoke shows that it runs)")
        return 0
    measured = engines(options.stub)
    for kinds, calls in ((operations, CALLS), (steps, STEPS)):
        calls = 1 if options.smoke and calls == STEPS else calls
        runs = {e.name: kinds(e.module, e.device, e.small) for e in measured}
        for what in runs["gradlab"]:
            found = {}
            for e in measured:
                few = calls if e.device != "meta" else -(-calls // 20)  # Python's own shapes take milliseconds
                measure = functools.partial(cost, runs[e.name][what], e.synchronize, repeats, few)
                found[e.name] = min(deeper(levels, measure) for levels in ((0,) if e.device == "meta" or options.smoke else (0, 40, 80)))
            ratio = f"  {found['gradlab'] / found['torch']:.2f}×" if "torch" in found else ""
            print(f"{what:32s} " + "  ".join(f"{name} {value:8.2f} µs" for name, value in found.items()) + ratio, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
