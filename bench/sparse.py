"""Products of a sparse matrix with a dense one on the CPU, in milliseconds, beside SciPy and PyTorch where they are installed, in one run.

    python bench/sparse.py [--smoke] [--without-compiler]

A random graph of n nodes with `degree` edges each; features of k columns. Forward is the product; both is with the gradients of the dense
side and of the entries' values. Times are minima of runs in turns. PyTorch's gradient of a sparse matrix goes through a dense one of n x n,
so it is left out where that has more than 10^8 elements. --without-compiler: NumPy in place of gradlab's own kernel (and of SciPy).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CASES = ((2708, 4, 16), (20_000, 10, 16), (20_000, 10, 64), (20_000, 10, 1))  # the first is as large as Cora
Run = Callable[[], Any]


def least(runs: list[Run | None], seconds: float) -> list[float | None]:
    """The shortest time of each, in ms, taken in turns."""
    best = [float("inf")] * len(runs)
    for run in runs:
        if run is not None:
            run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate(runs):
            if run is not None:
                start = time.perf_counter()
                run()
                best[i] = min(best[i], time.perf_counter() - start)
    return [None if run is None else b * 1e3 for run, b in zip(runs, best, strict=True)]


def both(engine: Any, matrix: Any, dense: Any) -> Run:
    """The product with its gradients."""
    matrix, dense = matrix.detach().requires_grad_(), dense.detach().requires_grad_()

    def run() -> None:
        matrix.grad = dense.grad = None
        engine.sparse.mm(matrix, dense).sum().backward()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--without-compiler", action="store_true")
    args = parser.parse_args()
    if args.without_compiler:
        os.environ["GRADLAB_COMPILER"] = "none"

    import gradlab as gl  # after the compiler was switched off, if it was
    from gradlab import ops
    from gradlab.backends.native import compiler

    try:
        import scipy.sparse as scipy
    except ImportError:
        scipy = None
    try:
        import torch
    except ImportError:
        torch = None
    if args.without_compiler:
        import gradlab.sparse

        ops.sparse.compiled = None
    elif compiler.available():
        compiler.libraries(["gradlab_spmm_float"])
    print("|      n | degree |  k | gradlab | SciPy | PyTorch | both: gradlab | PyTorch |\n|---|---|---|---|---|---|---|---|")
    for n, degree, k in CASES[:1] if args.smoke else CASES:
        rng = np.random.default_rng(0)
        at = np.stack([np.repeat(np.arange(n), degree), rng.integers(0, n, n * degree)])
        values, dense = rng.random(n * degree, np.float32), rng.random((n, k), np.float32)
        a, d = gl.sparse_coo_tensor(at, values, (n, n)).coalesce(), gl.tensor(dense)
        runs: list[Run | None] = [lambda a=a, d=d: a @ d, None, None, both(gl, a, d), None]
        if scipy is not None:
            s = scipy.csr_matrix((values, tuple(at)), shape=(n, n))
            runs[1] = lambda s=s, dense=dense: s @ dense
        if torch is not None:
            t, u = torch.sparse_coo_tensor(torch.tensor(at), torch.tensor(values), (n, n)).coalesce(), torch.tensor(dense)
            runs[2] = lambda t=t, u=u: torch.sparse.mm(t, u)
            runs[4] = both(torch, t, u) if n * n <= 10**8 else None
        found = ["" if x is None else f"{x:.3f}" for x in least(runs, 0.2 if args.smoke else 4)]
        print(f"| {n:6} | {degree} | {k:2} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
