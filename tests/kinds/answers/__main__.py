"""Writes PyTorch's answers anew, or shows both of some calls."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # as pytest's `pythonpath` has it

from kinds import answers


def main(words: list[str]) -> int:
    import torch

    import gradlab as gl

    found, wrong = {}, 0
    for text, dtype in itertools.product(answers.texts(), answers.BOUNDS):
        if not all(w in text for w in words) or (dtype != "float64" and "out =" in text):  # steps of training magnify roundings
            continue
        try:
            try:
                theirs = answers.answer(torch, text, dtype == "float64", dtype)
            except (RuntimeError, NotImplementedError):
                theirs = answers.answer(torch, text, False, dtype)
        except Exception as error:
            if dtype == "float64":
                wrong += 1
                print(f"\n{text}\n  torch refuses: {type(error).__name__}: {str(error)[:300]}")
            continue
        found[answers.key(text, dtype)] = theirs
        try:
            ours = answers.answer(gl, text, not theirs.words.startswith(answers.WITHOUT), dtype)
        except Exception as error:
            ours = answers.Answer(f"{type(error).__name__}: {error}", np.zeros(0), np.zeros(0))
        if not answers.agree(ours, theirs, dtype):
            wrong += 1
            print(f"\n{dtype}: {text}\n  torch: {theirs.words}\n  here:  {ours.words}")
            if ours.words == theirs.words:
                print("  differ:", answers.differing(ours, theirs, dtype))
            if dtype != "float64":  # types that are less exact, and integers where we go another way, are no part of what is written
                del found[answers.key(text, dtype)]
    print(f"{len(found)} calls, {wrong} answered otherwise here")
    if not words:
        answers.write(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
