"""What messages and printed tables are put together of."""

from __future__ import annotations

from collections.abc import Sequence


def some(names: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    more = len(names) - most
    return separator.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, every column as wide as its widest cell.

    >>> print(in_columns([["run", "loss"], ["first", "1"]]))
    run    loss
    first  1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
