"""Source text of elementwise kernels: one row, the types of its operands, a contiguous (16-byte accesses) or a strided form.

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
    wide: bool  # 64-bit indices

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        types = "_".join(o.dtype.name + ("i" if o.immediate else "") for o in self.operands)
        form = "contiguous" if self.contiguous else "strided"
        return f"{self.row}_{types or 'none'}_to_{self.out.name}_{form}{'_wide' if self.wide else ''}"

    @property
    def pack(self) -> int:
        """Elements that one thread of the contiguous form takes: 16 bytes of the widest operand."""
        widest = max([self.out.itemsize, *(o.dtype.itemsize for o in self.operands if not o.immediate)])
        return 16 // widest


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
    index = "long long" if signature.wide else "unsigned int"
    arrays = [o for o in signature.operands if not o.immediate]
    out = STORAGE[signature.out.name]
    arguments = [f"{out}* __restrict__ out__"]
    arguments += [
        f"{compute_type(o.dtype)} {o.name}" if o.immediate else f"const {STORAGE[o.dtype.name]}* __restrict__ {o.name}_" for o in signature.operands
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

    if signature.contiguous:
        pack = signature.pack
        lines += [
            f'__global__ void __launch_bounds__(256) {signature.kernel}({", ".join([*arguments, "long long count"])}) {{',
            f"    const long long start = ((long long)blockIdx.x * 256 + threadIdx.x) * {pack};",
            f"    if (start + {pack} <= count) {{",
            *(
                f"        const Pack<{STORAGE[o.dtype.name]}, {pack}> {o.name}_pack = *reinterpret_cast<const Pack<{STORAGE[o.dtype.name]}, {pack}>*>({o.name}_ + start);"
                for o in arrays
            ),
            f"        Pack<{out}, {pack}> pack__;",
            "#pragma unroll",
            f"        for (int j = 0; j < {pack}; ++j) pack__.item[j] = store<{out}>({call('{}_pack.item[j]', 'start + j')});",
            f"        *reinterpret_cast<Pack<{out}, {pack}>*>(out__ + start) = pack__;",
            "    } else {",
            f"        for (long long i = start; i < count; ++i) out__[i] = store<{out}>({call('{}_[i]', 'i')});",
            "    }",
            "}",
        ]
    else:
        lines += [
            f'__global__ void __launch_bounds__(256) {signature.kernel}({", ".join([*arguments, f"Layout<{len(arrays)}> layout", "long long count"])}) {{',
            f"    const {index} i = ({index})blockIdx.x * 256 + threadIdx.x;",
            "    if (i >= count) return;",
            f"    long long at[{max(len(arrays), 1)}];",
            "    layout.locate(i, at);",
            f"    out__[i] = store<{out}>({call('{}_[at[POSITION]]', 'i')});".replace("{", "{"),
            "}",
        ]
        for position, operand in enumerate(arrays):
            lines = [line.replace(f"{operand.name}_[at[POSITION]]", f"{operand.name}_[at[{position}]]") for line in lines]
    return "\n".join(lines)
