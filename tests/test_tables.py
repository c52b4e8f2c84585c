"""Tables as people write them: encodings, delimiters, headers, kinds of columns, statistics of the training rows, and what is refused."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import gradlab as gl
from gradlab.data import TableDataset, TableError, read_table
from gradlab.data.tables import TableCoding, TargetCoding, column_of, read_with_columns, split_rows

PLAIN = "name,size,colour\na,1,red\nb,2,blue\nc,3,red\n"
ROWS = [("a", "1", "red"), ("b", "2", "blue"), ("c", "3", "red")]
# One table, in many hands: what the file holds, and what is said about it.
WRITTEN = {
    "plain": (PLAIN, ""),
    "semicolons": (PLAIN.replace(",", ";"), "semicolons"),
    "tabs": (PLAIN.replace(",", "\t"), "tabs"),
    "bars": (PLAIN.replace(",", "|"), "bars"),
    "runs of spaces": ("name    size  colour\n a   1     red\n b   2   blue\n c   3     red\n", "spaces"),
    "padded": ("name , size , colour\na , 1 , red\n b, 2,blue\nc ,3, red \n", ""),
    "quoted": ('"name","size","colour"\n"a","1","red"\n"b","2","blue"\n"c","3","red"\n', ""),
    "a byte order mark": ("\ufeff" + PLAIN, ""),
    "carriage returns": (PLAIN.replace("\n", "\r"), ""),
    "both line ends": (PLAIN.replace("\n", "\r\n"), ""),
    "comments": ("# made by hand\n# in March\n" + PLAIN, ""),
    "comments between": (PLAIN.replace("b,2", "## the blue ones ##\nb,2"), "1 lines are comments"),
    "empty lines": ("\n" + PLAIN.replace("\n", "\n\n"), ""),
    "no line end": (PLAIN.strip(), ""),
    "delimiters at the ends": (PLAIN.replace("\n", ",\n"), ""),
    "delimiters at the ends of data": (PLAIN.replace("red\n", "red,\n").replace("blue\n", "blue,\n"), ""),
}


@pytest.mark.parametrize("hand", WRITTEN)
def test_the_same_table_in_many_hands(hand, tmp_path):
    text, note = WRITTEN[hand]
    (tmp_path / "t.csv").write_bytes(text.encode())
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("t.csv", "t.csv.gz"):
        table = read_table(tmp_path / name)
        assert list(table.columns) == ["name", "size", "colour"]
        assert list(zip(*table.columns.values(), strict=True)) == ROWS
        assert note in "; ".join(table.notes)


HEADERS = {
    "words over numbers": ("x,y\n1,2\n3,4\n", ["x", "y"], 2, ""),
    "none": ("1,2\n3,4\n5,6\n", ["column 1", "column 2"], 3, "no header"),
    "numbers and words for one": ("150,4,setosa\n1,2,3\n3,4,5\n", ["150", "4", "setosa"], 2, ""),
    "counted": ("0,1,2\n1,5,2\n3,4,9\n", ["0", "1", "2"], 2, ""),
    "rows that count": ("1,2,3\n4,5,6\n7,8,9\n", ["column 1", "column 2", "column 3"], 3, "no header"),
    "years for one": ("country,2001,2002\nA,1,2\nB,3,4\n", ["country", "2001", "2002"], 2, ""),
    "words over words": ("who,where\nA,here\nB,there\nC,here\n", ["who", "where"], 3, ""),
    "words, and no header": ("A,here\nB,there\nC,here\n", ["column 1", "column 2"], 3, "no header"),
    "an index without a name": (",x\n0,5\n1,7\n", ["column 1", "x"], 2, '"column 1"'),
    "names of rows": ("x,y\nr1,5,6\nr2,7,8\n", ["column 1", "x", "y"], 2, '"column 1"'),
    "doubled": ("x,x,x\n1,2,3\n4,5,6\n", ["x", "x (2)", "x (3)"], 2, 'called "x"'),
    "a count in front": ("3,2,good,bad\n1,2\n3,4\n5,6\n", ["column 1", "column 2"], 3, "line 1 is of another width"),
    "wider than its lines": ("x,y,since\n1,2\n3,4\n5,6,2001\n", ["x", "y", "since"], 3, "what they lack is missing"),
    "one column": ("x\n1\n2\n", ["x"], 2, ""),
    "one column without": ("1\n2\n", ["column 1"], 2, "no header: the column is called column 1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADERS)
def test_headers(kind, tmp_path):
    text, names, rows, note = HEADERS[kind]
    (tmp_path / "t.csv").write_text(text)
    table = read_table(tmp_path / "t.csv")
    assert (list(table.columns), table.rows) == (names, rows)
    assert note in "; ".join(table.notes)


def test_what_the_caller_knows(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,4\n")
    assert read_table(tmp_path / "t.csv", header=False).columns["column 1"].tolist() == ["x", "1", "3"]
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    assert list(read_table(tmp_path / "t.csv", header=True).columns) == ["1", "2"]
    (tmp_path / "t.csv").write_text("a;b,c;d\n1;2,3;4\n")
    assert list(read_table(tmp_path / "t.csv", delimiter=",").columns) == ["a;b", "c;d"]


def test_older_encodings_and_quotes(tmp_path):
    (tmp_path / "t.csv").write_bytes("stadt,n\nKöln,1\nZürich,2\n".encode("cp1252"))
    table = read_table(tmp_path / "t.csv")
    assert table.columns["stadt"].tolist() == ["Köln", "Zürich"] and "Windows-1252" in table.notes[0]
    (tmp_path / "u.csv").write_bytes("x,y\n1,2\n".encode("utf-16"))
    assert list(read_table(tmp_path / "u.csv").columns) == ["x", "y"]
    (tmp_path / "q.csv").write_text('x,text\n1,"a, b\nand ""c"""\n2,d\n')
    quoted = read_table(tmp_path / "q.csv")
    assert quoted.columns["text"].tolist() == ['a, b\nand "c"', "d"] and quoted.where(1).endswith("line 4")


@pytest.mark.parametrize("word", ["", "NA", "n/a", "NaN", "null", "None", "?", "-", "."])
def test_what_is_missing(word, tmp_path):
    (tmp_path / "t.csv").write_text(f"x,y,z\n1,2,a\n3,{word},b\n{word},5,{word}\n")
    columns = [column_of(name, cells) for name, cells in read_table(tmp_path / "t.csv").columns.items()]
    assert [c.missing.tolist() for c in columns] == [[False, False, True], [False, True, False], [False, False, True]]
    assert [c.kind for c in columns] == ["number", "number", "category"]


def mixed(rows=200, seed=0):
    """Columns of each kind, and two targets that depend on them."""
    rng = np.random.default_rng(seed)
    size, colour = rng.normal(50, 10, rows), rng.choice(["red", "green", "blue"], rows, p=[0.6, 0.3, 0.1])
    day = np.datetime64("2020-01-01") + rng.integers(0, 700, rows)
    size_there = [f"{v:.4f}" if i % 9 else "" for i, v in enumerate(size)]
    return {
        "id": np.arange(rows), "size": size_there, "colour": colour, "day": day, "wet": rng.choice(["yes", "no"], rows),
        "price": size * 2 + (colour == "red") * 30 + rng.normal(size=rows), "grade": np.where(size > 55, "good", "poor"),
    }  # fmt: skip


def as_csv(table, path):
    lines = [",".join(table), *(",".join(str(c) for c in row) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_statistics_are_of_the_training_rows_alone():
    table = mixed()
    dataset = TableDataset(table, "price", exclude=["grade"], seed=3)
    training = dataset.training_rows
    numbers, categories, target = (t.numpy() for t in dataset.tensors)
    scaled = numbers[training]
    lost = np.array([not c for c in table["size"]])
    there = ~lost[training]
    assert abs(scaled[there, 0].mean()) < 1e-5 and abs(scaled[there, 0].std() - 1) < 1e-5
    assert (numbers[lost, 0] == 0).all() and numbers[:, 1].tolist() == (lost * 1.0).tolist()
    assert abs(target[training].mean()) < 1e-5 and abs(target[training].std() - 1) < 1e-5
    np.testing.assert_allclose(dataset.target.decoded(target), table["price"], rtol=1e-5)
    assert categories.min() >= 1 and dataset.coding.words["colour"][0] == "red"
    spoilt = table["price"].copy()
    spoilt[dataset.validation_rows] = 1e9
    other = TableDataset({**table, "price": spoilt}, "price", seed=3, exclude=["grade"], task="number")
    assert other.target == dataset.target


def test_from_files_frames_and_mappings_alike(tmp_path):
    table = mixed()
    path = as_csv(table, tmp_path / "t.csv")
    expected = [t.numpy() for t in TableDataset(table, "grade", exclude=["price"]).tensors]
    sources = [path, str(path)]
    try:
        import pandas
    except ImportError:
        pass
    else:
        sources += [pandas.DataFrame(table), pandas.read_csv(path)]
    for source in sources:
        for got, want in zip(TableDataset(source, "grade", exclude=["price"]).tensors, expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
    record = np.rec.fromarrays([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]], names="x,y")
    assert TableDataset(record, "y", task="number").coding.sizes == (1, [])
    assert TableDataset(np.arange(12.0).reshape(4, 3) ** 2, "-1", task="number").coding.sizes == (2, [])


def test_a_coding_goes_through_json_and_meets_new_rows():
    dataset = TableDataset(mixed(), "grade", exclude=["price"])
    coding = TableCoding.from_state(json.loads(json.dumps(dataset.coding.state())))
    assert coding == dataset.coding
    assert TargetCoding(**json.loads(json.dumps(dataset.target.state()))) == dataset.target
    for got, want in zip(coding.coded(dataset.table), dataset.tensors, strict=False):
        np.testing.assert_array_equal(got, want.numpy())
    new = {"size": ["51.5", "", "1e9"], "colour": ["red", "mauve", None], "day": ["2020-03-01", "2021-01-01", ""], "wet": ["no", "no", "?"]}
    numbers, categories = coding.coded(read_table(new))
    assert np.isfinite(numbers).all() and abs(numbers).max() <= 10 and categories[:, 0].tolist() == [1, 0, 0]
    with pytest.raises(TableError, match="no column size; it has colour"):
        coding.coded(read_table({"colour": ["red"], "day": ["2020-03-01"], "wet": ["no"]}))
    with pytest.raises(TableError, match=r"row 1: column \"size\" is no number: the cell there is 'large'"):
        coding.coded(read_table({**new, "size": ["1", "large", "2"]}))


def test_words_among_numbers(tmp_path):
    """They count as missing, and are said with file, line and way out; also when they come again, but not others."""
    many = [f"{v:.4f}" for v in np.random.default_rng(0).normal(size=100)]
    cells = [*many[:50], "large", *many[50:], "unknown"]
    path = as_csv({"x": cells, "z": range(102), "y": np.arange(102.0) ** 1.5}, tmp_path / "t.csv")
    dataset = TableDataset(path, "y")
    note = next(note for note in dataset.notes if note.startswith('"x"'))
    assert "2 cells are no numbers" in note and "'large' in" in note and "t.csv, line 52" in note and "--exclude" in note
    coding = TableCoding.from_state(json.loads(json.dumps(dataset.coding.state())))
    assert coding == dataset.coding and coding.strays == {"x": ["large", "unknown"]}
    assert coding.coded(read_table({"x": ["unknown"], "z": [3]}))[0][0, :2].tolist() == [0, 1]
    as_csv({"x": ["1", "huge"], "z": [1, 2]}, tmp_path / "new.csv")
    with pytest.raises(TableError, match=r"new\.csv, line 3: column \"x\" is no number: the cell there is 'huge'; mend it"):
        coding.coded(read_table(tmp_path / "new.csv"))
    with pytest.raises(TableError, match=r"t\.csv, line 52: the target \"x\" is 'large' there, where most rows have a number"):
        TableDataset(path, "x")
    codes = [str(i % 3) for i in range(80)] + ["none of them"]
    assert TableDataset({"x": codes, "y": np.arange(81) ** 2}, "y").coding.kinds["x"] == "category"


def test_a_name_that_the_caller_gives_shows_the_header(tmp_path):
    """Over columns of words it cannot be seen; and a file of one row may have none."""
    rng = np.random.default_rng(0)
    table = {"a": rng.choice([*"abc"], 60), "b": rng.choice([*"xyz"], 60), "y": rng.choice([*"uv"], 60)}
    assert list(read_table(as_csv(table, tmp_path / "t.csv")).columns) == ["column 1", "column 2", "column 3"]
    dataset = TableDataset(tmp_path / "t.csv", "y")
    assert (list(dataset.coding.kinds), len(dataset)) == (["a", "b"], 60)
    (tmp_path / "row.csv").write_text("1,2\n")
    assert read_with_columns(tmp_path / "row.csv", ["column 1", "column 2"]).rows == 1
    with pytest.raises(TableError, match="no data below"):
        read_with_columns(tmp_path / "row.csv", ["x"])
    assert list(read_with_columns(tmp_path / "t.csv", ["z"]).columns) == ["column 1", "column 2", "column 3"]  # as found out


def test_splits():
    classes = np.array([0] * 90 + [1] * 9 + [2])
    training, held_out = split_rows(100, 0.2, classes=classes)
    assert sorted([*training, *held_out]) == list(range(100))
    assert np.bincount(classes[held_out], minlength=3).tolist() == [18, 2, 0]
    again, other = (split_rows(100, 0.2, classes=classes, seed=seed)[1] for seed in (0, 1))
    assert again.tolist() == held_out.tolist() != other.tolist()
    assert split_rows(10, 0.3, chronological=True)[1].tolist() == [7, 8, 9]
    assert [len(part) for part in split_rows(2, 0.01)] == [1, 1]
    assert [len(part) for part in split_rows(3, 0.5, classes=np.arange(3))] == [2, 1]
    with pytest.raises(ValueError, match="two rows at least"):
        split_rows(1)
    dataset = TableDataset({"x": np.arange(100.0) ** 2, "y": np.array(["a", "b"])[(np.arange(100) >= 90) * 1]}, "y")
    assert dataset.class_weights.numpy() == pytest.approx([80 / (2 * 72), 80 / (2 * 8)])


def test_targets_are_told_apart():
    rows = np.arange(300)
    for values, kind, classes in [
        (np.array(["b", "a", "c"])[rows % 3], "classes", ["a", "b", "c"]), (rows % 2, "classes", ["0", "1"]),
        (rows % 11, "classes", [str(i) for i in range(11)]), (rows * 1.5, "number", []), (rows, "number", []),
        (np.array(["yes", "no"])[rows % 2], "classes", ["no", "yes"]), (rows % 2 == 0, "classes", ["False", "True"]),
    ]:  # fmt: skip
        found, coded = TargetCoding.of(read_table({"x": rows, "y": values}), "y")
        assert (found.kind, found.classes) == (kind, classes)
        if classes:
            assert found.decoded(np.eye(len(classes))[coded])[:3].tolist() == [classes[c] for c in coded[:3]]
    assert TargetCoding.of(read_table({"x": rows, "y": rows % 3}), "y", "number")[0].kind == "number"


@pytest.mark.parametrize(("target", "other", "loss"), [("grade", "price", gl.nn.CrossEntropyLoss()), ("price", "grade", gl.nn.MSELoss())])
def test_it_trains(target, other, loss):
    gl.manual_seed(0)
    dataset = TableDataset(mixed(400), target, exclude=[other])
    width, sizes = dataset.coding.sizes
    embeddings = gl.nn.ModuleList([gl.nn.Embedding(size, 3) for size in sizes])
    net = gl.nn.Sequential(gl.nn.Linear(width + 3 * len(sizes), 32), gl.nn.ReLU(), gl.nn.Linear(32, len(dataset.target.classes) or 1))
    optimizer = gl.optim.AdamW([*embeddings.parameters(), *net.parameters()], lr=1e-2)

    def outputs(numbers, categories):
        found = net(gl.cat([numbers, *(e(categories[:, i]) for i, e in enumerate(embeddings))], 1))
        return found if dataset.target.classes else found[:, 0]

    for _ in range(15):
        for numbers, categories, wanted in gl.utils.data.DataLoader(dataset.training, 32, shuffle=True):
            optimizer.zero_grad()
            loss(outputs(numbers, categories), wanted).backward()
            optimizer.step()
    numbers, categories, wanted = dataset.validation.tensors
    with gl.no_grad():
        found = outputs(numbers, categories)
    if target == "grade":
        assert (found.argmax(1) == wanted).float().mean() > 0.85
    else:
        assert (found - wanted).square().mean() < 0.35  # of a variance of 1; a ninth of the sizes is missing


REFUSED = {
    "a short line": ("x,y\n1,2\n3\n4,5\n", "x", r"t\.csv, line 3: 1 cells where most lines have 2; .*ragged=.skip"),
    "long lines": ("x,y\n1,2\n3,4,5\n4,5\n6,7,8\n8,9\n", "x", "line 3: 3 cells where most lines have 2, and 1 more"),
    "nothing": ("", "x", r"t\.csv: there is no data"),
    "a header alone": ("x,y\n", "x", "no data below"),
    "no such target": ("x,y\n1,2\n3,4\n", "z", 'no column "z" to predict; the columns are x, y'),
    "one class": ("x,y\n1,a\n2,a\n3,a\n", "y", "'a' in every row"),
    "one number": ("x,y\n1,5\n2,5\n3,5\n", "y", "'5' in every row"),
    "too many classes": ("x,y\n" + "".join(f"{i * i},word {i}\n" for i in range(60)), "y", "60 classes in 60 rows"),
    "a missing target": ("x,y\n1,a\n2,\n3,b\n", "y", 'line 3: the target "y" is missing there'),
    "nothing to learn from": ("x,y\n1,a\n1,b\n1,a\n", "y", "no column is left to learn from.*it is 1 in every row"),
    "no text": ("x,y\n\0\0,2\n", "x", "bytes that are no text"),
    "an open quote": ('x,y\n1,"' + "a\n" * 70000, "x", "line .*field larger than"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_no_table_is_refused(fault, tmp_path):
    text, target, message = REFUSED[fault]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TableError, match=message):
        TableDataset(tmp_path / "t.csv", target)


def test_other_refusals(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3\n4,5\n7,8\n")
    skipped = read_table(tmp_path / "t.csv", ragged="skip")
    assert skipped.rows == 3 and "1 lines of another width are left out (the first is line 3)" in skipped.notes
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv")
    whole = gzip.compress(b"x,y\n" + b"1,2\n" * 99)
    for damaged in (b"\x1f\x8bno", whole[:-9], whole[:12] + bytes(4) + whole[16:]):  # no header, cut off, another stream
        (tmp_path / "t.csv.gz").write_bytes(damaged)
        with pytest.raises(TableError, match="compressed, and damaged"):
            read_table(tmp_path / "t.csv.gz")
    with pytest.raises(TableError, match="several lengths"):
        read_table({"x": [1], "y": [1, 2]})
    with pytest.raises(TableError, match="got int"):
        read_table(5)
    with pytest.raises(TableError, match='no column "z"'):
        TableDataset(mixed(), "price", exclude=["z"])
    with pytest.raises(TableError, match='"colour" is no number'):
        TableDataset(mixed(), "price", kinds={"colour": "number"})
    with pytest.raises(TableError, match="one row"):
        TableDataset({"x": [1.5], "y": [2.0], "z": ["a"]}, kinds={"x": "number"})
