"""Bandwidth of kernels on a GPU, each as a fraction of a copy of the same size measured in the same run.

    python bench/bandwidth.py           # about half a minute
    python bench/bandwidth.py --smoke   # tiny sizes: does it run? (also on the emulated GPU)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import gradlab as gl

Case = tuple[str, Callable[[], Any], int]  # name, what to run, bytes that it has to move


def cases(rows: int, columns: int) -> list[Case]:
    """The kernels of a training step, on a (rows, columns) float32 matrix."""
    f = gl.nn.functional
    x, y = gl.randn(rows, columns, device="cuda"), gl.randn(rows, columns, device="cuda")
    bias, labels = gl.randn(columns, device="cuda"), gl.zeros(rows, dtype=gl.int64, device="cuda")
    half = x.to(gl.bfloat16)
    size = x.nbytes
    return [
        ("copy", lambda: x.clone(), 2 * size),
        ("add", lambda: x + y, 3 * size),
        ("add bias (broadcast)", lambda: x + bias, 2 * size),
        ("gelu bfloat16", lambda: f.gelu(half), size),
        ("transpose copy", lambda: x.t().contiguous(), 2 * size),
        ("sum of all", lambda: x.sum(), size),
        ("sum over the last dimension", lambda: x.sum(1), size),
        ("sum over the first dimension", lambda: x.sum(0), size),
        ("softmax", lambda: f.softmax(x, -1), 2 * size),
        ("layer norm", lambda: f.layer_norm(x, (columns,)), 2 * size),
        ("cross entropy", lambda: f.cross_entropy(x, labels), size),
        ("dropout", lambda: f.dropout(x, 0.1), 2 * size),
        ("cumulative sum", lambda: x.cumsum(1), 2 * size),
    ]


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """Median device time of one call, by events around batches of calls."""
    run()
    gl.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = gl.cuda.Event(enable_timing=True), gl.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            run()
        end.record()
        gl.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e4)
    return statistics.median(times)


def main() -> int:
    """Prints one line for each kernel as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    smoke = parser.parse_args().smoke
    if not gl.cuda.is_available():
        print("no GPU: nothing measured (GRADLAB_CUDA=emulated with --smoke shows that it runs)")
        return 0
    rows, columns, repeats = (8, 32, 1) if smoke else (65536, 1024, 7)
    print(f"{gl.cuda.get_device_name()}, {time.strftime('%Y-%m-%d')}, float32 {rows}×{columns}")
    copy = 0.0
    for name, run, moved in cases(rows, columns):
        rate = moved / max(seconds(run, repeats), 1e-9) / 1e9
        copy = copy or rate
        print(f"{name:32s} {rate:8.0f} GB/s  {rate / copy:5.2f} of copy", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
