"""docs/architecture.md speaks of the code that is there: its links, the files and functions that it names, all rooms, tables made of it."""

import re

import pytest
from files_table import PAGE, PICTURE, files, floors, picture, said, table

from repository import ROOT

TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
STALE = "run `python -m tests.files_table`"


def test_every_file_says_what_is_in_it():
    assert not [name for name in files() if not said(ROOT / name)]


def test_the_table_of_files_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == table(), STALE


def test_the_picture_of_the_floors_is_up_to_date():
    assert PICTURE.read_text(encoding="utf-8") == picture(), STALE


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert len(links) > 100
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]


def test_files_that_are_named_are_links():
    assert not re.findall(r"(?<!\[)`([\w/]+\.(?:py|cpp|cuh?|h))`", TEXT)


@pytest.mark.parametrize(("file", "name"), sorted(set(re.findall(r"\]\(\.\./([\w/]+\.py)\) `(\w+)`", TEXT))), ids="-".join)
def test_functions_are_where_they_are_said_to_be(file, name):
    assert re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b.*=", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_room_has_a_line():
    rooms = {room for floor in floors() for room in floor} - {"__main__", "_version", "creation"}
    assert not [room for room in sorted(rooms) if not re.search(rf"`{room}(?:/|\.py)`", TEXT)]


def test_every_room_says_what_it_is():
    assert not [name for name in files() if name.endswith("__init__.py") and len(said(ROOT / name)) < 20]
