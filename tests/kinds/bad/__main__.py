"""Runs all wrong calls in child processes and prints what came of them."""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradlab

from kinds.bad.subjects import FAMILIES, subjects

MEMORY = 3 << 30  # bytes of address space that a child may take beyond what it begins with
STILL = 300.0  # seconds without a word from a child, after which it is ended


def child(family: str, first: int, place: int, only: str, every: int, of: int) -> None:
    """The subjects from `first` on, from its change number `place` on; a line of JSON for each fault, and before each subject."""
    from kinds.bad.judge import changes, judged

    words = frozenset(filter(None, os.environ.get("BAD_WORDS", "").split("; ")))

    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open("/proc/self/statm") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + MEMORY, own + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = subjects(family.split(","))
    for i in range(first, len(found)):
        subject = found[i]
        if only and only not in subject.name:
            continue
        tally: collections.Counter[str] = collections.Counter()
        print(json.dumps(["at", i, subject.name]), file=out, flush=True)
        for number, (where, word) in enumerate(changes(subject)):
            if words and word not in words:
                continue
            if (i == first and number < place) or (number + i) % of != every:
                continue
            print(json.dumps(["try", i, number, where, word]), file=out, flush=True)
            kind, text = judged(subject, where, word)
            tally[kind] += 1
            if kind not in ("ok", "clean"):
                print(json.dumps(["fault", kind, subject.name, where, word, text[:300]]), file=out, flush=True)
        print(json.dumps(["tally", tally]), file=out, flush=True)


def parent(family: str, only: str = "", every: int = 0, of: int = 1) -> tuple[collections.Counter[str], list[list[str]]]:
    """All subjects of a family, in as many children as it takes."""
    total: collections.Counter[str] = collections.Counter()
    faults: list[list[str]] = []
    first = place = 0
    while True:
        command = [sys.executable, "-m", "kinds.bad", "--child", family, str(first), str(place), only, str(every), str(of)]
        paths = os.pathsep.join(str(Path(*Path(file).parts[:-up])) for file, up in ((gradlab.__file__, 2), (__file__, 3)))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths})
        assert process.stdout is not None and process.stderr is not None
        last: list[Any] = []
        stopped = ""
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        errors = b""
        selector.register(process.stderr, selectors.EVENT_READ)
        rest, open_ends = b"", 2
        while open_ends:
            ready = selector.select(STILL)
            if not ready:
                process.kill()
                stopped = "hang"
                break
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                    open_ends -= 1
                elif key.fileobj is process.stderr:
                    errors = (errors + piece)[-2000:]
                else:
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        word, *values = json.loads(line)
                        if word == "try":
                            last = values
                        elif word == "at":
                            name = values[1]
                        elif word == "tally":
                            total.update(values[0])
                        else:
                            faults.append(values)
        code = process.wait()
        process.stdout.close()
        process.stderr.close()
        if code == 0 and not stopped:
            return total, faults
        if not last:
            raise RuntimeError(errors.decode())
        kind = stopped or (f"crash ({code})" if code < 0 else "died")
        faults.append([kind, name, last[2], last[3], errors.decode()[-300:]])
        total[kind] += 1
        first, place = last[0], last[1] + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--only", default="")
    parser.add_argument("--of", type=int, default=1, help="try one change of so many")
    parser.add_argument("--part", type=int, default=0, help="which of them: 0 to OF - 1")
    parser.add_argument("--json", default="")
    parser.add_argument("--child", nargs=6)
    options = parser.parse_args()
    if options.child:
        family, first, place, only, every, of = options.child
        child(family, int(first), int(place), only, int(every), int(of))
        return
    whole: list[list[str]] = []
    for family in options.families:
        total, faults = parent(family, options.only, options.part, options.of)
        whole += faults
        print(f"{family}: {sum(total.values())} calls, " + ", ".join(f"{k} {n}" for k, n in total.most_common()), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(whole, file)
    elif options.only:
        for fault in whole:
            print(*fault, sep=" | ")


if __name__ == "__main__":
    main()
