"""What an eager operation on a GPU costs the host, in µs, beside PyTorch in the same run where it is installed.

    python bench/launch_cost.py [--smoke] [--stub]

--stub measures gradlab's Python alone, on a device that does nothing (`host_stub.py`): it needs no GPU.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import gradlab as gl

SIZE, CALLS = 1024, 200


def operations(m: Any) -> dict[str, Callable[[], Any]]:
    """The same small operations for gradlab and for PyTorch."""
    f = m.nn.functional
    x, y = m.ones(SIZE, device="cuda"), m.ones(SIZE, device="cuda")
    a, b, bias, scale = (m.ones(*s, device="cuda") for s in ((32, 32), (32, 32), (32,), (32,)))
    w = m.ones(SIZE, device="cuda", requires_grad=True)
    target = m.zeros(32, dtype=m.int64, device="cuda")
    image = m.ones(8, 16, 8, 8, device="cuda")
    return {
        "add": lambda: x + y,
        "mul by a number": lambda: x * 0.5,
        "tanh": lambda: x.tanh(),
        "sum": lambda: x.sum(),
        "matmul": lambda: a @ b,
        "linear": lambda: f.linear(a, b, bias),
        "softmax": lambda: f.softmax(a, -1),
        "layer norm": lambda: f.layer_norm(a, (32,), scale, bias),
        "cross entropy": lambda: f.cross_entropy(a, target),
        "batch norm": lambda: f.batch_norm(image, None, None, training=True),
        "argmax": lambda: a.argmax(-1),
        "rand": lambda: m.rand(SIZE, device="cuda"),
        "dropout": lambda: f.dropout(x, 0.5),
        "mul, recorded": lambda: x * w,
        "mul, recorded, and backward": lambda: (x * w).backward(y),
    }


def cost(run: Callable[[], Any], synchronize: Callable[[], None], repeats: int) -> float:
    """Median host time of one call in µs; the device is idle at the start of each batch."""
    run()
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
        synchronize()
    return statistics.median(times)


def deeper(levels: int, run: Callable[[], float]) -> float:
    """`run()` with so many calls around it: Python 3.11 keeps frames in pieces of memory, and a loop that crosses from one to the next in
    each round pays for getting and giving back a piece, which says nothing about what it calls."""
    return deeper(levels - 1, run) if levels else run()


def main() -> int:
    """Prints a line for each operation."""
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
    engines: list[tuple[str, Any]] = [("gradlab", gl)]
    if not options.stub and importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            engines.append(("torch", torch))
    runs = {name: operations(m) for name, m in engines}
    for operation in runs["gradlab"]:
        found = {}
        for name, m in engines:
            measure = functools.partial(cost, runs[name][operation], m.cuda.synchronize, repeats)
            found[name] = min(deeper(levels, measure) for levels in (0, 40, 80))
        ratio = f"  {found['gradlab'] / found['torch']:.2f}×" if "torch" in found else ""
        print(f"{operation:30s} " + "  ".join(f"{name} {value:7.2f} µs" for name, value in found.items()) + ratio, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
