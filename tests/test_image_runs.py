"""Runs of images: the digits from the shell, which repeat themselves to the bit, stop and go on; and folders of one's own images."""

import csv
import io
import itertools
import json
import math
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gradlab
from gradlab.cli import main
from gradlab.data import ImageError, digits
from gradlab.runs import Settings, load_run, start
from gradlab.train import Checkpoint, warm_cosine
from gradlab.utils.png import png

FILES = {"run.json", "checkpoints", "model.safetensors", "epochs.csv", "report.html"}
SHORT = ["train", "digits", "--epochs", "2", "--batch-size", "256", "--device", "cpu"]
BATCHES = 6  # an epoch of SHORT


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of SHORT without any interruption, trained once and never touched."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main([*SHORT, "--out", str(folder)]) == 0
    return folder


def epochs(folder):
    with (Path(folder) / "epochs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(folder):
    """The epochs without the columns that depend on the clock."""
    return [{name: value for name, value in row.items() if name not in {"seconds", "samples_per_second"}} for row in epochs(folder)]


def weights(folder):
    """Every bit of the final model, by name."""
    return {name: value.numpy().tobytes() for name, value in gradlab.load(Path(folder) / "model.safetensors").items()}


def signal_after(monkeypatch, batch, number=signal.SIGINT, times=1):
    """The process gets a signal when it has trained on `batch` batches."""
    original, count = Checkpoint.batch_end, itertools.count(1)

    def batch_end(self, run):
        if next(count) == batch:
            for _ in range(times):
                signal.raise_signal(number)
        original(self, run)

    monkeypatch.setattr(Checkpoint, "batch_end", batch_end)


# ---------------------------------------------------------------- digits


def test_a_short_run(capsys):
    assert main(["train", "digits", "--epochs", "3", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    folder = Path("runs/digits-1")
    assert {path.name for path in folder.iterdir()} == FILES and err == "", "no progress bar where stderr is not a terminal"
    rows = epochs(folder)
    assert [float(row["epoch"]) for row in rows] == [0, 1, 2, 3]
    assert float(rows[-1]["validation_accuracy"]) >= 0.97 and float(rows[-1]["loss"]) < 0.3 < float(rows[1]["loss"])
    assert out.count("\nepoch ") == 3 and "1,442 images to train on, 355 held out; 10 classes; grey, 8x8" in out
    assert "gradlab predict runs/digits-1" in out and "linear model 0.9" in out
    run = json.loads((folder / "run.json").read_text())
    assert (run["kind"], run["settings"]["epochs"], run["settings"]["seed"], run["parameters"]) == ("digits", 3, 0, 25978)


def test_98_per_cent():
    """The whole default run, in under a minute of two cores (counted in their time: other tests run beside it)."""
    begin = time.process_time()
    assert main(["train", "digits", "--device", "cpu"]) == 0
    assert time.process_time() - begin < 2 * 60
    assert float(epochs("runs/digits-1")[-1]["validation_accuracy"]) >= 0.98


def test_the_other_model():
    assert main(["train", "digits", "--model", "mlp", "--epochs", "8", "--device", "cpu"]) == 0
    assert float(epochs("runs/digits-1")[-1]["validation_accuracy"]) >= 0.94


def test_a_seed_decides_every_bit():
    for folder, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        assert main([*SHORT, "--seed", seed, "--out", folder]) == 0
    assert weights("a") == weights("b") != weights("c") and numbers("a") == numbers("b")


def test_the_weights_are_the_models(whole):
    model = gradlab.models.DigitsCNN()
    model.load_state_dict(gradlab.load(whole / "model.safetensors"))
    x, _ = digits()
    images = gradlab.from_numpy(np.rint(x[:100, None] * (255 / 16)).astype(np.float32) / 255)
    expected = load_run(whole).predict(np.rint(x[:100, ..., None] * (255 / 16)).astype(np.uint8))["prediction"]
    assert [str(i) for i in model.eval()(images).argmax(1).tolist()] == expected.tolist()


def test_folders_are_numbered():
    Path("runs/digits-7").mkdir(parents=True)
    Path("runs/digits-x").mkdir()
    Path("mine").mkdir()
    for options in ([], ["--out", "mine"]):
        assert main([*SHORT, "--epochs", "1", *options]) == 0
    assert epochs("runs/digits-8") and {path.name for path in Path("mine").iterdir()} == FILES


def test_a_batch_larger_than_the_data():
    assert main(["train", "digits", "--epochs", "1", "--batch-size", "5000", "--device", "cpu"]) == 0


def test_a_terminal_sees_progress(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main([*SHORT, "--epochs", "1"]) == 0
    assert "epoch 1/1" in terminal.getvalue() and "/6 [" in terminal.getvalue()


def test_the_rate():
    """Rises in a line over a tenth of the steps, to the peak, then falls to almost nothing; never negative."""
    rates = [warm_cosine(step, 200) for step in range(200)]
    assert rates[0] == pytest.approx(1 / 20) and max(rates) == 1 and rates.index(1) in {19, 20}
    assert all(after <= before for before, after in itertools.pairwise(rates[20:])) and 0 <= rates[-1] < 1e-3
    assert [warm_cosine(0, 1), warm_cosine(1, 2)] == [1, 1]
    assert math.isfinite(sum(warm_cosine(step, 3) for step in range(3)))


@pytest.mark.parametrize("batch", [1, 4, BATCHES, BATCHES + 1, 2 * BATCHES - 1])
def test_stop_and_resume_to_the_bit(batch, whole, monkeypatch, capsys):
    with monkeypatch.context() as context:
        signal_after(context, batch)
        assert main([*SHORT, "--out", "parts"]) == 130
    assert f"stopped after {batch // BATCHES} epochs; resume with: gradlab train --resume parts\n" in capsys.readouterr().out
    assert main(["train", "--resume", "parts"]) == 0
    assert weights("parts") == weights(whole) and numbers("parts") == numbers(whole)
    first, second = (gradlab.train.read_checkpoint(folder / "checkpoints") for folder in (whole, Path("parts")))
    for one, other in zip(first["optimizer"]["state"].values(), second["optimizer"]["state"].values(), strict=True):
        assert all(gradlab.equal(gradlab.as_tensor(one[name]), gradlab.as_tensor(other[name])) for name in one)


def test_stopped_many_times(whole, monkeypatch):
    command = [*SHORT, "--out", "parts"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        with monkeypatch.context() as context:
            signal_after(context, 2, number)
            assert main(command) == 128 + number
        command = ["train", "digits", "--resume", "parts"]
    assert main(command) == 0 and weights("parts") == weights(whole)


def test_twice_means_now(monkeypatch, capsys):
    with monkeypatch.context() as context:
        signal_after(context, 1, times=2)
        assert main([*SHORT, "--out", "parts"]) == 130
    assert capsys.readouterr().err == "gradlab: interrupted\n"
    assert main(["train", "--resume", "parts"]) == 0, "the first checkpoint is still there"


def test_handlers_are_put_back(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as context:
        signal_after(context, 1)
        assert main([*SHORT, "--out", "parts"]) == 130
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("option", "value"), [("--lr", "0.1"), ("--seed", "1"), ("--model", "mlp"), ("--batch-size", "64")])
def test_a_resumed_run_keeps_its_settings(option, value, whole, capsys):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    assert main(["train", "digits", "--resume", str(whole), "--epochs", "3", option, value]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and f"{option}: a resumed run keeps its settings" in err
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_run_of_another_kind_or_device(whole, capsys):
    run = Path(shutil.copytree(whole, "run"))
    assert main(["train", "table", "--resume", "run"]) == 2 and "is a run of digits, not of table" in capsys.readouterr().err
    description = json.loads((run / "run.json").read_text())
    description["settings"]["device"] = "cuda:5"
    (run / "run.json").write_text(json.dumps(description))
    assert main(["train", "--resume", "run", "--epochs", "3"]) == 1 and "no device 'cuda:5' here" in capsys.readouterr().err
    assert main(["train", "--resume", "run", "--epochs", "3", "--device", "cpu"]) == 0


def test_digits_are_predicted_and_measured(whole, capsys):
    run = load_run(whole)
    pixels, labels = digits()
    found = run.predict(np.rint(pixels * (255 / 16)).astype(np.uint8))
    accuracy = (found["prediction"] == labels.astype(str)).mean()
    assert len(found) == 12 and accuracy == pytest.approx(run.description["result"]["best"], abs=0.1)
    assert main(["evaluate", str(whole), "digits"]) == 0
    assert f"accuracy           {run.description['result']['validation']['accuracy']:.6g}" in capsys.readouterr().out
    with pytest.raises(ImageError, match=r"dtype float64 and shape \(8, 8, 1\): arrays are uint8"):
        run.predict(np.zeros((8, 8)))


def test_a_picture_for_the_report():
    import struct
    import zlib

    image = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    file = png(image)
    at = file.index(b"IDAT")
    rows = zlib.decompress(file[at + 4 : at + 4 + struct.unpack(">I", file[at - 4 : at])[0]])
    assert file.startswith(b"\x89PNG") and struct.unpack(">II", file[16:24]) == (4, 5)
    assert np.array_equal(np.frombuffer(rows, np.uint8).reshape(5, 13)[:, 1:].reshape(5, 4, 3), image)


# ---------------------------------------------------------------- folders


def shapes(folder, count=60, size=20, seed=0):
    """Bright squares, crosses and stripes in colour, at any place, as PNG files."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(seed)
    for name in ("cross", "square", "stripes"):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            picture = rng.integers(0, 90, (size, size, 3), dtype=np.uint8)
            y, x = rng.integers(0, size - 9, 2)
            colour = rng.integers(140, 255, 3)
            if name == "square":
                picture[y : y + 8, x : x + 8] = colour
            elif name == "cross":
                picture[y + 3 : y + 5, x : x + 8] = picture[y : y + 8, x + 3 : x + 5] = colour
            else:
                picture[y : y + 8 : 3, x : x + 8] = colour
            image.fromarray(picture).save(folder / name / f"{i}.png")
    return folder


def test_a_folder_is_learned_used_and_reported(tmp_path, capsys):
    folder = shapes(tmp_path / "shapes")
    (folder / ".DS_Store").write_text("x")
    (folder / "cross" / "broken.png").write_bytes(b"no image")
    assert main(["train", "images", str(folder), "--epochs", "6", "--lr", "0.01", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "144 images to train on, 36 held out; 3 classes; colour, 20x20; each time changed by crop, flip" in out
    assert "broken.png cannot be read: it is no image that Pillow knows" in out
    run = load_run("runs/images-1")
    assert run.description["result"]["best"] > max(b["accuracy"] for b in run.description["baselines"].values())
    page = Path("runs/images-1/report.html").read_text()
    assert "data:image/png;base64," in page and "Confusions" in page and "Farthest off" in page
    assert main(["predict", "runs/images-1", str(folder / "square"), str(folder / "cross" / "1.png")]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 61 and [r["prediction"] for r in rows].count("square") > 40
    assert main(["evaluate", "runs/images-1", str(shapes(tmp_path / "new", 20, 25, seed=1))]) == 0 and "accuracy" in capsys.readouterr().out


def test_a_folder_in_two_parts_rare_classes_and_options(tmp_path):
    shapes(tmp_path / "two" / "train", 12)
    shapes(tmp_path / "two" / "val", 5, seed=1)
    for i in range(9):
        (tmp_path / "two" / "train" / "cross" / f"{i}.png").unlink()
    quiet = {"say": lambda line: None, "kind": "images"}
    data = {"model": "mlp", "size": 16, "channels": 1, "augment": ["crop", "flip", "jitter"]}
    run = start(tmp_path / "two", "run", Settings(epochs=2, data=data), **quiet)
    assert run.task.weights is not None and run.task.score == "balanced_accuracy" and [len(r) for r in run.task.rows] == [27, 15]
    again = load_run("run")
    image = tmp_path / "two" / "val" / "cross" / "0.png"
    expected, found = run.predict(image), again.predict([image])
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_augmented_runs_go_on_to_the_bit(tmp_path, monkeypatch):
    folder = shapes(tmp_path / "shapes", 12)
    arguments = ["train", "images", str(folder), "--augment", "crop,flip,jitter", "--epochs", "2", "--batch-size", "8", "--device", "cpu"]
    assert main([*arguments, "--out", "whole"]) == 0
    with monkeypatch.context() as context:
        signal_after(context, 3)
        assert main([*arguments, "--out", "parts"]) == 130
    assert main(["train", "--resume", "parts"]) == 0 and weights("parts") == weights("whole")


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "name the folder that holds a folder of images for each class"),
    (["nowhere"], "nowhere: there is no such folder"),
    (["empty"], "empty: the folder is empty"),
    (["one"], 'there is one class only, "cross"'),
    (["shapes", "--augment", "spin"], "unknown augmentation 'spin'"),
    (["shapes", "--size", "3"], "--size: at least 8 pixels, not 3"),
    (["shapes", "--batch-size", "1"], "a batch of one image cannot be normalised"),
])  # fmt: skip
def test_mistakes_are_one_line_and_leave_nothing(arguments, said, capsys):
    if "shapes" in arguments or "one" in arguments:
        shapes(Path("shapes"), 3)
        shutil.copytree("shapes/cross", "one/cross")
    Path("empty").mkdir()
    assert main(["train", "images", *arguments]) in (1, 2)
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not list(Path().glob("runs/*"))
