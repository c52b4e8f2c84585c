"""`import gradlab.as_torch`: `torch` is gradlab's for the process, and nothing of it is active otherwise."""

import subprocess
import sys
import textwrap


def run(program: str) -> str:
    """What a fresh interpreter prints; it has to end well."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_gradlab():
    run("""
        import gradlab.as_torch
        import importlib.metadata, importlib.util, sys
        import gradlab as gl
        import torch, torch.nn as nn, torch.nn.functional as F, torch.optim.lr_scheduler as schedules
        from torch import optim
        from torch.utils.data import DataLoader
        from torch.nn.utils.rnn import pad_sequence

        assert torch.nn is nn is gl.nn and F is gl.nn.functional and optim is gl.optim and torch.Tensor is gl.Tensor
        assert isinstance(torch.ones(2), gl.Tensor)
        assert F.__name__ == F.__spec__.name == "gradlab.nn.functional"
        assert importlib.metadata.version("torch") == torch.__version__ == torch.version.__version__ == "2.6.0+gradlab"
        assert importlib.util.find_spec("torch") and importlib.util.find_spec("torch.nn") and not importlib.util.find_spec("torch.nothing")
        assert importlib.metadata.version("numpy")
        assert gl.__version__ != torch.__version__
        assert torch.__name__ == "torch" and "relu" in dir(torch) and "compile" in dir(torch)
    """)


def test_nothing_is_active_without_it():
    run("""
        import sys
        before = list(sys.meta_path)
        import gradlab, gradlab.nn, gradlab.pytorch.installing
        assert sys.meta_path == before and "torch" not in sys.modules
    """)


def test_torch_was_there_before():
    run("""
        import sys, types
        sys.modules["torch"] = types.ModuleType("torch")
        try:
            import gradlab.as_torch
        except ImportError as error:
            assert "imported already" in str(error), error
        else:
            raise SystemExit("no error")
    """)
