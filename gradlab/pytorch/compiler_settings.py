"""`torch._dynamo.config`, `torch._inductor.config`, `torch.compiler.config`: settings of PyTorch's compiler. Setting them has no effect.

gradlab's own are arguments of `gl.compile` (`passes=`, `check=`, `explain=`) and environment variables (docs/compile.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

suppress_errors = False
verbose = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
dynamic_shapes = False
assume_static_by_default = True
automatic_dynamic_shapes = False
optimize_ddp = False
inline_inbuilt_nn_modules = True
allow_unspec_int_on_nn_module = False
coordinate_descent_tuning = False
coordinate_descent_check_all_directions = False
epilogue_fusion = True
fx_graph_cache = False
force_fuse_int_mm_with_mul = False
force_disable_caches = False
max_autotune = False
compile_threads = 1
cpp_wrapper = False
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=False, cudagraph_trees=False)
cpp = SimpleNamespace(threads=-1, simdlen=None)


@contextmanager
def patch(*_: Any, **__: Any) -> Iterator[None]:
    """A block with other settings: without effect, as they are themselves."""
    yield


def set_logs(**_: Any) -> None:
    """`torch._logging.set_logs`: without effect, as there are no logs of PyTorch's compiler; `gl.compile(explain=True)` tells of ours."""
