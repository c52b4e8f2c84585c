"""Fourier transforms and products of complex numbers on the CPU, beside PyTorch and NumPy.

    python bench/fft.py [--rounds 25] [--threads 1]

float32 and complex64. The libraries take turns; medians in µs, and gradlab's over PyTorch's.
"""

from __future__ import annotations

import argparse
import functools
import operator
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import gradlab as gl

TRANSFORMS = [
    ("fft", (8, 128), True), ("fft", (64, 1024), True), ("fft", (8, 16384), True), ("fft", (64, 1024), False), ("rfft", (64, 1024), False),
    ("irfft", (64, 513), True), ("fft2", (64, 1024), True), ("fft2", (256, 256), True), ("rfft2", (16, 64, 64), False),
    ("irfft2", (16, 64, 33), True), ("fftn", (32, 32, 32), True),
]  # fmt: skip
PRODUCTS = [("*", (1024,), (1024,)), ("*", (256, 1024), (256, 1024)), ("@", (64, 64), (64, 64)), ("@", (256, 256), (256, 256)),
            ("@", (16, 64, 64), (16, 64, 64))]  # fmt: skip


def medians(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Of each in µs, one after the other in every round."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs * 3:
        run()
    for _ in range(rounds):
        for run, found in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) * 1e6 for found in times]


def numbers(shape: tuple[int, ...], imaginary: bool) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape)).astype(np.complex64) if imaginary else x.astype(np.float32)


def row(label: str, runs: list[Callable[[], Any]], rounds: int) -> None:
    """One line of the table."""
    ours, theirs, plain = medians(runs, rounds)
    print(f"| {label} | {ours:.0f} | {theirs:.0f} | {plain:.0f} | {ours / theirs:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch's")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| | gradlab | PyTorch | NumPy | gradlab / PyTorch |\n|---|---|---|---|---|")
    for name, shape, imaginary in TRANSFORMS:
        x = numbers(shape, imaginary)
        given = zip((gl, torch, np), (gl.tensor(x), torch.tensor(x), x), strict=True)
        runs = [functools.partial(getattr(library.fft, name), t) for library, t in given]
        row(f"{name} {shape} {'complex' if imaginary else 'real'}", runs, options.rounds)
    for sign, left, right in PRODUCTS:
        a, b = numbers(left, True), numbers(right, True)
        pairs = [(make(a), make(b)) for make in (gl.tensor, torch.tensor, np.asarray)]
        runs = [functools.partial(operator.mul if sign == "*" else operator.matmul, p, q) for p, q in pairs]
        row(f"{left} {sign} {right}", runs, options.rounds)


if __name__ == "__main__":
    main()
