"""Text files of tables as people write them: any delimiter, with or without a header, commented, padded, compressed, in older encodings."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gradlab.data.errors import DataError
from gradlab.data.files import content_of, marked, text_of

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "?", "-", "--", ".", "#n/a", "<na>", "nat", "missing"})
DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "spaces"}  # of several that fit, the first is it
OTHERS = {
    b"PK\x03\x04": "a workbook (Excel, LibreOffice) or another ZIP archive", b"\xd0\xcf\x11\xe0": "a workbook of an older Excel",
    b"SQLite format 3": "a database (SQLite)", b"\x89HDF": "an HDF5 file", b"%PDF": "a PDF document", b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array", b"BZh": "compressed (bzip2)", b"\xfd7zXZ": "compressed (xz)", b"\x28\xb5\x2f\xfd": "compressed (zstd)",
    b"<!DOCTYPE": "a web page", b"<!doctype": "a web page", b"<html": "a web page", b"<?xml": "XML", b'{"': "JSON", b"[{": "JSON",
}  # fmt: skip -- how files begin that are given for tables
LOOKED_AT = 500  # records from which the delimiter and the header are found
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?%?|[-+]?inf(inity)?", re.IGNORECASE)

_THREE_DECIMALS = re.compile(r"[-+]?\d{1,3}(,\d{3})?")


class TableError(DataError):
    """A file or a frame that is no table, or none that can be learned from; the message names the file, the line and the way out."""


@dataclass
class Table:
    """Columns by name, all of `rows` cells: text with None for what is missing, or arrays as a data frame had them."""

    columns: dict[str, Any]
    rows: int
    source: str = "the table"
    notes: list[str] = field(default_factory=list)  # what was found, and what was done about it
    lines: list[int] | None = None  # of each row, where it ends in the file

    def where(self, row: int) -> str:
        """Where a row stands, for a message."""
        return f"{self.source}, line {self.lines[row]}" if self.lines is not None else f"{self.source}, row {row}"


def read_table(
    source: Any, *, header: bool | None = None, delimiter: str | None = None, ragged: Literal["error", "skip"] = "error"
) -> Table:
    """A table from a file (CSV, TSV and kin, also as .gz; Parquet through pandas or polars), a data frame, or columns by name.

    header: whether the first record names the columns; None finds out. delimiter: None finds out. ragged: "skip" leaves out records of
    another width than most, "error" is a TableError that names the first. FileNotFoundError and other OSErrors are as Python raises them.
    """
    if not isinstance(source, (str, Path)):
        return _of_columns(source)
    path = Path(source)
    if path.suffix.lower() in (".parquet", ".pq", ".feather"):
        return _of_columns(_frame(path), str(path))
    notes: list[str] = []
    text = _text(path, notes)
    records, found = _records(text, str(path), delimiter)
    if not records:
        raise TableError(f"{path}: there is no data in this file")
    if found not in (",", None):
        notes.append(f"cells are separated by {DELIMITERS.get(found, repr(found))}")
    table = _table(records, header, ragged, str(path), notes)
    if found == ";":
        _with_points(table)
    return table


def read_with_columns(source: Any, names: Iterable[str], **reading: Any) -> Table:
    """`read_table` where it is known which columns there have to be: it decides whether the first line of a file is a header.

    TableError as of `read_table`; the caller finds out what is still missing.
    """
    wanted, fault, found = set(names), None, None
    try:
        found = read_table(source, **reading)
        if wanted <= set(found.columns) or not isinstance(source, (str, Path)) or "header" in reading:
            return found
    except TableError as error:  # as of a single line, which is a header or a row
        fault = error
    for header in (True, False):
        with suppress(TableError):
            other = read_table(source, header=header, **reading)
            if wanted <= set(other.columns):
                return other
    if found is None:
        assert fault is not None
        raise fault
    return found


def _with_points(table: Table) -> None:
    """In a file of semicolons a number such as 1,234 is no thousand: its decimal comma becomes a point."""
    for name, cells in table.columns.items():
        there = [cell for cell in cells if cell is not None]
        if any("," in cell for cell in there) and all(_THREE_DECIMALS.fullmatch(cell) for cell in there):
            table.columns[name] = np.array([cell and cell.replace(",", ".") for cell in cells], object)
            table.notes.append(f'"{name}": commas are decimal, as cells are separated by semicolons')


def _text(path: Path, notes: list[str]) -> str:
    """What a file says, with newlines as line ends."""
    if path.is_dir():
        raise TableError(f"{path}: is a folder; name one file in it")
    content = content_of(path, TableError)
    if other := next((name for mark, name in OTHERS.items() if content.startswith(mark)), None):
        raise TableError(f"{path}: is {other}, no table; save it as CSV")
    try:
        text = content.decode(marked(content))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        text = content.decode("cp1252", errors="replace")
        notes.append(f"not UTF-8 (first in line {line}): read as Windows-1252")
    return text_of(text, path, TableError, "is it a table?")


def _records(text: str, source: str, delimiter: str | None) -> tuple[list[Record], str | None]:
    """Every record with the number of its line, and what its cells are separated by. Comments and empty lines are left out."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    comment = first.lstrip()[:1] if first.lstrip()[:1] in ("#", "%") and len(first.strip()) > 1 else None
    if comment is not None and not any(line.strip() and not line.lstrip().startswith(comment) for line in lines):
        comment = None
    if delimiter is None:
        start = "\n".join([line for line in lines if line.strip() and not (comment and line.lstrip().startswith(comment))][:LOOKED_AT])
        delimiter = _delimiter(start)
    return [(number, cells) for number, cells in _parsed(text, delimiter or ",", comment, source) if any(cells)], delimiter


def _parsed(text: str, delimiter: str, comment: str | None, source: str, *, whole: bool = True) -> Iterator[Record]:
    """Records with their lines. whole: the text ends where its file does."""
    spaced = delimiter == " "
    lines = [_blank(line, comment).strip().replace("\t", " ") if spaced else _blank(line, comment) for line in text.split("\n")]
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, skipinitialspace=True)
    begin = 1  # the record's first line
    try:
        for cells in reader:
            if whole and reader.line_num == len(lines) and _unclosed(lines[begin - 1 :], delimiter):
                raise TableError(f"{source}, line {begin}: a quote opens there and is never closed; close it, or take it out")
            yield reader.line_num, [cell.strip() for cell in cells]
            begin = reader.line_num + 1
    except csv.Error as error:
        away = "a quote may not be closed; otherwise shorten the cell" if "limit" in str(error) else "mend that line"
        raise TableError(f"{source}, line {begin}: {error}; {away}") from error


def _unclosed(lines: list[str], delimiter: str) -> bool:
    """Whether the last record of a file ends within quotes."""
    try:
        list(csv.reader((line + "\n" for line in lines), delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def _blank(line: str, comment: str | None) -> str:
    return "" if comment is not None and line.lstrip().startswith(comment) else line


def _delimiter(text: str) -> str | None:
    """What separates the cells of nearly every record into equally many, or None where all is one column."""
    best, most = None, 0.0
    for candidate in DELIMITERS:
        try:
            widths = [len(cells) for _, cells in _parsed(text, candidate, None, "", whole=False) if any(cells)]
        except TableError:
            continue
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        share = count / max(len(widths), 1)
        if width > 1 and share > most + 0.1 and share >= (0.95 if candidate == " " else 0.5):
            best, most = candidate, share
    return best


Record = tuple[int, list[str]]  # where it ends in the file, and its cells


def _table(records: list[Record], header: bool | None, ragged: str, source: str, notes: list[str]) -> Table:
    records, width = _framed(records, notes)
    line, first = records[0]
    body = records[1:]
    named = _is_header(first, [cells for _, cells in body if len(cells) == width]) if header is None else header
    if named and len(first) == width - 1:
        first = ["", *first]  # the first column, of the rows' names, has none
    if named and len(first) > width and all(len(cells) <= len(first) for _, cells in body):
        notes.append(f"most lines end before the header's {len(first)} columns: what they lack is missing")
        width = len(first)
        body = [(number, cells + [""] * (width - len(cells))) for number, cells in body]
    names = _names(first if named else [""] * width, width, named, source, line, notes)
    if not named:
        body = records
        called = f"columns are called {names[0]}, … {names[-1]}" if width > 1 else f"the column is called {names[0]}"
        notes.append(f"there is no header: {called}")
    body = _even(body, width, ragged, source, notes)
    if not body:
        raise TableError(f"{source}: there is a header, but no data below it")
    by_column = zip(*(cells for _, cells in body), strict=True)
    cells_of = [np.array([None if cell.lower() in MISSING else cell for cell in column], object) for column in by_column]
    return Table(dict(zip(names, cells_of, strict=True)), len(body), source, notes, [number for number, _ in body])


def _framed(records: list[Record], notes: list[str]) -> tuple[list[Record], int]:
    """Without a first line of another kind and without the empty cells behind a last delimiter; and how wide most records are."""
    first, body = records[0][1], records[1:]
    width = Counter(len(cells) for _, cells in body or records).most_common(1)[0][0]
    if len(first) not in (width, width - 1) and len(body) > 1 and len({len(cells) for _, cells in body}) == 1:
        notes.append(f"line {records[0][0]} is of another width than all others, and is left out")
        records, first, body = body, body[0][1], body[1:]
    behind = width > 1 and bool(body) and all(len(cells) == width and not cells[-1] for _, cells in body)
    if behind and (len(first) == width - 1 or (len(first) == width and not first[-1])):
        width -= 1
        records = [(number, cells[:width]) for number, cells in records]
    return records, width


def _even(body: list[Record], width: int, ragged: str, source: str, notes: list[str]) -> list[Record]:
    """The records of the right width. Others are comments, or left out if the caller said so, or an error."""
    wrong = [(number, cells) for number, cells in body if len(cells) != width]
    remarks = [number for number, cells in wrong if cells[0][:1] in ("#", "%")]
    if remarks:
        notes.append(f"{len(remarks)} lines are comments (the first is line {remarks[0]})")
    wrong = [(number, cells) for number, cells in wrong if cells[0][:1] not in ("#", "%")]
    if wrong and ragged == "error":
        number, cells = wrong[0]
        more = f", and {len(wrong) - 1} more such lines" if len(wrong) > 1 else ""
        away = 'mend the file, or leave such lines out with --skip-ragged (ragged="skip")'
        raise TableError(f"{source}, line {number}: {len(cells)} cells where most lines have {width}{more}; {away}")
    if wrong:
        notes.append(f"{len(wrong)} lines of another width are left out (the first is line {wrong[0][0]})")
    return [(number, cells) for number, cells in body if len(cells) == width]


def _is_header(first: list[str], body: list[list[str]]) -> bool:
    """Whether a record names the columns: over numbers stands a word, or, where all is words, each is there once and not again below."""
    if not body:
        return True
    if len(first) == len(body[0]) - 1:
        return True
    below = [[c for c in column if c.lower() not in MISSING][:LOOKED_AT] for column in zip(*body[:LOOKED_AT], strict=True)]
    numeric = [bool(column) and sum(bool(_NUMBER.fullmatch(c)) for c in column) >= 0.9 * len(column) for column in below]
    if len(first) != len(below):
        return True
    words = [cell.lower() not in MISSING and not _NUMBER.fullmatch(cell) for cell in first]
    if any(word and is_number for word, is_number in zip(words, numeric, strict=True)):
        return True
    filled = [cell for cell in first if cell]
    if any(numeric):  # only counted columns, as 0, 1, 2 or years, are a header over numbers
        return _counted(first, numeric) and not any(_counted(row, numeric) for row in body[:5])
    if all(_NUMBER.fullmatch(cell) for cell in filled):
        return bool(filled) and len(set(filled)) == len(filled)  # numbers over words
    return len(set(filled)) == len(filled) and not any(cell in column for cell, column in zip(first, below, strict=True) if cell)


def _counted(cells: list[str], numeric: list[bool]) -> bool:
    found = [float(cell) for cell, is_number in zip(cells, numeric, strict=True) if is_number and cell.isdecimal()]
    years = len(found) == 2 and 1900 <= found[0] < 2100
    return len(found) == sum(numeric) and (len(found) > 2 or years) and all(b == a + 1 for a, b in pairwise(found))


def _names(first: list[str], width: int, named: bool, source: str, line: int, notes: list[str]) -> list[str]:
    if len(first) != width:
        named_here = f"the header names {len(first)} columns where most lines have {width} cells"
        raise TableError(f"{source}, line {line}: {named_here}; mend one or the other")
    names: list[str] = []
    for place, cell in enumerate(first):
        name, times = cell or f"column {place + 1}", 1
        while name in names:
            times += 1
            name = f"{cell or f'column {place + 1}'} ({times})"
        if times > 1:
            notes.append(f'two columns are called "{cell}": the later is "{name}"')
        elif named and not cell:
            notes.append(f'a column has no name: it is "{name}"')
        names.append(name)
    return names


# ---------------------------------------------------------------- from memory


def _frame(path: Path) -> Any:
    """A file of columns by pandas or polars, whichever is there."""
    kind = "feather" if path.suffix.lower() == ".feather" else "parquet"
    for library, function in (("pandas", f"read_{kind}"), ("polars", "read_ipc" if kind == "feather" else "read_parquet")):
        try:
            module = import_module(library)
        except ImportError:
            continue
        try:
            return getattr(module, function)(path)
        except ImportError as error:
            raise TableError(f"{path}: {library} cannot read it: {error}") from error
    raise TableError(f"{path}: reading {kind} takes pandas with pyarrow, or polars (pip install polars); or save the table as CSV")


def _of_columns(frame: Any, source: str = "the table") -> Table:
    """From a data frame (of pandas, polars and others that have `columns` and give one by its name) or a mapping of names to sequences."""
    names = list(frame if isinstance(frame, Mapping) else getattr(frame, "column_names", getattr(frame, "columns", ())))
    if isinstance(frame, np.ndarray) and frame.dtype.names:
        names = list(frame.dtype.names)
    elif isinstance(frame, np.ndarray) and frame.ndim == 2:
        frame = {f"column {i + 1}": frame[:, i] for i in range(frame.shape[1])}
        names = list(frame)
    if not names:
        raise TableError(f"a table is a file's path, a data frame, or columns by name; got {type(frame).__name__}")
    columns = {str(name): np.asarray(frame[name]) for name in names}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise TableError(f"{source}: columns are of several lengths: {sizes}")
    return Table(columns, next(iter(sizes.values())), source)
