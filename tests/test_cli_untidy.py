"""Untidy data from the shell: what is wrong with it is one line with its place and the way out, and no folder is left."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from gradlab.cli import main
from gradlab.data.tables.reading import OTHERS
from gradlab.deploy.build import LIBRARY

DAYS = [f"2020-{month:02d}-{day:02d}" for month in (1, 2, 3) for day in range(1, 29)]
TABLES = {  # a file's content, options, and what is said of it
    "a quote that stays open": (
        'x,t\n1,A\n2,"B\n' + "3,A\n4,B\n" * 20,
        "--target t",
        "t.csv, line 3: a quote opens there and is never closed",
    ),
    "a cell too long": (
        "x,t\n1,A\n" + f"2,{'z' * 200_000}\n",
        "--target t",
        "t.csv, line 3: field larger than field limit (131072); a quote",
    ),
    "infinite": (
        "x,t\n" + "1,1.5\n2,3.5\n" * 9 + "1,-inf\n",
        "--target t",
        "line 20: the target \"t\" is '-inf' there, which is no finite number",
    ),
    "the target alone": ("t\n" + "1.5\n2\n7\n" * 9, "--target t", 'no column is left to learn from: "t" is the only one'),
    "the target excluded": ("x,t\n" + "1,A\n2,B\n" * 9, "--target t --exclude t", '"t" is to be predicted, and is excluded'),
    "all else excluded": ("x,t\n" + "1,A\n2,B\n" * 9, "--target t --exclude x", "all others are excluded"),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gradlab.cli.devices.cuda_available", lambda: False)


def refused(capsys, *arguments: str) -> str:
    assert main([*arguments]) in (1, 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("gradlab"), err
    assert not Path("runs").exists() or not list(Path("runs").iterdir()), "nothing is left behind"
    return err


@pytest.mark.parametrize("kind", TABLES)
def test_tables(kind, capsys):
    content, options, said = TABLES[kind]
    Path("t.csv").write_text(content)
    assert said in refused(capsys, "train", "table", "t.csv", *shlex.split(options))


@pytest.mark.parametrize("mark", OTHERS)
def test_files_of_other_kinds(mark, capsys):
    Path("t.csv").write_bytes(mark + b"\nx,t\n1,A\n" * 9)
    for kind in (["table", "t.csv", "--target", "t"], ["series", "t.csv"]):
        said = refused(capsys, "train", *kind)
        assert f"t.csv: is {OTHERS[mark]}, no table; save it as CSV" in said


def test_quotes_that_are_closed_are_no_fault():
    """Cells of several lines, also the last, and marks that open nothing."""
    for content in ('x,t\n1,"a\nb"\n2,"c\nd"', 'x,t\n1,5" tube\n2,"c\nd"\n', 'x,t\n1,"a""b"\n2,"c"x\n'):
        Path("t.csv").write_text(content)
        assert gl.data.read_table("t.csv").rows == 2


def test_a_class_of_one_row(capsys):
    Path("t.csv").write_text("x,t\n" + "1,A\n2,B\n" * 15 + "3,C\n")
    assert main(["train", "table", "t.csv", "--target", "t", "--epochs", "1"]) == 0
    assert "note: classes of one row alone, which cannot be both learned and measured: C\n" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--date", "date"]])
def test_a_date_that_is_none_is_named_in_a_series(options, capsys):
    Path("s.csv").write_text("date,y\n" + "".join(f"{'someday' if i == 50 else day},{i % 7}\n" for i, day in enumerate(DAYS)))
    said = refused(capsys, "train", "series", "s.csv", "--horizon", "3", *options)
    assert "s.csv, line 52: column \"date\" is no date: the cell there is 'someday'; mend it" in said


def test_a_date_that_is_none_counts_as_missing_in_a_table(capsys):
    Path("s.csv").write_text("date,y\n" + "".join(f"{'someday' if i == 50 else day},{i}.5\n" for i, day in enumerate(DAYS)))
    assert main(["train", "table", "s.csv", "--target", "y", "--epochs", "1"]) == 0
    assert "1 cells are no dates and count as missing, the first is 'someday' in s.csv, line 52" in capsys.readouterr().out
    assert main(["predict", "runs/table-1", "s.csv"]) == 0


def test_predictions_have_all_their_digits(capsys):
    """Six would make one number of all of these."""
    Path("t.csv").write_text("x,t\n" + "".join(f"{i},{1e9 + i / 1000}\n" for i in range(100)))
    assert main(["train", "table", "t.csv", "--target", "t", "--epochs", "1", "--out", "a run"]) == 0
    out = capsys.readouterr().out
    assert "use it: gradlab predict 'a run' new.csv" in out and "gl.load_run(&quot;a run&quot;)" in Path("a run/report.html").read_text()
    assert main(["predict", "a run", "t.csv", "--out", "p.csv"]) == 0
    with open("p.csv", newline="") as file:
        found = np.array([float(row["prediction"]) for row in csv.DictReader(file)])
    assert np.array_equal(found, gl.load_run("a run").predict("t.csv")["prediction"]) and len(np.unique(found)) == 100


def images(folder: str, sizes: list[tuple[int, int]], each: int) -> None:
    library, random = pytest.importorskip("PIL.Image"), np.random.default_rng(0)
    for name in "ab":
        Path(folder, name).mkdir(parents=True)
        for i in range(each):
            width, height = sizes[i % len(sizes)]
            library.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(Path(folder, name, f"{i}.png"))


@pytest.mark.parametrize("sizes", [[(1, 1)], [(2, 9)], [(300, 2), (1, 200)]])
def test_tiny_images_are_made_larger(sizes, capsys):
    images("i", sizes, 4)
    assert main(["train", "images", "i", "--epochs", "1", "--out", "run"]) == 0
    assert "x8; each time" in capsys.readouterr().out


def test_too_few_images(capsys):
    images("i", [(9, 9)], 1)
    assert "1 of 2 images is to be trained on, and two are the least; give more" in refused(capsys, "train", "images", "i")


def test_more_than_the_memory_holds(capsys):
    images("i", [(9, 9)], 4)
    said = refused(capsys, "train", "images", "i", "--size", "10000000")
    assert said.startswith("gradlab: there is not enough memory: Unable to allocate") and "; take smaller sizes or batches" in said


def test_a_run_that_diverges_at_once_leaves_nothing(capsys):
    Path("t.csv").write_text("x,t\n" + "1,A\n2,B\n" * 20)
    said = refused(capsys, "train", "table", "t.csv", "--target", "t", "--lr", "1e30")
    assert "try a smaller learning rate (--lr)\n" in said


@pytest.mark.parametrize("name", ["ends", "ends_well"])
def test_a_function_that_ends_the_program(name, capsys):
    Path("ending.py").write_text("import sys\n\ndef ends():\n    sys.exit(3)\n\ndef ends_well():\n    sys.exit()\n")
    assert "its code ends the program (SystemExit(" in refused(capsys, "train", f"ending.py:{name}")


def test_options_that_contradict_each_other(capsys):
    assert "--onnx, --glp, --c or --web, one at a time" in refused(capsys, "export", "run", "--c", "--onnx")
    said = refused(capsys, "train", "--resume", "run", "--seed", "0")
    assert "--seed: a resumed run keeps its settings" in said


@pytest.mark.parametrize("name", ["exp", "read", "index", "double"])
def test_exported_files_are_no_functions_of_c(name, capsys):
    Path("t.csv").write_text("x,t\n" + "1,A\n2,B\n" * 20)
    assert name in LIBRARY or name == "double"
    assert main(["train", "table", "t.csv", "--target", "t", "--epochs", "1", "--out", "run"]) == 0
    capsys.readouterr()
    said = refused(capsys, "export", "run", "--c", "--out", f"{name}.c")
    assert f"{name!r} is no name for functions of C" in said and "for example model.c" in said
