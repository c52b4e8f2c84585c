"""Every public function and tensor method beside PyTorch: the sample calls of tests/kinds/catalogue, as they are and with many elements.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/every_call.py [words] [--elements 100000] [--above 3] [--rounds 4]

Both engines run in turns in one process on one thread; least processor times. What takes more than `--above` times PyTorch's is printed,
the worst first: microseconds of both and their ratio. With --elements the arrays of a call are repeated along their first dimension, where
all of them have one shape. Calls that change their first tensor get a new one each time, made beforehand. Kernels have to lie ready.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402

import gradlab  # noqa: E402
from gradlab.backends.native import ready  # noqa: E402

from kinds import calls  # noqa: E402

TURN = 1.5e-3  # seconds of one engine's turn
MOST_RESULTS = 64  # results' elements for each of the arguments', beyond which a call of many is left out


def larger(call, elements):
    """Its arguments with so many elements, made of the same numbers; None where its arrays are of several shapes, or where the result grows
    faster than they do: pairs of a hundred thousand numbers fit no memory."""
    arrays = [*calls.arrays_in(call.arguments), *calls.arrays_in(call.options)]
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1 or not arrays[0].ndim or not arrays[0].size or "making" in call.marks:
        return None
    two, four = (sum(t.numel() for t in calls.parts(result_of(repeated(call, times)))) for times in (2, 4))
    if four > 3 * two or two > MOST_RESULTS * arrays[0].size:
        return None
    return repeated(call, -(-elements // arrays[0].size))


def repeated(call, times):
    """Its arrays so many times behind each other along their first dimension."""
    arguments, options = (calls.converted(given, lambda a: np.concatenate([a] * times)) for given in (call.arguments, call.options))
    return calls.Call(call.name, call.number, call.function, arguments, options, call.marks)


def result_of(call):
    """What it gives; None where it does not take these arguments."""
    args, options = call.tensors(gradlab.float32)
    try:
        with gradlab.no_grad():
            return call.function(*args, **options)
    except Exception:  # of any kind: it is said where the call is timed
        return None


def turns(call, engine):
    """A function that makes so many calls and gives the seconds of processor time of one."""
    if engine is gradlab:
        tensors, function = (lambda: call.tensors(gradlab.float32)), call.function
    else:
        tensors, function = (lambda: call.reference_tensors(torch.float32)), call.reference
    shared = tensors()

    def turn(number):
        if "in_place" in call.marks:
            given = [tensors() for _ in range(number)]
            begin = time.process_time()
            for args, options in given:
                function(*args, **options)
        else:
            args, options = shared
            begin = time.process_time()
            for _ in range(number):
                function(*args, **options)
        return (time.process_time() - begin) / number

    return turn


def ratio(call, rounds):
    """Microseconds of both."""
    found = []
    ways = []
    for engine in (gradlab, torch):
        turn = turns(call, engine)
        turn(1)
        ways.append((turn, max(1, min(300, int(TURN / max(turn(2), 1e-7))))))
        found.append([])
    for _ in range(rounds):
        for times, (turn, number) in zip(found, ways, strict=True):
            times.append(turn(number) * 1e6)
    return min(found[0]), max(min(found[1]), 1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names")
    parser.add_argument("--elements", type=int, default=0)
    parser.add_argument("--above", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    gradlab.set_num_threads(1)
    torch.set_num_threads(1)
    found = []
    for call in calls.CALLS:
        if call.reference is None or (args.words and not any(word in repr(call) for word in args.words)):
            continue
        made = larger(call, args.elements) if args.elements else call
        if made is None:
            continue
        try:
            with gradlab.no_grad(), torch.no_grad():
                ours, theirs = ratio(made, args.rounds)
        except Exception:  # arguments that PyTorch does not take, or that do not fit when they are longer
            continue
        found.append((ours / theirs, ours, theirs, repr(call)))
    for each, ours, theirs, name in sorted(found, reverse=True):
        if each > args.above or args.words:
            print(f"{name:40} {ours:10.2f} {theirs:10.2f} {each:8.2f}")
    ratios = [f[0] for f in found]
    counts = ", ".join(f"{sum(r > n for r in ratios)} above {n}" for n in (1, 3, 10))
    print(f"{len(found)} calls, median {statistics.median(ratios):.2f}, {counts}; {len(ready.state().libraries)} kernels lay ready")


if __name__ == "__main__":
    main()
