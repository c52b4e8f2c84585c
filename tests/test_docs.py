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
