"""What becomes of each module of PyTorch's: it is here, an alias of what is here, an inert stand-in, or refused, with the reason.

`modules.txt` holds PyTorch's modules and their public names; tests/torch_modules.py writes it. What is said here are the exceptions from
two rules: a module of the same path in gradlab answers for it (here), and the names of any other are looked for along its path (an alias):
`torch.nn.modules.pooling.MaxPool2d` is what `gradlab.nn` calls so.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_ONE = "several processes share work by gl.distributed and `gradlab launch`; this part of PyTorch's has no counterpart there"
_QUANTISED = "quantised tensors are not offered; use int8 tensors and a scale, or gl.onnx.load, which reads quantised models"
_NESTED = "nested and masked tensors are not offered; use nn.utils.rnn.pad_sequence and a mask of bool"
_DEVICES = "devices are the CPU and CUDA"
_COMPILED = "it is a part of PyTorch's compiler; use gl.compile, which has passes= and explain() in place of its settings"
_TRACED = "programs are traced by gl.jit.trace and gl.jit.script, and exported by gl.onnx.export and gl.deploy"
_INSIDE = "it is PyTorch's own machinery"
_TOOL = "it is a tool for PyTorch's own developers"


def _all(names: str, said: str) -> dict[str, str]:
    return dict.fromkeys((f"torch.{name}" for name in names.split()), said)


# Modules of gradlab's that answer for one of PyTorch's under another path.
OWN = {
    "torch._C": "gradlab.pytorch.core",
    "torch._dynamo.config": "gradlab.pytorch.compiler_settings",
    "torch._inductor.config": "gradlab.pytorch.compiler_settings",
    "torch._utils": "gradlab.pytorch.helpers",
    "torch.compiler": "gradlab.pytorch.compiler",
    "torch.compiler.config": "gradlab.pytorch.compiler_settings",
    "torch.futures": "gradlab.distributed.futures",
    "torch.types": "gradlab.pytorch.types",
    "torch.utils._pytree": "gradlab.pytorch.pytree",
    "torch.utils.flop_counter": "gradlab.profiler.flop_counter",
    "torch.version": "gradlab.pytorch.version",
}

# Modules that PyTorch once had, which old programs import.
OLDER = {"torch._six": "gradlab.pytorch.six"}

# Where names are looked for that are not on their module's path: modules of gradlab, in this order.
ELSEWHERE = {
    "torch": ("gradlab.pytorch.dtypes", "gradlab.pytorch.functions", "gradlab.pytorch.questions", "gradlab.nn", "gradlab.jit"),
    "torch.backends.cpu": ("gradlab.pytorch.helpers",),
    "torch.distributed.tensor": ("gradlab.pytorch.placements",),
    "torch.distributed.tensor.placement_types": ("gradlab.pytorch.placements",),
    "torch._C": ("gradlab.overrides",),
    "torch._dynamo": ("gradlab.pytorch.compiler",),
    "torch._dynamo.decorators": ("gradlab.pytorch.compiler",),
    "torch._dynamo.eval_frame": ("gradlab.pytorch.compiler",),
    "torch._higher_order_ops.cond": ("gradlab",),
    "torch._higher_order_ops.scan": ("gradlab",),
    "torch._higher_order_ops.while_loop": ("gradlab",),
    "torch._jit_internal": ("gradlab.jit",),
    "torch._logging": ("gradlab.pytorch.compiler_settings",),
    "torch._lowrank": ("gradlab.tensor.low_rank",),
    "torch._tensor": ("gradlab",),
    "torch._vmap_internals": ("gradlab",),
    "torch.autograd.profiler": ("gradlab.profiler",),
    "torch.backends.cuda": ("gradlab.nn.attention",),
    "torch.distributed.checkpoint.filesystem": ("gradlab.distributed.checkpoint",),
    "torch.distributed.checkpoint.state_dict_loader": ("gradlab.distributed.checkpoint",),
    "torch.distributed.checkpoint.state_dict_saver": ("gradlab.distributed.checkpoint",),
    "torch.distributed.distributed_c10d": ("gradlab.distributed", "gradlab.distributed.groups"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": ("gradlab.distributed.fsdp",),
    "torch.distributed.optim.zero_redundancy_optimizer": ("gradlab.distributed.optim",),
    "torch.functional": ("gradlab",),
    "torch.nn.common_types": ("gradlab.pytorch.types",),
    "torch.nn.modules.channelshuffle": ("gradlab.nn.modules.shape",),
    "torch.nn.modules.instancenorm": ("gradlab.nn.modules.norm",),
    "torch.nn.modules.pooling": ("gradlab.nn.modules.pool",),
    "torch.nn.modules.sparse": ("gradlab.nn.modules.embedding",),
    "torch.nn.utils.stateless": ("gradlab.func",),
    "torch.optim.optimizer": ("gradlab.pytorch.optimizers",),
    "torch.storage": ("gradlab",),
    "torch.torch_version": ("gradlab.pytorch.version",),
    "torch.utils._contextlib": ("gradlab.pytorch.helpers",),
    "torch.utils._foreach_utils": ("gradlab.pytorch.helpers",),
    "torch.utils.benchmark.utils.common": ("gradlab.utils.benchmark",),
    "torch.utils.benchmark.utils.compare": ("gradlab.utils.benchmark",),
    "torch.utils.benchmark.utils.timer": ("gradlab.utils.benchmark",),
}

# Names under which gradlab keeps something else than PyTorch does: a module and a name in it.
RENAMED = {
    "torch.PyTorchFileReader": ("gradlab.pytorch.core", "PyTorchFileReader"),
    "torch.PyTorchFileWriter": ("gradlab.pytorch.core", "PyTorchFileWriter"),
    "torch.ScriptModule": ("gradlab.jit", "ScriptModule"),
    "torch._assert": ("gradlab.pytorch.helpers", "_assert"),
    "torch._jit_internal._copy_to_script_wrapper": ("gradlab.jit", "export"),
    "torch._sample_dirichlet": ("gradlab.pytorch.helpers", "_sample_dirichlet"),
    "torch.cuda.StreamContext": ("gradlab.cuda", "stream"),
    "torch.fx.node.Target": ("typing", "Any"),
    "torch.distributions.multivariate_normal.Distribution": ("gradlab.distributions", "Distribution"),
    "torch.distributions.transforms._InverseTransform": ("gradlab.distributions.transform", "_InverseTransform"),
    "torch.library.triton_op": ("gradlab.library", "custom_op"),
    "torch.library.wrap_triton": ("gradlab.pytorch.private", "interface"),
    "torch.library.Library": ("gradlab.pytorch.libraries", "Library"),
    "torch.jit.Future": ("gradlab.distributed.futures", "Future"),
    "torch.jit.isinstance": ("gradlab.pytorch.private", "is_instance"),
    "torch.nn.init._calculate_correct_fan": ("gradlab.nn.init", "_fan"),
    "torch.nn.init._no_grad_uniform_": ("gradlab.nn.init", "uniform_"),
    "torch.jit._overload": ("gradlab.jit", "export"),
    "torch.jit._overload_method": ("gradlab.jit", "export"),
    "torch.nn.modules.linear.NonDynamicallyQuantizableLinear": ("gradlab.nn", "Linear"),
    "torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX": ("gradlab.nn.state", "EXTRA_STATE"),
    "torch.nn.modules.module._IncompatibleKeys": ("gradlab.nn.state", "IncompatibleKeys"),
    "torch.profiler.kineto_available": ("gradlab.pytorch.helpers", "kineto_available"),
    "torch.serialization.MAP_LOCATION": ("typing", "Any"),
    "torch.utils.data.dataloader._BaseDataLoaderIter": ("gradlab.utils.data.loader", "LoaderIterator"),
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter": ("gradlab.utils.data.workers", "PoolIterator"),
    "torch.utils.data.dataloader._SingleProcessDataLoaderIter": ("gradlab.utils.data.loader", "LoaderIterator"),
}

_PRIVATE = {
    "torch": (
        "_assert_async _check _check_index _check_is_size _check_not_implemented _check_tensor_all _check_type _check_value _check_with "
        "_standard_gamma binomial legacy_contiguous_format sym_ite sym_sum"
    ),
    "torch._dynamo._trace_wrapped_higher_order_op": "TransformGetItemToIndex",
    "torch.autograd.forward_ad": "UnpackedDualTensor unpack_dual",
    "torch.distributions.multivariate_normal": "_precision_to_scale_tril",
    "torch.distributions.transforms": "_clipped_sigmoid",
    "torch.jit": "Attribute Error TracerWarning fork interface wait",
    "torch.nn.modules.transformer": "_get_activation_fn",
    "torch.nn.modules.utils": "_reverse_repeat_tuple",
    "torch.onnx": "OperatorExportTypes TrainingMode",
    "torch.serialization": "DEFAULT_PROTOCOL",
    "torch.testing": "assert_allclose",
    "torch.utils.checkpoint": "get_device_states set_device_states",
    "torch.utils.data.dataloader": "_DatasetKind _InfiniteConstantSampler _collate_fn_t _worker_init_fn_t",
}
RENAMED |= {f"{module}.{name}": ("gradlab.pytorch.private", name) for module, names in _PRIVATE.items() for name in names.split()}

# Modules that can be imported and hold nothing but stand-ins: their classes are nobody's, `is_…()` and `has_…()` answer False, and any
# other call says why not. These are modules that programs import at their top and ask about, and then do without.
INERT = {
    **_all("_dynamo _functorch _higher_order_ops _inductor _logging _subclasses compiler", _COMPILED),
    **_all("_C _VF _ops _prims_common _linalg_utils _lowrank _tensor_str _utils _weights_only_unpickler utils._mode_utils", _INSIDE),
    **_all("utils._python_dispatch utils._triton utils._stats utils._traceback utils._typing_utils", _INSIDE),
    **_all("autograd._functions nn._reduction nn.cpp nn.modules._functions utils.cpp_extension utils.weak", _INSIDE),
    **_all("utils.data._utils utils._dtype_abbrs utils._device", _INSIDE),
    **_all("distributed nn.parallel.comm cuda.comm cuda.nccl", _ONE),
    **_all("export jit._script jit._trace jit._state jit.annotations jit.frontend onnx", _TRACED),
    **_all("fx", "gl.fx has tracing, graphs, interpreters, patterns and passes.shape_prop"),
    **_all("masked nested", _NESTED),
    **_all("mps mtia xpu", _DEVICES),
    **_all("accelerator.graphs cuda.gds cuda.green_contexts cuda.jiterator cuda.profiler cuda.tunable", _INSIDE),
    **_all("backends", "there are no settings of it; gradlab computes with kernels of its own and NumPy's BLAS"),
    **_all("autograd.forward_ad", "use gl.func.jvp, which gives a function's directional derivative"),
    **_all("sparse.semi_structured", "use dense weights, or sparse_csr tensors"),
    **_all("nn.attention.experimental nn.attention.varlen", "use nn.functional.scaled_dot_product_attention"),
    **_all("monitor profiler.itt profiler.python_tracer", "use gl.profiler"),
    **_all("utils.module_tracker", "use gl.profiler.profile with with_modules=True"),
    **_all("accelerator.memory autograd.profiler_util cuda.amp.common optim._functional utils.serialization", _INSIDE),
    **_all("utils.deterministic", _INSIDE),
    **_all("utils.benchmark", "use Timer, which measures statements of Python"),
    **_all("utils.tensorboard._convert_np utils.tensorboard._embedding utils.tensorboard._pytorch_graph", "use SummaryWriter"),
    **_all("utils.tensorboard._utils utils.tensorboard.summary", "use SummaryWriter"),
    **_all("return_types", _INSIDE),
    **_all("nn.parallel.scatter_gather storage", _INSIDE),
    **_all("multiprocessing.reductions", _INSIDE),
}

# Modules that cannot be imported. Both tables are of families: the longest path that fits decides.
REFUSED = {
    **_all("ao quantization nn.intrinsic nn.qat nn.quantizable nn.quantized jit.quantized utils.mkldnn", _QUANTISED),
    **_all("package nativert jit.mobile utils.mobile_optimizer utils.bundled_inputs", _TRACED),
    **_all("jit.generate_bytecode jit.supported_ops jit.unsupported_tensor_ops utils.jit contrib autograd.profiler_legacy", _INSIDE),
    **_all("_torch_docs _tensor_docs _storage_docs utils.hipify utils.backcompat utils.file_baton utils.debug_log utils.viz", _TOOL),
    **_all("utils.collect_env utils.cpp_backtrace utils.model_dump utils.show_pickle utils.throughput_benchmark", _TOOL),
    **_all("utils.benchmark.examples utils.benchmark.op_fuzzers utils.backend_registration nn.backends backends.xeon numa", _TOOL),
    **_all("utils._import_utils utils._cxx_pytree nn.utils._named_member_accessor nn.utils._per_sample_grad", _INSIDE),
    **_all("utils.data.datapipes utils.data.graph utils.data.graph_settings", "use Dataset or IterableDataset"),
    **_all("utils.data.backward_compatibility", _INSIDE),
    **_all("distributed.rpc.api", _ONE),
    **_all("distributed.elastic distributed.launch distributed.launcher distributed.run distributed.argparse_util", _ONE),
    **_all("fx.experimental.migrate_gradual_types fx.experimental.unification", _INSIDE),
    **_all("nn.modules.linear_cross_entropy nn.modules.linear_cross_entropy_options", "use Linear and CrossEntropyLoss"),
}


class Verdict(Enum):
    """What a module of PyTorch's is in gradlab."""

    HERE = "here"
    ALIAS = "alias"
    INERT = "inert"
    REFUSED = "refused"


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """PyTorch's modules, each with its public names."""
    lines = (Path(__file__).parent / "modules.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return {module: tuple(names) for module, *names in rows}


@cache
def children(module: str) -> frozenset[str]:
    """The names of the modules directly in it, as far as the table has them."""
    start = module + "."
    return frozenset(name.removeprefix(start).partition(".")[0] for name in modules() if name.startswith(start))


def home(module: str) -> str:
    """The module of gradlab's that is, or would be, PyTorch's."""
    return OWN.get(module) or OLDER.get(module) or "gradlab" + module.removeprefix("torch")


def _longest(module: str, table: dict[str, str]) -> str:
    return max((path for path in table if module == path or module.startswith(path + ".")), key=len, default="")


@cache
def verdict(module: str) -> Verdict | None:
    """What becomes of a module; None for one that PyTorch has not. A private one of an inert family need not be in the table."""
    if module not in modules() and module not in OLDER:
        return Verdict.INERT if "._" in module and inert(module) else None
    try:
        if find_spec(home(module)) is not None:
            return Verdict.HERE
    except ModuleNotFoundError:  # its parent is no package
        pass
    if inert(module):
        return Verdict.INERT
    return Verdict.REFUSED if _longest(module, REFUSED) else Verdict.ALIAS


def inert(module: str) -> str:
    """Why what it lacks is a stand-in, and what to use; nothing where a name that is missing is an error."""
    stands, refused = _longest(module, INERT), _longest(module, REFUSED)
    return INERT[stands] if len(stands) > len(refused) else ""


def refused(module: str) -> str:
    """Why it cannot be imported, and what to use."""
    return REFUSED[_longest(module, REFUSED)]


# What the files of PyTorch's layers import, and scripts take from there.
_IMPORTED = frozenset({
    "Module", "Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer", "Tensor", "Size", "LazyModuleMixin", "PackedSequence",
    "F", "init",
})  # fmt: skip


def sources(module: str, name: str) -> tuple[str, ...]:
    """Where in gradlab a name of a module's may be: where `ELSEWHERE` says; for those that PyTorch has there, in the rooms around it."""
    imported = name in _IMPORTED and module.startswith("torch.nn.modules.")
    if inert(module) or not (name.startswith("_") or name in modules().get(module, ()) or imported):
        return ELSEWHERE.get(module, ())
    parts = module.split(".")
    around = [".".join(["gradlab", *parts[1:length]]) for length in range(len(parts), 1, -1)]
    return (*ELSEWHERE.get(module, ()), *around, *(("gradlab", "gradlab.nn.modules.lazy", "gradlab.nn.utils.rnn") if imported else ()))
