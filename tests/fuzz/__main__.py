"""Random programs, compared: `python -m tests.fuzz --seeds 0:5000 torch compiled gpu`. Failures are made small and printed as scripts.

torch      eager gradlab against PyTorch, line by line (against itself in float64 where PyTorch is missing)
float64    eager gradlab in a program's own dtypes against the same program in float64
compiled   `gl.compile` against eager, as one NumPy function; `machine` the same in machine code
gpu        a GPU, real or emulated, against the CPU
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections import Counter
from typing import Any

from . import comparing, compiling, programs, shrinking


def problem_of(way: str, program: programs.Program) -> str | None:
    """What a way of comparing finds wrong with a program; None where it refuses to compare."""
    if way in ("compiled", "machine"):
        return compiling.difference(program)
    if way == "gpu":
        return comparing.on_gpu(program)
    return comparing.against(pytorch() if way == "torch" else None, program)


def pytorch() -> Any:
    """PyTorch on one thread, or None."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    return torch


def failing(way: str, seed: int) -> tuple[programs.Program, str] | None:
    """The small form of the program of a seed and its problem, if it has one."""
    program = programs.draw(seed, control=way in ("compiled", "machine"))

    def check(candidate: programs.Program) -> str:
        try:
            return problem_of(way, candidate) or ""
        except Exception as error:
            return shrinking.crash(error)

    problem = check(program)
    return shrinking.shrunk(program, problem, check) if problem else None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="+", choices=("torch", "float64", "compiled", "machine", "gpu"))
    parser.add_argument("--seeds", default="0:1000", help="first:last, the last one not included")
    parser.add_argument("--show", type=int, default=2, help="failures of one kind that are printed (default 2)")
    options = parser.parse_args(arguments)
    first, last = map(int, options.seeds.split(":"))
    failures = 0
    for way in options.ways:
        kinds, start = Counter[str](), time.perf_counter()
        comparing.explained.clear()
        for seed in range(first, last):
            found = failing(way, seed)
            if found is not None:
                program, problem = found
                kinds[shrinking.kind(problem)] += 1
                if kinds[shrinking.kind(problem)] <= options.show:
                    print(f"\n# {way}, seed {seed}: {problem}\n{program.script()}", flush=True)
        failures += kinds.total()
        print(f"\n{way}: {last - first} programs, {kinds.total()} differ, {time.perf_counter() - start:.0f} s")
        for text, counts in (("differ", kinds), ("explained", comparing.explained)):
            for name, count in counts.most_common():
                print(f"  {count:6} {text}: {name}")
    return min(failures, 1)


if __name__ == "__main__":
    os.environ.setdefault("GRADLAB_CUDA", "emulated")
    if "compiled" in sys.argv:  # without a compiler everything becomes one Python function
        from gradlab.backends.native import compiler

        compiler.available = lambda: False
    sys.exit(main())
