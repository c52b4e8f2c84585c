"""Every module of PyTorch's is here, an alias, an inert stand-in, or refused with a reason; the table is that of the installed PyTorch."""

import json
import subprocess
import sys

import pytest
import torch_modules

from gradlab.pytorch import table

WALK = """
import gradlab.as_torch
import importlib, json, sys, warnings
from gradlab.pytorch import table
from gradlab.pytorch.table import Verdict

found = {}
for name, names in table.modules().items():
    verdict = table.verdict(name)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert verdict is Verdict.REFUSED and error.name == name or error.name != name, (name, error)
        found[name] = [verdict.value, str(error), []]
        continue
    assert verdict is not Verdict.REFUSED, name
    there = []
    for each in names:
        try:
            value = getattr(module, each)
        except AttributeError as error:
            assert len(str(error)) > 20, (name, each, error)
        else:
            there.append(each)
    if verdict is Verdict.ALIAS:
        assert there == module.__all__ or set(there) > set(module.__all__), name
    found[name] = [verdict.value, "", there]
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def walked():
    done = subprocess.run([sys.executable, "-c", WALK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_of_them_answer(walked):
    assert walked.keys() == table.modules().keys()
    assert len(walked) > 900


def test_what_is_refused_says_why(walked):
    for name, (verdict, text, _) in walked.items():
        if verdict == "refused":  # itself, or one above it
            said, _, why = text.removeprefix("No module named ").partition(": gradlab does not offer it: ")
            assert f"{name}.".startswith(said.strip("'") + ".") and why == table.refused(said.strip("'")), (name, text)


def test_aliases_hold_something(walked):
    """A module in which nothing is found would be an inert one, and has to say why."""
    nothing = [name for name, (verdict, _, there) in walked.items() if verdict == "alias" and not there and table.modules()[name]]
    assert not nothing


def test_inert_modules_hold_all_names(walked):
    for name, (verdict, _, there) in walked.items():
        assert verdict != "inert" or there == list(table.modules()[name]), name


def test_every_exception_is_of_a_module():
    known = {*table.modules()}
    for path in (*table.INERT, *table.REFUSED, *table.ELSEWHERE, *table.OWN):
        assert path in known or path in table.OLDER, path
    assert not table.INERT.keys() & table.REFUSED.keys()


@pytest.mark.torch
def test_the_table_is_that_of_the_installed_pytorch():
    pytest.importorskip("torch")
    fresh = subprocess.run([sys.executable, torch_modules.__file__, "-"], capture_output=True, text=True, check=True).stdout
    written = torch_modules.TABLE.read_text(encoding="utf-8")
    changed = sorted({*fresh.splitlines()} ^ {*written.splitlines()})
    changed = [c for c in changed if c.split()[0] != "torch.utils.tensorboard"]  # it has names where tensorboard is installed
    assert not changed, f"gradlab/pytorch/modules.txt is out of date; run `python tests/torch_modules.py`: {[c[:80] for c in changed[:5]]}"
