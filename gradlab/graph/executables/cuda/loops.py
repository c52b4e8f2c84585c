"""Fused elementwise loops as CUDA kernels: several rows in one thread's registers, several results.

Where all operands lie in row-major order (or are one number for all elements) and begin at multiples of 16 bytes, a thread takes 16 bytes
of each at once; else every operand has its own strides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab.backends.cuda.compiler import program
from gradlab.backends.cuda.generate import blocks_of, contiguous_body, packs_of, width_of
from gradlab.backends.cuda.layout import MAX_RANK, broadcast_strides, merged, pack_layout_of
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native.lowerings.loops import Loop

BLOCK = 256
MOST_HELD = 64  # elements of all operands together that a thread has in registers
# As `scalar_math.h` has them: NVRTC does not know the names that C++ compilers for CPUs have.
_NUMBERS = {"__builtin_inf()": "infinity<double>()", '__builtin_nan("")': "(infinity<double>() - infinity<double>())"}


class LoopKernel(NamedTuple):
    """A loop for operands at known places: the kernel's name and text, its grid, and its arguments."""

    name: str
    text: str
    blocks: int
    arguments: tuple[Any, ...]


def loop_kernel(loop: Loop, loads: Sequence[Any], stores: Sequence[Any], pointer: Callable[[Any], int]) -> LoopKernel | None:
    """The kernel of a loop whose loaded and stored values lie in these arrays; None for nothing to compute."""
    size = math.prod(loop.shape)
    if size == 0:
        return None
    sizes, steps = merged(loop.shape, [broadcast_strides(a, loop.shape) for a in (*loads, *stores)])
    walks = [tuple(s) or (1,) for s in steps] if sizes else [(0,)] * len(steps)
    flat = len(sizes) <= 1 and all(w in {(0,), (1,)} for w in walks[: len(loads)])
    packed = flat and not any(pointer(a) & 15 for a, w in zip((*loads, *stores), walks, strict=True) if w == (1,))
    functions, names = loop.functions(cpu=False)
    if packed:
        walking = [w == (1,) or not sizes for w in walks[: len(loads)]]
        width, packs = _form(loop, [a.dtype for a in (*loads, *stores)], sum(walking))
        text, blocks = _packed(loop, names, walking, width, packs), blocks_of(size, width, packs)
        arguments: tuple[Any, ...] = (*loads, *stores, size)
    else:
        layout, reach = pack_layout_of(loop.shape, [broadcast_strides(a, loop.shape) for a in loads])
        index = "long long" if max(size, reach) > 2**31 - 1 else "unsigned int"
        text, blocks = _strided(loop, names, index), -(-size // BLOCK)
        arguments = (*loads, *stores, layout, size)
    body = written("\n".join([*functions, text]))
    name = f"loop_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return LoopKernel(name, body.replace("@K", name), blocks, arguments)


def written(text: str) -> str:
    """A text with numbers that NVRTC knows."""
    for number, known in _NUMBERS.items():
        text = text.replace(number, known)
    return text


def fits(loop: Loop) -> bool:
    """Whether the strided form takes arrays of that rank."""
    return len(loop.shape) <= MAX_RANK


def source(kernels: Sequence[LoopKernel]) -> str:
    """One translation unit of several kernels."""
    texts = {k.name: k.text for k in kernels}
    return program("elementwise.cuh", *(texts[name] for name in sorted(texts)))


def _form(loop: Loop, dtypes: Sequence[Any], walking: int) -> tuple[int, int]:
    """Elements that one thread takes at once (fewer than 16 bytes where they would not fit the registers), and how many such packs."""
    expressions, widest = {c.op.cuda.expression for c in loop.calls}, max(d.itemsize for d in dtypes)
    width, packs = width_of(expressions, widest), packs_of(expressions, walking + len(loop.stored) - 1, widest)
    while width > 1 and width * len(dtypes) > MOST_HELD:
        width, packs = width // 2, 1
    return width, packs


def _pointers(loop: Loop) -> list[str]:
    """The declarations of the operands. Results may lie where operands do, so nothing is promised about aliases."""
    found = [f"const {STORAGE[v.spec.dtype.name]}* a{i}_" for i, v in enumerate(loop.loaded)]
    return [*found, *(f"{STORAGE[v.spec.dtype.name]}* b{i}" for i, v in enumerate(loop.stored))]


def _element(loop: Loop, names: dict[int, str], given: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Statements that compute one element. given: what each loaded value is read from, or "" where `x<i>` is there already."""
    lines = [f"const {compute_type(v.spec.dtype)} x{i} = load({at});" for i, (v, at) in enumerate(zip(loop.loaded, given)) if at]
    lines += loop.body(names, {v.id: f"x{i}" for i, v in enumerate(loop.loaded)})
    return [*lines, *(f"{to} = store<{STORAGE[v.spec.dtype.name]}>({loop.at[v.id]});" for v, to in zip(loop.stored, targets))]


def _packed(loop: Loop, names: dict[int, str], walking: Sequence[bool], width: int, packs: int) -> str:
    """Contiguous operands; those that do not walk are one number."""
    numbers = [
        f"    const {compute_type(v.spec.dtype)} x{i} = load(a{i}_[0]);" for i, v in enumerate(loop.loaded) if not walking[i]
    ]
    loads = {f"a{i}": STORAGE[v.spec.dtype.name] for i, v in enumerate(loop.loaded) if walking[i]}
    stores = {f"b{i}": STORAGE[v.spec.dtype.name] for i, v in enumerate(loop.stored)}

    def element(item: str, number: str) -> list[str]:
        return _element(loop, names, [f"a{i}_{item}" if w else "" for i, w in enumerate(walking)], [f"{b}_{item}" for b in stores])

    def single() -> list[str]:
        return _element(loop, names, [f"a{i}_[k_i]" if w else "" for i, w in enumerate(walking)], [f"{b}[k_i]" for b in stores])

    return "\n".join([
        f"__global__ void __launch_bounds__({BLOCK}) @K({', '.join([*_pointers(loop), 'long long k_count'])}) {{",
        *numbers,
        *contiguous_body(loads, stores, width, packs, element, single),
        "}",
    ])  # fmt: skip


def _strided(loop: Loop, names: dict[int, str], index: str) -> str:
    """Operands with strides of their own; results in row-major order."""
    count = max(len(loop.loaded), 1)
    lines = _element(loop, names, [f"a{i}_[at[{i}]]" for i in range(len(loop.loaded))], [f"b{i}[i]" for i in range(len(loop.stored))])
    return "\n".join([
        f"__global__ void __launch_bounds__({BLOCK}) @K({', '.join([*_pointers(loop), f'Layout<{count}> layout', 'long long count'])}) {{",
        f"    const {index} i = static_cast<{index}>(blockIdx.x) * {BLOCK} + threadIdx.x;",
        "    if (i >= count) return;",
        f"    long long at[{count}];",
        "    layout.locate(i, at);",
        *(f"    {line}" for line in lines),
        "}",
    ])  # fmt: skip
