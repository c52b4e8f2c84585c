"""`import gradlab.as_torch`: `torch` is gradlab's for the process, and nothing of it is active otherwise."""

import importlib
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path


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
        assert importlib.reload(torch) is torch and importlib.import_module("torch.nn") is nn
        assert torch.__name__ == "torch" and "relu" in dir(torch) and "compile" in dir(torch)
    """)


def test_what_is_listed_can_be_had():
    run("""
        import gradlab.as_torch
        import gradlab.op, gradlab.spec  # inner modules, which `torch` has not
        import importlib, torch
        from gradlab.pytorch import table

        assert {"nn", "optim", "linalg", "relu", "zeros", "compile", "float32"} <= set(dir(torch)) and not {"op", "spec"} & set(dir(torch))
        for name in ["torch", "torch.nn", "torch.linalg", *sorted(table.modules())[::9]]:
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            for each in dir(module):
                getattr(module, each)
    """)


def test_nothing_is_active_without_it():
    run("""
        import sys
        before = list(sys.meta_path)
        import gradlab, gradlab.nn, gradlab.pytorch.installing
        added = [finder for finder in sys.meta_path if finder not in before]  # the one that waits for einops
        assert [type(finder).__module__ for finder in added] == ["gradlab.interchange"] and "torch" not in sys.modules
        assert not any(finder.find_spec(name) for finder in added for name in ("torch", "torch.nn"))
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


def test_names_are_found_where_pytorch_keeps_them():
    run("""
        import gradlab.as_torch
        import gradlab as gl
        import torch
        from torch.autograd.variable import Variable
        from torch.cuda.amp.grad_scaler import GradScaler
        from torch.distributions.categorical import Categorical
        from torch.functional import einsum
        from torch.nn.modules.activation import MultiheadAttention
        from torch.nn.modules.batchnorm import _BatchNorm
        from torch.nn.modules.pooling import AdaptiveAvgPool2d, MaxPool2d
        from torch.nn.utils.spectral_norm import spectral_norm, remove_spectral_norm
        from torch.optim.adamw import AdamW
        from torch._six import inf, string_classes

        assert MultiheadAttention is gl.nn.MultiheadAttention and MaxPool2d is gl.nn.MaxPool2d and AdamW is gl.optim.AdamW
        assert issubclass(gl.nn.BatchNorm2d, _BatchNorm) and Categorical is gl.distributions.Categorical and einsum is gl.einsum
        assert torch.optim.adamw.AdamW is AdamW and torch.nn.modules.pooling.MaxPool2d is MaxPool2d
        import torch.nn.utils.spectral_norm
        assert torch.nn.utils.spectral_norm is spectral_norm is gl.nn.utils.spectral_norm  # the function, not the module
        star = {}
        exec("from torch.nn.modules.pooling import *", star)
        assert star["MaxPool2d"] is MaxPool2d and "Linear" not in star
    """)


def test_what_is_missing_says_what_to_do():
    run("""
        import gradlab.as_torch
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel

        def said(code):
            try:
                exec(code, {"torch": torch, "FSDP": FullyShardedDataParallel})
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        assert "did you mean Linear" in said("torch.nn.Linaer") and said("torch.nn.Linaer").startswith("AttributeError")
        assert said("from torch.nn import Linaer").startswith("ImportError: cannot import name 'Linaer' from 'torch.nn'")
        assert "did you mean Linear" in said("from torch.nn import Linaer")
        assert said("import torch.ao.quantization") is None and "quantised" in said("import torch.ao.nn.quantized")
        assert said("import torch.nothing") == "ModuleNotFoundError: No module named 'torch.nothing': neither has PyTorch, or it is its own"
        assert said("import torch.nn.functional.relu").startswith("ModuleNotFoundError")
        assert torch.fft.rfft(torch.ones(4)).tolist() == [4, 0, 0] and "did you mean rfft" in said("torch.fft.rffft")
        assert not isinstance(torch.nn.Linear(1, 1), FullyShardedDataParallel) and "process group" in said("FSDP(torch.nn.ReLU())")
        assert "gl.distributed" in said("from torch.distributed.fsdp import fully_shard as f; f(1)")
        assert said("FSDP | None") is None and not torch.xpu.is_available() and torch.xpu.device_count() == 0
        # In a module that is inert every name can be imported, the private ones of private modules, too.
        from torch.distributed.tensor._utils import compute_local_shape
        from torch.distributed.fsdp.fully_sharded_data_parallel import ShardingStrategy, _Private
        assert "gl.distributed" in said("from torch.distributed.tensor._utils import f\\nf()") and not hasattr(torch.distributed, "nothing")
        assert not hasattr(torch, "nothing") and not hasattr(torch.optim, "Linear") and getattr(torch.autograd, "nothing", 3) == 3
    """)


def test_versions_order():
    version = importlib.import_module("gradlab.pytorch.version").__version__
    for smaller in ("2.5", "2.6", "2.5.1", "1.13.0", (2, 6), (1, 9), (2, 5, 9), "2.6.0rc1", "2.6.0.dev20250101", version):
        assert version >= smaller, smaller
    for larger in ("2.6.1", "2.10", (2, 7), (2, 6, 1), "3"):
        assert version < larger and version <= larger and version != larger and not version > larger, larger
    assert version > "2.6.0" and version != "2.6" and version == "2.6.0+gradlab" and hash(version) == hash("2.6.0+gradlab")
    assert isinstance(version, str) and version.split("+")[0].split(".")[:2] == ["2", "6"]
    assert version != "not a version" and version != 3.5


def test_started_processes_have_it_too():
    for method in ("spawn", "forkserver", "fork"):
        assert run(f"""
            import gradlab.as_torch
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("{method}")) as pool:
                print(pool.submit(eval, "__import__('torch').__version__").result())
        """) == "2.6.0+gradlab\n"  # fmt: skip


def test_dtypes_and_shapes_are_written_as_pytorch_writes_them():
    script = "print(torch.float32, [torch.int64], torch.ones(2, 3).shape, torch.Tensor, str(torch.zeros(2, dtype=torch.float64)))"
    assert run("import gradlab.as_torch, torch\n" + script) == (
        "torch.float32 [torch.int64] torch.Size([2, 3]) <class 'torch.Tensor'> tensor([0., 0.], dtype=torch.float64)\n"
    )


def test_config_is_text():
    script = "print('NumPy' in torch.__config__.show(), 'threads' in torch.__config__.parallel_info())"
    assert run("import gradlab.as_torch, torch\n" + script) == "True True\n"


def test_dtypes_that_no_tensor_has_are_names():
    script = """
import pickle
sizes = {torch.complex32: 4, torch.complex64: 8, torch.uint16: 2, torch.float8_e4m3fn: 1, torch.float32: 4}
assert all(kind.itemsize == size for kind, size in sizes.items()) and torch.cfloat is torch.complex64 and torch.chalf.is_complex
assert torch.ones(2).dtype not in (torch.complex32, torch.complex128) and pickle.loads(pickle.dumps(torch.uint16)) is torch.uint16
for make in (lambda: torch.zeros(2, dtype=torch.complex32), lambda: torch.ones(2).to(torch.uint16)):
    try: make()
    except TypeError as error: print(error)
"""
    assert run("import gradlab.as_torch, torch\n" + script) == (
        "zeros: torch.complex32: there are no complex numbers of half precision (complex32, chalf): neither NumPy nor CUDA computes with "
        "them; use complex64\n"
        "torch.uint16: use int32 or int64\n"
    )


def test_functions_of_nn_that_pytorch_has_at_its_top():
    script = """
x, w = torch.ones(1, 2, 4, 4), torch.ones(3, 2, 2, 2)
assert torch.equal(torch.conv2d(x, w), torch.nn.functional.conv2d(x, w))
assert torch.embedding(torch.eye(3), torch.tensor([1])).tolist() == [[0.0, 1.0, 0.0]]
assert torch.batch_norm(x, None, None, torch.zeros(2), torch.ones(2), False, 0.1, 0.0, True).equal(x)
assert torch.layer_norm(torch.zeros(3), (3,)).tolist() == [0.0] * 3 and torch.torch is torch
"""
    run("import gradlab.as_torch, torch\n" + script)


def test_operations_by_namespace_and_inner_classes():
    script = """
import torch.distributed as dist, torch.distributed.tensor as parts
import torch.utils._pytree as trees
assert torch.ops.aten.add.Tensor(torch.ones(1), 1).tolist() == [2.0] and torch.ops.aten.add.Tensor is torch.ops.aten.add.Tensor
assert not hasattr(torch.ops.torchaudio, "filter") and not torch.backends.mkldnn.is_available() and not isinstance(3, torch.SymInt)
try: torch.ops.load_library("libother.so")
except OSError: print("compiled for PyTorch")
assert dist.ReduceOp.RedOpType.SUM is dist.ReduceOp.SUM and parts.Shard(0).is_shard(0) and parts.Replicate() == parts.Replicate()
assert trees._dict_unflatten(*trees._dict_flatten({"a": 1})) == {"a": 1} and torch.finfo(torch.float8_e4m3fn).max == 448
"""
    assert run("import gradlab.as_torch, torch\n" + script) == "compiled for PyTorch\n"


def test_classes_that_are_missing_can_be_named():
    run("""
        import gradlab.as_torch
        import torch

        def pool(p: torch.cuda.MemPool) -> torch.cuda.StreamContext: ...
        assert not isinstance(3, torch.cuda.MemPool) and torch.cuda.StreamContext is torch.cuda.stream
        assert not hasattr(torch.cuda, "MemPool") and getattr(torch.cuda, "MemPool", None) is None
        try: torch.cuda.MemPool()
        except NotImplementedError as error: assert "torch.cuda.MemPool" in str(error)
        try: torch.cuda.Unknown
        except AttributeError: pass
        else: raise AssertionError
    """)


def test_scripts_that_are_refused_stay_functions():
    program = """
        import warnings
        import gradlab.as_torch
        import torch

        def careful(x):
            try:
                return x + 1
            except ValueError:
                return x

        class Net(torch.nn.Module):
            def forward(self, x):
                del self.seen
                return x * 2

        class Plain:
            def twice(self, x): return 2 * x

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net = Net()
            net.seen = 1
            assert torch.jit.script(careful) is careful and torch.jit.script(net) is net
        assert len(caught) == 2 and "try cannot be part of a script" in str(caught[0].message)
        assert torch.jit.script(Plain) is Plain
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(textwrap.dedent(program))
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
