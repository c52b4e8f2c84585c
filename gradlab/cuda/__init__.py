"""`gradlab.cuda`: the GPUs of this machine, their memory, streams and events. Names and meanings follow `torch.cuda`.

Asking does not raise where there is no GPU: `is_available`, `device_count`, seeds, and how much memory is used (none), which scripts ask
on every machine. Everything else raises RuntimeError saying what is missing.
"""

from __future__ import annotations

from gradlab.backends.determinism import nondeterministic_algorithms
from gradlab.cuda import amp, nvtx, sparse
from gradlab.cuda.devices import (
    current_device,
    device,
    device_count,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_rng_state,
    get_rng_state_all,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    manual_seed,
    manual_seed_all,
    set_device,
    set_rng_state,
    set_rng_state_all,
    synchronize,
)
from gradlab.cuda.graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from gradlab.cuda.memory import (
    OutOfMemoryError,
    empty_cache,
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_summary,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from gradlab.cuda.streams import Event, Stream, current_stream, default_stream, set_stream, stream
from gradlab.cuda.typed import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CUDAGraph",
    "CharTensor",
    "DoubleTensor",
    "Event",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "OutOfMemoryError",
    "ShortTensor",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "graph_pool_handle",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "nondeterministic_algorithms",
    "nvtx",
    "reset_peak_memory_stats",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "sparse",
    "stream",
    "synchronize",
]
