"""The program: its commands, what it says to mistakes (one line, exit code 2, nothing left behind), and `info`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradlab
from gradlab.cli import entry, info, main

PACKAGE = Path(gradlab.__file__).parent.parent


def run_program(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    """`python -m gradlab` in a process of its own, warnings being errors."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", "-m", "gradlab", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, **options)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Each test stands in an empty folder, and can look what was left in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestUse:
    @pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
    def test_help(self, arguments, capsys):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert "train" in out and "info" in out

    def test_nothing(self, capsys):
        assert main([]) == 2
        assert "usage" in capsys.readouterr().err

    def test_version(self, capsys):
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"gradlab {gradlab.__version__}\n"

    @pytest.mark.parametrize("command", list(entry.COMMANDS))
    def test_help_of_a_command(self, command, capsys):
        assert main([command, "--help"]) == 0
        assert f"usage: gradlab {command}" in capsys.readouterr().out

    def test_as_a_module(self, tmp_path):
        done = run_program("--version", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"gradlab {gradlab.__version__}\n", "")

    def test_a_bug_keeps_its_traceback(self, monkeypatch):
        def bug(options):
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(info, "run", bug)
        with pytest.raises(ZeroDivisionError):
            main(["info"])

    def test_interrupted_outside_training(self, monkeypatch, capsys):
        def interrupted(options):
            raise KeyboardInterrupt

        monkeypatch.setattr(info, "run", interrupted)
        assert main(["info"]) == 130
        assert capsys.readouterr().err == "gradlab: interrupted\n"

    @pytest.mark.skipif(sys.platform == "win32", reason="a shell pipeline")
    def test_a_reader_that_goes_away(self, tmp_path):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}
        with subprocess.Popen(
            [sys.executable, "-m", "gradlab", "info"],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 141


COMMANDS = ", ".join(entry.COMMANDS)
MISTAKES = [
    (["trian", "digits"], f"unknown command 'trian'; did you mean 'train'? commands are: {COMMANDS}"),
    (["zzz"], f"unknown command 'zzz'; commands are: {COMMANDS}"),
    (["--verbose"], "unknown option --verbose"),
    (["train"], "name what to train on: digits, table"),
    (["train", "digit"], "unknown kind 'digit'; did you mean 'digits'? kinds are: digits"),
    (["train", "imagenet"], "unknown kind 'imagenet'; did you mean 'images'? kinds are: digits, table, images"),
    (["train", "digits", "more"], "unexpected argument 'more'"),
    (["train", "digits", "--model", "cnm"], "unknown model 'cnm'; did you mean 'cnn'? models are: cnn, mlp"),
    (["train", "digits", "--model", "transformer"], "unknown model 'transformer'; models are: cnn, mlp"),
    (["train", "digits", "--epoch", "3"], "unknown option --epoch; did you mean '--epochs'?"),
    (["train", "digits", "--frobnicate=3"], "unknown option --frobnicate; gradlab train digits --help lists the options"),
    (["train", "digits", "--epochs"], "--epochs: needs a value"),
    (["train", "digits", "--epochs", "-3"], "--epochs: must be at least 1, not -3"),
    (["train", "digits", "--epochs", "0"], "--epochs: must be at least 1, not 0"),
    (["train", "digits", "--epochs", "two"], "--epochs: must be a whole number, not 'two'"),
    (["train", "digits", "--batch-size", "0"], "--batch-size: must be at least 1, not 0"),
    (["train", "digits", "--batch-size", "1.5"], "--batch-size: must be a whole number, not '1.5'"),
    (["train", "digits", "--lr", "nan"], "--lr: must be a finite number above 0, not nan"),
    (["train", "digits", "--lr", "inf"], "--lr: must be a finite number above 0, not inf"),
    (["train", "digits", "--lr", "-0.1"], "--lr: must be a finite number above 0, not -0.1"),
    (["train", "digits", "--lr", "1e-999"], "--lr: must be a finite number above 0, not 1e-999"),
    (["train", "digits", "--lr", "fast"], "--lr: must be a number, not 'fast'"),
    (["train", "digits", "--seed", "-1"], "--seed: must be between 0 and 2**63 - 1, not -1"),
    (["train", "digits", "--seed", str(2**63)], f"--seed: must be between 0 and 2**63 - 1, not {2**63}"),
    (["train", "digits", "--seed", "x"], "--seed: must be a whole number, not 'x'"),
    (["train", "digits", "--device", "cdua"], "unknown device 'cdua'; did you mean 'cuda'? devices are: cpu, cuda"),
    (["train", "digits", "--device", "cuda:x"], "no device 'cuda:x'; write cpu, cuda or cuda:N"),
    (["train", "digits", "--device", "cpu:1"], "no device 'cpu:1'; there is one cpu, named cpu"),
    (["train", "digits", "--resume", "nowhere"], "--resume: there is no run's folder nowhere"),
    (["train", "digits", "--resume", "."], "--resume: . is no folder of a run: there is no run.json in it"),
    (["train", "digits", "--resume", ".", "--out", "x"], "--out: a resumed run keeps its settings and its data"),
]


class TestMistakes:
    @pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(pair[0])[:50] for pair in MISTAKES])
    def test_one_line_and_nothing_done(self, arguments, message, capsys, tmp_path):
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1 and err.startswith("gradlab"), err
        assert message in err
        assert not list(tmp_path.iterdir())

    def test_in_a_process(self, tmp_path):
        done = run_program("train", "digits", "--epochs", "-3", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "gradlab train: --epochs: must be at least 1, not -3\n"

    def test_no_cuda(self, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr("gradlab.cli.devices.cuda_available", lambda: False)
        assert main(["train", "digits", "--device", "cuda"]) == 1
        assert capsys.readouterr().err == (
            "gradlab train: no device 'cuda' here; use --device cpu (gradlab info says what is missing)\n"
        )
        assert not list(tmp_path.iterdir())


class TestInfo:
    def test_what_it_says(self, capsys):
        assert main(["info"]) == 0
        out = capsys.readouterr().out
        for name in ("gradlab", "Python", "NumPy", "BLAS", "cpu", "cuda", "C++", "safetensors", "memory"):
            assert name in out

    def test_a_bare_machine(self, monkeypatch, capsys):
        """No compiler, no driver, no CuPy: it says so, and how to get each."""
        monkeypatch.setattr(info, "cuda_available", lambda: False)
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CXX", raising=False)
        assert main(["info"]) == 0
        out = capsys.readouterr().out
        assert "no NVIDIA GPU found" in out and "no compiler found" in out
        assert 'pip install "gradlab-engine[cuda13]"' in out
        assert info.GET_COMPILER.get(info.platform.system(), "CXX") in out

    @pytest.mark.parametrize(("driver", "extra"), [("580.65.06", "cuda13"), ("570.133.20", "cuda12")])
    def test_a_card_without_cupy(self, driver, extra, monkeypatch, capsys):
        card = {"name": "NVIDIA H100", "memory": "81559 MiB", "driver": driver}
        monkeypatch.setattr(info, "nvidia_card", lambda: card)
        monkeypatch.setattr(info, "cuda_available", lambda: False)
        assert main(["info"]) == 0
        out = capsys.readouterr().out
        assert f"not usable: NVIDIA H100, 81559 MiB, driver {driver}" in out
        assert f'pip install "gradlab-engine[{extra}]"' in out

    def test_the_card_as_the_driver_describes_it(self, monkeypatch):
        monkeypatch.setattr(info, "output_of", lambda command: "NVIDIA H100 80GB HBM3, 81559 MiB, 580.65.06\nsecond")
        assert info.nvidia_card() == {"name": "NVIDIA H100 80GB HBM3", "memory": "81559 MiB", "driver": "580.65.06"}
        monkeypatch.setattr(info, "output_of", lambda command: "No devices were found\n")
        assert info.nvidia_card() == {}

    def test_threads(self, monkeypatch):
        for name in info.THREADS:
            monkeypatch.delenv(name, raising=False)
        assert f"up to {info.usable_cores()} threads" in info.blas()
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert info.blas().endswith("OMP_NUM_THREADS=1")
