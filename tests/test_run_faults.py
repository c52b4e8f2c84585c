"""What can go wrong in a run of digits: each fault is one line on stderr, and the last good checkpoint stays as it was."""

import errno
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

import gradlab
from gradlab.cli import main
from gradlab.data import optical_digits
from gradlab.models import DigitsCNN
from gradlab.train import callbacks, read_checkpoint
from gradlab.utils import atomic

SHORT = ["train", "digits", "--epochs", "2", "--batch-size", "256", "--device", "cpu"]
MORE = ["train", "--resume", "run", "--epochs", "3"]


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


class TestBadCheckpoints:
    @pytest.mark.parametrize("part", [0, 1, 8, 100, 0.5, 0.99, -1])
    def test_truncated(self, part, run, capsys):
        for path in (run / "checkpoints").glob("checkpoint-*"):
            whole = path.read_bytes()
            path.write_bytes(whole[: int(part * len(whole)) if isinstance(part, float) else part])
        before = contents()
        assert main(MORE) == 1
        assert "run cannot be gone on with: read_checkpoint: no checkpoint can be read" in one_line(capsys)
        assert contents() == before

    @pytest.mark.parametrize("content", [b"PK\x03\x04 a zip file", b"\x80\x04\x95", b"\xff" * 4096, b"\0" * 4096])
    def test_the_one_before_is_taken(self, content, run, capsys):
        """The newest is damaged: the run goes on from the epoch before."""
        (run / "checkpoints" / "checkpoint-2-0.safetensors").write_bytes(content)
        assert main(MORE) == 0
        assert read_checkpoint(run / "checkpoints")["counts"]["epoch"] == 3

    def test_another_model(self, run, capsys):
        """A checkpoint whose weights do not belong to the model that the run names."""
        path = run / "run.json"
        path.write_text(path.read_text().replace('"data": {}', '"data": {"model": "mlp"}'))
        assert main(MORE) == 1
        assert "does not fit" in one_line(capsys)

    @pytest.mark.parametrize("part", ["model", "optimizer", "random", "loader", "counts"])
    def test_a_part_is_missing(self, part, run, capsys):
        state = read_checkpoint(run / "checkpoints")
        del state[part]
        for path in (run / "checkpoints").glob("checkpoint-*"):
            gradlab.save({"run": state}, path)
        assert main(MORE) == 1
        assert "does not fit" in one_line(capsys)


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
        for after in (0, 1, 2):
            with monkeypatch.context() as context:
                self.fill(context, after)
                assert main([*SHORT, "--out", "run"]) == 1
            assert "No space left on device" in one_line(capsys)
            assert not Path("run").exists(), "nothing half-written"

    def test_later(self, finished, monkeypatch, capsys):
        """The second epoch's files do not fit; the first one's are as good as before."""
        with monkeypatch.context() as context:
            self.fill(context, 6)
            assert main([*SHORT, "--out", "run"]) == 1
        assert "No space left on device; go on with: gradlab train --resume run" in one_line(capsys)
        assert not list(Path("run").rglob(".*")), "no temporary file is left"
        assert main(["train", "--resume", "run"]) == 0
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
        assert "the loss became nan in epoch 1, batch 2: it began in features.1, " in said and "batch_norm: made" in said
        assert said.rstrip().endswith("try a smaller learning rate (--lr)")
        assert not Path("run").exists(), "nothing is left that could only go wrong again"

    def test_the_first_operation_is_named(self, monkeypatch, capsys):
        """A logarithm of a negative number in the second epoch: that is what the user hears about."""
        original, count = DigitsCNN.forward, iter(range(10**6))

        def poisoned(self, images):
            logits = original(self, images)
            return logits + (-(logits.sum() ** 2) - 1).log() if self.training and next(count) >= 8 else logits

        with monkeypatch.context() as context:
            context.setattr(DigitsCNN, "forward", poisoned)
            assert main([*SHORT, "--out", "run"]) == 1
        said = one_line(capsys)
        assert "the loss became nan in epoch 2, batch 3: it began in" in said and "log: made a NaN or infinity of finite inputs" in said
        assert main(["train", "--resume", "run"]) == 0, "the checkpoint of the first epoch is good"

    def test_broken_weights_are_not_saved(self, monkeypatch, capsys):
        """The last batch of the second epoch breaks a weight that no loss has seen yet."""

        def breaking(self, run):
            if run.batch == 6 and run.epoch == 1:
                with gradlab.no_grad():
                    run.model.classifier.bias.fill_(float("nan"))

        with monkeypatch.context() as context:
            context.setattr(callbacks.Bar, "batch_end", breaking)
            assert main([*SHORT, "--out", "run"]) == 1
        assert "the validation loss became nan in epoch 2: it began in classifier.bias" in (said := one_line(capsys))
        assert read_checkpoint("run/checkpoints")["counts"]["epoch"] == 1
        assert "the best weights before that are in run/checkpoints/best.safetensors" in said


def test_damaged_data(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "broken.gz"
    broken.write_bytes(optical_digits.FILE.read_bytes()[:-10])
    monkeypatch.setattr(optical_digits, "FILE", broken)
    assert main(SHORT) == 1
    assert "the data file broken.gz is damaged" in one_line(capsys)
    assert list(Path().rglob("*.*")) == [Path("broken.gz")]


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


@pytest.mark.parametrize("number", [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)])
def test_a_signal_before_the_first_checkpoint_leaves_no_folder(number, monkeypatch, capsys):
    """While data is read, for one: the folder was made for this run, and an empty one is in the way of the next."""
    def stopped(source, folder, *rest, **options):
        assert folder.is_dir()
        os.kill(os.getpid(), number)

    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)  # nohup has SIGHUP ignored
    try:
        monkeypatch.setattr("gradlab.cli.train.start", stopped)
        assert main([*SHORT, "--out", "run"]) == 128 + number
        assert signal.getsignal(number) == (signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    finally:
        signal.signal(number, before)
    said = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    assert capsys.readouterr().err == f"gradlab: {said}\n"
    assert not Path("run").exists()
