"""How the processes' values become one."""

from __future__ import annotations

from enum import Enum

from gradlab.dtype import BOOL, COMPLEX, FLOATING


class ReduceOp(Enum):
    """What a reduction does with the values of all processes: their sum, mean, product, least, largest, or bits: and, or, xor."""

    SUM = "sum"
    AVG = "mean"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "bitwise and"
    BOR = "bitwise or"
    BXOR = "bitwise xor"


reduce_op = ReduceOp  # its old name
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # the class of its members, where PyTorch has it
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_ORDER = (ReduceOp.MIN, ReduceOp.MAX)


def check_reduction(name: str, op: ReduceOp, dtype: object) -> None:
    """TypeError for what is no ReduceOp; RuntimeError for the bits of what is no integer, the order of complex numbers,
    the mean of bools."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}: op is a ReduceOp such as ReduceOp.SUM, not {op!r}")
    if op in _ORDER and dtype in COMPLEX:
        raise RuntimeError(f"{name}: ReduceOp.{op.name} is for numbers with an order, not {dtype}")
    if op is ReduceOp.AVG and dtype == BOOL:
        raise RuntimeError(f"{name}: ReduceOp.AVG is for numbers, not {dtype}; use MAX or MIN for any or all")
    if op in _BITS and (dtype in FLOATING or dtype in COMPLEX):
        raise RuntimeError(f"{name}: ReduceOp.{op.name} is for integers, not {dtype}")
