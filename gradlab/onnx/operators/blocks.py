"""Weights of few bits, each block of them with a scale of its own: they are unpacked when a file is loaded, and are parameters then."""

from __future__ import annotations

from typing import Any

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import EXTRA, OPERATORS, Node, Operator, given, imports


def spread(packed: Any, bits: int) -> Any:
    """Bytes [..., n] as numbers [..., n · 8 / bits], the lowest bits first."""
    if bits == 8:
        return packed
    shifts = gl.arange(0, 8, bits, device=packed.device)
    parts = gl.bitwise_right_shift(packed.to(gl.int64).unsqueeze(-1), shifts) & ((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def unpacked_matrix(node: Node, packed: Any, scales: Any, zeros: Any = None) -> Any:
    """[N, K] of `packed` [N, blocks, bytes], `scales` [N, blocks] and zero points, packed likewise or in the scales' type."""
    bits, rows, columns = node.get("bits", 4), node.get("N"), node.get("K")
    whole = spread(packed.reshape(rows, -1, packed.shape[-1]), bits).to(gl.float32)
    blocks = whole.shape[1]
    scales = scales.reshape(rows, blocks, 1)
    if not given(zeros):
        middle: Any = float(1 << (bits - 1))
    elif zeros.is_floating_point():
        middle = zeros.to(gl.float32).reshape(rows, blocks, 1)
    else:
        middle = spread(zeros.reshape(rows, -1), bits)[:, :blocks].to(gl.float32).unsqueeze(-1)
    return ((whole - middle) * scales.to(gl.float32)).reshape(rows, -1)[:, :columns].to(scales.dtype)


def linear(node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    return F.linear(x, weight, bias if given(bias) else None)


def part(node: Node, operator: Operator, inputs: list[str], outputs: list[str]) -> Node:
    """One of the nodes that stand for another."""
    found = Node(node.kind, node.name, inputs, outputs, dict(node.attributes), node.opset)
    found.operator = operator
    return found


def matrix_parts(node: Node) -> list[Node]:
    """The matrix, and the product with it."""
    x, packed, scales, zeros, order, bias = (*node.inputs, *[""] * 6)[:6]
    if order:
        raise node.refuse("an order of groups (g_idx) is not supported")
    weight = f"{packed}.unpacked"
    inputs = [packed, scales, *([zeros] if zeros else [])]
    return [
        part(node, Operator(unpacked_matrix, fixed=frozenset((1, 2))), inputs, [weight]),
        part(node, Operator(linear), [x, weight, *([bias] if bias else [])], node.outputs),
    ]


@imports(f"{EXTRA}:MatMulNBits", parts=matrix_parts)
def matmul_bits(node: Node, x: Any, packed: Any, scales: Any, zeros: Any = None, _: Any = None, bias: Any = None) -> Any:
    """x Wᵀ + b with W of few bits."""
    return linear(node, x, unpacked_matrix(node, packed, scales, zeros), bias)


def unpacked_table(node: Node, data: Any, scales: Any, zeros: Any = None) -> Any:
    """A table whose scales stand for blocks along one axis. `data` is of 4 bits, or bytes that hold several numbers along the last axis."""
    bits, block = node.get("bits", 4), node.get("block_size", 128)
    packs = data.dtype == gl.uint8 and "stored" not in node.attributes
    if packs:
        data = spread(data, bits)
    axis = node.get("quantize_axis", 1) % data.dim()

    def wide(values: Any) -> Any:
        return values.repeat_interleave(block, axis).narrow(axis, 0, data.shape[axis])

    middle: Any = float(1 << (bits - 1)) if packs else 0.0
    if given(zeros):
        zeros = spread(zeros, bits).narrow(-1, 0, scales.shape[-1]) if packs else zeros
        middle = wide(zeros.to(gl.float32))
    return ((data.to(gl.float32) - middle) * wide(scales.to(gl.float32))).to(scales.dtype)


def gathered(node: Node, table: Any, at: Any) -> Any:
    taken = Node("Gather", node.name, node.inputs, node.outputs, {"axis": node.get("gather_axis", 0)}, node.opset)
    return OPERATORS["Gather"].run(taken, table, at)


def table_parts(node: Node) -> list[Node]:
    data, at, scales, zeros = (*node.inputs, "")[:4]
    table = f"{data}.unpacked"
    inputs = [data, scales, *([zeros] if zeros else [])]
    return [
        part(node, Operator(unpacked_table, fixed=frozenset((1, 2))), inputs, [table]),
        part(node, Operator(gathered), [table, at], node.outputs),
    ]


@imports(f"{EXTRA}:GatherBlockQuantized", parts=table_parts)
def gather_blocks(node: Node, data: Any, at: Any, scales: Any, zeros: Any = None) -> Any:
    """Rows of a table of few bits."""
    return gathered(node, unpacked_table(node, data, scales, zeros), at)
