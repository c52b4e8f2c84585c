"""Calls that are refused stay refused, in the same words: `refused.txt`, one call a line with the error that it raises behind it.

    python -m tests.kinds.test_refused_calls     writes the errors anew; with PyTorch it names the calls that PyTorch takes

A check that is gone shows as another error, or as none. Inputs are those of `kinds.answers`.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as pytest's `pythonpath` has it, where this file is run

import pytest

import gradlab as gl

from kinds import answers

WRITTEN = Path(__file__).with_name("refused.txt")
MARK = "   # "
LENGTH = 90  # of a message that is compared


def error_of(engine, text):
    """An error's type and the beginning of its words; "" where there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers.called(engine, text)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(re.sub('0x[0-9a-f]+', '0x', str(error)).split())[:LENGTH]}".rstrip()
    return ""


def lines():
    return [line.partition(MARK)[::2] for line in WRITTEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("part", range(4))
def test_refused(part):
    found = [(text, said, error_of(gl, text)) for text, said in lines()[part::4]]
    assert [f for f in found if f[1] != f[2]] == [], "other words on purpose: python -m tests.kinds.test_refused_calls writes them"


if __name__ == "__main__":
    import torch

    calls = list(dict.fromkeys(text for text, _ in lines()))
    said = {text: error_of(gl, text) for text in calls}
    for text in calls:
        if not error_of(torch, text):
            print("PyTorch takes", text, "here:", said[text])
        elif not said[text]:
            print("NOT REFUSED", text, error_of(torch, text))
    WRITTEN.write_text("".join(f"{text}{MARK}{said[text]}\n" for text in calls if said[text]), encoding="utf-8")
