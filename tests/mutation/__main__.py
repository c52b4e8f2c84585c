"""Plants mutants and says which of them the tests of their own room do not find.

    python -m tests.mutation --count 30                       some of each room
    python -m tests.mutation --room passes --seed 4 --seconds 900
    python -m tests.mutation --file gradlab/ops/scan.py --count 5

The same seed plants the same mutants in the same code. At the end stands a table: planted, killed, survived, explained, share.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import time
from collections import defaultdict
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as pytest's `pythonpath` has it

from mutation import of_kernels, of_python
from mutation.explained import EXPLAINED
from mutation.mutant import Mutant
from mutation.rooms import ROOMS, files_of
from mutation.running import Outcome, Tree
from repository import ROOT


def mutants_of(file: str) -> list[Mutant]:
    """All mutants of a file."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return list(of_kernels.mutants(file, text))
    return list(of_python.mutants(file, text))


def parses(mutant: Mutant) -> bool:
    """Whether Python can read the file with the fault."""
    try:
        if mutant.file.endswith(".py"):
            ast.parse(mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8")))
    except SyntaxError:
        return False
    return True


def chosen(room: str, count: int, seed: int, file: str = "") -> list[Mutant]:
    """Some mutants of a room: files by their numbers of mutants, at most one for each line."""
    every = [m for f in files_of(room) if not file or f == file for m in mutants_of(f)]
    random.Random(f"{room} {seed}").shuffle(every)
    lines = {(m.file, m.line): m for m in reversed(every)}
    one_a_line = dict.fromkeys(lines[m.file, m.line] for m in every)
    return list(islice((m for m in one_a_line if parses(m)), count))


def share(words: list[str]) -> str:
    """A room's line of the table."""
    killed = words.count("killed") + words.count("late")
    counted = killed + words.count("survived")
    percent = f"{100 * killed / counted:.1f} %" if counted else "-"
    survived, explained, stillborn = map(words.count, ("survived", "explained", "stillborn"))
    return f"{len(words):>8}{killed:>8}{survived:>9}{explained:>10}{stillborn:>10}{percent:>10}"


def main(arguments: list[str] | None = None) -> int:
    """Plants, runs, tells."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--room", choices=ROOMS, action="append", help="one room, or several; all of them if not said")
    parser.add_argument("--file", default="", help="one file of the room")
    parser.add_argument("--count", type=int, default=20, help="mutants of each room (20)")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first of each room")
    parser.add_argument("--seed", type=lambda text: int(text, 0), default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant after that many")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants and plant none")
    parser.add_argument("--json", type=Path, help="a file for the outcomes, one line each")
    options = parser.parse_args(arguments)
    rooms = options.room or [r for r in ROOMS if not options.file or options.file in files_of(r)]
    queue = [(r, m) for r in rooms for m in chosen(r, options.count + options.skip, options.seed, options.file)[options.skip :]]
    order = {id(m): i for r in rooms for i, m in enumerate(m for room, m in queue if room == r)}
    queue.sort(key=lambda pair: order[id(pair[1])])  # a limit of time falls on all rooms alike
    found: dict[str, list[str]] = defaultdict(list)
    began = time.monotonic()
    with Tree() as tree:
        for room, mutant in queue:
            text = (ROOT / mutant.file).read_text(encoding="utf-8")
            told = mutant.told(text)
            if options.list:
                print(told)
                continue
            if time.monotonic() - began > options.seconds:
                break
            reason = EXPLAINED.get(mutant.key(text))
            outcome = Outcome("explained", 0, reason) if reason else tree.outcome(mutant, room, options.limit)
            found[room].append(outcome.word)
            print(f"{outcome.word:<10}{outcome.seconds:6.0f} s  {told}  {outcome.by}", flush=True)
            if options.json:
                with options.json.open("a", encoding="utf-8") as file:
                    line = {"room": room, "key": mutant.key(text), "told": told, **outcome._asdict()}
                    file.write(json.dumps(line) + "\n")
    print(f"\n{'':<10}{'planted':>8}{'killed':>8}{'survived':>9}{'explained':>10}{'stillborn':>10}{'share':>10}")
    for room, words in found.items():
        print(f"{room:<10}{share(words)}")
    every = [w for words in found.values() for w in words]
    print(f"{'all':<10}{share(every)}")
    return int("survived" in every)


if __name__ == "__main__":
    sys.exit(main())
