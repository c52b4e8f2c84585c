"""A thousand calls with optional arguments give what PyTorch gave, gradients included: `answers.npz`, written by `kinds.answers`."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

from kinds import answers

TEXTS = answers.texts()
PARTS = 8


def found_otherwise(texts, written):
    wrong = []
    for text in texts:
        word, numbers = written[text]
        try:
            found = answers.answer(gl, text, not word.startswith(answers.WITHOUT))
        except Exception as error:
            found = f"{type(error).__name__}: {error}", np.zeros(0)
        if not answers.agree(found, written[text]):
            differing = answers.differing(found[1], numbers) if found[0] == word else None
            wrong.append(f"{text}\n    {f'{found[0]} for {word}' if differing is None else f'results and gradients {differing}'}")
    return "\n".join(wrong)


def test_each_call_has_an_answer():
    assert set(answers.read()) == set(TEXTS), "python -m tests.kinds.answers, with PyTorch"


@pytest.mark.parametrize("part", range(PARTS))
def test_answers(part):
    assert found_otherwise(TEXTS[part::PARTS], answers.read()) == ""


@pytest.mark.torch
def test_answers_are_pytorchs():
    torch = pytest.importorskip("torch")
    written = answers.read()
    wrong = [t for t in TEXTS if not answers.agree(answers.answer(torch, t, not written[t][0].startswith(answers.WITHOUT)), written[t])]
    assert wrong == []
