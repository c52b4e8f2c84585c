"""The scripts of `examples/`: each runs, learns, and gives PyTorch's losses when only its imports change.

PyTorch's run starts from the same weights and draws the same random numbers; everything else is the script's own.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import sampler

from repository import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = {
    "mnist_cnn": ["--batch-size", "32"],
    "char_rnn": ["--hidden", "32"],
    "vae": [],
    "dcgan": [],
    "gpt": ["--sample", "0"],
}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    """A script finds `sources.py` because it lies beside it. On the CPU: the emulated GPU is slow."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(gl.cuda, "is_available", lambda: False)
    before = set(sys.modules)
    yield
    if "sources" not in before:
        sys.modules.pop("sources", None)


def script(name, text=None):
    """A script as a module, from its own text or a changed one."""
    path = EXAMPLES / f"{name}.py"
    module = types.ModuleType(f"{name}_script")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text or path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


def for_pytorch(name):
    """The script's text with its imports changed, as `docs/scripts.md` says, and nothing else."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    changed = re.sub(r"^import gradlab as torch$", "import torch", text, flags=re.M)
    changed = re.sub(r"^(import|from) gradlab\b", r"\1 torch", changed, flags=re.M)
    different = [new for old, new in zip(text.splitlines(), changed.splitlines(), strict=True) if old != new]
    assert different and all(re.match(r"(import|from) torch\b", line) for line in different)
    assert "gradlab" not in changed
    return changed


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_and_learns(name):
    losses = script(name).main(["--steps", "12", *SCRIPTS[name]])
    assert len(losses) == 12
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_are_alike(name):
    module = script(name)
    arguments = ["--steps", "2", *SCRIPTS[name]]
    assert module.main(arguments) == module.main(arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_on_the_emulated_gpu(name, cuda, monkeypatch):
    arguments = ["--steps", "2", *SCRIPTS[name]]
    expected = script(name).main(arguments)
    monkeypatch.setattr(gl.cuda, "is_available", lambda: True)
    np.testing.assert_allclose(script(name).main(arguments), expected, rtol=1e-4)


def test_the_whole_of_an_epoch(capsys):
    script("vae").main(["--epochs", "1"])
    script("dcgan").main(["--epochs", "1"])
    script("mnist_cnn").main(["--epochs", "1"])
    script("gpt").main(["--steps", "1", "--sample", "8"])
    assert len(capsys.readouterr().out.splitlines()) > 12


def test_a_sample_of_the_char_rnn():
    module = script("char_rnn")
    data = module.Lines()
    assert isinstance(module.sample(module.build(module.parse([])), data, length=5), str)


def test_gpt_goes_on_from_its_checkpoint(tmp_path):
    module = script("gpt")
    file = str(tmp_path / "gpt.ckpt")
    module.main(["--steps", "2", "--sample", "0", "--checkpoint", file])
    losses = module.main(["--steps", "4", "--sample", "0", "--checkpoint", file, "--resume"])
    assert len(losses) == 4
    saved = gl.load(file)
    assert saved["iter_num"] == 4
    assert saved["losses"] == losses


def test_every_script_is_here():
    assert {p.stem for p in EXAMPLES.glob("*.py")} == {*SCRIPTS, "sources", "mel_filters"}  # the last: tests/test_fourier.py
    page = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")
    assert all(f"`{name}.py`" in page for name in SCRIPTS)


# ---------------------------------------------------------------- the same script in PyTorch


class Draws:
    """One stream of random numbers for both engines."""

    def __init__(self, seed=0):
        self.generator = np.random.default_rng(seed)

    def into(self, monkeypatch, engine, make):
        """Let an engine's functions take their numbers from here; `make` turns an array into a tensor."""

        def randn(*size, **_):
            return make(self.generator.standard_normal(size).astype("float32"))

        def randint(high, size, **_):
            return make(self.generator.integers(0, high, size))

        def randperm(n, **_):  # always the same one: PyTorch's sampler draws another at the end of an epoch, for nothing
            return make(np.random.default_rng(n).permutation(n))

        for place in (engine, sampler) if engine is gl else (engine,):
            monkeypatch.setattr(place, "randperm", randperm)
        monkeypatch.setattr(engine, "randn", randn)
        monkeypatch.setattr(engine, "randn_like", lambda x, **_: randn(*x.shape))
        monkeypatch.setattr(engine, "randint", randint)


def pairs(name, steps, tmp_path):
    """The losses of one script in both engines."""
    torch = pytest.importorskip("torch")
    read = pytest.importorskip("safetensors.torch").load_file
    extra = ["--dropout", "0"] if name in ("mnist_cnn", "gpt") else []
    arguments = ["--steps", str(steps), *SCRIPTS[name], *extra]
    ours, theirs = script(name), script(name, for_pytorch(name))
    gl.manual_seed(7)
    model = ours.build(ours.parse(arguments))
    gl.save(model.state_dict(), tmp_path / "start.safetensors")
    twin = theirs.build(theirs.parse(arguments))
    assert not any(twin.load_state_dict(read(tmp_path / "start.safetensors")))  # no key is missing, none is left over
    with pytest.MonkeyPatch.context() as patch:
        Draws().into(patch, gl, gl.from_numpy)
        found = ours.train(model, ours.parse(arguments))
    with pytest.MonkeyPatch.context() as patch:
        Draws().into(patch, torch, torch.from_numpy)
        expected = theirs.train(twin, theirs.parse(arguments))
    return found, expected


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_losses_are_those_of_pytorch(name, tmp_path):
    found, expected = pairs(name, 8, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=2e-4)
