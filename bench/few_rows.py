"""Products of few rows, or of one column, in compiled programs: `few_rows.cpp` beside the kernel that packs, NumPy and PyTorch.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 python bench/few_rows.py [--rounds 30] [--smoke]

One thread, least processor times in turns, µs of a call. `linear` multiplies by a weight whose rows are summed along, `matmul` by a matrix
whose rows are read from end to end. PyTorch runs eagerly, where it is installed.
"""

import argparse
import importlib.util
import time

import numpy as np

import gradlab as gl
from gradlab.backends.native.lowerings import products

SIZES = (64, 256, 1024, 2048)
FORMS = ("linear, 1 row", "linear, 3 rows", "matmul, 1 row", "matmul, 3 rows", "one column")
LEAST = 50e-6  # seconds that are measured at once


def operands(form, n):
    """Two arrays, and what to call."""
    r, m = np.random.default_rng(0), 1 if "1 row" in form else 3

    def draw(*shape):
        return r.normal(size=shape).astype(np.float32)

    if form == "one column":
        return (draw(n, n), draw(n, 1)), "matmul"
    return (draw(m, n), draw(n, n)), form.split(",")[0]


def compiled(function, arrays, few):
    """A call of a program; few: whether products of few rows have their own kernel."""
    own, tensors = products._few_rows, [gl.from_numpy(a) for a in arrays]
    if not few:
        products._few_rows = lambda *_: None
    try:
        program = gl.compile(function)
        for _ in range(3):
            program(*tensors)
    finally:
        products._few_rows = own
    kernels = [task for step in program.programs[0].runner.executable.report for task in step.kernels]
    assert ("gradlab_few_rows" in kernels) == few, kernels
    return lambda: program(*tensors)


def calls(form, n):
    """Of each engine a call."""
    arrays, name = operands(form, n)
    function = gl.nn.functional.linear if name == "linear" else gl.matmul
    found = {"own": compiled(lambda a, b: function(a, b), arrays, True), "packed": compiled(lambda a, b: function(a, b), arrays, False)}
    second = arrays[1].T if name == "linear" else arrays[1]
    found["NumPy"] = lambda: arrays[0] @ second
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        a, b = map(torch.from_numpy, arrays)
        theirs = torch.nn.functional.linear if name == "linear" else torch.matmul
        found["PyTorch"] = lambda: theirs(a, b)
    return found


def least(found, rounds):
    """Of each engine the least processor seconds of a call."""
    best = dict.fromkeys(found, float("inf"))
    for _ in range(rounds):
        for engine, call in found.items():
            times = max(1, int(LEAST / best[engine])) if best[engine] < float("inf") else 1
            start = time.thread_time()
            for _ in range(times):
                call()
            best[engine] = min(best[engine], (time.thread_time() - start) / times)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="the smallest size alone, to see that it runs")
    args = parser.parse_args()
    gl.set_num_threads(1)
    print("| product | n = k | own, µs | packed | NumPy | PyTorch | packed / own |\n|---|---|---|---|---|---|---|")
    with gl.no_grad():
        for form in FORMS:
            for n in SIZES[:1] if args.smoke else SIZES:
                best = least(calls(form, n), 2 if args.smoke else args.rounds)
                cells = " | ".join(f"{best[e] * 1e6:.1f}" if e in best else "-" for e in ("own", "packed", "NumPy", "PyTorch"))
                print(f"| {form} | {n} | {cells} | {best['packed'] / best['own']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
