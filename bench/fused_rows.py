"""Norms of a sum and embeddings with positions, in one operation and apart: time on the CPU, passes over memory and launches on a GPU.

    python bench/fused_rows.py [--smoke]

Times are minima of many alternating runs, in µs. Passes are what a GPU's kernels read and write at least, in sizes of the array. Launches
are counted on the emulated GPU (GRADLAB_CUDA=emulated); elsewhere they are left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import gradlab as gl
from gradlab import nn, ops
from gradlab.autograd.record import bind
from gradlab.backends.cuda.gemm import library
from gradlab.backends.cuda.loading import load
from gradlab.models.gpt import GPT, Block, GPTConfig
from gradlab.nn.functional import residual

F = nn.functional
SIZES = ((32, 64), (1024, 128), (2048, 512))  # rows and their length
Run = Callable[[], Any]
_layer, _rms, _embedding = map(bind, (ops.residual.layer_norm_residual, ops.residual.rms_norm_residual, ops.fused.embedding_add))


def least(runs: list[Run], seconds: float) -> list[float]:
    """The shortest time of each, in µs, taken in turns."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return [b * 1e6 for b in best]


def pairs(rows: int, n: int) -> dict[str, tuple[Run, Run, int, int]]:
    """By name: apart and in one on the CPU; passes over the array of both on a GPU, forward and backward together."""
    x, r, g, g2 = (gl.randn(rows, n) for _ in range(4))
    w, b = gl.ones(n), gl.zeros(n)
    table, positions, at = gl.randn(256, n), gl.randn(rows, n), gl.randint(0, 256, (4, rows))
    for t in (x, r, w, b, table, positions):
        t.requires_grad_()

    def apart(norm: Any, *given: Any) -> tuple[Any, Any]:
        s = x + r
        return norm(s, (n,), *given), s

    def layer() -> tuple[Any, Any]:
        return _layer(x, r, w, b, k=1, eps=1e-5)[:2]

    def rms() -> tuple[Any, Any]:
        return _rms(x, r, w, k=1, eps=1e-5)[:2]

    def back(run: Callable[[], Any], inputs: tuple[Any, ...]) -> Run:
        def both() -> None:
            gl.autograd.grad(run(), inputs, (g, g2))

        return both

    looked = [lambda: F.embedding(at, table) + positions, lambda: _embedding(table, positions, at, padding_idx=None)]
    layer_apart, rms_apart = lambda: apart(F.layer_norm, w, b), lambda: apart(F.rms_norm, w)
    return {
        "layer norm": (layer_apart, layer, 5, 4),  # read x, r, write s; read s, write y
        "layer norm and back": (back(layer_apart, (x, r, w, b)), back(layer, (x, r, w, b)), 11, 8),  # dy, s, dx; dx, ds, sum
        "rms norm": (rms_apart, rms, 5, 4),
        "rms norm and back": (back(rms_apart, (x, r, w)), back(rms, (x, r, w)), 11, 8),
        "embedding": (looked[0], looked[1], 5, 3),
    }


def launches(run: Run) -> int:
    """Kernels and products of the second call on the emulated GPU."""
    backend: Any = load()
    blas = library.blas_of(backend.driver).library
    run()
    before = backend.driver.launches + blas.launches
    run()
    found: int = backend.driver.launches + blas.launches - before
    return found


def steps() -> dict[str, Run]:
    """Forward and backward of layers on the GPU."""
    x, g = gl.randn(4, 16, 16, device="cuda").requires_grad_(), gl.randn(4, 16, 16, device="cuda")

    def step(layer: Any, *more: Any) -> Run:
        parameters = list(layer.cuda().parameters())

        def run() -> None:
            x.grad = None
            for p in parameters:
                p.grad = None
            layer(x, *more).backward(g)

        return run

    return {
        "GPT block": step(Block(GPTConfig(n_embd=16, n_head=2))),
        "encoder layer": step(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)),
        "encoder layer, norm first": step(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, norm_first=True)),
        "decoder layer": step(nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0), g),
    }


def compiled_launches(on: bool) -> int:
    """Of a compiled training step of a GPT with two blocks, with and without the pass."""
    model = GPT(GPTConfig(vocab_size=17, block_size=16, n_layer=2, n_head=2, n_embd=16)).cuda()
    tokens, targets = (gl.randint(0, 17, (4, 16), device="cuda") for _ in range(2))
    optimizer = gl.optim.AdamW(model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    run = gl.compile(step, passes={"fuse_residual_norm": on})
    for _ in range(3):
        run(tokens, targets)
    found: int = run.programs[0].runner.executable.launches
    return found


def main() -> int:
    """Prints a line for each operation and size, and one for each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    for rows, n in SIZES[:1] if options.smoke else SIZES:
        for name, (apart, one, before, after) in pairs(rows, n).items():
            times = least([apart, one], 0.01 if options.smoke else 0.5)
            print(
                f"{name:22s} {rows:5d} x {n:3d}  CPU: apart {times[0]:8.1f} µs, in one {times[1]:8.1f} µs, {times[1] / times[0]:.2f}×;  "
                f"GPU: {before} → {after} passes",
                flush=True,
            )
    if gl.cuda.is_available() and load().driver.name == "emulated":
        chosen = residual.at_hand
        for name, run in steps().items():
            now = launches(run)
            residual.at_hand = lambda kind: False  # type: ignore[assignment]
            print(f"{name:26s} {launches(run)} → {now} launches", flush=True)
            residual.at_hand = chosen
        print(f"{'GPT, two blocks, compiled':26s} {compiled_launches(False)} → {compiled_launches(True)} launches", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
