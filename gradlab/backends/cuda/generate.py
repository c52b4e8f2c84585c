"""Source text of elementwise kernels: one row, the types of its operands, a contiguous or a strided form.

The contiguous one reads and writes 16 bytes at once, and of large operands several times as much.

The strided one counts in 32 bits: larger arrays take several launches, the first element of each being `k_first`.

The generated text includes `elementwise.cuh` for the parts that do not depend on the row. Operands are named as the row names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.kernel import Elementwise
from gradlab.op import Op

MAX_OPERANDS = 8


class Operand(NamedTuple):
    """An input of a kernel: an array of a type, or an immediate number (passed by value, in the compute type)."""

    name: str
    dtype: np.dtype[Any]
    immediate: bool = False


class Signature(NamedTuple):
    """What a generated kernel depends on."""

    row: str
    operands: tuple[Operand, ...]
    out: np.dtype[Any]
    params: tuple[tuple[str, str], ...]  # name and C++ type of each parameter that the expression reads
    contiguous: bool

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        types = "_".join(o.dtype.name + ("i" if o.immediate else "") for o in self.operands)
        form = "contiguous" if self.contiguous else "strided"
        return f"{self.row}_{types or 'none'}_to_{self.out.name}_{form}"


# Functions that cost about as little as the memory accesses around them.
LIGHT = frozenset({
    "T", "bool", "where", "abs", "sign", "square", "maximum", "minimum", "fmax", "fmin", "clamp", "isnan", "isinf", "isfinite", "signbit",
    "floor", "ceil", "trunc", "round", "lerp", "copysign", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift",
    "right_shift",
})  # fmt: skip
# Functions that are called and keep many registers: what a thread holds beside would be spilled around each call.
_CALLED = re.compile(r"\b(igammac?|lgamma|zeta|orthogonal|airy_\w+|(spherical_)?bessel_\w+)\s*\(")
_DIVISION = re.compile("[/%]")
_CALL = re.compile(r"\b(\w+)\s*\(")
FULL = 1056  # blocks, eight for each of an H100's 132 multiprocessors: above them threads take several packs


def is_light(expression: str) -> bool:
    """Whether an expression calls none but light functions."""
    return LIGHT.issuperset(_CALL.findall(expression))


def width_of(expressions: Iterable[str], widest: int) -> int:
    """Elements that a thread takes at once, of operands of at most `widest` bytes each: 16 bytes, but at most eight (sixteen single bytes
    would not fit the registers). Expressions that compute much take fewer: the accesses matter less there, while registers, machine code
    and the time to compile it grow with each; those that call the longest functions take one."""
    if all(map(is_light, expressions)):
        return min(16 // widest, 8)
    return 1 if widest >= 8 or any(map(_CALLED.search, expressions)) else 4


def packs_of(expressions: Iterable[str], arrays: int, widest: int) -> int:
    """How many packs of each of so many arrays a thread reads before it computes, of large operands: as many as keep the memory busy, leave
    a thread 64 registers or fewer and hold at most 16 elements. Where much is computed, one; a division of eight bytes is a call."""
    if not all(is_light(text) and (widest < 8 or not _DIVISION.search(text)) for text in expressions):
        return 1
    return min(4 if arrays <= 1 else 2 if arrays <= 3 else 1, 4 if widest > 2 else 2)


def blocks_of(size: int, width: int, packs: int) -> int:
    """Blocks of 256 threads of the contiguous form: with several packs for each thread only where that fills the GPU."""
    step = 256 * width
    return -(-size // (step * packs if size >= step * packs * FULL else step))


def contiguous_form(signature: Signature, expression: str) -> tuple[int, int]:
    """Elements in a pack, and packs of one thread, of the contiguous form."""
    arrays = [o for o in signature.operands if not o.immediate]
    widest = max([signature.out.itemsize, *(o.dtype.itemsize for o in arrays)])
    return width_of((expression,), widest), packs_of((expression,), len(arrays), widest)


def main_dtype(operands: tuple[Operand, ...], out: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that `T` of the expression stands for: that of the first operand that is no mask, else of the output."""
    for operand in operands:
        if operand.dtype.kind != "b":
            return operand.dtype
    return operands[0].dtype if operands and out.kind == "b" else out


def reads(expression: str, name: str) -> bool:
    """Whether an expression uses a name."""
    return re.search(rf"\b{name}\b", expression) is not None


def contiguous_body(
    loads: Mapping[str, str], stores: Mapping[str, str], width: int, packs: int, packed: Callable[[str, str], list[str]],
    single: Callable[[], list[str]],
) -> list[str]:  # fmt: skip
    """The statements of a kernel whose operands all lie in row-major order from multiples of 16 bytes on; `k_count` elements.

    loads, stores: storage types of the arrays `<name>_` that are read, and `<name>` that are written. packed: what computes one element,
    given where it lies behind the name of an array (`pack.item[k_j]`) and its number; single: the same of element `k_i`.
    """
    if width == 1:
        return [
            "    const long long k_i = (long long)blockIdx.x * 256 + threadIdx.x;",
            "    if (k_i >= k_count) return;",
            *(f"    {line}" for line in single()),
        ]

    def moved(item: str, at: str, number: str) -> list[str]:
        """One pack, whose operands are there."""
        return [
            *(f"Pack<{kind}, {width}> {name}_pack;" for name, kind in stores.items()),
            "#pragma unroll",
            f"for (int k_j = 0; k_j < {width}; ++k_j) {{",
            *(f"    {line}" for line in packed(item, number)),
            "}",
            *(f"*reinterpret_cast<Pack<{kind}, {width}>*>({name} + {at}) = {name}_pack;" for name, kind in stores.items()),
        ]

    def read(name: str, kind: str, at: str) -> str:
        return f"*reinterpret_cast<const Pack<{kind}, {width}>*>({name}_ + {at})"

    # Left to itself the compiler would unroll the loop over the last few elements too: three times the code, for nothing.
    one = [
        f"if (k_start + {width} <= k_count) {{",
        *(f"    const Pack<{kind}, {width}> {name}_pack = {read(name, kind, 'k_start')};" for name, kind in loads.items()),
        *(f"    {line}" for line in moved("pack.item[k_j]", "k_start", "k_start + k_j")),
        "} else {",
        "#pragma unroll 1",
        "    for (long long k_i = k_start; k_i < k_count; ++k_i) {",
        *(f"        {line}" for line in single()),
        "    }",
        "}",
    ]
    step = 256 * width
    if packs == 1:
        begin = f"const long long k_start = (long long)blockIdx.x * {step} + threadIdx.x * {width};"
        return [f"    {line}" for line in [begin, *one]]
    return [f"    {line}" for line in [
        # The grid says whether a thread takes several packs, each beside those of its neighbours. All are read before any is computed.
        f"const bool k_several = (long long)gridDim.x * {step} < k_count;",
        f"long long k_start = (long long)blockIdx.x * (k_several ? {step * packs} : {step}) + threadIdx.x * {width};",
        f"if (k_several && k_start + {step * (packs - 1) + width} <= k_count) {{",
        *(f"    Pack<{kind}, {width}> {name}_packs[{packs}];" for name, kind in loads.items()),
        "#pragma unroll",
        f"    for (int k_p = 0; k_p < {packs}; ++k_p) {{",
        *(f"        {name}_packs[k_p] = {read(name, kind, f'k_start + k_p * {step}')};" for name, kind in loads.items()),
        "    }",
        "#pragma unroll",
        f"    for (int k_p = 0; k_p < {packs}; ++k_p) {{",
        *(f"        const Pack<{kind}, {width}> {name}_pack = {name}_packs[k_p];" for name, kind in loads.items()),
        *(f"        {line}" for line in moved("pack.item[k_j]", f"k_start + k_p * {step}", f"k_start + k_p * {step} + k_j")),
        "    }",
        "    return;",
        "}",
        "#pragma unroll 1",
        f"for (int k_left = k_several ? {packs} : 1; k_left; --k_left, k_start += {step}) {{",
        *(f"    {line}" for line in one),
        "}",
    ]]  # fmt: skip


def elementwise_source(op: Op, signature: Signature) -> str:
    """The text of one kernel (without its include lines)."""
    description = op.cuda
    assert isinstance(description, Elementwise)
    arrays = [o for o in signature.operands if not o.immediate]
    out = STORAGE[signature.out.name]
    arguments = [f"{out}* __restrict__ k_out"]
    arguments += [
        f"{compute_type(o.dtype)} {o.name}" if o.immediate else f"const {STORAGE[o.dtype.name]}* __restrict__ {o.name}_"
        for o in signature.operands
    ]
    arguments += [f"{kind} {name}" for name, kind in signature.params]
    apply = [f"    typedef {compute_type(main_dtype(signature.operands, signature.out))} T;", f"    return {description.expression};"]
    values = ", ".join(f"{compute_type(o.dtype)} {o.name}" for o in signature.operands)
    extra = ", ".join(f"{kind} {name}" for name, kind in signature.params)
    head = ", ".join(part for part in (values, extra, "long long index") if part)
    lines = [
        f"__device__ __forceinline__ auto {signature.kernel}_apply({head}) {{",
        *apply,
        "}",
    ]
    given = [o.name if o.immediate else f"load({{{o.name}}})" for o in signature.operands]

    def call(element: str, number: str) -> str:
        filled = [g.format(**{o.name: element.format(o.name) for o in arrays}) for g in given]
        return f"{signature.kernel}_apply({', '.join([*filled, *(name for name, _ in signature.params), number])})"

    # Names of the kernel's own begin with k_, so that they meet none of the row's.
    head = f"__global__ void __launch_bounds__(256) {signature.kernel}"
    if signature.contiguous:
        width, packs = contiguous_form(signature, description.expression)

        def store(place: str, element: str, number: str) -> str:
            return f"{place} = store<{out}>({call(element, number)});"

        lines += [
            f"{head}({', '.join([*arguments, 'long long k_count'])}) {{",
            *contiguous_body(
                {o.name: STORAGE[o.dtype.name] for o in arrays}, {"k_out": out}, width, packs,
                lambda item, number: [store(f"k_out_{item}", f"{{}}_{item}", number)],
                lambda: [store("k_out[k_i]", "{}_[k_i]", "k_i")],
            ),
            "}",
        ]  # fmt: skip
        return "\n".join(lines)
    value = call("{}_[k_at[POSITION]]", "k_first + k_i")
    for position, operand in enumerate(arrays):
        value = value.replace(f"{operand.name}_[k_at[POSITION]]", f"{operand.name}_[k_at[{position}]]")
    lines += [
        f"{head}({', '.join([*arguments, f'Layout<{len(arrays)}> k_layout', 'long long k_first', 'long long k_count'])}) {{",
        "    const unsigned int k_i = blockIdx.x * 256 + threadIdx.x;",
        "    if (k_i >= k_count) return;",
        f"    long long k_at[{max(len(arrays), 1)}];",
        "    k_layout.locate(k_i, k_at);",
        f"    k_out[k_i] = store<{out}>({value});",
        "}",
    ]
    return "\n".join(lines)
