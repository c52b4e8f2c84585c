"""What can go wrong in training: each fault is one line on stderr, and the last good checkpoint stays as it was."""

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

import gradlab
from gradlab.cli import main
from gradlab.cli.trainer import Trainer
from gradlab.data import optical_digits
from gradlab.utils import atomic

SHORT = ["train", "digits", "--epochs", "2", "--batch-size", "256"]
CHECKPOINT = Path("run/checkpoint.safetensors")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is trained once and never touched."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main([*SHORT, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(finished):
    """A finished run in the folder `run`, to do harm to."""
    return Path(shutil.copytree(finished, "run"))


def one_line(capsys) -> str:
    """What was said on stderr: exactly one line."""
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("gradlab train: "), err
    return err


def contents(folder: Path | str = ".") -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def resumed_with(content: object) -> int:
    gradlab.save(content, CHECKPOINT)
    return main(["train", "digits", "--resume", "run"])


class TestBadCheckpoints:
    @pytest.mark.parametrize("part", [0, 1, 8, 100, 0.5, 0.99, -1])
    def test_truncated(self, part, run, capsys):
        whole = CHECKPOINT.read_bytes()
        CHECKPOINT.write_bytes(whole[: int(part * len(whole)) if isinstance(part, float) else part])
        before = contents()
        assert main(["train", "digits", "--resume", "run"]) == 1
        assert "checkpoint.safetensors is damaged, or not a checkpoint" in one_line(capsys)
        assert contents() == before

    @pytest.mark.parametrize("content", [b"PK\x03\x04 a zip file", b"\x80\x04\x95", b"\xff" * 4096, b"\0" * 4096])
    def test_other_files(self, content, capsys):
        Path("other.bin").write_bytes(content)
        assert main(["train", "digits", "--resume", "other.bin"]) == 1
        assert "other.bin is damaged, or not a checkpoint" in one_line(capsys)
        assert list(Path().iterdir()) == [Path("other.bin")]

    def test_weights_alone(self, run, capsys):
        assert main(["train", "digits", "--resume", "run/model.safetensors"]) == 1
        assert "model.safetensors is not a training checkpoint (weights alone cannot be resumed)" in one_line(capsys)

    def test_a_later_format(self, run, capsys):
        assert resumed_with({**gradlab.load(CHECKPOINT), "version": 99, "gradlab": "9.9"}) == 1
        assert "written by gradlab 9.9, in a format this one cannot read" in one_line(capsys)

    @pytest.mark.parametrize(
        "changed",
        [{"dataset": "imagenet"}, {"model": "vit"}, {"epochs": "2"}, {"epochs": 0}, {"batch_size": 0}, {"seed": True},
         {"seed": -1}, {"learning_rate": float("nan")}, {"learning_rate": "0.1"}, {"device": None}],
    )  # fmt: skip
    def test_strange_settings(self, changed, run, capsys):
        content = gradlab.load(CHECKPOINT)
        content["config"].update(changed)
        assert resumed_with(content) == 1
        assert "holds no settings of a run" in one_line(capsys)

    @pytest.mark.parametrize("settings", [None, {}, {"dataset": "digits"}, "digits"])
    def test_no_settings(self, settings, run, capsys):
        assert resumed_with({**gradlab.load(CHECKPOINT), "config": settings}) == 1
        assert "holds no settings of a run" in one_line(capsys)

    def test_another_model(self, run, capsys):
        """A checkpoint whose weights do not belong to the model that it names."""
        content = gradlab.load(CHECKPOINT)
        content["config"]["model"] = "mlp"
        Path("run/config.json").unlink()
        assert resumed_with(content) == 1
        assert "does not fit the model it names" in one_line(capsys)

    @pytest.mark.parametrize("part", ["model", "optimizer", "random", "loader", "progress", "history"])
    def test_a_part_is_missing(self, part, run, capsys):
        content = gradlab.load(CHECKPOINT)
        del content[part]
        assert resumed_with(content) == 1
        assert "does not fit the model it names" in one_line(capsys)

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [("epoch", 1, "2 results, but epoch 1 of 2"), ("epoch", "2", "not"), ("batch", 3, "batch 3, but the loader is at 0")],
    )
    def test_progress_that_cannot_be(self, name, value, said, run, capsys):
        content = gradlab.load(CHECKPOINT)
        content["progress"][name] = value
        assert resumed_with(content) == 1
        assert said in one_line(capsys)

    @pytest.mark.parametrize("state", [None, "state", gradlab.zeros(3)])
    @pytest.mark.parametrize("whose", ["random", "loader"])
    def test_a_random_state_that_cannot_be(self, state, whose, run, capsys):
        content = gradlab.load(CHECKPOINT)
        content[whose] = state if whose == "random" else {"generator": state, "batch": 0}
        assert resumed_with(content) == 1
        assert "does not fit the model it names" in one_line(capsys)


class TestFolders:
    def test_a_run_is_not_overwritten(self, run, capsys):
        before = contents()
        assert main([*SHORT, "--out", "run"]) == 2
        assert "run already holds a run: --resume run continues it" in one_line(capsys)
        assert contents() == before

    def test_a_folder_with_other_things(self, capsys):
        Path("notes").mkdir()
        Path("notes/todo.txt").write_text("x")
        assert main([*SHORT, "--out", "notes"]) == 2
        assert "--out: notes is not empty" in one_line(capsys)
        assert [*Path("notes").iterdir()] == [Path("notes/todo.txt")]

    def test_a_file(self, capsys):
        Path("file").write_text("x")
        assert main([*SHORT, "--out", "file"]) == 2
        assert "--out: file is a file, not a folder" in one_line(capsys)
        assert main([*SHORT, "--out", "file/run"]) == 1
        assert f"cannot create the run folder {Path('file/run')}: Not a directory" in one_line(capsys)

    @pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_without_permission(self, capsys):
        Path("locked").mkdir(mode=0o500)
        assert main([*SHORT, "--out", "locked/run"]) == 1
        assert "Permission denied" in one_line(capsys)
        assert main([*SHORT, "--out", "locked"]) == 1
        assert "not writable" in one_line(capsys)


class TestFullDisk:
    @staticmethod
    def fill(monkeypatch, after: int) -> None:
        """The disk is full after so many files."""
        count = 0

        def fsync(descriptor):
            nonlocal count
            count += 1
            if count > after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(atomic.os, "fsync", fsync)
        monkeypatch.setattr(atomic, "sync_folder", lambda folder: None)

    def test_from_the_start(self, monkeypatch, capsys):
        for after, name in enumerate(("config.json", "checkpoint.safetensors")):
            with monkeypatch.context() as context:
                self.fill(context, after)
                assert main([*SHORT, "--out", "run"]) == 1
            assert f"cannot write {Path('run', name)}: No space left on device" in one_line(capsys)
            assert not Path("run").exists(), "nothing half-written"

    def test_later(self, finished, monkeypatch, capsys):
        """The second epoch's checkpoint does not fit; the first one's is as good as before."""
        capsys.readouterr()
        with monkeypatch.context() as context:
            self.fill(context, 2 + 4)  # two files at the start, four after each epoch
            assert main([*SHORT, "--out", "run"]) == 1
        said = one_line(capsys)
        assert f"cannot write {CHECKPOINT}: No space left on device; the last checkpoint, {CHECKPOINT}, is intact" in said
        assert not list(Path("run").glob(".*")), "no temporary file is left"
        assert main(["train", "digits", "--resume", "run"]) == 0
        found, expected = (gradlab.load(folder / "model.safetensors") for folder in (Path("run"), finished))
        assert all(gradlab.equal(found[name], expected[name]) for name in expected)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
    def test_a_device_that_is_full(self):
        with pytest.raises(OSError, match="No space left"), open("/dev/full", "wb") as file:
            file.write(b"x" * 100_000)


class TestNotANumber:
    def test_a_rate_that_is_too_large(self, capsys):
        assert main([*SHORT, "--lr", "1e30", "--out", "run"]) == 1
        said = one_line(capsys)
        assert "the loss became nan in epoch 1, batch 2: it began in features.1, batch_norm: made" in said
        assert f"the last good checkpoint is {CHECKPOINT}" in said
        assert gradlab.load(CHECKPOINT)["progress"]["epoch"] == 0

    def test_the_first_operation_is_named(self, monkeypatch, capsys):
        """A logarithm of a negative number in the second epoch: that is what the user hears about."""
        original = Trainer.train_batch

        def poisoned(self, images, labels):
            if (self.progress.epoch, self.progress.batch) == (1, 2):
                clean = self.model.classifier.forward
                self.model.classifier.forward = lambda features: clean(features) + (-features.sum() ** 2 - 1).log()
            original(self, images, labels)

        with monkeypatch.context() as context:
            context.setattr(Trainer, "train_batch", poisoned)
            assert main([*SHORT, "--out", "run"]) == 1
        said = one_line(capsys)
        assert "the loss became nan in epoch 2, batch 3: it began in" in said
        assert "it began in classifier, log: made a NaN or infinity of finite inputs" in said
        assert main(["train", "digits", "--resume", "run"]) == 0, "the checkpoint of the first epoch is good"

    def test_broken_weights_are_not_saved(self, monkeypatch, capsys):
        """The last batch of an epoch breaks a weight that no loss has seen yet."""
        original = Trainer.train_batch

        def breaking(self, images, labels):
            original(self, images, labels)
            if self.progress.batch == 6:
                with gradlab.no_grad():
                    self.model.classifier.bias.fill_(float("nan"))

        with monkeypatch.context() as context:
            context.setattr(Trainer, "train_batch", breaking)
            assert main([*SHORT, "--out", "run"]) == 1
        said = one_line(capsys)
        assert "the held-out loss became nan in epoch 1: it began in classifier.bias" in said
        assert gradlab.load(CHECKPOINT)["progress"]["epoch"] == 0


def test_damaged_data(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "broken.gz"
    broken.write_bytes(optical_digits.FILE.read_bytes()[:-10])
    monkeypatch.setattr(optical_digits, "FILE", broken)
    assert main(SHORT) == 1
    assert "the data file broken.gz is damaged" in one_line(capsys)
    assert list(Path().iterdir()) == [Path("broken.gz")]


class TestAtomicFiles:
    def test_written_whole(self):
        atomic.write_text("a.txt", "ä\n")
        atomic.write_bytes("b.bin", b"\0\1")
        assert (Path("a.txt").read_bytes(), Path("b.bin").read_bytes()) == ("ä\n".encode(), b"\0\1")
        assert len(list(Path().iterdir())) == 2

    def test_or_not_at_all(self):
        atomic.write_text("a.txt", "old")
        with pytest.raises(KeyboardInterrupt), atomic.replacing("a.txt") as file:
            file.write(b"new, but")
            raise KeyboardInterrupt
        assert Path("a.txt").read_text() == "old"
        assert list(Path().iterdir()) == [Path("a.txt")]

    @pytest.mark.skipif(sys.platform == "win32", reason="permissions and links")
    def test_permissions_and_links(self):
        atomic.write_text("a.txt", "old")
        umask = os.umask(0)
        os.umask(umask)
        assert Path("a.txt").stat().st_mode & 0o777 == 0o666 & ~umask
        Path("link").symlink_to("a.txt")
        atomic.write_text("link", "new")
        assert Path("link").is_symlink() and Path("a.txt").read_text() == "new"
