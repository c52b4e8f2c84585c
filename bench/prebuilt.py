"""Compiled steps without a compiler beside those with one: prebuilt kernels and interpreted loops, and NumPy, in one run, each in a process
of its own, one after the other.

    python -m gradlab.testing.prebuilt x86_64-linux
    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/prebuilt.py [names] [--rounds 3] [--folder build/prebuilt/x86_64-linux]

Prints the median milliseconds of a step and the ratio to those with a compiler.
"""

import argparse
import os
import statistics

from compiled import apart
from workloads import NAMES

WAYS = {"compiler": {}, "prebuilt": {"GRADLAB_COMPILER": "none"}, "numpy": {"GRADLAB_COMPILER": "none", "GRADLAB_PREBUILT": "none"}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="build/prebuilt/x86_64-linux", help="of the libraries")
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--smoke", action="store_true", help="in seconds, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.names, args.rounds, args.seconds = ["tiny"], 1, 0.1
    ways = args.ways.split(",")
    print(f"{'':10}" + "".join(f"{way + ' ms':>14}" for way in ways) + "".join(f"{way:>10}" for way in ways[1:]))
    for name in args.names:
        found = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way in ways:
                os.environ["GRADLAB_PREBUILT"] = args.folder
                os.environ.pop("GRADLAB_COMPILER", None)
                os.environ.update(WAYS[way])
                one = apart("--one", name, "compiled", "--seconds", str(args.seconds))
                if one is not None:
                    found[way].append(one["ms"])
        ms = {way: statistics.median(times) for way, times in found.items() if times}
        shown = "".join(f"{ms.get(way, float('nan')):14.3f}" for way in ways)
        print(f"{name:10}{shown}" + "".join(f"{ms[way] / ms[ways[0]]:10.2f}" for way in ways[1:] if way in ms), flush=True)


if __name__ == "__main__":
    main()
