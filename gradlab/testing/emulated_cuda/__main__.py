"""Runs a program that uses CuPy where no GPU is: `python -m gradlab.testing.emulated_cuda [-n DEVICES] (script.py | -m module) …`."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from gradlab.testing.emulated_cuda import install


def main() -> None:
    """Read the command line, put the emulated CUDA below CuPy, run."""
    parser = argparse.ArgumentParser(prog="python -m gradlab.testing.emulated_cuda", description=__doc__)
    parser.add_argument("-n", type=int, default=2, metavar="DEVICES", help="how many devices there are")
    parser.add_argument("-m", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    os.environ["GRADLAB_CUDA"] = "real"
    try:
        install(chosen.n)
    except ModuleNotFoundError:
        sys.exit('CuPy is not installed: pip install "gradlab-engine[cuda13]" (it needs no GPU to be installed)')
    sys.argv = [chosen.program, *chosen.arguments]
    if chosen.m:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(chosen.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(chosen.program))
        runpy.run_path(chosen.program, run_name="__main__")


if __name__ == "__main__":
    main()
