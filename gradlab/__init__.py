"""gradlab: a GPU-accelerated tensor and autograd engine. Names and meanings follow PyTorch.

    import gradlab as gl
"""

from __future__ import annotations

import sys
from importlib import import_module
from math import e as e, inf as inf, nan as nan, pi as pi
from typing import TYPE_CHECKING, Any

if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv) :][:1] in (["gradlab"], ["-mgradlab"]):
    import_module("gradlab.cli").begin()  # `python -m gradlab`: what can be said without the engine is said here, and is the end

from gradlab import autograd as autograd, backends as backends, ops as ops, random as random
from gradlab._version import __version__ as __version__
from gradlab.advice import GradlabWarning as GradlabWarning
from gradlab.autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from gradlab.backends import cpu as _cpu, cuda as _cuda
from gradlab.backends.cuda.gemm.settings import (
    get_float32_matmul_precision as get_float32_matmul_precision,
    set_float32_matmul_precision as set_float32_matmul_precision,
)
from gradlab.backends.determinism import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from gradlab.backends.native import thresholds as _thresholds
from gradlab.device import (
    Device as device,
    get_default_device as get_default_device,
    set_default_device as set_default_device,
)
from gradlab.dtype import (
    DType as dtype,
    bfloat16 as bfloat16,
    bool_ as bool,
    cdouble as cdouble,
    cfloat as cfloat,
    complex64 as complex64,
    complex128 as complex128,
    double as double,
    finfo as finfo,
    float16 as float16,
    float32 as float,
    float32 as float32,
    float64 as float64,
    get_default_dtype as get_default_dtype,
    half as half,
    iinfo as iinfo,
    int8 as int8,
    int16 as int16,
    int32 as int,
    int32 as int32,
    int64 as int64,
    long as long,
    set_default_dtype as set_default_dtype,
    short as short,
    uint8 as uint8,
)
from gradlab.interchange import watch as _watch_for_einops
from gradlab.layout import (
    Layout as layout,
    sparse_coo as sparse_coo,
    sparse_csc as sparse_csc,
    sparse_csr as sparse_csr,
    strided as strided,
)
from gradlab.strides import (
    MemoryFormat as memory_format,
    channels_last as channels_last,
    channels_last_3d as channels_last_3d,
    contiguous_format as contiguous_format,
    preserve_format as preserve_format,
)
from gradlab.tensor import Tensor as Tensor
from gradlab.tensor.activation import *
from gradlab.tensor.assembly import *
from gradlab.tensor.closeness import *
from gradlab.tensor.comparison import *
from gradlab.tensor.complex import *
from gradlab.tensor.creation import *
from gradlab.tensor.deprecated_functions import *
from gradlab.tensor.einsum import *
from gradlab.tensor.elementwise import *
from gradlab.tensor.factorization import *
from gradlab.tensor.gamma import *
from gradlab.tensor.gather import *
from gradlab.tensor.generator import *
from gradlab.tensor.geometry import *
from gradlab.tensor.indexing import *
from gradlab.tensor.layout import *
from gradlab.tensor.linalg import *
from gradlab.tensor.low_rank import *
from gradlab.tensor.masks import *
from gradlab.tensor.math import *
from gradlab.tensor.math_pairs import *
from gradlab.tensor.memory import *
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.norms import *
from gradlab.tensor.printing import *
from gradlab.tensor.product_sums import *
from gradlab.tensor.products import *
from gradlab.tensor.put import *
from gradlab.tensor.quantiles import *
from gradlab.tensor.quantization import *
from gradlab.tensor.random import *
from gradlab.tensor.reduction import *
from gradlab.tensor.repetition import *
from gradlab.tensor.scan import *
from gradlab.tensor.selection import *
from gradlab.tensor.shape import *
from gradlab.tensor.size import Size as Size
from gradlab.tensor.solve import *
from gradlab.tensor.sort import *
from gradlab.tensor.spacing import *
from gradlab.tensor.special import *
from gradlab.tensor.spellings import *
from gradlab.tensor.splitting import *
from gradlab.tensor.statistics import *
from gradlab.tensor.storage import *
from gradlab.tensor.type_queries import *
from gradlab.tensor.type_queries import _assert as _assert, _shape_as_tensor as _shape_as_tensor
from gradlab.tensor.typed_tensors import *
from gradlab.tensor.where import *

newaxis = None
_watch_for_einops()

if TYPE_CHECKING:
    from gradlab import (
        amp as amp,
        array_api as array_api,
        cpu as cpu,
        cuda as cuda,
        data as data,
        distributed as distributed,
        distributions as distributions,
        func as func,
        fx as fx,
        graph as graph,
        hub as hub,
        jit as jit,
        library as library,
        linalg as linalg,
        metrics as metrics,
        models as models,
        multiprocessing as multiprocessing,
        nn as nn,
        onnx as onnx,
        optim as optim,
        overrides as overrides,
        profiler as profiler,
        runs as runs,
        serialization as serialization,
        session as session,
        sparse as sparse,
        special as special,
        testing as testing,
        train as train,
        transforms as transforms,
        utils as utils,
        viz as viz,
    )
    from gradlab.amp.autocast_mode import (
        autocast as autocast,
        clear_autocast_cache as clear_autocast_cache,
        get_autocast_dtype as get_autocast_dtype,
        is_autocast_cache_enabled as is_autocast_cache_enabled,
        is_autocast_enabled as is_autocast_enabled,
        set_autocast_cache_enabled as set_autocast_cache_enabled,
        set_autocast_dtype as set_autocast_dtype,
        set_autocast_enabled as set_autocast_enabled,
    )
    from gradlab.amp.deprecated_of_devices import (
        get_autocast_cpu_dtype as get_autocast_cpu_dtype,
        get_autocast_gpu_dtype as get_autocast_gpu_dtype,
        is_autocast_cpu_enabled as is_autocast_cpu_enabled,
        set_autocast_cpu_dtype as set_autocast_cpu_dtype,
        set_autocast_cpu_enabled as set_autocast_cpu_enabled,
        set_autocast_gpu_dtype as set_autocast_gpu_dtype,
    )
    from gradlab.backends.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads
    from gradlab.func.mapping import vmap as vmap
    from gradlab.graph.calls.decorator import compile as compile
    from gradlab.graph.control.functions import cond as cond, scan as scan, switch as switch, while_loop as while_loop
    from gradlab.nn.summary import summary as summary
    from gradlab.runs import load_run as load_run
    from gradlab.session import (
        Graph as Graph,
        Session as Session,
        Variable as Variable,
        assign as assign,
        assign_add as assign_add,
        assign_sub as assign_sub,
        get_default_graph as get_default_graph,
        global_variables_initializer as global_variables_initializer,
        identity as identity,
        placeholder as placeholder,
        variables_initializer as variables_initializer,
    )
    from gradlab.sparse import mm as dsmm, mm as hsmm, mm as spmm, smm as smm
    from gradlab.sparse.making import (
        sparse_compressed_tensor as sparse_compressed_tensor,
        sparse_coo_tensor as sparse_coo_tensor,
        sparse_csc_tensor as sparse_csc_tensor,
        sparse_csr_tensor as sparse_csr_tensor,
    )
    from gradlab.tensor.numerics import (
        frexp as frexp,
        gradient as gradient,
        histogram as histogram,
        nonzero_static as nonzero_static,
        pdist as pdist,
    )
    from gradlab.tensor.windows import (
        bartlett_window as bartlett_window,
        blackman_window as blackman_window,
        hamming_window as hamming_window,
        hann_window as hann_window,
        kaiser_window as kaiser_window,
    )
    from gradlab.utils.serialization import load as load, save as save
    from gradlab.utils.settings import (
        get_deterministic_debug_mode as get_deterministic_debug_mode,
        get_num_interop_threads as get_num_interop_threads,
        is_anomaly_enabled as is_anomaly_enabled,
        is_warn_always_enabled as is_warn_always_enabled,
        set_deterministic_debug_mode as set_deterministic_debug_mode,
        set_flush_denormal as set_flush_denormal,
        set_num_interop_threads as set_num_interop_threads,
        set_warn_always as set_warn_always,
    )
    from gradlab.viz.explanation import explain as explain

_thresholds.attach(ops.ROWS.values())
_ROOMS = (
    "accelerator", "amp", "ao", "array_api", "cpu", "cuda", "data", "deploy", "detection", "distributed", "distributions", "fft", "func",
    "fx", "graph", "hub", "jit", "library", "linalg", "masked", "metrics", "models", "multiprocessing", "nn", "onnx", "optim",
    "overrides", "profiler", "quasirandom", "runs", "serialization", "session", "signal", "sklearn", "sparse", "special", "testing",
    "train", "transforms", "utils", "viz",
)  # fmt: skip
_ELSEWHERE = {
    "Graph": "gradlab.session",
    "Session": "gradlab.session",
    "Variable": "gradlab.session",
    "assign": "gradlab.session",
    "assign_add": "gradlab.session",
    "assign_sub": "gradlab.session",
    "autocast": "gradlab.amp.autocast_mode",
    "bartlett_window": "gradlab.tensor.windows",
    "blackman_window": "gradlab.tensor.windows",
    "clear_autocast_cache": "gradlab.amp.autocast_mode",
    "compile": "gradlab.graph.calls.decorator",
    "cond": "gradlab.graph.control.functions",
    "explain": "gradlab.viz.explanation",
    "frexp": "gradlab.tensor.numerics",
    "get_autocast_cpu_dtype": "gradlab.amp.deprecated_of_devices",
    "get_autocast_dtype": "gradlab.amp.autocast_mode",
    "get_autocast_gpu_dtype": "gradlab.amp.deprecated_of_devices",
    "get_default_graph": "gradlab.session",
    "get_deterministic_debug_mode": "gradlab.utils.settings",
    "get_num_interop_threads": "gradlab.utils.settings",
    "get_num_threads": "gradlab.backends.threads",
    "global_variables_initializer": "gradlab.session",
    "gradient": "gradlab.tensor.numerics",
    "hamming_window": "gradlab.tensor.windows",
    "hann_window": "gradlab.tensor.windows",
    "histogram": "gradlab.tensor.numerics",
    "identity": "gradlab.session",
    "is_anomaly_enabled": "gradlab.utils.settings",
    "is_autocast_cache_enabled": "gradlab.amp.autocast_mode",
    "is_autocast_cpu_enabled": "gradlab.amp.deprecated_of_devices",
    "is_autocast_enabled": "gradlab.amp.autocast_mode",
    "is_warn_always_enabled": "gradlab.utils.settings",
    "kaiser_window": "gradlab.tensor.windows",
    "load": "gradlab.utils.serialization",
    "load_run": "gradlab.runs",
    "nonzero_static": "gradlab.tensor.numerics",
    "pdist": "gradlab.tensor.numerics",
    "placeholder": "gradlab.session",
    "save": "gradlab.utils.serialization",
    "scan": "gradlab.graph.control.functions",
    "set_autocast_cache_enabled": "gradlab.amp.autocast_mode",
    "set_autocast_cpu_dtype": "gradlab.amp.deprecated_of_devices",
    "set_autocast_cpu_enabled": "gradlab.amp.deprecated_of_devices",
    "set_autocast_dtype": "gradlab.amp.autocast_mode",
    "set_autocast_enabled": "gradlab.amp.autocast_mode",
    "set_autocast_gpu_dtype": "gradlab.amp.deprecated_of_devices",
    "set_deterministic_debug_mode": "gradlab.utils.settings",
    "set_flush_denormal": "gradlab.utils.settings",
    "set_num_interop_threads": "gradlab.utils.settings",
    "set_num_threads": "gradlab.backends.threads",
    "set_warn_always": "gradlab.utils.settings",
    "smm": "gradlab.sparse",
    "sparse_compressed_tensor": "gradlab.sparse.making",
    "sparse_coo_tensor": "gradlab.sparse.making",
    "sparse_csc_tensor": "gradlab.sparse.making",
    "sparse_csr_tensor": "gradlab.sparse.making",
    "summary": "gradlab.nn.summary",
    "switch": "gradlab.graph.control.functions",
    "variables_initializer": "gradlab.session",
    "vmap": "gradlab.func.mapping",
    "while_loop": "gradlab.graph.control.functions",
}
for _module, _names in (
    ("gradlab.tensor.copies", """
        alias_copy detach_copy diagonal_copy expand_copy permute_copy select_copy slice_copy split_copy
        split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy
    """),
    ("gradlab.tensor.packed_factors", "geqrf lu lu_solve lu_unpack orgqr ormqr"),
    ("gradlab.tensor.segments", "segment_reduce"),
    ("gradlab.tensor.spectrogram", "istft stft"),
    ("gradlab.tensor.numerics", "histogramdd"),
    ("gradlab.tensor.empty_permuted", "empty_permuted"),
    ("gradlab.nn.functional.native_norm", """
        _native_batch_norm_legit grid_sampler_2d grid_sampler_3d native_batch_norm native_channel_shuffle native_dropout native_group_norm
        native_layer_norm native_norm
    """),
    ("gradlab.tensor.private_functions", """
        _chunk_cat _log_softmax_backward_data _safe_softmax _segment_reduce _softmax_backward_data _unsafe_masked_index
        _unsafe_masked_index_put_accumulate
    """),
):  # fmt: skip
    _ELSEWHERE.update(dict.fromkeys(_names.split(), _module))
# Of `nn.functional.top_level`, and in-place methods as functions.
_NATIVE = frozenset("""
    adaptive_avg_pool1d adaptive_max_pool1d affine_grid_generator alpha_dropout avg_pool1d batch_norm bilinear
    binary_cross_entropy_with_logits celu_ channel_shuffle constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout embedding feature_alpha_dropout feature_dropout
    grid_sampler group_norm hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss max_pool1d max_pool2d
    max_pool3d pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss rms_norm rrelu selu_ threshold_ triplet_margin_loss
""".split())  # noqa: SIM905
_IN_PLACE = frozenset("""
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_ asinh_ atan_ atanh_ ceil_ clamp_
    clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_
    lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ resize_as_ round_ rsqrt_
    sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
""".split())  # noqa: SIM905


def __getattr__(name: str) -> Any:
    """The larger rooms are imported when they are first used, so that `import gradlab` stays short."""
    if name in _ROOMS:
        return import_module(f"gradlab.{name}")
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name in _NATIVE:
        return getattr(import_module("gradlab.nn.functional.top_level"), name)
    if name in _IN_PLACE:
        return import_module("gradlab.tensor.in_place_functions").function(name)
    if name.startswith("_foreach_"):
        each = import_module("gradlab.tensor.foreach").FUNCTIONS
        if name in each:
            return each[name]
    if name in ("spmm", "dsmm", "hsmm"):
        return import_module("gradlab.sparse").mm
    raise _absent("gradlab", name)


def __dir__() -> list[str]:
    return sorted({*vars(sys.modules[__name__]), *_ROOMS, *_ELSEWHERE, *_NATIVE, *_IN_PLACE, "spmm", "dsmm", "hsmm"})
