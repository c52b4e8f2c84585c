"""The examples in `docs/` and the README run and print what they say."""

from __future__ import annotations

import doctest

import pytest

from repository import ROOT

PAGES = sorted(p for p in [ROOT / "README.md", *ROOT.glob("docs/*.md")] if ">>>" in p.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_print_what_the_page_says(page):
    failures, count = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert count and not failures


def test_the_first_script_of_the_readme_learns(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    script = text.split("```python\n")[1].split("```")[0]
    exec(compile(script, "README.md", "exec"), {"__name__": "__main__"})
    accuracy = float(capsys.readouterr().out.split("accuracy ")[1].rstrip("%\n"))
    assert accuracy > 95
