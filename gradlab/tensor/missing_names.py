"""Names that PyTorch has and gradlab has not: asking for one says what to use instead.

A Tensor's are descriptors, so that nothing else becomes slower (a `__getattr__` on the class would make every attribute so); modules
have a `__getattr__`, which is asked only for what is not there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

from gradlab.autograd.base import Differentiable
from gradlab.dtype import NO_HALF

_SPARSE = "of sparse tensors gradlab offers what docs/sparse.md lists; use to_dense(), or index_add and scatter_add on values"
_QUANTISED = "quantised tensors are not offered; use gl.ao.quantization, whose layers have int8 weights, or int8 tensors and a scale"
_NESTED = "nested tensors are not offered; use nn.utils.rnn.pad_sequence or pack_sequence"
_JIT = "use gl.compile, which turns a function or module into a static program"
_COPY = "use the function without _copy, and clone() its result"
_WORLD = "models are shared by DistributedDataParallel and distributed.fsdp, tensors by collectives; those take a process group"
_NUMPY = "compute it with NumPy or SciPy on x.numpy(), and gl.from_numpy the result"


def _all(names: str, advice: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), advice)


# Of methods and functions alike.
BOTH = {
    **_all("chalf", NO_HALF),
    **_all("dequantize q_scale q_zero_point int_repr qscheme quantize_per_tensor quantize_per_channel", _QUANTISED),
    **_all("sspaddmm hspmm saddmm", _SPARSE),
    **_all("symeig", "use linalg.eigh"),
    **_all("lstsq", "use linalg.lstsq"),
    **_all("solve", "use linalg.solve(A, B)"),
    **_all("matrix_rank", "use linalg.matrix_rank"),
    **_all("lobpcg", "use linalg.eigh, or svd_lowrank"),
    **_all("hash_tensor", "compare with gl.equal"),
    "slice_inverse": "use slice_scatter",
}

TENSOR = {
    **BOTH,
    **_all(
        "to_sparse_bsr to_sparse_bsc resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_", _SPARSE,
    ),
    "const_data_ptr": "use data_ptr()",
    **_all("to_mkldnn xpu ipu mtia", "devices are the CPU and CUDA"),
    **_all("q_per_channel_axis q_per_channel_scales q_per_channel_zero_points", _QUANTISED),
    "index": "use x[...]",
    "grad_dtype": "a gradient has its tensor's dtype",
    "module_load": "use load_state_dict, or copy_ under no_grad",
    **_all("resize resize_as", "use reshape, or a new tensor"),
    **_all("reinforce", "weight the log-probability with the reward: (-log_prob * reward).sum().backward()"),
    **_all("to_padded_tensor", _NESTED),
}  # fmt: skip

MODULES = {
    "gradlab.transforms": {
        **_all("AutoAugment AutoAugmentPolicy AugMix", "use RandAugment or TrivialAugmentWide"),
        **_all("ScaleJitter RandomShortestSize RandomIoUCrop", "made for boxes, which are not offered; use RandomResize"),
        **_all("JPEG UniformTemporalSubsample", "make a Lambda of a function of your own"),
        "v2": "gl.transforms is that already",
    },
    "gradlab": {
        **BOTH,
        **_all("complex32 chalf", NO_HALF),
        **_all("quantization qint8 quint8 qint32", _QUANTISED),
        **_all("nested jagged", _NESTED),
        **_all("export ScriptModule", _JIT),
        **_all("Storage FloatStorage", "use x.storage() of a tensor of that dtype"),
        **_all("uint16 uint32 uint64", "use int32 or int64"),
        **_all("float8_e4m3fn float8_e5m2", "use bfloat16 or float16"),
        "from_file": "use gl.from_numpy(numpy.memmap(...))",
        "mps": "devices are the CPU and CUDA",
        **_all("frobenius_norm nuclear_norm", "use gl.linalg.matrix_norm"),
        **_all("convolution conv_tbc", "use gl.nn.functional.conv1d, conv2d or conv3d"),
        **_all("feature_dropout_ alpha_dropout_ dropout_ feature_alpha_dropout_", "use the dropouts of gl.nn.functional"),
        **_all("Stream Event", "use gl.cuda.Stream and gl.cuda.Event"),
        **_all("fork wait futures", "use concurrent.futures"),
        "max_pool1d_with_indices": "use gl.nn.functional.max_pool1d(return_indices=True)",
        "binomial": "add up bernoulli draws",
        **_all("ModuleDict ParameterDict BufferDict", "use gl.nn.ModuleDict, ParameterDict"),
        "to_dlpack": "use gl.from_dlpack on the other side: tensors have __dlpack__", "compiler": "use gl.compile",
        "rnn_tanh": "use nn.RNN", "rnn_relu": "use nn.RNN(nonlinearity='relu')", "lstm": "use nn.LSTM", "gru": "use nn.GRU",
        "lstm_cell": "use nn.LSTMCell", "gru_cell": "use nn.GRUCell", **_all("rnn_tanh_cell rnn_relu_cell", "use nn.RNNCell"),
    },
    "gradlab.nn": {
        "Container": "use Module",
        "quantized": _QUANTISED, "qat": _QUANTISED, "quantizable": _QUANTISED,
    },
    "gradlab.nn.parallel": _all("scatter gather replicate parallel_apply comm", "there is one device: call the module"),
    "gradlab.distributed": {
        **_all("DeviceMesh init_device_mesh device_mesh tensor DTensor pipelining rpc rref", _WORLD),
        **_all("run launch launcher", "start the script with gradlab launch -n N --max-restarts K -- script.py"),
    },
    "gradlab.nn.utils": {
        "stateless": "use gl.func.functional_call",
    },
    "gradlab.utils.data": {
        **_all("IterDataPipe MapDataPipe DFIterDataPipe DataChunk functional_datapipe datapipes", "use Dataset or IterableDataset"),
    },
    "gradlab.optim": {
        "lr_find": "try rates from 1e-5 up by hand and take one where the loss still falls",
    },
}  # fmt: skip


class Absent:
    """A name that a class has not. Reading it raises AttributeError with advice; an instance may still store something under it."""

    def __init__(self, name: str, advice: str) -> None:
        self.name, self.advice = name, advice

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(f"gradlab has no {owner.__name__}.{self.name}: {self.advice}")


class MissingMethods(Differentiable):
    """What a Tensor has not."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in TENSOR]


for _name, _advice in TENSOR.items():
    setattr(MissingMethods, _name, Absent(_name, _advice))


def absent(module: str, name: str) -> AttributeError:
    """The error for a name that a module has not, with what is known to be used in its place, or the names that look like it."""
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    advice = MODULES.get(module, {}).get(name)
    if advice is None and module == "gradlab":
        advice = _elsewhere(name)
    if advice is None:
        advice = _by_kind(name)
    if advice is None:
        others = [other for other in dir(sys.modules[module]) if not other.startswith("_") and other != name]
        near = import_module("difflib").get_close_matches(name, others, 3, 0.75)
        advice = f"did you mean {' or '.join(near)}?" if near else "gradlab does not offer it; docs/differences.md says what is left out"
    return AttributeError(f"{text}: {advice}")


# What PyTorch keeps under names of one kind: its own machinery, other libraries' kernels, what its modules import.
KINDS = (
    (r".*_copy$", _COPY),
    (r"(miopen|mkldnn|cudnn|native|fbgemm)_\w+|.*_gemm.*", "it is a kernel of PyTorch's own; use the public function, in nn.functional"),
    (r"(quantized|fake_quantize|q_per_channel|per_(channel|tensor)|choose_qparams)\w*|empty_quantized|qscheme|q?u?int\d+x\d+|fused_moving_\w+",
     _QUANTISED),
    (r"sparse_\w+|\w+_sparse_?|sparse_resize\w*", _SPARSE),
    (r"(bits|int|float)\d\w*|uint[1-7]", "use one of the dtypes float16, bfloat16, float32, float64, int8 to int64, uint8, bool"),
    (r"batch_norm_\w+", "use nn.functional.batch_norm"),
    (r"(is|get|set|clear)_autocast\w*|autocast_\w+|GradScaler|amp",
     "use gl.autocast, gl.is_autocast_enabled(device_type), gl.get_autocast_dtype(device_type) and gl.amp.GradScaler"),
    (r"(rnn_\w+|gru|lstm)_cell", "use nn.RNNCell, nn.LSTMCell or nn.GRUCell"),
    (r"(set|is|check)_?anomaly\w*", "gl.autograd.detect_anomaly finds NaN in a backward pass"),
    (r"(Script|Lite)\w+|\w*(Storage|Type|Logger|FileReader|FileWriter|State|Stats)|(parse|import)_\w+|Sym\w+|\w+Key(Set)?|\w+Guard",
     "it belongs to PyTorch's machinery; " + _JIT),
    (r"(is|get)_(vulkan|xpu|mps|mtia|ipu|xla|maia)\w*|xpu|mtia|ipu|cpu|get_device_module", "devices are the CPU and CUDA"),
    (r"has_torch_function\w*|handle_torch_function\w*", "use gl.overrides"),
    (r"has_(lapack|mkl|openmp|spectral|mps|cuda|cudnn)", "linear algebra is always there; gl.cuda.is_available() says whether a GPU is"),
)


def _by_kind(name: str) -> str | None:
    """What to say of names that belong together."""
    match = import_module("re").fullmatch
    return next((advice for pattern, advice in KINDS if match(pattern, name)), None)


def _elsewhere(name: str) -> str | None:
    """Where else a function of that name lives."""
    for module in ("gradlab.nn.functional", "gradlab.linalg", "gradlab.special"):
        if name in getattr(import_module(module), "__all__", ()) or name in vars(import_module(module)):
            return f"use {module.replace('gradlab', 'gl')}.{name}"
    if name in dir(import_module("gradlab.tensor").Tensor):
        return f"use the method, x.{name}(...)"
    return None
