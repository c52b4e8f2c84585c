"""Descriptions of GPU kernels: pure data, read by `backends/cuda` and by the static graph's code generators."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Elementwise(NamedTuple):
    """One scalar expression over the row's inputs and parameters, in the terms of `kernels/scalar_math.h`.

    `T` is the compute type (float for half types), literals are written `T(0.5)`. The same text is compiled for the GPU, fused by the
    static graph and compiled as C++ for the CPU.
    """

    expression: str


# What a scalar operation costs in terms of an addition, roughly; anything with a transcendental function in it is dear.
_DEAR = re.compile(r"\b(exp|exp2|expm1|log|log1p|log2|tanh|sigmoid|erf|sin|cos|tan|pow|gelu|softplus|silu)\w*\(")


def is_dear(expression: str) -> bool:
    """Whether an expression costs about ten times what an addition does."""
    return _DEAR.search(expression) is not None


def dropped_below(p: float) -> int:
    """Dropout drops an element whose half word of random bits is below this, with probability p."""
    return min(int(p * 2**32 + 0.5), 2**32 - 1) if p < 1 else 2**32


class Reduction(NamedTuple):
    """A reduction over dimensions: each element is mapped by `load`, two partial results are merged by `combine` (of `a` and `b`),
    starting from `identity`; `finish` makes the result of the total `a` and the number of elements `n`.
    wide: floats are loaded as doubles."""

    load: str
    combine: str
    identity: str
    finish: str = "a"
    wide: bool = False


class Kernel(NamedTuple):
    """A function template in a file of `kernels/`; `launch` names the launch rule that the CUDA backend uses for it."""

    file: str
    name: str
    launch: str


class Gemm(NamedTuple):
    """A matrix product, done by cuBLASLt."""

    transpose_a: bool = False
    transpose_b: bool = False


class Library(NamedTuple):
    """Done by a CuPy function, where speed does not matter: `function(cupy, inputs, params)` returns the output."""

    function: Callable[..., Any]


class Movement(NamedTuple):
    """A strided copy: the CPU function makes a view (of NumPy or CuPy arrays alike) that is copied into the output."""


def source_folders(device: str) -> tuple[Path, Path]:
    """Where the kernel sources of a device ("cpu", "cuda") lie, and the headers that all devices share: inside the package of an installed
    wheel, beside it in a source checkout."""
    package: Path = import_module("pathlib").Path(__file__).resolve().parent  # a tenth of what `import gradlab` costs
    for candidate in (package / "kernels", package.parent / "kernels"):
        if candidate.is_dir():
            return candidate / device, candidate
    raise FileNotFoundError("gradlab's kernel sources are missing: reinstall the package (they belong in gradlab/kernels)")
