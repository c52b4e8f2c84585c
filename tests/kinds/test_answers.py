"""A thousand calls with optional arguments give what PyTorch gave, gradients included: `answers.npz`, written by `kinds.answers`."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import gradlab as gl

from kinds import answers

TEXTS = answers.texts()
CALL = re.compile(r"gl\.[\w.]+\([^\n]*(?<!\.abs\()\)")
PARTS = 4
parts = pytest.mark.parametrize("part", range(PARTS))
WRITTEN = answers.read()


def otherwise(text, dtype):
    """Words on how an answer is not the written one; none where it is, or where none is written."""
    written = WRITTEN.get(answers.key(text, dtype))
    if written is None:
        return ""
    try:
        found = answers.answer(gl, text, not written.words.startswith(answers.WITHOUT), dtype)
    except Exception as error:
        return f"\n{dtype}: {text}\n    {type(error).__name__}: {error}"
    if answers.agree(found, written, dtype):
        return ""
    same = found.words == written.words
    told = f"results {answers.differing(found, written, dtype)}" if same else f"{found.words} for {written.words}"
    return f"\n{dtype}: {text}\n    {told}"


def test_each_call_has_an_answer():
    assert set(TEXTS) <= set(WRITTEN), "python -m tests.kinds.answers, with PyTorch"


@pytest.mark.parametrize("dtype", list(answers.BOUNDS))
@parts
def test_answers(part, dtype):
    assert "".join(otherwise(text, dtype) for text in TEXTS[part::PARTS]) == ""


def into(text):
    """A call's result, and what the same call writes into tensors given as `out`; None where it takes none."""
    names = [name for name in answers.INPUTS if re.search(rf"\b{name}\b", text)]
    room = {"gl": gl, "np": np, **{name: gl.tensor(answers.INPUTS[name]) for name in names}}
    with warnings.catch_warnings(), gl.no_grad():
        warnings.simplefilter("ignore")
        plain = eval(text, room)
        several = isinstance(plain, tuple)
        if not all(isinstance(r, gl.Tensor) for r in (plain if several else [plain])):
            return None
        room["out_"] = tuple(r.clone().zero_() for r in plain) if several else plain.clone().zero_()
        try:
            eval(f"{text[:-1]}, out=out_)", room)
        except TypeError as error:
            if "out" in str(error):
                return None
            raise
    return (plain, room["out_"]) if several else ((plain,), (room["out_"],))


@parts
def test_options_count_where_results_are_written_into_tensors(part):
    """`out=` is a way of its own in many functions: it passes on every option."""
    seen = 0
    for text in TEXTS[part::PARTS]:
        if CALL.fullmatch(text) and "out=" not in text and (pair := into(text)) is not None:
            for plain, written in zip(*pair, strict=True):
                np.testing.assert_array_equal(written.numpy(), plain.numpy(), err_msg=text)
            seen += 1
    assert seen > 60


@pytest.mark.torch
def test_answers_are_pytorchs():
    torch = pytest.importorskip("torch")
    wrong = [t for t in TEXTS if not answers.agree(answers.answer(torch, t, not WRITTEN[t].words.startswith(answers.WITHOUT)), WRITTEN[t])]
    assert wrong == []
