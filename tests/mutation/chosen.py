"""A plugin of pytest: `--chosen FILE` leaves the tests that the file names, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chosen", type=Path, help="a file with names of tests, one a line")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--chosen"):
        order = {name: i for i, name in enumerate(config.getoption("--chosen").read_text(encoding="utf-8").splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
