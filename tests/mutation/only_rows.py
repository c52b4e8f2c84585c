"""A plugin of pytest: `--only-rows a,b` leaves of the tests made of samples those of some rows, before they are collected."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only-rows", default="", help="names of rows, with commas between")


def pytest_configure(config: pytest.Config) -> None:
    """Other rows have no samples: nothing is made of them."""
    if wanted := set(filter(None, config.getoption("--only-rows").split(","))):
        from samples import SAMPLES

        for name in set(SAMPLES) - wanted:
            del SAMPLES[name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out other rows where they are parameters, and tests of the list of samples itself."""
    wanted = set(filter(None, config.getoption("--only-rows").split(",")))
    if not wanted:
        return
    from gradlab import ops

    def other(item: pytest.Item) -> bool:
        values = getattr(item, "callspec", None)
        named = [v for v in values.params.values() if isinstance(v, str) and v in ops.ROWS] if values else []
        return (bool(named) and not wanted & set(named)) or item.name.startswith("test_every_row_has")

    left_out = [item for item in items if other(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not other(item)]
