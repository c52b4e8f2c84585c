"""Seven data sets, each trained by one command to no less than a simple model reaches: tables, a series, a folder of images, a text."""

from __future__ import annotations

import json
import pydoc_data.topics

import pytest

import gradlab as gl
from gradlab.cli.entry import main

from repository import ROOT

DATA = ROOT / "tests" / "data"


def trained(folder, *command):
    """The description of a run; its training part is what the command says."""
    run = folder / "run"
    assert main(["train", *map(str, command), "--out", str(run)]) == 0
    return json.loads((run / "run.json").read_text())


def no_less(description, baseline):
    """The best epoch and the baseline, by the run's score."""
    score, best = description["score"], description["result"]["best"]
    simple = description["baselines"][baseline][score]
    assert best >= simple if description["greater"] else best <= simple
    return best, simple


@pytest.mark.parametrize(
    ("command", "least", "simple"),
    [
        (["iris.csv", "--target", "species", "--epochs", 15], 0.9, 0.9),
        (["penguins.csv", "--target", "species", "--epochs", 10], 0.97, 0.97),
        (["titanic.csv.gz", "--target", "survived", "--exclude", "alive", "--epochs", 12], 0.79, 0.77),
    ],
    ids=["iris", "penguins", "titanic"],
)
def test_tables(tmp_path, command, least, simple):
    best, linear = no_less(trained(tmp_path, "table", DATA / command[0], *command[1:]), "linear model")
    assert best >= least and linear >= simple  # logistic regression


def test_diabetes(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    numbers, target = datasets.load_diabetes(return_X_y=True)
    names = datasets.load_diabetes().feature_names
    lines = [",".join([*names, "progression"]), *(",".join(map(str, [*row, y])) for row, y in zip(numbers, target, strict=True))]
    (tmp_path / "diabetes.csv").write_text("\n".join(lines))
    best, ridge = no_less(trained(tmp_path, "table", tmp_path / "diabetes.csv", "--target", "progression", "--epochs", 15), "linear model")
    assert best > 0.45 and ridge > 0.45  # of the variance


def test_sunspots(tmp_path):
    command = ["series", DATA / "sunspots.csv", "--value", "SUNACTIVITY", "--horizon", 11, "--epochs", 3]
    best, autoregression = no_less(trained(tmp_path, *command), "autoregression")
    assert best < 22.3 and autoregression < 22.5  # sunspots, of the 11 years ahead


def test_digits_as_a_folder_of_pictures(tmp_path):
    images = pytest.importorskip("PIL.Image")
    pixels, labels = gl.data.digits()
    for i, (image, label) in enumerate(zip(pixels[:700], labels[:700], strict=True)):
        (tmp_path / "digits" / str(label)).mkdir(parents=True, exist_ok=True)
        images.fromarray(image * 15).save(tmp_path / "digits" / str(label) / f"{i}.png")
    best, linear = no_less(trained(tmp_path, "images", tmp_path / "digits", "--batch-size", 32, "--epochs", 12), "linear model")
    assert best > 0.96 and linear > 0.93


def test_characters_of_a_text(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(pydoc_data.topics.topics.values())[:40_000])
    sizes = ["--model", "gru", "--width", 64, "--layers", 1, "--context", 32, "--batch-size", 8, "--lr", 0.01, "--epochs", 1]
    best, bigram = no_less(trained(tmp_path, "text", tmp_path / "corpus.txt", *sizes), "bigram")
    assert best < bigram - 0.05 and 3 < bigram < 4  # bits for a character
