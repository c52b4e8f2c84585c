"""`torch._C`: the little of PyTorch's compiled core that programs name themselves."""

from __future__ import annotations

from typing import Any

from gradlab.accelerator import current_accelerator
from gradlab.autograd.mode import current
from gradlab.device import Device, default_device
from gradlab.dtype import DType
from gradlab.nn import functional
from gradlab.overrides import _disabled_torch_function_impl as _disabled_torch_function_impl
from gradlab.pytorch.standing import stand_in
from gradlab.tensor import Tensor
from gradlab.tensor.generator import Generator, default_generator

TensorBase = _TensorBase = Tensor
has_cuda = has_mps = has_mkl = has_mkldnn = _has_mkldnn = False
has_lapack = _GLIBCXX_USE_CXX11_ABI = True

_FILES = "gl.load and gl.save read and write PyTorch's files"
PyTorchFileReader: Any = stand_in("torch", "PyTorchFileReader", _FILES)
PyTorchFileWriter: Any = stand_in("torch", "PyTorchFileWriter", _FILES)

__all__ = ["Generator", "TensorBase", "default_generator"]


class _Functions:
    """`torch._C._nn`: functions of layers, by the names of `nn.functional`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)

    @staticmethod
    def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
        """The device, dtype, non_blocking and memory format that arguments of `to` say; None for what they do not."""
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        rest = []
        for x in args:
            if isinstance(x, Tensor):
                device, dtype = x.device, x.dtype
            elif isinstance(x, DType):
                dtype = x
            elif isinstance(x, (str, Device)) or (isinstance(x, int) and not isinstance(x, bool)):
                device = x
            elif x is not None:
                rest.append(x)
        flags = [*rest, *[False][len(rest) :]]
        return (
            None if device is None else Device("cuda", device) if isinstance(device, int) else Device(device), dtype,
            bool(kwargs.get("non_blocking", flags[0])), kwargs.get("memory_format"),
        )  # fmt: skip


_nn = _Functions()


def _log_api_usage_once(event: str) -> None:
    """Nothing: nothing is counted here."""


def _get_tracing_state() -> Any:
    """The tracer, if a program is being traced; None otherwise."""
    return current().tracer


def _is_tracing() -> bool:
    return current().tracer is not None


def _are_functorch_transforms_active() -> bool:
    """Whether the code runs under vmap."""
    return current().vmap is not None


def _get_default_device() -> str:
    return str(default_device())


def _get_accelerator() -> Any:
    """The GPU if there is one, else the CPU."""
    return current_accelerator() or Device("cpu")


def _jit_set_profiling_executor(value: Any) -> bool:
    """Nothing: there is no such executor."""
    return False


_jit_set_profiling_mode = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_executor
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_executor
