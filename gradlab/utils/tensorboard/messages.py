"""TensorBoard's messages as bytes: protocol buffers by hand (https://protobuf.dev/programming-guides/encoding), as far as they are needed.

A message is a sequence of fields; the numbers of fields are those of TensorBoard's `event.proto`, `summary.proto`, `tensor.proto`,
`graph.proto` and `plugin_data.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

_STRING = 7  # DataType.DT_STRING
_FLOAT = 1  # DataType.DT_FLOAT


def varint(value: int) -> bytes:
    """A whole number, seven bits in a byte, the lowest first; negative ones as those of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def whole(field: int, value: int) -> bytes:
    """A field of a whole number; 0 is what an absent field means."""
    return varint(field << 3) + varint(value) if value else b""


def real(field: int, value: float) -> bytes:
    """A field of a float64."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A field of a float32."""
    with np.errstate(over="ignore"):
        return varint(field << 3 | 5) + np.float32(value).tobytes()


def part(field: int, content: bytes | str) -> bytes:
    """A field of bytes, of a string or of a message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def reals(field: int, values: Sequence[float]) -> bytes:
    """A repeated field of float64, packed."""
    return part(field, np.asarray(values, "<f8").tobytes())


def event(wall_time: float, step: int = 0, *content: bytes) -> bytes:
    """What one record of a file holds."""
    return real(1, wall_time) + whole(2, step) + b"".join(content)


def summary(*values: bytes) -> bytes:
    """An event's content: values, each of which `value` makes."""
    return part(5, b"".join(part(1, v) for v in values))


def value(tag: str, content: bytes, plugin: str = "", data: bytes = b"", display_name: str = "", description: str = "") -> bytes:
    """One value under its tag; `plugin` is TensorBoard's that shows it."""
    metadata = part(1, part(1, plugin) + part(2, data)) if plugin else b""
    metadata += part(2, display_name) if display_name else b""
    metadata += part(3, description) if description else b""
    return part(1, tag) + content + (part(9, metadata) if metadata else b"")


def scalar(number: float) -> bytes:
    """A value's content: a number."""
    return single(2, number)


def tensor_of(numbers: Any) -> bytes:
    """Numbers as a tensor of float32; one alone, 0-d, is the newer form of scalars."""
    array = np.asarray(numbers, np.float32)
    sizes = b"".join(part(2, whole(1, size)) for size in array.shape)
    return part(8, whole(1, _FLOAT) + part(2, sizes) + part(5, array.astype("<f4").tobytes()))


def text(content: str | bytes, shape: Sequence[int] = (1,)) -> bytes:
    """A tensor of one string."""
    return part(8, whole(1, _STRING) + part(2, b"".join(part(2, whole(1, size)) for size in shape)) + part(8, content))


def image(height: int, width: int, channels: int, encoded: bytes) -> bytes:
    """A picture, encoded as PNG or GIF."""
    return part(4, whole(1, height) + whole(2, width) + whole(3, channels) + part(4, encoded))


def audio(rate: float, channels: int, frames: int, encoded: bytes) -> bytes:
    """A sound, encoded as WAV."""
    return part(6, single(1, rate) + whole(2, channels) + whole(3, frames) + part(4, encoded) + part(5, "audio/wav"))


def histogram(facts: Sequence[float], limits: Sequence[float], counts: Sequence[float]) -> bytes:
    """How often values lie below each limit and above the one before it. facts: minimum, maximum, number, sum, sum of squares."""
    numbers = b"".join(real(i, v) for i, v in enumerate(facts, 1))
    return part(5, numbers + reals(6, limits) + reals(7, counts))


def mesh(name: str, content: int, components: int, settings: str, shape: Sequence[int]) -> bytes:
    """What TensorBoard's meshes know of one of their tensors: vertices (1), faces (2) or colours (3), and which others there are."""
    return part(2, name) + whole(3, content) + part(5, settings) + part(6, b"".join(map(varint, shape))) + whole(7, components)


def layout(categories: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]) -> bytes:
    """Charts by category and title: the kind, "Margin" (a value, its lower and its upper end) or another, and the tags."""

    def chart(title: str, kind: str, tags: Sequence[str]) -> bytes:
        if kind == "Margin":
            return part(1, title) + part(3, part(1, b"".join(part(i, tag) for i, tag in enumerate(tags, 1))))
        return part(1, title) + part(2, b"".join(part(1, tag) for tag in tags))

    return b"".join(part(2, part(1, n) + b"".join(part(2, chart(t, *c)) for t, c in charts.items())) for n, charts in categories.items())


def graph(nodes: Iterable[tuple[str, str, Iterable[str]]]) -> bytes:
    """An event's content: a graph of (name, operation, names of what it takes)."""
    lines = (part(1, name) + part(2, operation) + b"".join(part(3, i) for i in inputs) for name, operation, inputs in nodes)
    return part(4, b"".join(part(1, line) for line in lines))


def _setting(content: Any) -> bytes:
    """google.protobuf.Value."""
    if isinstance(content, bool):
        return varint(4 << 3) + varint(content)
    return part(3, content) if isinstance(content, str) else real(2, float(content))


def settings(chosen: Mapping[str, Any], metrics: Iterable[str], wall_time: float) -> tuple[bytes, bytes, bytes]:
    """What the hyper-parameters' page reads: what is varied and measured, the settings of this run, and that it has ended well."""
    kinds = {k: 2 if isinstance(v, bool) else 1 if isinstance(v, str) else 3 for k, v in chosen.items()}
    told = b"".join(part(4, part(1, k) + whole(4, kind)) for k, kind in kinds.items())
    told += b"".join(part(5, part(1, part(2, m))) for m in metrics)
    start = b"".join(part(1, part(1, k) + part(2, _setting(v))) for k, v in chosen.items())
    return part(2, told), part(3, start + real(5, wall_time)), part(4, whole(1, 1) + real(2, wall_time))
