"""GGUF files, as llama.cpp writes them: tensors of floating point numbers and integers, of version 2 and 3 of the format.

Everything that the file says of its own sizes is compared with its length before it is believed.
Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from gradlab.dtype import named
from gradlab.spec import count
from gradlab.tensor.creation import from_numpy as tensor_of
from gradlab.utils.serialization.errors import FileFormatError, shown
from gradlab.utils.serialization.location import located

MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # kinds of metadata
_STRING, _ARRAY = 8, 9
_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
_QUANTISED = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
    15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
_DEEPEST = 4  # arrays in arrays of metadata


class _Reader:
    def __init__(self, content: bytes, name: str) -> None:
        self.content, self.name, self.at = content, name, 4

    def damaged(self, what: str) -> FileFormatError:
        return FileFormatError(f"load: {self.name} is a damaged GGUF file, or cut short: {what}")

    def number(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        if self.at + size > len(self.content):
            raise self.damaged("it ends in its header")
        (found,) = struct.unpack_from(f"<{code}", self.content, self.at)
        self.at += size
        return found

    def text(self) -> str:
        length = self.number("Q")
        if length > len(self.content) - self.at:
            raise self.damaged(f"a text of {length} bytes")
        found = self.content[self.at : self.at + length]
        self.at += length
        try:
            return found.decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a text that is no UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of the metadata; of arrays only that they are there, but for short ones."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth > _DEEPEST:
            raise self.damaged(f"metadata of kind {kind}")
        inner, length = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            size = struct.calcsize(f"<{_NUMBERS[inner]}") * length
            if size > len(self.content) - self.at:
                raise self.damaged(f"an array of {length} numbers")
            self.at += size
            return None
        if length > len(self.content) - self.at:  # each takes a byte at least
            raise self.damaged(f"an array of {length} values")
        for _ in range(length):
            self.value(inner, depth + 1)
        return None


def from_gguf(content: bytes, name: str, map_location: Any) -> dict[str, Any]:
    """The tensors of a GGUF file by name, in its order; the first size is the slowest, as everywhere but in the file.

    FileFormatError, naming the file: where it is damaged, and for quantised tensors, which it names.
    """
    reader = _Reader(content, name)
    version = reader.number("I")
    if version not in (2, 3):
        raise FileFormatError(f"load: {name} is a GGUF file of version {version} (or of another byte order); versions 2 and 3 are read")
    tensors, pairs = reader.number("Q"), reader.number("Q")
    if not tensors:
        raise FileFormatError(
            f"load: {name} holds no tensors: it is a GGUF file of llama.cpp; convert its weights to safetensors where they come from"
        )
    if (tensors + pairs) * 12 > len(content):
        raise reader.damaged(f"{tensors} tensors and {pairs} entries of metadata in {len(content)} bytes")
    metadata = {}
    for _ in range(pairs):
        key = reader.text()
        metadata[key] = reader.value(reader.number("I"))
    described = [_described(reader) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise reader.damaged(f"an alignment of {shown(alignment)}")
    begin = -(-reader.at // alignment) * alignment
    _refuse_quantised(name, described)
    found: dict[str, Any] = {}
    total = 0
    for key, shape, kind, offset in described:
        dtype = named(_PLAIN[kind]).dtype
        size = count(shape) * dtype.itemsize
        total += size
        if begin + offset + size > len(content) or total > len(content):
            raise reader.damaged(f"the tensor {shown(key)} of {size} bytes lies beyond its end, or over others")
        if key in found:
            raise reader.damaged(f"two tensors {shown(key)}")
        body = bytearray(content[begin + offset : begin + offset + size])
        found[key] = located(tensor_of(np.frombuffer(body, dtype).reshape(shape)), "cpu", map_location)
    return found


def _described(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    key = reader.text()
    rank = reader.number("I")
    if rank > 8:
        raise reader.damaged(f"a tensor {shown(key)} of {rank} dimensions")
    sizes = [reader.number("Q") for _ in range(rank)]
    if any(size > len(reader.content) for size in sizes):
        raise reader.damaged(f"a tensor {shown(key)} of shape {sizes}")
    return key, tuple(reversed(sizes)), reader.number("I"), reader.number("Q")


def _refuse_quantised(name: str, described: list[tuple[str, tuple[int, ...], int, int]]) -> None:
    others = [(key, _QUANTISED.get(kind, f"of kind {kind}")) for key, _, kind, _ in described if kind not in _PLAIN]
    if others:
        shown_ones = ", ".join(f"{shown(key)} ({kind})" for key, kind in others[:3]) + (", …" if len(others) > 3 else "")
        raise FileFormatError(
            f"load: {name} holds {len(others)} quantised tensors, which gradlab does not compute with: {shown_ones}. Take the "
            "model's F32, F16 or BF16 file, or convert it by llama.cpp's `llama-quantize --allow-requantize in.gguf out.gguf F32`"
        )
