"""Writes PyTorch's answers anew, or shows both of some calls."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # as pytest's `pythonpath` has it

from kinds import answers


def main(words: list[str]) -> int:
    import torch

    import gradlab as gl

    found, wrong = {}, 0
    for text in answers.texts():
        if not all(w in text for w in words):
            continue
        try:
            try:
                found[text] = answers.answer(torch, text)
            except (RuntimeError, NotImplementedError):
                found[text] = answers.answer(torch, text, grads=False)
        except Exception as error:
            wrong += 1
            print(f"\n{text}\n  torch refuses: {type(error).__name__}: {str(error)[:300]}")
            continue
        try:
            word, numbers = answers.answer(gl, text, not found[text][0].startswith(answers.WITHOUT))
        except Exception as error:
            word, numbers = f"{type(error).__name__}: {error}", np.zeros(0)
        if not answers.agree((word, numbers), found[text]):
            wrong += 1
            print(f"\n{text}\n  torch: {found[text][0]}\n  here:  {word}")
            if word == found[text][0]:
                print("  differ:", answers.differing(numbers, found[text][1]))
    print(f"{len(found)} calls, {wrong} answered otherwise here")
    if not words:
        answers.write(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
