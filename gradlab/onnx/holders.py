"""ONNX's types that tensors do not have: whole numbers of 2, 4, 16, 32 and 64 bits and floating-point numbers of 4 and 8 bits are held in
wider ones that have all their values (of uint64 those below 2^63). Arithmetic does not wrap round as theirs would."""

from __future__ import annotations

from typing import Any

import gradlab as gl

NAMES = {4: "uint16", 12: "uint32", 13: "uint64", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
         21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2"}  # fmt: skip
HOLDERS = {"uint16": "int32", "uint32": "int64", "uint64": "int64", "uint4": "uint8", "int4": "int8", "uint2": "uint8", "int2": "int8",
           **{name: "float32" for name in NAMES.values() if name.startswith("float")}}  # fmt: skip
LIMITS = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 6: (-(2**31), 2**31 - 1), 12: (0, 2**32 - 1), 21: (0, 15),
          22: (-8, 7), 25: (0, 3), 26: (-2, 1)}  # fmt: skip
WHOLE = {2: gl.uint8, 3: gl.int8, 4: gl.int32, 5: gl.int16, 6: gl.int32, 12: gl.int64, 13: gl.int64, 21: gl.uint8, 22: gl.int8,
         25: gl.uint8, 26: gl.int8}  # fmt: skip
GRIDS = {17: (3, -6, 448.0), 18: (3, -7, 240.0), 19: (2, -14, 57344.0), 20: (2, -15, 57344.0), 23: (1, 0, 6.0)}
"""Bits of the fraction, the smallest exponent and the largest number of floating-point types, by ONNX's number of a data type."""


def held(array: Any) -> Any:
    """An array in a type that tensors have. ValueError for numbers of uint64 that int64 does not hold."""
    holder = HOLDERS.get(array.dtype.name)
    if holder is None:
        return array
    if array.dtype.name == "uint64" and array.size and int(array.max()) >= 1 << 63:
        raise ValueError("numbers of uint64 from 2^63 on are not held here")
    return array.astype(holder)


def on_grid(x: Any, kind: int, saturate: bool = True) -> Any:
    """Numbers rounded (to even) to those of a floating-point type of 8 or 4 bits, in float32. What is too large becomes the largest
    one, or, without `saturate`, infinite or NaN."""
    fraction, lowest, largest = GRIDS[kind]
    x = x.to(gl.float32)
    size = gl.clamp(x.abs(), 2.0**lowest, 2.0 * largest)
    step = gl.exp2(gl.floor(gl.log2(size)) - fraction)
    found = gl.round(x / step) * step
    if kind == 23:  # which has no NaN
        found = gl.where(gl.isnan(x), 0.0, found)
    if saturate:
        return gl.clamp(found, -largest, largest)
    beyond = gl.where(x > 0, float("inf"), float("-inf")) if kind == 19 else float("nan")
    return gl.where(found.abs() > largest, beyond, found)


def on_powers(x: Any, saturate: bool, mode: str) -> Any:
    """Positive numbers rounded (`up`, `down`, `nearest`) to the powers of two from 2^-127 to 2^127 of OCP's E8M0, in float32; zero becomes
    the smallest. Without `saturate` what is beyond is NaN."""
    size = x.to(gl.float64).abs()
    power = gl.log2(size)
    if mode == "nearest":
        power = gl.floor(power) + (size >= 1.5 * gl.exp2(gl.floor(power))).to(gl.float64)
    else:
        power = gl.floor(power) if mode == "down" else gl.ceil(power)
    found = gl.exp2(gl.clamp(power, -127.0, 127.0))
    if not saturate:
        found = gl.where((power < -127) | (power > 127), float("nan"), found)
    return found.to(gl.float32)


def cast(x: Any, kind: int, saturate: bool = True, mode: str = "up") -> Any:
    """Numbers as a type that tensors do not have, in its holder: whole numbers of few bits keep their lowest bits. mode: how a number is
    rounded to a power of two, for the type that has only these."""
    if kind == 24:
        return on_powers(x, saturate, mode)
    if kind in GRIDS:
        return on_grid(x, kind, saturate)
    bits = {4: 16, 12: 32, 21: 4, 22: 4, 25: 2, 26: 2}.get(kind)
    if bits is None and kind not in WHOLE:
        raise NotImplementedError(f"numbers cannot be made {NAMES.get(kind, kind)} here")
    if bits is None:
        return x.to(WHOLE[kind])
    whole = x.to(gl.int64) & ((1 << bits) - 1)
    if LIMITS[kind][0] < 0:  # the highest bit is the sign
        half = 1 << (bits - 1)
        whole = (whole ^ half) - half
    return whole.to(WHOLE[kind])
