"""Writes gradlab/pytorch/modules.txt, the table of PyTorch's modules and their public names, from the PyTorch that is installed.

    python tests/torch_modules.py        # with - it prints the table instead

Every module without an underscore in its path is in it, and those with one that libraries are known to import.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import sys
import types
import warnings
from pathlib import Path

TABLE = Path(__file__).parent.parent / "gradlab" / "pytorch" / "modules.txt"

PRIVATE = [
    "_C", "_VF", "_dynamo", "_dynamo.config", "_dynamo.decorators", "_dynamo.eval_frame", "_dynamo.exc", "_dynamo.utils",
    "_functorch.config", "_higher_order_ops", "_higher_order_ops.associative_scan", "_higher_order_ops.cond",
    "_higher_order_ops.flex_attention", "_higher_order_ops.scan", "_higher_order_ops.while_loop", "_inductor", "_inductor.config",
    "_jit_internal", "_linalg_utils", "_logging", "_lowrank", "_ops", "_prims_common", "_storage_docs", "_subclasses",
    "_subclasses.fake_tensor", "_tensor", "_tensor_docs", "_tensor_str", "_torch_docs", "_utils", "_vmap_internals",
    "_weights_only_unpickler", "autograd._functions", "distributed._composable", "distributed._composable.fsdp",
    "distributed._composable.replicate", "distributed._functional_collectives", "distributed._shard",
    "distributed._shard.sharded_tensor", "distributed._tensor", "distributed._tensor.device_mesh",
    "distributed._tensor.placement_types", "distributed.algorithms._checkpoint",
    "distributed.algorithms._checkpoint.checkpoint_wrapper", "distributed.fsdp._fully_shard", "fx._pytree", "fx._symbolic_trace",
    "jit._script", "jit._state", "jit._trace", "nn._reduction", "nn.modules._functions", "nn.utils._named_member_accessor",
    "nn.utils._per_sample_grad", "optim._adafactor", "optim._functional", "optim._multi_tensor", "optim._muon", "utils._contextlib",
    "utils._cxx_pytree", "utils._device", "utils._dtype_abbrs", "utils._foreach_utils", "utils._import_utils", "utils._mode_utils",
    "utils._python_dispatch", "utils._pytree", "utils._stats", "utils._traceback", "utils._triton", "utils._typing_utils",
    "utils.data._utils", "utils.data._utils.collate", "utils.data._utils.fetch", "utils.data._utils.pin_memory",
    "utils.data._utils.signal_handling", "utils.data._utils.worker", "utils.tensorboard._convert_np", "utils.tensorboard._embedding",
    "utils.tensorboard._pytorch_graph", "utils.tensorboard._utils",
]  # fmt: skip


def paths(package: Path) -> list[str]:
    """The modules' names: those of all files without an underscore, and the private ones."""
    files = (file.relative_to(package.parent).with_suffix("") for file in package.rglob("*.py"))
    every = {".".join(file.parts[:-1] if file.name == "__init__" else file.parts) for file in files}
    public = {name for name in every if "._" not in name and not name.startswith("torch.testing.")}
    compiled = {"torch._C"}
    private = {f"torch.{name}" for name in PRIVATE}
    around = {name[:at] for name in private for at, letter in enumerate(name) if letter == "."}
    return sorted(public | (private | around) & (every | compiled))


def names(module: str, package: Path) -> list[str]:
    """A module's public names: its `__all__`, or what is defined in it; read from its text where it cannot be imported."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            found = importlib.import_module(module)
    except Exception:  # it needs a package or a machine that is not here
        return written(module, package)
    if hasattr(found, "__all__"):
        return sorted(set(found.__all__))
    return sorted(name for name, value in vars(found).items() if not name.startswith("_") and belongs(value, module))


def belongs(value: object, module: str) -> bool:
    if isinstance(value, types.ModuleType):
        return False
    origin = getattr(value, "__module__", None)
    own = isinstance(origin, str) and (origin == module or origin.startswith(module + "."))
    return own or (isinstance(value, types.BuiltinFunctionType) and not module.startswith("torch._"))


def written(module: str, package: Path) -> list[str]:
    path = package.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return sorted(name for name in defined if not name.startswith("_"))


def table() -> str:
    """The file's text: a line that names the version, then a line for each module."""
    torch = importlib.import_module("torch")
    package = Path(torch.__file__).parent
    lines = [" ".join([module, *names(module, package)]) for module in paths(package)]
    version = ".".join(torch.__version__.split(".")[:2])
    return "\n".join([f"# PyTorch {version}; written by tests/torch_modules.py", *lines, ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        print(table(), end="")
    else:
        TABLE.write_text(table(), encoding="utf-8")
