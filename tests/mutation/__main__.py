"""Plants mutants and says which of them the tests of their own room do not find.

    python -m tests.mutation --count 30                       some of each room
    python -m tests.mutation --room passes --seed 4 --seconds 900
    python -m tests.mutation --file gradlab/ops/scan.py --count 5

The same seed plants the same mutants in the same code. At the end stands a table: planted, killed, survived, explained, share. With
`--json` a run that was stopped goes on where it was: what stands in the file is counted, and not tried again.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import time
from collections import defaultdict
from itertools import chain, islice
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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after that many")
    parser.add_argument("--batch", type=int, default=40, help="mutants tried in one process that collects the tests once (40)")
    parser.add_argument("--each", type=float, default=20, help="processor time for the tests of one mutant of Python, in seconds (20)")
    parser.add_argument("--limit", type=float, default=600, help="the same for one of a kernel (600)")
    parser.add_argument("--maps", type=Path, default=ROOT / "build/mutation", help="a folder for what tests reach")
    parser.add_argument("--list", action="store_true", help="print the mutants and plant none")
    parser.add_argument("--json", type=Path, help="a file for the outcomes, one line each; those that are there are not tried again")
    options = parser.parse_args(arguments)
    rooms = options.room or [r for r in ROOMS if not options.file or options.file in files_of(r)]
    queues = {r: chosen(r, options.count + options.skip, options.seed, options.file)[options.skip :] for r in rooms}
    texts = {m.file: (ROOT / m.file).read_text(encoding="utf-8") for queue in queues.values() for m in queue}
    if options.list:
        print(*(m.told(texts[m.file]) for queue in queues.values() for m in queue), sep="\n")
        return 0
    kept = options.json.read_text(encoding="utf-8").splitlines() if options.json and options.json.exists() else []
    known = {line["key"]: line["word"] for line in map(json.loads, kept)}
    found: dict[str, list[str]] = defaultdict(list)
    batches = [(i, r, q[i : i + options.batch]) for r, q in queues.items() for i in range(0, len(q), options.batch)]
    began = time.monotonic()
    with Tree(options.maps) as tree:
        for _, room, batch in sorted(batches, key=lambda b: b[0]):  # a limit of time falls on all rooms alike
            if time.monotonic() - began > options.seconds:
                break
            keys = {m: m.key(texts[m.file]) for m in batch}
            found[room] += [known[k] for k in keys.values() if k in known]
            fresh = [m for m in batch if keys[m] not in known]
            explained = [m for m in fresh if keys[m] in EXPLAINED]
            outcomes = tree.outcomes(room, [m for m in fresh if m not in explained], options.each, options.limit)
            for mutant, outcome in chain(((m, Outcome("explained", 0, EXPLAINED[keys[m]])) for m in explained), outcomes):
                told = mutant.told(texts[mutant.file])
                found[room].append(outcome.word)
                print(f"{outcome.word:<10}{outcome.seconds:6.1f} s  {told}  {outcome.by}", flush=True)
                if options.json:
                    with options.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"room": room, "key": keys[mutant], "told": told, **outcome._asdict()}) + "\n")
    print(f"\n{'':<10}{'planted':>8}{'killed':>8}{'survived':>9}{'explained':>10}{'stillborn':>10}{'share':>10}")
    for room, words in found.items():
        print(f"{room:<10}{share(words)}")
    every = [w for words in found.values() for w in words]
    print(f"{'all':<10}{share(every)}")
    return int("survived" in every)


if __name__ == "__main__":
    sys.exit(main())
