"""Tables of untidy files and of data frames: read, understood column by column, and turned into numbers for a model.

`reading` finds out how a text file is written (encoding, delimiter, header), `columns` what a column holds, `coding` turns columns into
numbers by statistics of the training rows alone, and `dataset` puts it together for a DataLoader.
"""

from __future__ import annotations

from gradlab.data.tables.coding import TableCoding, TargetCoding
from gradlab.data.tables.columns import Column, column_of
from gradlab.data.tables.dataset import TableDataset, split_rows
from gradlab.data.tables.reading import Table, TableError, read_table, read_with_columns

__all__ = [
    "Column", "Table", "TableCoding", "TableDataset", "TableError", "TargetCoding", "column_of", "read_table", "read_with_columns",
    "split_rows",
]  # fmt: skip
