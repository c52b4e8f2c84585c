"""`gradlab train digits`: it learns, it repeats itself to the bit, and it can be stopped and resumed to the bit."""

import csv
import io
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gradlab
from gradlab.cli import main
from gradlab.cli.trainer import Trainer, learning_rate

PACKAGE = Path(gradlab.__file__).parent.parent
FILES = {"checkpoint.safetensors", "model.safetensors", "metrics.csv", "config.json", "curves.svg"}
SHORT = ["train", "digits", "--epochs", "2", "--batch-size", "256"]  # six batches an epoch
BATCHES = 6


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of SHORT without any interruption, trained once and never touched."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main([*SHORT, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(whole):
    """The same run in the folder `run`."""
    return Path(shutil.copytree(whole, "run"))


def metrics(folder: Path | str) -> list[dict[str, str]]:
    with (Path(folder) / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(folder: Path | str) -> list[dict[str, str]]:
    """The metrics without the columns that depend on the clock."""
    return [
        {name: value for name, value in row.items() if name not in {"seconds", "samples_per_second"}}
        for row in metrics(folder)
    ]


def weights(folder: Path | str) -> dict[str, bytes]:
    """Every bit of the final model, by name."""
    return {name: value.numpy().tobytes() for name, value in gradlab.load(Path(folder) / "model.safetensors").items()}


def signal_after(monkeypatch, batch: int, number: int = signal.SIGINT) -> None:
    """The process gets a signal when it has trained on `batch` batches."""
    original = Trainer.train_batch
    count = 0

    def counted(self, images, labels):
        nonlocal count
        original(self, images, labels)
        count += 1
        if count == batch:
            signal.raise_signal(number)

    monkeypatch.setattr(Trainer, "train_batch", counted)


class TestRun:
    def test_a_short_run(self, capsys):
        assert main(["train", "digits", "--epochs", "3"]) == 0
        out, err = capsys.readouterr()
        folder = Path("runs/digits-cnn-1")
        assert {path.name for path in folder.iterdir()} == FILES
        rows = metrics(folder)
        assert [row["epoch"] for row in rows] == ["1", "2", "3"]
        assert float(rows[-1]["held_out_accuracy"]) >= 0.97
        assert float(rows[-1]["loss"]) < 0.3 < float(rows[0]["loss"])
        assert out.count("\nepoch ") == 3 and "samples/s" in out and "1,442 images" in out
        assert err == "", "no progress bar where stderr is not a terminal"
        config = json.loads((folder / "config.json").read_text())
        assert (config["model"], config["epochs"], config["seed"]) == ("cnn", 3, 0)
        assert config["parameters"] == 25978
        assert ElementTree.parse(folder / "curves.svg").getroot().tag.endswith("svg")

    def test_98_per_cent(self):
        """The whole default run, in under a minute of two cores (counted in their time: other tests run beside it)."""
        start = time.process_time()
        assert main(["train", "digits"]) == 0
        assert time.process_time() - start < 2 * 60
        assert float(metrics("runs/digits-cnn-1")[-1]["held_out_accuracy"]) >= 0.98

    def test_the_other_model(self):
        assert main(["train", "digits", "--model", "mlp", "--epochs", "8"]) == 0
        assert float(metrics("runs/digits-mlp-1")[-1]["held_out_accuracy"]) >= 0.94

    def test_a_seed_decides_every_bit(self):
        for folder, seed in (("a", "7"), ("b", "7"), ("c", "8")):
            assert main([*SHORT, "--seed", seed, "--out", folder]) == 0
        assert weights("a") == weights("b") != weights("c")
        assert numbers("a") == numbers("b")

    def test_the_weights_can_be_used(self):
        assert main([*SHORT, "--out", "run"]) == 0
        config = json.loads(Path("run/config.json").read_text())
        assert config["held_out_images"] == 355
        model = gradlab.load("run/model.safetensors")
        assert "classifier.weight" in model and tuple(model["classifier.weight"].shape) == (10, 256)

    def test_folders_are_numbered(self):
        Path("runs/digits-cnn-7").mkdir(parents=True)
        Path("runs/digits-cnn-x").mkdir()
        assert main([*SHORT, "--epochs", "1"]) == 0
        assert metrics("runs/digits-cnn-8")

    def test_an_empty_folder_may_be_given(self):
        Path("mine").mkdir()
        assert main([*SHORT, "--epochs", "1", "--out", "mine"]) == 0
        assert {path.name for path in Path("mine").iterdir()} == FILES

    def test_a_batch_larger_than_the_data(self):
        assert main(["train", "digits", "--epochs", "1", "--batch-size", "5000"]) == 0

    def test_a_terminal_sees_progress(self, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main([*SHORT, "--epochs", "1"]) == 0
        assert "epoch 1/1" in terminal.getvalue() and "/6 [" in terminal.getvalue()

    def test_the_rate(self):
        """Rises in a line over a tenth of the steps, to the peak, then falls to almost nothing; never negative."""
        rates = [learning_rate(step, 200, 0.5) for step in range(200)]
        assert rates[0] == pytest.approx(0.5 / 20)
        assert max(rates) == 0.5 and rates.index(0.5) in {19, 20}
        assert all(after <= before for before, after in itertools.pairwise(rates[20:]))
        assert 0 <= rates[-1] < 1e-3
        assert [learning_rate(0, 1, 0.5), learning_rate(1, 2, 0.5)] == [0.5, 0.5]
        assert math.isfinite(sum(learning_rate(step, 3, 0.5) for step in range(3)))


class TestInterruption:
    @pytest.mark.parametrize("batch", [1, 4, BATCHES, BATCHES + 1, 2 * BATCHES - 1])
    def test_stop_and_resume_to_the_bit(self, batch, whole, monkeypatch, capsys):
        with monkeypatch.context() as context:
            signal_after(context, batch)
            assert main([*SHORT, "--out", "parts"]) == 130
        assert capsys.readouterr().err == "\nstopped; resume with: gradlab train digits --resume parts\n"
        assert weights("parts") != weights(whole)
        assert main(["train", "digits", "--resume", "parts"]) == 0
        done, done_in_epoch = divmod(batch, BATCHES)
        assert f"resuming after epoch {done}, batch {done_in_epoch} of {BATCHES}\n" in capsys.readouterr().out
        assert weights("parts") == weights(whole)
        assert numbers("parts") == numbers(whole)

    def test_stopped_many_times(self, whole, monkeypatch):
        command = [*SHORT, "--out", "parts"]
        for _ in range(5):
            with monkeypatch.context() as context:
                signal_after(context, 2)
                assert main(command) == 130
            command = ["train", "digits", "--resume", "parts/checkpoint.safetensors"]
        assert main(command) == 0
        assert weights("parts") == weights(whole)

    def test_a_resumed_run_gives_the_same_optimizer(self, whole, monkeypatch):
        """Not only the weights: what decides the steps to come is the same too."""
        with monkeypatch.context() as context:
            signal_after(context, 3)
            assert main([*SHORT, "--out", "parts"]) == 130
        assert main(["train", "digits", "--resume", "parts"]) == 0
        states = [gradlab.load(folder / "checkpoint.safetensors") for folder in (whole, Path("parts"))]
        first, second = (state["optimizer"]["state"] for state in states)
        assert len(first) == len(second) > 0
        for parameter in first:
            for name, value in first[parameter].items():
                equal = value == second[parameter][name]
                assert bool(equal.all().item() if hasattr(equal, "all") else equal), (parameter, name)

    def test_the_scheduler_ends_the_job(self, monkeypatch):
        with monkeypatch.context() as context:
            signal_after(context, 2, signal.SIGTERM)
            assert main([*SHORT, "--out", "parts"]) == 128 + signal.SIGTERM
        assert main(["train", "digits", "--resume", "parts"]) == 0

    def test_twice_means_now(self, monkeypatch, capsys):
        original = Trainer.train_batch

        def impatient(self, images, labels):
            original(self, images, labels)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as context:
            context.setattr(Trainer, "train_batch", impatient)
            assert main([*SHORT, "--out", "parts"]) == 130
        assert capsys.readouterr().err == "gradlab: interrupted\n"
        assert main(["train", "digits", "--resume", "parts"]) == 0, "the first checkpoint is still there"

    def test_handlers_are_put_back(self):
        before = signal.getsignal(signal.SIGINT)
        assert main([*SHORT, "--epochs", "1"]) == 0
        assert signal.getsignal(signal.SIGINT) is before

    @pytest.mark.skipif(sys.platform == "win32", reason="signals between processes")
    def test_control_c_in_a_process(self):
        """A real signal at a moment of its own choosing, to a real process."""
        arguments = ["train", "digits", "--epochs", "40", "--batch-size", "128", "--lr", "0.002"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-W", "error", "-m", "gradlab", *arguments, "--out", "a run"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                if line.startswith("epoch"):
                    break
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, "\nstopped; resume with: python -m gradlab train digits --resume 'a run'\n")
        assert 1 <= len(metrics("a run")) < 40
        assert {path.name for path in Path("a run").iterdir()} == FILES


class TestResume:
    def test_a_finished_run(self, run, capsys):
        """There is nothing left to train; files that were lost are written again."""
        before = weights("run"), numbers("run")
        for name in FILES - {"checkpoint.safetensors"}:
            Path("run", name).unlink()
        capsys.readouterr()
        assert main(["train", "digits", "--resume", "run"]) == 0
        assert "epoch 2/2" not in capsys.readouterr().out
        assert (weights("run"), numbers("run")) == before
        assert {path.name for path in Path("run").iterdir()} == FILES

    def test_the_same_settings_may_be_repeated(self, monkeypatch):
        with monkeypatch.context() as context:
            signal_after(context, 2)
            assert main([*SHORT, "--out", "run"]) == 130
        assert main([*SHORT, "--model", "cnn", "--seed", "0", "--lr", "0.004", "--device", "cpu", "--resume", "run"]) == 0

    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [("--lr", "0.1", "--lr 0.004, not 0.1"), ("--epochs", "3", "--epochs 2, not 3"), ("--seed", "1", "--seed 0, not 1"),
         ("--model", "mlp", "--model cnn, not mlp"), ("--batch-size", "64", "--batch-size 256, not 64")],
    )  # fmt: skip
    def test_changed_settings(self, option, value, said, run, capsys):
        before = {path: path.read_bytes() for path in Path("run").iterdir()}
        capsys.readouterr()
        assert main(["train", "digits", "--resume", "run", option, value]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert f"was started with {said}; a resumed run keeps its settings" in err
        assert {path: path.read_bytes() for path in Path("run").iterdir()} == before

    def test_a_changed_config_file(self, run, capsys):
        config = json.loads(Path("run/config.json").read_text())
        Path("run/config.json").write_text(json.dumps({**config, "learning_rate": 1.0}))
        assert main(["train", "digits", "--resume", "run"]) == 2
        assert "config.json was changed since the run was started" in capsys.readouterr().err

    def test_another_device(self, run, capsys):
        """A run from a machine with a GPU can go on on a CPU if that is asked for, and only then."""
        content = gradlab.load("run/checkpoint.safetensors")
        content["config"]["device"] = "cuda:5"
        gradlab.save(content, "run/checkpoint.safetensors")
        assert main(["train", "digits", "--resume", "run"]) == 1
        assert "no device 'cuda:5' here" in capsys.readouterr().err
        assert main(["train", "digits", "--resume", "run", "--device", "cpu"]) == 0
        assert "note: the run was started on cuda:5" in capsys.readouterr().out
