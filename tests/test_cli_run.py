"""`gradlab run`: scripts written for PyTorch run as `python script.py` would run them."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gradlab
from gradlab.cli import main

PACKAGE = Path(gradlab.__file__).parent.parent

TRAIN = """
    import argparse
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.optim.lr_scheduler import StepLR
    from torch.utils.data import DataLoader, TensorDataset

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")

    class Net(nn.Module):
        def __init__(self):
            super(Net, self).__init__()
            self.hidden = nn.Linear(4, 8)
            self.out = nn.Linear(8, 3)

        def forward(self, x):
            return F.log_softmax(self.out(F.relu(self.hidden(x))), dim=1)

    if __name__ == "__main__":
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
        for epoch in range(args.epochs):
            for x, y in DataLoader(data, batch_size=8):
                x, y = x.to(device), y.to(device)
                optimizer.zero_grad()
                loss = F.nll_loss(model(x), y)
                loss.backward()
                optimizer.step()
            scheduler.step()
            print("%.6f" % loss.item())
"""


def gradlab_run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "gradlab", "run", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def script(tmp_path):
    def write(text: str, name: str = "script.py") -> str:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return name

    return write


def test_training_with_all_options(script, tmp_path):
    name = script(TRAIN)
    plain = gradlab_run(name, "--epochs", "3", cwd=tmp_path)
    assert (plain.returncode, plain.stderr) == (0, "")
    losses = [float(line) for line in plain.stdout.split()]
    assert len(losses) == 3 and losses[2] < losses[0]
    other = gradlab_run("--device", "cpu", "--compile", "--report", name, "--epochs", "3", "--no-cuda", cwd=tmp_path)
    assert other.returncode == 0 and other.stderr == "gradlab run --report: every name asked for is there\n"
    assert [float(line) for line in other.stdout.split()] == pytest.approx(losses, abs=1e-5)


def test_it_is_as_python_would_run_it(script, tmp_path):
    """What a script can see of how it was started: `python script.py` and `gradlab run script.py` print the same."""
    script("VALUE = 3\n", "sub/beside.py")
    name = script("""
        from __future__ import annotations
        import json, os, pickle, sys
        import __main__
        import beside

        class Mine:
            pass

        print(json.dumps([
            sys.argv, sys.path[0], __name__, __file__, __package__, __spec__, __doc__, beside.VALUE, __main__.__file__,
            type(pickle.loads(pickle.dumps(Mine()))) is Mine, sys.modules["__main__"] is __main__, __annotations__,
            inspect_flags(), sorted(k for k in globals() if k.startswith("__")),
        ]) if (inspect_flags := lambda: (lambda x: x).__code__.co_filename) else None)
        raise SystemExit(7)
    """, "sub/seen.py")  # fmt: skip
    arguments = [name, "-m", "--report", "a b"]
    here = gradlab_run(*arguments, cwd=tmp_path)
    there = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(here.stdout) == json.loads(there.stdout)
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr) == (7, "")


@pytest.mark.parametrize("ending", ["sys.exit('a message')", "1 / zero", "def f(:", "raise KeyboardInterrupt", "sys.exit()"])
def test_errors_are_the_scripts(script, tmp_path, ending):
    name = script(f"import sys\nzero = 0\nprint('begun', flush=True)\n{ending}\n")
    here = gradlab_run(name, cwd=tmp_path)
    there = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (here.stdout, here.stderr) == (there.stdout, there.stderr)
    assert here.returncode == (130 if "Keyboard" in ending else there.returncode)


def test_a_missing_name_ends_at_the_scripts_line(script, tmp_path):
    done = gradlab_run(script("import torch\ntorch.sofmax\n"), cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert [line for line in lines if line.startswith("  File")] == [f'  File "{tmp_path / "script.py"}", line 2, in <module>']
    assert "did you mean softmax" in lines[-1]


def test_report(script, tmp_path):
    name = script("""
        import torch
        from torch import not_there
        import torch.package
        try:
            import torch.ao.nn.quantized
        except ImportError:
            pass
        class Mine(torch.NotAClass):
            pass
        @torch.not_a_decorator
        def function():
            return hasattr(torch, "asked_only"), getattr(torch.nn, "AskedOnly", None), hasattr(torch.ones(1), "asked_method")
        assert function() == (False, None, False)
        not_there(1, 2)
    """)  # fmt: skip
    done = gradlab_run("--report", name, cwd=tmp_path)
    assert done.returncode == 1
    head, needed, asked, tried, last = (part.strip() for part in split(done.stderr))
    assert "NotImplementedError: gradlab has no torch.not_there" in head
    assert names(needed) == ["torch.NotAClass", "torch.not_a_decorator", "torch.not_there", "torch.package"]
    assert names(asked) == ["torch.Tensor.asked_method", "torch.asked_only", "torch.nn.AskedOnly"]
    assert names(tried) == ["torch.ao.nn"] and "script.py:6" in tried
    assert last.startswith("it ended with NotImplementedError")


def split(text: str) -> list[str]:
    for mark in ("needed:", "only asked about (hasattr, getattr):", "imported within a try:", "it ended"):
        assert mark in text, text
        text = text.replace(mark, "\0" + mark if mark == "it ended" else "\0", 1)
    return text.split("\0")


def names(part: str) -> list[str]:
    return [line.split()[0] for line in part.splitlines()]


def test_a_model_that_cannot_be_compiled_runs_eagerly(script, tmp_path):
    name = script("""
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 1)

            def forward(self, x):
                return self.layer(x) * (2 if x.sum().item() > 0 else 3)

        net = Net()
        print(*[net(torch.ones(1, 2)).item() / net.layer(torch.ones(1, 2)).item() for _ in range(4)])
    """)  # fmt: skip
    done = gradlab_run("--compile", name, cwd=tmp_path)
    assert [round(float(value), 4) for value in done.stdout.split()] == [2, 2, 2, 2]
    assert done.stderr.count("gradlab run --compile: Net runs eagerly: ") == 1


def test_cuda_means_the_cpu_where_that_is_asked_for(script, tmp_path):
    name = script("""
        import torch
        x = torch.ones(2).cuda()
        y = torch.zeros(2, device="cuda:1").to(torch.device("cuda", 0))
        model = torch.nn.Linear(2, 2).cuda()
        torch.cuda.synchronize()
        print((x + y).device, model(x).device, torch.device("cuda"), torch.cuda.is_available())
    """)  # fmt: skip
    assert gradlab_run("--device", "cpu", name, cwd=tmp_path).stdout == "cpu cpu cpu False\n"
    text = """
        import torch
        torch.cuda.set_device(0)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.device("cuda:0"), torch.cuda.stream(torch.cuda.Stream()):
            start.record()
            x = torch.ones(100, 100).cuda() @ torch.ones(100, 100).cuda()
            end.record()
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        torch.cuda.synchronize()
        print(torch.cuda.current_device(), start.elapsed_time(end) > 0, end.query(), torch.cuda.memory_allocated())
        """
    name = script(text)
    assert gradlab_run("--device", "cpu", name, cwd=tmp_path).stdout == "0 True True 0\n"
    done = gradlab_run(name, cwd=tmp_path)
    assert done.returncode == 1 or gradlab.cuda.is_available()


def test_a_module_and_its_children(script, tmp_path):
    script("", "package/__init__.py")
    script("""
        import multiprocessing as mp
        import sys
        import torch

        def work(x):
            return torch.__version__, torch.nn.__name__, (x * 2).tolist()

        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                print(*pool.apply(work, (torch.ones(2),)), sys.argv[1:])
    """, "package/program.py")  # fmt: skip
    done = gradlab_run("-m", "package.program", "--flag", cwd=tmp_path)
    assert done.stdout == "2.6.0+gradlab gradlab.nn [2.0, 2.0] ['--flag']\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "name a script"), (["nothing.py"], "no file 'nothing.py'"), (["--device", "tpu", "x.py"], "device"),
        (["--devise", "cpu", "x.py"], "did you mean '--device'"), (["-m"], "name a script"),
    ],
)  # fmt: skip
def test_wrong_usage(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("print('it ran')\n", encoding="utf-8")
    assert main(["run", *arguments]) == 2
    said = capsys.readouterr()
    assert text in said.err and "it ran" not in said.out


def test_the_emulated_gpu(script, tmp_path):
    name = script("""
        import torch
        print(torch.cuda.is_available(), torch.ones(2).device, torch.nn.Linear(2, 2).weight.device, (torch.ones(2).cuda() + 1).sum().item())
    """)  # fmt: skip
    done = gradlab_run("--device", "emulated", name, cwd=tmp_path)
    if "compiler" in done.stderr:
        pytest.skip("the emulated GPU needs a C++ compiler")
    assert done.stdout == "True cuda:0 cuda:0 4.0\n", done.stderr
