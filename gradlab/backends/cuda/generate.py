"""Source text of elementwise kernels: one row, the types of its operands, a contiguous (16-byte accesses) or a strided form.

The strided one counts in 32 bits: larger arrays take several launches, the first element of each being `k_first`.

The generated text includes `elementwise.cuh` for the parts that do not depend on the row. Operands are named as the row names them.
"""

from __future__ import annotations

import re
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
CALLED = frozenset({"igamma", "igammac"})
_CALL = re.compile(r"\b(\w+)\s*\(")


def is_light(expression: str) -> bool:
    """Whether an expression calls none but light functions."""
    return LIGHT.issuperset(_CALL.findall(expression))


def pack_of(expression: str, signature: Signature) -> int:
    """Elements that one thread of the contiguous form takes: 16 bytes of the widest operand, but at most eight (sixteen single bytes would
    not fit the registers). Expressions that compute much take fewer: the accesses matter less there, while registers, machine code and
    the time to compile it grow with each; those that call the longest functions take one."""
    widest = max([signature.out.itemsize, *(o.dtype.itemsize for o in signature.operands if not o.immediate)])
    if is_light(expression):
        return min(16 // widest, 8)
    return 1 if widest == 8 or CALLED.intersection(_CALL.findall(expression)) else 4


def main_dtype(operands: tuple[Operand, ...], out: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that `T` of the expression stands for: that of the first operand that is no mask, else of the output."""
    for operand in operands:
        if operand.dtype.kind != "b":
            return operand.dtype
    return operands[0].dtype if operands and out.kind == "b" else out


def reads(expression: str, name: str) -> bool:
    """Whether an expression uses a name."""
    return re.search(rf"\b{name}\b", expression) is not None


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
        pack = pack_of(description.expression, signature)
        packs = {o.name: f"Pack<{STORAGE[o.dtype.name]}, {pack}>" for o in arrays}
        # Left to itself the compiler would unroll the loop over the last few elements too: three times the code, for nothing.
        lines += [
            f"{head}({', '.join([*arguments, 'long long k_count'])}) {{",
            f"    const long long k_start = ((long long)blockIdx.x * 256 + threadIdx.x) * {pack};",
            f"    if (k_start + {pack} <= k_count) {{",
            *(f"        const {kind} {name}_pack = *reinterpret_cast<const {kind}*>({name}_ + k_start);" for name, kind in packs.items()),
            f"        Pack<{out}, {pack}> k_pack;",
            "#pragma unroll",
            f"        for (int k_j = 0; k_j < {pack}; ++k_j)",
            f"            k_pack.item[k_j] = store<{out}>({call('{}_pack.item[k_j]', 'k_start + k_j')});",
            f"        *reinterpret_cast<Pack<{out}, {pack}>*>(k_out + k_start) = k_pack;",
            "    } else {",
            "#pragma unroll 1",
            f"        for (long long k_i = k_start; k_i < k_count; ++k_i) k_out[k_i] = store<{out}>({call('{}_[k_i]', 'k_i')});",
            "    }",
            "}",
        ]
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
