"""What one operation on 16 elements costs, in microseconds, beside PyTorch where it is installed.

Three numbers for each chain of operations: forward without graph, forward with graph, forward and backward. Both engines run in turns in
one process on one thread, and medians are compared, so that a slow moment of the machine touches both alike:

    python bench/cost.py            # two minutes or so
    python bench/cost.py --smoke    # to see that the program works; its numbers mean little

On tiny matrices OpenBLAS decides a part of the matmul numbers. Run with OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE unset, as a user would:
values set for another machine can double the cost of a product. Close other programs; a busy machine widens the quartiles.
"""

import argparse
import gc
import os
import statistics
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - BLAS reads the variables when it is loaded

import gradlab  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

LENGTH = 100  # operations in a chain
KINDS = ("forward without graph", "forward with graph", "forward and backward")


def muladd(y, w, b):
    for _ in range(LENGTH // 2):
        y = y * w + b
    return y


def tanh(y, w, b):
    for _ in range(LENGTH):
        y = y.tanh()
    return y


def matmul(y, w, b):
    for _ in range(LENGTH):
        y = y @ w
    return y


def mixed(y, w, b):
    for _ in range(LENGTH // 4):
        y = (y @ w * b + b).tanh()
    return y


CHAINS = (muladd, tanh, matmul, mixed)


def operands(chain):
    """Start, two leaves and the gradient of the result, as NumPy arrays of 16 elements."""
    random = np.random.default_rng(0)
    start, w, b = (random.uniform(0.9, 1.0, (4, 4)).astype("float32") for _ in range(3))
    if chain in (matmul, mixed):
        w = (np.eye(4) * 0.9 + 0.01).astype("float32")
    return start, w, b, np.ones((4, 4), "float32")


def works(engine, chain):
    """The three pieces of work of a chain, and its gradients."""
    start, w, b, gradient = (engine.tensor(a.tolist()) for a in operands(chain))
    leaves = [start, w, b] if chain is tanh else [w, b]
    for leaf in leaves:
        leaf.requires_grad_()

    def plain():
        with engine.no_grad():
            chain(start, w, b)

    def recorded():
        return chain(start, w, b)

    def both():
        for leaf in leaves:
            leaf.grad = None
        chain(start, w, b).backward(gradient)

    both()
    return (plain, recorded, both), [np.array(x.grad.tolist()) for x in leaves if x.grad is not None]


def microseconds(work):
    """One run of a chain, for each of its operations."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / LENGTH * 1e6


def main():
    parser = argparse.ArgumentParser(description="What one operation on 16 elements costs.")
    parser.add_argument("--rounds", type=int, default=12, help="turns that each engine gets (default 12)")
    parser.add_argument("--runs", type=int, default=30, help="runs of a chain in a turn (default 30)")
    parser.add_argument("--smoke", action="store_true", help="one turn of two runs")
    parser.add_argument("--no-gc", action="store_true", help="measure with the garbage collector off")
    options = parser.parse_args()
    rounds, runs = (1, 2) if options.smoke else (options.rounds, options.runs)
    engines = {"gradlab": gradlab}
    if torch is not None:
        torch.set_num_threads(1)
        engines["torch"] = torch
    if options.no_gc:
        gc.disable()

    prepared = {(name, chain): works(engine, chain) for name, engine in engines.items() for chain in CHAINS}
    times = {(name, chain, kind): [] for name, chain in prepared for kind in range(len(KINDS))}
    if torch is not None:
        for chain in CHAINS:
            for ours, theirs in zip(prepared["gradlab", chain][1], prepared["torch", chain][1], strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-5)
    for _ in range(rounds):
        for chain in CHAINS:
            for kind in range(len(KINDS)):
                for name in engines:  # innermost, so that both meet the same moments
                    work = prepared[name, chain][0][kind]
                    work()
                    times[name, chain, kind] += [microseconds(work) for _ in range(runs)]

    versions = f"Python {sys.version.split()[0]}, NumPy {np.__version__}" + (f", PyTorch {torch.__version__}" if torch is not None else "")
    print(f"{versions}; 16 float32 elements, µs per operation, median (quartiles); collector {'on' if gc.isenabled() else 'off'}")
    for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if variable in os.environ:
            print(f"note: {variable}={os.environ[variable]} is set; unset it for numbers that a user would see")
    for chain in CHAINS:
        for kind, title in enumerate(KINDS):
            line, medians = f"{chain.__name__:<8}{title:<24}", []
            for name in engines:
                low, middle, high = statistics.quantiles(times[name, chain, kind], n=4)
                medians.append(middle)
                line += f"{name:>9} {middle:6.2f} ({low:.2f}-{high:.2f})"
            print(line + (f"   ratio {medians[0] / medians[1]:.2f}" if len(medians) == 2 else ""))


if __name__ == "__main__":
    main()
