"""Columns of tables: what they hold, numbers as people write them, and codes that are the same when they are met again."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.data import TableDataset, read_table
from gradlab.data.tables import column_of

MANY = [str(v) for v in np.random.default_rng(0).normal(size=100)]
KINDS = {
    "numbers": (["1.5", "2", "-3e2"], "number", [1.5, 2, -300]),
    "thousands": (["1,500", "2,000,000.5", "3"], "number", [1500, 2000000.5, 3]),
    "decimal commas": (["1,5", "2,25", "-3"], "number", [1.5, 2.25, -3]),
    "decimal commas, some of three digits": (["1,5", "1,234", "0,512"], "number", [1.5, 1.234, 0.512]),
    "decimal commas that look like thousands": (["0,512", "1,234"], "number", [0.512, 1.234]),
    "grouped with points": (["1.234,56", "2.345.678,9", "7"], "number", [1234.56, 2345678.9, 7]),
    "grouped with points alone": (["1.234.567", "2.345.678"], "number", [1234567, 2345678]),
    "grouped with spaces": (["1 234", "12 345,5", "2\u00a0000"], "number", [1234, 12345.5, 2000]),
    "grouped with apostrophes": (["1'234.5", "2\u2019000"], "number", [1234.5, 2000]),
    "euros behind": (["10 €", "2.500,5 €"], "number", [10, 2500.5]),
    "a few words among numbers": ([*MANY[:60], "large", "unknown"], "number", [*map(float, MANY[:60]), np.nan, np.nan]),
    "shares": (["10%", "5.5%"], "number", [0.1, 0.055]),
    "money": (["$10", "$2,500.5"], "number", [10, 2500.5]),
    "truth": (["yes", "No", "yes"], "number", [1, 0, 1]),
    "infinite": (["1", "inf", "3"], "number", [1, np.nan, 3]),
    "days": (["2012-01-01", "1970-01-02"], "date", [15340, 1]),
    "days with slashes": (["2012/01/01", "1970/01/02"], "date", [15340, 1]),
    "days with points": (["01.02.1970", "31.01.1970"], "date", [31, 30]),
    "month first": (["1/31/1970", "2/1/1970"], "date", [30, 31]),
    "day first": (["31/1/1970", "1/2/1970"], "date", [30, 31]),
    "eight digits": (["19700102.0", "19700201.0"], "date", [1, 31]),
    "moments": (["1970-01-01T12:00:00", "1970-01-02 06:00"], "date", [0.5, 1.25]),
    "moments of a zone": (["1970-01-01T12:00:00+06:00", "1970-01-02T00:00:00Z"], "date", [0.25, 1]),
    "words": (["a", "b", "a"], "category", ["a", "b", "a"]),
    "codes": ([*"123" * 20], "category", [*"123" * 20]),
    "codes as fractions": (["1.0", "2.0", "3.0"] * 20, "category", ["1", "2", "3"] * 20),
    "long codes": (["1234567", "1234568", "1234569"] * 20, "category", ["1234567", "1234568", "1234569"] * 20),
    "codes with zeros in front": (["01", "02", "11"] * 20, "category", ["01", "02", "11"] * 20),
    "addresses of machines": (["10.0.0.1", "192.168.0.1"], "category", ["10.0.0.1", "192.168.0.1"]),
    "years": ([str(2000 + i % 5) for i in range(200)], "number", [2000.0 + i % 5 for i in range(200)]),
    "measured": (MANY, "number", [float(v) for v in MANY]),
    "empty": (["", "NA"], "left out", None),
    "constant": (["7", "7", "7"], "left out", None),
    "one word": (["on", "on"], "left out", None),
    "texts": ([f"text {i}" for i in range(30)], "left out", None),
    "mostly texts": ([f"text {i % 60}" for i in range(80)], "left out", None),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_columns(kind):
    cells, expected, values = KINDS[kind]
    column = column_of("year" if kind == "years" else "it", np.array([c if c not in ("", "NA") else None for c in cells], object))
    assert column.kind == expected
    if values is None:
        assert column.note
    elif column.kind == "category":
        assert column.values.tolist() == values
    else:
        np.testing.assert_allclose(column.values, values)


@pytest.mark.parametrize(("name", "dropped"), [
    ("id", True), ("PassengerId", True), ("user_id", True), ("column 1", True), ("Unnamed: 0", True), ("no.", True), ("year", False),
    ("valid", False), ("x", False), ("time", False),
])  # fmt: skip
def test_columns_that_number_the_rows(name, dropped):
    cells = np.array([str(i) for i in range(1, 40)], object)
    assert (column_of(name, cells).kind == "left out") == dropped
    table = {name: list(range(39)), "y": np.sin(np.arange(39.0))}
    dataset = TableDataset(table, "y")  # alone it is what there is to learn from
    assert dataset.coding.sizes == (1, [])
    assert TableDataset({**table, "z": np.cos(np.arange(39.0))}, "y").coding.sizes == (2 - dropped, [])


@pytest.mark.parametrize("cells", [
    ["1.0", "2.0", "3.0"] * 40, ["1", "2", "3"] * 40, ["01", "02", "03"] * 40, ["1234567", "1234568", "1234569"] * 40,
    np.array([1, 2, 3] * 40), np.array([1.0, 2.0, 3.0] * 40), np.array([1234567.0, 1234568.0, 1234569.0] * 40),
    np.array([1.1, 2.5, 3.5] * 40, np.float32).astype(object),
], ids=str)  # fmt: skip
def test_codes_are_the_same_when_they_are_met_again(cells):
    """A category's words are those of the training, however the table writes whole numbers."""
    dataset = TableDataset({"code": cells, "y": np.sin(np.arange(120.0))}, "y", kinds={"code": "category"})
    assert dataset.coding.coded(read_table({"code": cells[:3]}))[1][:, 0].tolist() == dataset.tensors[1][:3, 0].tolist()
    assert sorted(dataset.tensors[1][:3, 0].tolist()) == [1, 2, 3]
    guessed = TableDataset({"code": cells, "y": np.sin(np.arange(120.0))}, "y")
    again = guessed.coding.coded(read_table({"code": cells}))
    for got, want in zip(again, guessed.tensors, strict=False):
        np.testing.assert_array_equal(got, want.numpy())


def test_whole_numbers_are_the_same_words_in_files_and_frames():
    dataset = TableDataset({"code": ["1.0", "2.0", "3.0"] * 40, "y": ["1.0", "2.0"] * 60}, "y")
    assert dataset.target.classes == ["1", "2"]
    other = read_table({"code": np.array([3, 1]), "y": np.array([2, 1])})
    assert dataset.coding.coded(other)[1][:, 0].tolist() == dataset.tensors[1][[2, 0], 0].tolist()
    assert dataset.target.values(other).tolist() == [1, 0]


def test_commas_between_semicolons_are_decimal(tmp_path):
    (tmp_path / "t.csv").write_text("x;y\n1,234;1.234,50\n2,500;7\n-0;8\n")
    table = read_table(tmp_path / "t.csv")
    assert column_of("x", table.columns["x"]).values.tolist() == [1.234, 2.5, 0] and "commas are decimal" in table.notes[-1]
    assert column_of("y", table.columns["y"]).values.tolist() == [1234.5, 7, 8]


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e30, 1e200, 1.7e308])
def test_numbers_of_any_size(size):
    values = np.linspace(-1, 1, 50) * size
    dataset = TableDataset({"x": values, "y": values}, "y", task="number", kinds={"x": "number"})
    numbers, _, target = (t.numpy() for t in dataset.tensors)
    assert np.isfinite(numbers).all() and np.isfinite(target).all()
    if size > 1e-300:
        assert abs(numbers).max() == pytest.approx(np.sqrt(3), rel=0.2)
        np.testing.assert_allclose(dataset.target.decoded(target), values, rtol=1e-5, atol=size * 1e-6)
